package oci

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// models are the packages and models of Oracle's SDK for the bodies of writes, by operation. Those without one have none.
func models() map[string][2]string {
	all := map[string][2]string{
		"PUT /securityLists/{id}":                                      {"core", "UpdateSecurityListDetails"},
		"POST /networkSecurityGroups":                                  {"core", "CreateNetworkSecurityGroupDetails"},
		"PUT /networkSecurityGroups/{id}":                              {"core", "UpdateNetworkSecurityGroupDetails"},
		"POST /networkSecurityGroups/{id}/actions/addSecurityRules":    {"core", "AddNetworkSecurityGroupSecurityRulesDetails"},
		"POST /networkSecurityGroups/{id}/actions/removeSecurityRules": {"core", "RemoveNetworkSecurityGroupSecurityRulesDetails"},
		"POST /loadBalancers":                                          {"load_balancer", "CreateLoadBalancerDetails"},
		"PUT /loadBalancers/{id}/updateShape":                          {"load_balancer", "UpdateLoadBalancerShapeDetails"},
		"POST /loadBalancers/{id}/certificates":                        {"load_balancer", "CreateCertificateDetails"},
		"POST /loadBalancers/{id}/ruleSets":                            {"load_balancer", "CreateRuleSetDetails"},
		"PUT /loadBalancers/{id}/ruleSets/{name}":                      {"load_balancer", "UpdateRuleSetDetails"},
		"POST /networkLoadBalancers":                                   {"network_load_balancer", "CreateNetworkLoadBalancerDetails"},
		"PUT /networkLoadBalancers/{id}":                               {"network_load_balancer", "UpdateNetworkLoadBalancerDetails"},
	}
	for path, pack := range map[string]string{"/loadBalancers/{id}": "load_balancer", "/networkLoadBalancers/{id}": "network_load_balancer"} {
		all["POST "+path+"/backendSets"] = [2]string{pack, "CreateBackendSetDetails"}
		all["PUT "+path+"/backendSets/{name}"] = [2]string{pack, "UpdateBackendSetDetails"}
		all["POST "+path+"/listeners"] = [2]string{pack, "CreateListenerDetails"}
		all["PUT "+path+"/listeners/{name}"] = [2]string{pack, "UpdateListenerDetails"}
		all["PUT "+path+"/networkSecurityGroups"] = [2]string{pack, "UpdateNetworkSecurityGroupsDetails"}
	}
	return all
}

// TestPythonSDKJudgesRequests: Oracle's own descriptions, of which its SDK for Python is made, know each field of what is written for every
// legal value of every annotation, miss none that they demand, and know its values.
func TestPythonSDKJudgesRequests(t *testing.T) {
	t.Parallel()
	python := judgePython(t)
	var mu sync.Mutex
	var all [][3]any
	seen := map[string]bool{}
	t.Run("collect", func(t *testing.T) {
		collectRequests(t, func(call simkit.Call) {
			mu.Lock()
			defer mu.Unlock()
			model, known := models()[call.Operation]
			assert.True(t, known || call.Body == "", "%s has a body", call.Operation)
			if known {
				all = append(all, [3]any{model[0], model[1], json.RawMessage(call.Body)})
				seen[call.Operation] = true
			}
		})
	})
	for operation := range models() {
		assert.True(t, seen[operation], "nothing was judged of %s", operation)
	}
	assert.Empty(t, judgeRequests(t, python, all))
	assert.Equal(t, []string{
		"CreateListenerDetails.port: '80' is no int",
		"CreateListenerDetails.protocol: 'SCTP' is none of ['ANY', 'TCP', 'UDP', 'TCP_AND_UDP', 'L3IP']",
		"CreateListenerDetails: CreateListenerDetails has no field ports",
		"CreateListenerDetails: CreateListenerDetails lacks defaultBackendSetName",
	}, judgeRequests(t, python, [][3]any{
		{"network_load_balancer", "CreateListenerDetails", document{"name": "a", "port": "80", "ports": 80, "protocol": "SCTP"}},
	}), "the judge judges")
}

// judgeRequests returns the faults in request bodies.
func judgeRequests(t *testing.T, python string, all [][3]any) (wrong []string) {
	t.Helper()
	input, err := json.Marshal(all)
	require.NoError(t, err)
	judge := exec.CommandContext(t.Context(), python, "testdata/judge/requests.py")
	judge.Stdin, judge.Stderr = bytes.NewReader(input), os.Stderr
	out, err := judge.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &wrong))
	return wrong
}

// collectRequests serves Services with every legal value, changes their ports, their nodes, and what else they ask for, and deletes them.
func collectRequests(t *testing.T, note func(simkit.Call)) {
	t.Helper()
	rows := checklistRows()
	maps.Copy(rows, networkChecklist())
	rows[annotationRuleMode] = conformance.Checked{Legal: []conformance.Legal{
		{Value: modeGroups, With: map[string]string{annotationBackGroups: ocisim.GroupID(3)}},
		{Value: modeGroups, With: ofNetwork(annotationBackGroups, ocisim.GroupID(3))},
	}}
	rows[nlbListMode] = conformance.Checked{Legal: []conformance.Legal{{Value: modeAll}}}
	for key, row := range rows {
		for _, legal := range row.Legal {
			annotations := merge(map[string]string{key: legal.Value}, legal.With)
			if _, network := networkChecklist()[key]; network {
				annotations[annotationType] = typeNLB
			}
			s := conformance.Service("web", annotations, web())
			bare := map[string]string{annotationType: annotations[annotationType]}
			collectOf(t, key, note, s, conformance.Service("web", bare, web(), conformance.Port("alt", 8080, 30081)), s)
		}
	}
	ruleSets := func(value string) *v1.Service {
		return conformance.Service("web", map[string]string{annotationRuleSets: value}, web())
	}
	collectOf(t, "rule sets", note, ruleSets(`{"a": {"items": [{"action": "REMOVE_HTTP_REQUEST_HEADER", "header": "X"}]}}`),
		ruleSets(`{"a": {"items": [{"action": "REMOVE_HTTP_REQUEST_HEADER", "header": "Y"}]}, "b": {"items": [{"action": "ADD_HTTP_REQUEST_HEADER",
			"header": "X-From", "value": "lb"}]}}`))
	both := func() *v1.Service {
		return conformance.Service("web", ofNetwork(nlbSubnet, ocisim.DualSubnet()), web(), udp(53, 30053))
	}
	collectOf(t, "both families", note, both(), dual(both(), v1.IPFamilyPolicyRequireDualStack))
}

// collectOf serves a Service in one form after the other, with other nodes, and deletes it.
func collectOf(t *testing.T, name string, note func(simkit.Call), forms ...*v1.Service) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
			w.sim.AddReserved("192.0.2.50")
			w.sim.Add("elsewhere", func(i *ocisim.Instance) { i.Compartment = otherCompartment })
			makeSecret(w.T, w.kube, "web-tls")
			w.serving(forms[0])
			w.requireServed(forms[0], nodes[:1])
			require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", forms[0], nodes))
			for _, other := range forms[1:] {
				time.Sleep(time.Minute)
				w.serving(other)
				_, _ = w.ensure(other, nodes) // what cannot be changed is refused
			}
			w.deleted(forms[len(forms)-1])
			for _, call := range w.Server.Calls().Latest {
				if call.Write {
					note(call)
				}
			}
		})
	})
}

func merge(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, one := range all {
		maps.Copy(sum, one)
	}
	return sum
}

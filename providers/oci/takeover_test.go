package oci

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// createOriginal makes the load balancer of a Service as Oracle's own controller makes it, by a request written down by hand from what
// that controller is known to send, and waits until it is there. The API fills in the rest.
func (w *testWorld) createOriginal(body string) {
	w.Helper()
	var d document
	require.NoError(w, json.Unmarshal([]byte(body), &d))
	_, err := w.cloud.loadBalancers.api.call(w.Context(), "making it", "POST", "/loadBalancers", d, nil, http.Header{tokenHeader: {testUID}})
	require.NoError(w, err)
	time.Sleep(time.Minute)
	w.start()
	w.Server.ResetCalls()
}

const (
	theirSet = `{"policy": "ROUND_ROBIN", "backends": [{"ipAddress": "10.0.1.1", "port": %PORT, "weight": 1}], "healthChecker": {"protocol": "HTTP",
		"urlPath": "/healthz", "port": 10256, "returnCode": 200, "retries": 3, "timeoutInMillis": 3000, "intervalInMillis": 10000, "isForcePlainText": false}%MORE}`
	theirBalancer = `{"compartmentId": "` + ocisim.Compartment + `", "displayName": "` + testUID + `", "shapeName": "100Mbps", "subnetIds": ["%SUBNET"],
		"isPrivate": false, "ipMode": "IPV4", "reservedIps": [], "networkSecurityGroupIds": [%GROUPS], "certificates": %CERTIFICATES,
		"backendSets": {"TCP-80": %SET80, "TCP-443": %SET443},
		"listeners": {"TCP-80": {"defaultBackendSetName": "TCP-80", "port": 80, "protocol": "TCP"}, "TCP-443-secret": {"defaultBackendSetName": "TCP-443",
			"port": 443, "protocol": "TCP", "sslConfiguration": {"certificateName": "web-tls", "verifyDepth": 0, "verifyPeerCertificate": false}}}}`
)

// theirBody is the request for a load balancer with a listener of TLS that has the name of an old release.
func (w *testWorld) theirBody(secret *v1.Secret, groups string) string {
	w.Helper()
	certificates, err := json.Marshal(document{"web-tls": document{
		"certificateName": "web-tls", "publicCertificate": string(secret.Data[v1.TLSCertKey]), "privateKey": string(secret.Data[v1.TLSPrivateKeyKey]),
		"caCertificate": "", "passphrase": "",
	}})
	require.NoError(w, err)
	set := func(port string) string {
		return strings.NewReplacer("%PORT", port, "%MORE", "").Replace(theirSet)
	}
	return strings.NewReplacer("%SUBNET", ocisim.BalancerSubnet(), "%GROUPS", groups, "%CERTIFICATES", string(certificates), "%SET80", set("30080"),
		"%SET443", set("30443")).Replace(theirBalancer)
}

// theirRules are the rules of security lists that Oracle's own controller makes: without a description.
func (w *testWorld) theirRules() {
	rules := func(all []opening) (list []any) {
		for _, o := range all {
			list = append(list, o.rule(""))
		}
		return list
	}
	w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
		return append(in, rules([]opening{{false, numberTCP, 80, everybody}, {false, numberTCP, 443, everybody}})...),
			append(out, rules([]opening{
				{true, numberTCP, 30080, nodeNet}, {true, numberTCP, 30443, nodeNet}, {true, numberTCP, kubeProxy, nodeNet},
			})...)
	})
	w.sim.EditList(ocisim.DefaultList, func(in, out []any) ([]any, []any) {
		return append(in, rules([]opening{
			{false, numberTCP, 30080, balancerNet},
			{false, numberTCP, 30443, balancerNet},
			{false, numberTCP, kubeProxy, balancerNet},
		})...), out
	})
}

// TestTakeover: scenario 61: what Oracle's own controller leaves is taken over without a write, and goes with its Service.
func TestTakeover(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{annotationSSLPorts: "443", annotationTLSSecret: "web-tls"}, web(),
			conformance.Port("https", 443, 30443))
		w.createOriginal(w.theirBody(w.keep("default", "web-tls"), ""))
		w.theirRules()
		for range 2 {
			assert.NotEmpty(w, w.requireServed(s, nodes).Ingress)
			assert.Empty(w, w.writes())
			w.start()
		}
		w.deleted(s)
		assert.Empty(w, w.sim.LoadBalancers())
		for _, list := range []string{ocisim.BalancerList, ocisim.DefaultList} {
			assert.Empty(w, w.sim.SecurityRules(list))
		}
	})
}

// TestTakeoverOfGroups: scenario 61: a network security group that Oracle's own controller has made, with its rules and tags.
func TestTakeoverOfGroups(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{
			annotationSSLPorts: "443", annotationTLSSecret: "web-tls", annotationRuleMode: modeGroups, annotationBackGroups: ocisim.GroupID(1),
		}, web(), conformance.Port("https", 443, 30443))
		api, group := w.cloud.loadBalancers.api, securityGroup{}
		in := creationOfGroup(s, ocisim.Compartment, ocisim.VCN, "")
		_, err := api.call(w.Context(), "making it", "POST", groupsPath, in, &group, http.Header{tokenHeader: {testUID}})
		require.NoError(w, err)
		asked, err := accessOf(s, false)
		require.NoError(w, err)
		for id, rules := range desiredGroupRules(s, asked, group.ID, []string{ocisim.GroupID(1)}) {
			_, err := api.call(w.Context(), "adding them", "POST", groupPath(id)+"/actions/addSecurityRules", document{"securityRules": rules}, nil, nil)
			require.NoError(w, err)
		}
		w.sim.EditGroup(ocisim.GroupID(1), func(d document) { d["freeformTags"] = document{tagManagedBy: createdBy} })
		w.createOriginal(w.theirBody(w.keep("default", "web-tls"), `"`+group.ID+`"`))
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		w.deleted(s)
		assert.Empty(w, w.managed())
		assert.Empty(w, w.sim.Groups()[0].Rules)
	})
}

// TestCosts: any number of unchanged Services share one read, and one for each security list; another node costs one write a backend set.
func TestCosts(t *testing.T) {
	marking(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		a, b := conformance.Service("web", map[string]string{}, web(), conformance.Port("https", 443, 30443)),
			other(map[string]string{}, conformance.Port("http", 80, 30090))
		w.serving(a, b)
		w.requireServed(a, nodes[:1])
		w.requireServed(b, nodes[:1])
		time.Sleep(time.Minute)
		w.Server.ResetCalls()
		w.requireServed(a, nodes[:1])
		w.requireServed(b, nodes[:1])
		assert.Equal(w, map[string]int{"GET /loadBalancers": 1, "GET /securityLists/{id}": 2}, w.Server.Calls().ByOperation)
		time.Sleep(time.Minute)
		w.Server.ResetCalls()
		for _, s := range []*v1.Service{a, b} {
			require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
		}
		assert.Equal(w, 3, w.Calls("PUT /loadBalancers/{id}/backendSets/{name}"))
		assert.Equal(w, 2, w.Calls(putList), "the node is in another subnet, which is let out to for each Service by one write")
	})
}

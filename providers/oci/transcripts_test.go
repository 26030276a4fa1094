package oci

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"embed"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// transcripts hold the API calls of each scenario; `go test -run TestConformance/Transcripts -update` writes them.
//
//go:embed testdata/transcripts testdata/access.yaml
var transcripts embed.FS

// changeWeb is a step that changes the Service "web".
func changeWeb(name string, change func(*v1.Service)) conformance.Step {
	return conformance.Step{Name: name, Do: func(p *conformance.Play) { p.Change("web", change) }}
}

// scenarios are those that Oracle's cloud alone has.
func scenarios(t testing.TB, sim *ocisim.Sim, f *conformance.Fixture) []conformance.Scenario {
	t.Helper()
	deleted := conformance.Step{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }}
	network := conformance.Service("web", ofNetwork(annotationRuleMode, "SL-All"), web(), udp(53, 30053))
	second := other(groupsOf(), conformance.Port("smtp", 25, 30025))
	all := []conformance.Scenario{
		{Name: "network", Services: []*v1.Service{network}, Steps: []conformance.Step{
			changeWeb("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
			changeWeb("Local", func(s *v1.Service) { local(s) }),
			changeWeb("source ranges are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }),
			deleted,
		}},
		{Name: "security-groups", Services: []*v1.Service{conformance.Service("web", groupsOf(), web()), second}, Steps: []conformance.Step{
			changeWeb("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
			changeWeb("source ranges are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }),
			{Name: "one is deleted", Do: func(p *conformance.Play) { p.Delete("other") }},
			deleted,
		}},
		{
			Name: "internal", Prepare: sim.OpenByHand,
			Services: []*v1.Service{conformance.Service("web", byHand(annotationInternal, "true"), web())},
			Steps: []conformance.Step{
				changeWeb("it becomes public", func(s *v1.Service) { delete(s.Annotations, annotationInternal) }),
				deleted,
			},
		},
		tlsScenario(t, sim), takeOver(t, sim, f),
	}
	inGroups := map[string]string{annotationRuleMode: modeGroups}
	all = append(all, conformance.AnnotationScenario(annotationBackGroups,
		[]conformance.Legal{{Value: ocisim.GroupID(3), With: inGroups}, {Value: ocisim.GroupID(2), With: inGroups}},
		func(a map[string]string) *v1.Service { return conformance.Service("web", a, web()) }))
	all = append(all, conformance.AnnotationScenario(annotationRuleMode, []conformance.Legal{{Value: modeNone}, {Value: "SL-Frontend"}},
		func(a map[string]string) *v1.Service { return conformance.Service("web", a, web()) }))
	for _, s := range append(annotationScenarios(), networkAnnotationScenarios()...) {
		s.Prepare = sim.OpenByHand
		all = append(all, s)
	}
	return all
}

// unplanned are steps whose writes plan does not know.
var unplanned = map[string]string{
	"annotation-oci-backend-network-security-group/it is " + ocisim.GroupID(3): "plan ends at the group that is made, with which the rest is computed again",
	"annotation-security-rule-management-mode/it is None":                      "which rules of security lists a Service has is in the memory of the program alone, and plan begins without",
}

// notToAll are steps that end with ports which do not lead to all nodes.
var notToAll = map[string]string{
	"annotation-security-rule-management-mode/it is None":        "the rules are the user's then",
	"annotation-security-rule-management-mode/it is SL-Frontend": "the rules of the nodes are the user's then",
}

// groupsOf are annotations of a Service whose rules are in network security groups.
func groupsOf() map[string]string {
	return map[string]string{annotationRuleMode: modeGroups, annotationBackGroups: ocisim.GroupID(3)}
}

// annotationScenarios are those of annotations whose changes are written in different ways; security lists are somebody else's.
func annotationScenarios() []conformance.Scenario {
	items := map[string]conformance.Checked{}
	for _, key := range []string{
		annotationShape, annotationIdle, annotationProtocol, annotationInterval, annotationGroups,
		annotationPolicy, annotationRuleSets, annotationFreeform,
	} {
		item := checklistRows()[key]
		if key == annotationProtocol {
			item.Legal = item.Legal[:2] // the third one needs a Secret
		}
		items[key] = item
	}
	items[annotationRetries] = conformance.Checked{Legal: []conformance.Legal{
		{Value: "5", With: map[string]string{annotationTimeout: "4000", annotationInterval: "20000", annotationProxy: "2"}},
		{Value: "7", With: map[string]string{annotationTimeout: "5000", annotationProxy: "1"}},
	}}
	return conformance.Checklist{Rows: Annotations.Rows(), Items: items, Service: func(a map[string]string) *v1.Service {
		a[annotationRuleMode] = modeNone
		return conformance.Service("web", a, web())
	}}.Scenarios()
}

// networkAnnotationScenarios are those of network load balancers.
func networkAnnotationScenarios() []conformance.Scenario {
	items := map[string]conformance.Checked{}
	for _, key := range []string{nlbGroups, nlbInterval, nlbPolicy, nlbPPv2} {
		items[key] = networkChecklist()[key]
	}
	all := conformance.Checklist{Rows: NLBAnnotations.Rows(), Items: items, Service: func(a map[string]string) *v1.Service {
		a[annotationType], a[annotationRuleMode] = typeNLB, modeNone
		return conformance.Service("web", a, web())
	}}.Scenarios()
	for i := range all {
		all[i].Name = "network-" + all[i].Name // some annotations of both kinds have the same last part
	}
	return all
}

// tlsScenario is a Secret that is renewed while a load balancer uses it on both sides.
func tlsScenario(t testing.TB, sim *ocisim.Sim) conformance.Scenario {
	t.Helper()
	tls := byHand(annotationSSLPorts, "443", annotationTLSSecret, "web-tls")
	return conformance.Scenario{Name: "tls", Loops: true, Prepare: sim.OpenByHand, Steps: []conformance.Step{
		{Name: "a Service with a Secret", Do: func(p *conformance.Play) {
			_, err := p.Kube().CoreV1().Secrets("default").Create(t.Context(), fixedSecret(t, 1), metav1.CreateOptions{})
			require.NoError(t, err)
			p.Create(conformance.Service("web", tls, web(), conformance.Port("https", 443, 30443)))
		}},
		{Name: "the Secret is renewed", Do: func(p *conformance.Play) {
			_, err := p.Kube().CoreV1().Secrets("default").Update(t.Context(), fixedSecret(t, 2), metav1.UpdateOptions{})
			require.NoError(t, err)
			p.Wait(time.Minute)
		}},
		changeWeb("TLS to the nodes as well", func(s *v1.Service) { s.Annotations[annotationBackSecret] = "web-tls" }),
		changeWeb("a newer version to the nodes alone", func(s *v1.Service) { s.Annotations[annotationBackTLS] = `{"Protocols": ["TLSv1.3"]}` }),
		changeWeb("a newer version alone", func(s *v1.Service) { s.Annotations[annotationTLS] = `{"Protocols": ["TLSv1.3"]}` }),
		changeWeb("TLS ends at the nodes", func(s *v1.Service) {
			for _, key := range []string{annotationSSLPorts, annotationTLSSecret, annotationBackSecret, annotationTLS, annotationBackTLS} {
				delete(s.Annotations, key)
			}
		}),
		{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
	}}
}

// fixedSecret is a Secret of TLS with the same certificate in each run.
func fixedSecret(t testing.TB, number byte) *v1.Secret {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = number
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{SerialNumber: big.NewInt(int64(number)), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-tls"}, Type: v1.SecretTypeTLS, Data: map[string][]byte{
		v1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		v1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}}
}

// takeOver holds the objects that Oracle's own controller leaves: a load balancer, and rules of security lists without a description.
func takeOver(t testing.TB, sim *ocisim.Sim, f *conformance.Fixture) conformance.Scenario {
	t.Helper()
	return conformance.Scenario{Name: "take-over", Steps: []conformance.Step{
		{Name: "what Oracle's own controller made", Do: func(p *conformance.Play) { p.Leave(leftInLists(t, sim, f)) }},
		changeWeb("source ranges are narrowed", func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }),
		changeWeb("a port is added", func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }),
		{Name: "a node joins", Do: func(p *conformance.Play) { p.AddNodes("worker-3") }},
		{Name: "deleted", Do: func(p *conformance.Play) { p.Delete("web") }},
	}}
}

// leftInLists is such a load balancer.
func leftInLists(t testing.TB, sim *ocisim.Sim, f *conformance.Fixture) conformance.Left {
	t.Helper()
	return conformance.Left{Leave: func(nodes []*v1.Node) *v1.Service {
		in := f.Inputs()
		in.Dial = f.Network.Dial
		c, err := maker().New(in)
		require.NoError(t, err)
		_, err = c.loadBalancers.api.call(t.Context(), "making it", "POST", "/loadBalancers", theirDocument(t, nodes), nil, http.Header{tokenHeader: {testUID}})
		require.NoError(t, err)
		leaveRules(sim, nodes)
		time.Sleep(time.Minute)
		return conformance.Service("web", nil, web())
	}}
}

// theirDocument is the request by which Oracle's own controller makes a load balancer to all nodes.
func theirDocument(t testing.TB, nodes []*v1.Node) (d document) {
	t.Helper()
	backends := []document{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == v1.NodeInternalIP {
				backends = append(backends, document{"ipAddress": a.Address, "port": 30080, "weight": 1})
			}
		}
	}
	text, err := json.Marshal(document{
		"compartmentId": ocisim.Compartment, "displayName": testUID, "shapeName": "100Mbps", "subnetIds": []string{ocisim.BalancerSubnet()},
		"isPrivate": false, "ipMode": "IPV4", "reservedIps": []string{}, "networkSecurityGroupIds": []string{}, "certificates": document{},
		"listeners": document{"TCP-80": document{"defaultBackendSetName": "TCP-80", "port": 80, "protocol": "TCP"}},
		"backendSets": document{"TCP-80": document{"policy": roundRobin, "backends": backends, "healthChecker": document{
			"protocol": "HTTP", "urlPath": "/healthz", "port": kubeProxy, "returnCode": 200, "retries": 3, "timeoutInMillis": 3000,
			"intervalInMillis": 10000, "isForcePlainText": false,
		}}},
	})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// leaveRules makes the rules of security lists that Oracle's own controller has for port 80 and these nodes, one in each subnet.
func leaveRules(sim *ocisim.Sim, nodes []*v1.Node) {
	rules := func(egress bool, networks []string, ports ...int) (all []any) {
		for _, network := range networks {
			for _, port := range ports {
				all = append(all, opening{egress, numberTCP, port, network}.rule(""))
			}
		}
		return all
	}
	nodeNets := []string{"10.0.64.0/18", "10.0.128.0/18"}[:len(nodes)]
	sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
		return append(in, rules(false, []string{everybody}, 80)...), append(out, rules(true, nodeNets, 30080, kubeProxy)...)
	})
	sim.EditList(ocisim.DefaultList, func(in, out []any) ([]any, []any) {
		return append(in, rules(false, []string{"10.0.196.0/24"}, 30080, kubeProxy)...), out
	})
}

// untranscribed are annotations without a scenario.
var untranscribed = map[string][]string{
	"it is written by this program where a load balancer is in another compartment than the cloud config's": {annotationPlaced},
	"it counts when the load balancer is made, in a field of its only write": {
		annotationAddress, annotationSubnet2, annotationDefined, annotationCompartment, nlbInternal, nlbSubnet, nlbPrivateIPv4,
		nlbIPv6, nlbNewFreeform, nlbNewDefined,
	},
	"it is a former name": {nlbFreeform, nlbDefined},
	"it says who may do what is asked, and is sent nowhere":                     {annotationAccount},
	"oci.oraclecloud.com/security-rule-management-mode wins, and says the same": {annotationListMode, nlbListMode},
	"it chooses nodes, which come and go as in the scenario nodes":              {annotationSelector, nlbSelector},
	"it changes a field of the write that the interval changes":                 {nlbRetries, nlbTimeout},
	"it changes a field of each listener or set, as the PROXY protocol does":    {nlbPreserve},
	"it counts for the status alone":                                            {nlbExternal, annotationIPMode},
}

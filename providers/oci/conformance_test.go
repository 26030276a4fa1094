package oci

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

const testFingerprint = "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34"

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := ocisim.New(testFingerprint)
	network := simkit.NewNetwork()
	config := sim.CloudConfig(network.Serve(t, server))
	f := &conformance.Fixture{
		OnlyThere: []string{`there is no such reserved public address`},
		Sim:       server, Network: network, Provider: Description(), CallsPerInstance: 2,
		OtherCluster:   func() {}, // names come from the UID of the Service, and the namespace kube-system tells clusters apart
		CreationTokens: true,
		Inputs:         func() registry.Inputs { return inputs(config) },
	}
	instanceOf := func(providerID string) string {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		return id
	}
	f.AddInstance = func(name string) string { return providerIDPrefix + sim.AddInstance(name) }
	f.TwinOf, f.Capitals = f.AddInstance, "Worker-A1"
	f.RemoveInstance = func(id string) { require.NoError(t, sim.Terminate(instanceOf(id))) }
	f.Resize = func(id string) {
		sim.Edit(instanceOf(id), func(i *ocisim.Instance) { i.Shape = "VM.Standard.E5.Flex" })
	}
	f.Tag = func(id string, tags map[string]string) {
		sim.Edit(instanceOf(id), func(i *ocisim.Instance) { i.Tags = tags })
	}
	f.PowerOff = func(id string) { require.NoError(t, sim.SetStatus(instanceOf(id), "STOPPED")) }
	f.InstanceListing = "GET /instances"
	f.RefuseAccount = func() { sim.SetFingerprint("another") }
	f.OtherAccount = func() { sim.SetBlind(true) }
	tryLoadBalancers(t, sim, f)
	tryNetworkLoadBalancers(sim, f)
	const later = "the group of a load balancer goes with it"
	lists, groups := listScope(t, sim), groupScope(t, sim)
	lists.Elsewhere = map[string]string{portable.Subnet: ocisim.SubnetID(1)}
	groups.Elsewhere = lists.Elsewhere
	ofBalancers := func(scope conformance.Scope) conformance.Scope { // network load balancers cannot be protected
		scope.Protect, scope.Unprotected, scope.NotUDP = protectOf(t, sim), "", "load balancers have no UDP, as network load balancers have"
		return scope
	}
	f.SourceRanges.Scope = ofBalancers(lists)
	ofFronts := f.SourceRanges.Scope
	ofFronts.OneClosing = "the list is written as a whole"
	f.Scopes = map[string]conformance.FeatureCase{
		"groups":         {With: groupsOf(), ClosesLater: later, Scope: ofBalancers(groups)},
		"network, lists": {With: ofNetwork(annotationRuleMode, "SL-All"), Scope: lists},
		"network, groups": {
			With: ofNetwork(annotationRuleMode, modeGroups, annotationBackGroups, ocisim.GroupID(3)), ClosesLater: later, Scope: groups,
		},
		"lists of load balancers": {With: pairs(annotationRuleMode, "SL-Frontend"), Scope: ofFronts, FullTier: true},
	}
	f.Fixed = fixedCases(sim)
	f.MalformedIDs = []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "worker", bareIDPrefix}
	return tryOthers(t, sim, f)
}

// tryLoadBalancers says how the suite tries load balancers.
func tryLoadBalancers(t testing.TB, sim *ocisim.Sim, f *conformance.Fixture) {
	t.Helper()
	local := func(s *v1.Service) *v1.Service {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
		return s
	}
	f.Services = map[string]conformance.Case{
		"plain": {
			Service: conformance.Service("plain", map[string]string{}, web()),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: local(conformance.Service("rich", pairs(
				annotationRuleMode, modeGroups, annotationBackGroups, ocisim.GroupID(3), annotationInternal, "true",
				annotationRuleSets, `{"headers": {"items": [{"action": "ADD_HTTP_REQUEST_HEADER", "header": "X-From", "value": "lb"}]}}`,
				annotationShape, shapeFlexible, annotationShapeMin, "10", annotationShapeMax, "100", annotationIdle, "90",
				annotationProxy, "2", annotationProtocol, "HTTP", annotationRetries, "4", annotationInterval, "5000", annotationTimeout, "2000",
				annotationGroups, ocisim.GroupID(1)+","+ocisim.GroupID(2),
				annotationPolicy, leastConnections, annotationFreeform, `{"team":"a"}`,
				annotationSubnet1, ocisim.DualSubnet(),
			), web(), conformance.Port("https", 443, 30443))),
			Change: func(s *v1.Service) {
				s.Annotations[annotationIdle], s.Annotations[annotationShapeMax], s.Annotations[annotationGroups] = "120", "200", ocisim.GroupID(2)
				s.Annotations[annotationInterval] = "6000"
				s.Annotations[annotationRuleSets] = `{"other": {"items": [{"action": "REMOVE_HTTP_REQUEST_HEADER", "header": "X-From"}]}}`
				s.Spec.Ports = s.Spec.Ports[1:]
			},
		},
	}
	f.RemoveLoadBalancers = func() { sim.RemoveLoadBalancers(); sim.RemoveNetworkLoadBalancers() }
	f.MostBackends = 512 // of a backend set
	f.PlannedWrites, f.Unserved, f.ReadAgain = plannedWrites, notToAll, readAgain
	f.Transcripts, f.Scenarios, f.Unplanned, f.Untranscribed = transcripts, scenarios(t, sim, f), unplanned, untranscribed
	f.TakenOver = map[string]conformance.Left{"lists": leftInLists(t, sim, f)}
	f.Secrets = []string{string(fixedSecret(t, 1).Data[v1.TLSPrivateKeyKey]), string(fixedSecret(t, 2).Data[v1.TLSPrivateKeyKey])}
	f.Serves, f.Snapshot = sim.Serves, func() string { return snapshot(t, sim) }
	f.StateWithoutInstance = func(state, _ string) string { return state }
	f.Portable = portableCases(t, sim)
	f.DualStack = conformance.FeatureCase{
		With:    map[string]string{annotationSubnet1: ocisim.DualSubnet()},
		Without: map[string]string{annotationSubnet1: ocisim.DualSubnet()}, Shows: "2603:c020",
	}
	f.Strictness = conformance.Strictness{
		Free: map[string]string{
			"displayName": "any text", "freeformTags.*": "any text", "*ules[].description": "any text", "*responseBodyRegex": "any text",
			"*items[].value":                "any text",
			"POST /loadBalancers isPrivate": "both are legal",
		},
		LimitsElsewhere: limitsElsewhere(), Unlimited: unlimited(),
		Immediate: "what was written shows when its work request has ended",
	}
}

// portableCases are the values that the portable annotations have in tests.
func portableCases(t testing.TB, sim *ocisim.Sim) map[string]conformance.PortableCase {
	t.Helper()
	return map[string]conformance.PortableCase{
		portable.SecurityGroups: {Value: ocisim.GroupID(1)}, portable.Subnet: {Value: ocisim.DualSubnet()},
		portable.Certificate: {Prepare: func(kube clientset.Interface) conformance.PortableCase {
			makeSecret(t, kube, "web")
			return conformance.PortableCase{Value: "secret:web"}
		}},
		portable.TLSPorts: {Prepare: func(kube clientset.Interface) conformance.PortableCase {
			makeSecret(t, kube, "web")
			return conformance.PortableCase{With: map[string]string{portable.Certificate: "secret:web"}}
		}},
		portable.Address: {Prepare: func(clientset.Interface) conformance.PortableCase {
			sim.AddReserved("192.0.2.50")
			return conformance.PortableCase{}
		}},
	}
}

// snapshot is all that is there for Services, in an order of its own.
func snapshot(t testing.TB, sim *ocisim.Sim) string {
	t.Helper()
	all := networkSnapshot(t, sim)
	for _, lb := range sim.LoadBalancers() {
		for _, l := range lb.Doc["listeners"].(document) {
			if c, ok := l.(document)["connectionConfiguration"].(document); ok && len(c) == 1 && c["idleTimeout"] == 300.0 {
				delete(l.(document), "connectionConfiguration") // as the cloud fills it in
			}
		}
		for _, set := range lb.Doc["backendSets"].(document) {
			delete(set.(document)["healthChecker"].(document), "responseBodyRegex") // as the cloud fills it in
			for _, b := range set.(document)["backends"].([]any) {
				for _, flag := range []string{"backup", "drain", "offline"} {
					delete(b.(document), flag)
				}
			}
			slices.SortFunc(set.(document)["backends"].([]any), func(a, b any) int { return strings.Compare(backendKey(a), backendKey(b)) })
		}
		text, err := json.Marshal(lb.Doc)
		require.NoError(t, err)
		all = append(all, string(text)+"\n")
	}
	all = append(all, ruleSnapshot(sim)...)
	slices.Sort(all)
	text := strings.Join(all, "")
	for _, g := range sim.Groups() {
		if g.Name != byHandName {
			text = strings.ReplaceAll(text, g.ID, g.Name)
		}
	}
	return text
}

// byHandName is the name of groups that somebody else has made.
const byHandName = "by hand"

// ruleSnapshot lists the security rules of Services.
func ruleSnapshot(sim *ocisim.Sim) (all []string) {
	for _, list := range []string{ocisim.DefaultList, ocisim.BalancerList, ocisim.NewerList} {
		for _, rule := range sim.SecurityRules(list) {
			all = append(all, list+" "+rule+"\n")
		}
	}
	for _, g := range sim.Groups() {
		if g.Name != byHandName {
			all = append(all, g.Name+fmt.Sprint(g.Tags["ServiceUid"])+"\n")
		}
		for _, rule := range g.Rules {
			all = append(all, g.Name+" "+rule+"\n")
		}
	}
	return all
}

func pairs(more ...string) map[string]string {
	a := map[string]string{}
	for n := 0; n < len(more); n += 2 {
		a[more[n]] = more[n+1]
	}
	return a
}

// makeSecret makes a Secret with a certificate of its own.
func makeSecret(t testing.TB, kube clientset.Interface, name string) {
	t.Helper()
	_, err := kube.CoreV1().Secrets("default").Create(t.Context(), newSecret(t, name), metav1.CreateOptions{})
	require.NoError(t, err)
}

// newSecret is a Secret with a certificate of its own.
func newSecret(t testing.TB, name string) *v1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: v1.SecretTypeTLS, Data: map[string][]byte{
		v1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		v1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
	}}
}

// inputs are those of a program with a cloud config.
func inputs(config string) registry.Inputs {
	in := conformance.Inputs(nil, nil)
	in.File = []byte(config)
	return in
}

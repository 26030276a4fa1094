package oci

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

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
	config := strings.Replace(sim.CloudConfig(network.Serve(t, server)), "loadBalancer:\n", "loadBalancer:\n  securityListManagementMode: None\n", 1)
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: withLoadBalancers(), CallsPerInstance: 2,
		OtherCluster: func() {}, // names come from the UID of the Service, and the namespace kube-system tells clusters apart
		Repeats:      true,
		Inputs:       func() registry.Inputs { return inputs(config) },
	}
	instanceOf := func(providerID string) string {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		return id
	}
	f.AddInstance = func(name string) string { return providerIDPrefix + sim.AddInstance(name) }
	f.RemoveInstance = func(id string) { require.NoError(t, sim.Terminate(instanceOf(id))) }
	f.PowerOff = func(id string) { require.NoError(t, sim.SetState(instanceOf(id), "STOPPED")) }
	f.InstanceListing = "GET /instances"
	f.RefuseAccount = func() { sim.SetFingerprint("another") }
	f.OtherAccount = func() { sim.SetBlind(true) }
	tryLoadBalancers(t, sim, f)
	tryNetworkLoadBalancers(f)
	f.MalformedIDs = []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "worker", bareIDPrefix}
	return f
}

// withLoadBalancers is the description as it will be when load balancers are served as a whole: the suite tries what there is of them.
func withLoadBalancers() registry.Provider {
	p := Description()
	p.Features.LoadBalancers, p.Features.Internal, p.Features.ProxyProtocol = registry.Done, registry.Done, registry.Done
	return p
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
			Service: conformance.Service("plain", byHand(), web()),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: local(conformance.Service("rich", byHand(
				annotationInternal, "true", annotationShape, shapeFlexible, annotationShapeMin, "10", annotationShapeMax, "100", annotationIdle, "90",
				annotationProxy, "2", annotationProtocol, "HTTP", annotationRetries, "4", annotationInterval, "5000", annotationTimeout, "2000",
				annotationGroups, ocisim.GroupID(1)+","+ocisim.GroupID(2), annotationPolicy, leastConnections, annotationFreeform, `{"team":"a"}`,
				annotationSubnet1, ocisim.SubnetID(2),
			), web(), conformance.Port("https", 443, 30443))),
			Change: func(s *v1.Service) {
				s.Annotations[annotationIdle], s.Annotations[annotationShapeMax], s.Annotations[annotationGroups] = "120", "200", ocisim.GroupID(3)
				s.Annotations[annotationInterval] = "6000"
				s.Spec.Ports = s.Spec.Ports[1:]
			},
		},
	}
	f.RemoveLoadBalancers = func() { sim.RemoveLoadBalancers(); sim.RemoveNetworkLoadBalancers() }
	f.Snapshot = func() string { return snapshot(t, sim) }
	f.LeftBehind = func(state, _ string) string { return state }
	f.Portable = map[string]conformance.PortableCase{portable.SecurityGroups: {Value: ocisim.GroupID(1)}}
	f.Strictness = conformance.Strictness{
		Free: map[string]string{
			"POST /loadBalancers displayName": "any text", "POST /loadBalancers freeformTags.team": "any text",
			"POST /loadBalancers isPrivate": "both are legal", "isForcePlainText": "both are legal",
		},
		Immediate: "what was written shows when its work request has ended",
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
			slices.SortFunc(set.(document)["backends"].([]any), func(a, b any) int { return strings.Compare(keyOf(a), keyOf(b)) })
		}
		text, err := json.Marshal(lb.Doc)
		require.NoError(t, err)
		all = append(all, string(text)+"\n")
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// inputs are those of a program with a cloud config.
func inputs(config string) registry.Inputs {
	in := conformance.Inputs(nil, nil)
	in.File = []byte(config)
	return in
}

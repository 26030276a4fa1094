package azure

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

var eachNode = conformance.EachNode{
	Why: "members are on the network interface of each machine, of which Azure takes four writes a second", Calls: 4, Time: time.Second / 4,
}

// freeOfParts are fields of parts of resources that Azure fills in.
func freeOfParts(filledIn string) map[string]string {
	free := map[string]string{}
	for _, part := range []string{"frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes", "securityRules", "ipConfigurations"} {
		at := "properties." + part + "[]."
		for _, field := range []string{"id", "etag", "type"} {
			free[at+field] = filledIn
		}
	}
	for _, part := range []string{"frontendIPConfigurations", "backendAddressPools", "probes"} {
		free["properties."+part+"[].properties.loadBalancingRules*"] = filledIn
	}
	return free
}

// tryLoadBalancers says how the suite tries load balancers.
func tryLoadBalancers(t testing.TB, sim *azuresim.Sim, f *conformance.Fixture) {
	t.Helper()
	http := conformance.Port("http", 80, 30080)
	more := func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) }
	rich := conformance.Service("rich", map[string]string{
		annotationIdle: "10", annotationNoReset: "true", annotationTags: "team=web", annotationLabel: "rich", annotationAllowedRanges: "192.0.2.0/24,198.51.100.0/24",
		annotationProbeProtocol: "http", annotationProbePath: "/healthz", annotationDenyAll: "true",
	}, http, conformance.Port("https", 443, 30443))
	rich.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
	private := conformance.Service("private", map[string]string{
		annotationInternal: "true", annotationPrivateLink: "true", annotationLinkName: "shop", annotationLinkCount: "3", annotationLinkIPs: "10.240.0.250",
		annotationLinkFQDNs: "a.example.com b.example.com", annotationLinkVisible: "*", annotationLinkApproved: azuresim.Subscription,
	}, http)
	f.Services = map[string]conformance.Case{
		"internal": {Service: conformance.Service("internal", map[string]string{annotationInternal: "true"}, http), Change: more},
		"plain":    {Service: conformance.Service("plain", nil, http), Change: more},
		"private": {
			Service: private, Change: func(s *v1.Service) { s.Annotations[annotationLinkProxy] = "true" },
			Unique: []string{annotationLinkName, annotationLinkIPs},
		},
		"rich": {Service: rich, Change: func(s *v1.Service) { s.Annotations[annotationIdle] = "20" }, Unique: []string{annotationLabel}},
	}
	const filledIn = "the API fills it in, and ignores what a write says about it"
	// Names come from the UID of the Service, and the mark of the cluster from its namespace kube-system.
	f.OtherCluster = func() {}
	f.EachNode = eachNode
	f.Strictness = conformance.Strictness{
		Immediate: "a change shows in its resource from its answer on, in the state Updating; its end is an operation that is waited for",
		Free: map[string]string{
			"tags.*": "tags are the user's own", "etag": "the condition of a write is its header, and what its body says is ignored",
			"id": "the path says it", "name": "the path says it", "type": "the path says it", "sku.tier": "the name says it",
			"properties.defaultSecurityRules*": filledIn, "properties.alias": filledIn, "properties.networkInterfaces*": filledIn,
			"properties.privateEndpointConnections*":                               filledIn,
			"properties.backendAddressPools[].properties.backendIPConfigurations*": filledIn,
		},
		LimitsElsewhere: limitsElsewhere(), Unlimited: unlimited(),
	}
	maps.Copy(f.Strictness.Free, freeOfParts(filledIn))
	f.Snapshot, f.Serves = sim.Snapshot, sim.Serves
	f.Target = func(s *v1.Service, port v1.ServicePort) int32 {
		if s.Annotations[annotationNoFloating] == "true" {
			return port.NodePort
		}
		return port.Port
	}
	f.RemoveLoadBalancers = sim.RemoveLoadBalancers
	f.UDP = conformance.FeatureCase{Shows: " Udp "}
	f.DualStack, f.EachFamily = conformance.FeatureCase{Shows: "-IPv6"}, true
	f.SourceRanges, f.Scopes = conformance.FeatureCase{Scope: scopeOf(t, sim)}, moreScopes(t, sim)
	f.Portable = map[string]conformance.PortableCase{
		portable.Address:     {Value: sim.AddAddress("reserved")},
		portable.IdleTimeout: {Value: "10m"},
		portable.Subnet:      {Value: azuresim.Subnet, With: map[string]string{portable.Scheme: portable.SchemeInternal}},
	}
}

// TestPlanLeavesOutWhatAzureAdds: fields that Azure itself adds do not go, so that plan says nothing of them.
func TestPlanLeavesOutWhatAzureAdds(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.joinAs("alone", w.sim.AddMachine("alone"))
		s := webService(nil)
		w.Apply(s)
		s = w.ensure(s)
		s.Spec.Ports[0].Port, s.Spec.LoadBalancerSourceRanges = 8081, []string{"198.51.100.0/24"}
		w.Apply(s)
		plan, err := w.cloud.loadBalancers.PlanLoadBalancer(w.Context(), clusterName, s, w.nodes)
		require.NoError(t, err)
		var all strings.Builder
		for _, change := range plan.Changes {
			for _, field := range change.Fields {
				all.WriteString(field.Name + "\n")
			}
		}
		names := all.String()
		assert.Contains(t, names, "TCP-8081].properties.frontendPort")
		assert.Contains(t, names, "].properties.sourceAddressPrefix")
		assert.NotRegexp(t, `(?m)etag|provisioningState|backendAddressPools\[|\]\.(id|type)$`, names)
	})
}

// TestAdditionalAddressesWithSpaces: the status is the same by whatever call it is asked for.
func TestAdditionalAddressesWithSpaces(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationAdditional: "203.0.113.7, 2001:DB8::7"})
	withNode(t, s, func(w *world) {
		want := w.ensure(s).Status.LoadBalancer
		require.Len(w, want.Ingress, 3)
		assert.Equal(w, []v1.LoadBalancerIngress{{IP: "203.0.113.7"}, {IP: "2001:db8::7"}}, want.Ingress[1:], "as Azure writes addresses")
		got, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), clusterName, w.Current(s))
		require.NoError(w, err)
		assert.True(w, exists)
		assert.Equal(w, &want, got)
	})
}

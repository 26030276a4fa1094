package ibm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// tryLoadBalancers says how the suite tries load balancers.
func tryLoadBalancers(t testing.TB, sim *ibmsim.Sim, f *conformance.Fixture) {
	t.Helper()
	http := conformance.Port("http", 80, 30080)
	local := func(s *v1.Service) *v1.Service {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
		return s
	}
	f.Services = map[string]conformance.Case{
		"plain": {
			Service: conformance.Service("plain", nil, http),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: local(conformance.Service("rich", map[string]string{
				annotationFeatures: featureProxy, annotationIPType: typePrivate, annotationSubnets: "lb-subnet",
				annotationIdle: "60", annotationCheckProtocol: protocolHTTP,
				annotationCheckPath: "/ready", annotationCheckPort: "8081",
				annotationCheckDelay: "10", annotationCheckTimeout: "3", annotationCheckRetries: "4",
				annotationDNSInstance: "crn:v1:bluemix:public:dns-svcs:global:a/1::", annotationDNSZone: "example-com-zone1",
			}, http, conformance.Port("https", 443, 30443))),
			Change: func(s *v1.Service) {
				s.Annotations[annotationIdle], s.Annotations[annotationCheckPath] = "90", "/live"
				s.Spec.Ports = s.Spec.Ports[1:]
				delete(s.Annotations, annotationFeatures)
			},
		},
		"zonal": {
			Service: conformance.Service("zonal", map[string]string{annotationFeatures: featureNLB, annotationPortRange: "443-450"},
				http, conformance.Port("https", 443, 30443)),
			Change: func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30099 },
		},
		"filtered": {
			Service: ranged("filtered", "192.0.2.0/24", "198.51.100.7/32"),
			Change: func(s *v1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
			},
		},
	}
	f.UDP = conformance.FeatureCase{With: map[string]string{annotationFeatures: featureNLB, annotationCheckUDP: "10256"}, Shows: `"udp"`}
	f.SourceRanges.Prepare, f.SourceRanges.Scope = func() { openDefaultGroup(t, sim) }, scopeOf(t, sim)
	f.Lag = sim.SetListingLag
	f.RemoveLoadBalancers = sim.RemoveLoadBalancers
	f.Serves, f.Snapshot = sim.Serves, func() string { return snapshot(t, sim) }
	f.StateWithoutInstance = func(state, _ string) string { return state }
	f.Portable = map[string]conformance.PortableCase{
		portable.Subnet: {Value: "lb-subnet"}, portable.CheckPort: {Value: "8081"},
		portable.SecurityGroups: {Value: ibmsim.WebGroup},
	}
	f.Strictness = conformance.Strictness{
		Free: map[string]string{
			"POST /v1/load_balancers dns.instance.crn": "any CRN",
		},
		Unlimited:       map[string]string{"*url_path": "the API checks its form alone", "dns.instance.crn": "the API checks its form alone"},
		LimitsElsewhere: limitsElsewhere(),
	}
}

// openDefaultGroup lets everybody in by the default group of the VPC, as people do for load balancers.
func openDefaultGroup(t testing.TB, sim *ibmsim.Sim) {
	t.Helper()
	require.NoError(t, sim.EditSecurityGroup(defaults, func(g *ibmsim.SecurityGroup) {
		g.Rules = append(g.Rules, ibmsim.Rule{
			ID: "r006-everybody", Direction: inbound, Family: familyIPv4, Protocol: "any", Remote: ibmsim.Remote{CIDR: everybody},
		})
	}))
}

// ranged is a Service that only some may reach.
func ranged(name string, networks ...string) *v1.Service {
	s := conformance.Service(name, nil, conformance.Port("http", 80, 30080))
	s.Spec.LoadBalancerSourceRanges = networks
	return s
}

// snapshot is all that is there for Services, in an order of its own.
func snapshot(t testing.TB, sim *ibmsim.Sim) string {
	t.Helper()
	lines := map[string]string{}
	for _, lb := range sim.LoadBalancers() {
		names := map[string]string{}
		for _, p := range lb.Pools {
			names[p.ID] = p.Name
		}
		listeners, pools := slices.Clone(lb.Listeners), slices.Clone(lb.Pools)
		for n := range listeners {
			listeners[n].ID = ""
			if p := listeners[n].Pool; p != nil {
				listeners[n].Pool = &ibmsim.Reference{Name: names[p.ID]}
			}
		}
		for n := range pools {
			pools[n].ID, pools[n].Members = "", slices.Clone(pools[n].Members)
			for m := range pools[n].Members {
				pools[n].Members[m].ID = ""
			}
			slices.SortFunc(pools[n].Members, func(a, b ibmsim.Member) int {
				return cmp.Or(cmp.Compare(a.Target.Address, b.Target.Address), cmp.Compare(a.Target.ID, b.Target.ID))
			})
		}
		slices.SortFunc(listeners, func(a, b ibmsim.Listener) int {
			return cmp.Or(a.Port+a.PortMin-b.Port-b.PortMin, cmp.Compare(a.Protocol, b.Protocol))
		})
		slices.SortFunc(pools, func(a, b ibmsim.Pool) int { return cmp.Compare(a.Name, b.Name) })
		one, err := json.Marshal(map[string]any{
			"name": lb.Name, "groups": sim.GroupNames(lb), "public": lb.Public, "network": lb.Network,
			"subnets": lb.Subnets, "listeners": listeners, "pools": pools, "dns": lb.DNS,
		})
		require.NoError(t, err)
		lines[lb.Name] = string(one) + "\n"
	}
	for _, g := range sim.MadeGroups() {
		var rules []string
		for _, one := range g.Rules {
			one.ID = ""
			rules = append(rules, fmt.Sprint(one))
		}
		slices.Sort(rules)
		lines[g.Name] += fmt.Sprintf("%s: %s\n", g.Name, rules)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		text.WriteString(lines[name])
	}
	return text.String()
}

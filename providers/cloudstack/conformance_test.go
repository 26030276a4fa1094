package cloudstack

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run(isolated, func(t *testing.T) { t.Parallel(); conformance.Run(t, fixtureOf(isolated)) })
	// In a tier of a VPC, the items of its ACL say who may come in, and not firewall rules.
	t.Run(vpcTier, func(t *testing.T) {
		t.Parallel()
		conformance.RunParts(t, fixtureOf(vpcTier), "LoadBalancers", "ByHand", "Interruption", "Sources", "Narrowing", "Access", "Exceptions")
	})
}

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) {
	t.Parallel()
	t.Run(isolated, func(t *testing.T) { t.Parallel(); conformance.Soak(t, fixtureOf(isolated)) })
	t.Run(vpcTier, func(t *testing.T) {
		t.Parallel()
		tier.Full(t)
		conformance.Soak(t, fixtureOf(vpcTier))
	})
}

const (
	isolated = "isolated network"
	vpcTier  = "VPC tier"
)

// networkKinds are the kinds of networks that nodes are in.
var networkKinds = map[string]func(*cloudstacksim.Sim){
	isolated: func(*cloudstacksim.Sim) {},
	vpcTier:  func(s *cloudstacksim.Sim) { s.MakeTier() },
}

// The Services that the tests try.
var (
	service = conformance.Service
	port    = conformance.Port
)

// testInputs are those of a provider that talks to the simulator.
func testInputs(sim *cloudstacksim.Sim, url, more string) registry.Inputs {
	in := conformance.Inputs(nil, nil)
	in.File = []byte(sim.CloudConfig(url) + more)
	return in
}

func fixtureOf(kind string) func(t testing.TB) *conformance.Fixture {
	return func(t testing.TB) *conformance.Fixture {
		sim, server := cloudstacksim.New(cloudstacksim.Options{Activation: time.Second, Seed: simkit.SeedOf(t)})
		networkKinds[kind](sim)
		require.NoError(t, sim.Judge())
		t.Cleanup(func() { assert.Empty(t, sim.Differences(), "the API's own description differs") })
		network := simkit.NewNetwork()
		url := network.Serve(t, server)
		configured := testInputs(sim, url, "")
		theirWorld := func() *world { return worldOn(t, sim, network, url) }
		idOf := func(providerID string) string {
			id, err := parseProviderID(providerID)
			require.NoError(t, err)
			return id
		}
		return tryOthers(t, sim, &conformance.Fixture{
			Sim: server, Network: network, Provider: Description(), Everybody: []string{`{"cidrs":["0.0.0.0/0"`, `"Allow","cidrs":["0.0.0.0/0"`},
			Inputs:          func() registry.Inputs { return configured },
			AddInstance:     func(name string) string { return providerIDPrefix + sim.AddVM(cloudstacksim.Spec{Name: name}) },
			RemoveInstance:  func(id string) { sim.Remove(idOf(id)) },
			PowerOff:        func(id string) { require.NoError(t, sim.SetStatus(idOf(id), "Stopped")) },
			Resize:          func(id string) { sim.Edit(idOf(id), func(v *cloudstacksim.VM) { v.Offering = "Large Instance" }) },
			Tag:             func(id string, tags map[string]string) { sim.Edit(idOf(id), tagged(tags)) },
			InstanceListing: "listVirtualMachines", RefuseAccount: func() { sim.SetSecret("another") },
			OtherAccount: sim.RemoveAll,
			MalformedIDs: []string{
				providerIDPrefix + "a/b", providerIDPrefix + "?", clusterAPIPrefix, clusterAPIPrefix + "region/7", providerIDPrefix + "00000000-0000-0000-0000-00000000000g",
			},
			OtherCluster:    func() {},
			Limited:         func() { sim.SetLimit(cloudstacksim.PublishedCalls, cloudstacksim.PublishedInterval) },
			Strictness:      strictness(kind),
			OneAfterAnother: "CloudStack does one job at a time in a network",
			Services:        serviceCases(),
			Serves:          sim.Serves,
			Transcripts:     transcripts, Scenarios: scenarios(sim, theirWorld), TakenOver: leftRules(theirWorld),
			Secrets:    []string{cloudstacksim.SecretKey},
			Names:      func() map[string]string { return identities(sim) },
			Interrupts: interrupts(), PlannedWrites: plannedWrites, ReadAgain: readAgain,
			Unplanned: map[string]string{
				"shared-address/other is created": "plan does not look whether the address that a Service names is in use already",
			},
			Snapshot:     func() string { return snapshot(t, sim) },
			SourceRanges: conformance.FeatureCase{Scope: scopeOf(sim, kind)},
			// Lag stays nil, because reads show what was written (Strictness.Immediate).
			RemoveLoadBalancers: sim.RemoveRules,
			Fixed: map[string]func() conformance.FixedCase{
				annotationAddress: func() conformance.FixedCase { return twoAddresses(t, sim) },
			},
			Portable: map[string]conformance.PortableCase{
				portable.Address: {Value: "203.0.113.77"},
				portable.Scheme: {Value: portable.SchemePublic, Seen: func() string {
					if len(sim.Rules()) == 0 {
						return "no rule at a public address"
					}
					return ""
				}},
			},
		})
	}
}

// twoAddresses are reserved, one for the load balancer when it is made and one for later.
func twoAddresses(t testing.TB, sim *cloudstacksim.Sim) conformance.FixedCase {
	t.Helper()
	addresses := [2]string{"203.0.113.77", "203.0.113.78"}
	for _, address := range addresses {
		_, err := sim.Reserve(address)
		require.NoError(t, err)
	}
	return conformance.FixedCase{First: addresses[0], Later: addresses[1]}
}

func strictness(kind string) conformance.Strictness {
	const login = "a request that is not authenticated is refused whatever it says"
	free := map[string]string{
		"description": "any text", "name": "any text",
		"apiKey": login, "expires": login, "signature": login, "signatureversion": login,
	}
	if kind == vpcTier {
		free["reason"] = "any text" // of an item of a network ACL, which other networks do not have
	}
	return conformance.Strictness{Immediate: "the management server answers from the database that it writes to", Free: free, Unlimited: map[string]string{
		"param[*": "the API bounds no element of a map", "cidrlist": "the API bounds no list",
		"apiKey": login, "expires": login, "signature": login, "signatureversion": login,
	}}
}

func serviceCases() map[string]conformance.Case {
	return map[string]conformance.Case{
		"plain": {
			Service: service("plain", nil, port("http", 80, 30080)),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30082)) },
		},
		"rich": {
			Service: richService(), Unique: []string{annotationAddress},
			Change: func(s *v1.Service) {
				s.Annotations[annotationProxyProtocol] = "false"
				delete(s.Annotations, annotationStickiness)
				delete(s.Annotations, annotationStickinessParams)
				s.Annotations[annotationSourceCIDRs] = "10.0.0.0/8"
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				s.Spec.Ports = s.Spec.Ports[:1]
			},
		},
	}
}

// richService uses everything at once that does not exclude something else.
func richService() *v1.Service {
	s := service("rich", map[string]string{
		annotationProxyProtocol: "true", annotationSourceCIDRs: "10.0.0.0/8, 192.0.2.0/24", annotationAddress: "203.0.113.99",
		annotationStickiness: "SourceBased", annotationStickinessParams: "tablesize=200k,expire=30m",
	}, port("http", 80, 30080), port("https", 443, 30443))
	s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "192.0.2.0/24"}
	return s
}

// snapshot prints the cloud's objects for Services, without identifiers that differ from run to run.
func snapshot(t testing.TB, sim *cloudstacksim.Sim) string {
	addresses, names := map[string]string{}, map[string]string{}
	for _, a := range sim.Addresses() {
		addresses[a.ID] = a.Address
	}
	for _, v := range sim.List() {
		names[v.ID] = v.Name
	}
	var lines []string
	show := func(v any) {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		lines = append(lines, string(text))
	}
	for _, a := range sim.Addresses() {
		if a.State != "Free" && !a.SourceNAT {
			show(map[string]any{"address": a.State})
		}
	}
	for _, r := range sim.Rules() {
		var members []string
		for _, m := range r.Members {
			members = append(members, names[m.VM])
		}
		slices.Sort(members)
		marks := slices.DeleteFunc(strings.Fields(r.Description), func(m string) bool { return strings.HasPrefix(m, addressMark("")) })
		show(map[string]any{
			"name": r.Name, "marks": marks, "port": r.PublicPort, "to": r.PrivatePort, "protocol": r.Protocol, "algorithm": r.Algorithm,
			"cidrs": cidrs(r.CIDRs), "members": members,
		})
	}
	for _, p := range sim.Policies() {
		show(map[string]any{"method": p.Method, "params": p.Params, "description": p.Description})
	}
	for _, f := range joinFirewalls(sim.Firewalls()) {
		show(map[string]any{"firewall": f.Protocol, "start": f.Start, "end": f.End, "cidrs": slices.Sorted(slices.Values(f.CIDRs))})
	}
	for _, i := range sim.ACLItems() {
		show(map[string]any{
			"acl": i.Protocol, "start": i.Start, "end": i.End, "cidrs": slices.Sorted(slices.Values(i.CIDRs)),
			"reason": i.Reason, "action": i.Action,
		})
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// joinFirewalls are firewall rules with those of a port joined that have no network in common: how they came about does not matter.
func joinFirewalls(all []cloudstacksim.Firewall) (joined []cloudstacksim.Firewall) {
	for _, f := range all {
		at := slices.IndexFunc(joined, func(o cloudstacksim.Firewall) bool {
			same := o.Address == f.Address && o.Protocol == f.Protocol && o.Start == f.Start && o.End == f.End
			return same && !slices.ContainsFunc(o.CIDRs, func(c string) bool { return slices.Contains(f.CIDRs, c) })
		})
		if at < 0 {
			joined = append(joined, f)
			continue
		}
		joined[at].CIDRs = slices.Concat(joined[at].CIDRs, f.CIDRs)
	}
	return joined
}

func tagged(tags map[string]string) func(*cloudstacksim.VM) {
	return func(v *cloudstacksim.VM) { v.Tags = tags }
}

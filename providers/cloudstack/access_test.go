package cloudstack

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestSourceRanges: what lets others in goes, also where somebody made it for exactly this port; what is for a range of ports stays.
func TestSourceRanges(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		address := w.sim.Rules()[0].Address
		byHand(w, "createFirewallRule", params{"ipaddressid": address, "protocol": "tcp", "startport": "1", "endport": "1024", "cidrlist": "192.0.2.7/32"})
		for _, list := range [][]string{{"198.51.100.0/24"}, {"198.51.100.0/24", "192.0.2.0/24"}, nil} {
			w.alter(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = list })
			w.ensure(s)
			var found []string
			for _, f := range w.sim.Firewalls() {
				if f.Start == 80 {
					found = append(found, f.CIDRs...)
				}
			}
			slices.Sort(found)
			assert.Equal(t, allowedNetworks(w.Current(s)), found)
			w.requireNoWrites(s)
		}
		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Len(t, w.sim.Firewalls(), 1, "that of somebody else")
		assert.Len(t, w.takenAddresses(), 1, "with its address")
		w.eventAbout(eventAddressKept, "others have rules at it")
	})
}

// byHand gives a command as somebody else does.
func byHand(w *world, command string, p params) {
	w.T.Helper()
	require.NoError(w.T, w.api.jobs.run(w.T.Context(), jobRequest{network: "by hand", what: "by hand", command: command, params: p}))
}

// TestTierOfAVPC: each Service has an item of its own, and deleting one leaves the port open for the other.
func TestTierOfAVPC(t *testing.T) {
	inWorld(t, func(s *cloudstacksim.Sim) { s.MakeTier() }, func(w *world) {
		t := w.T
		a := service("a", map[string]string{annotationProxyProtocol: "true"}, port("http", 80, 30080))
		b := another(service("b", nil, port("http", 80, 30081)))
		w.Apply(a, b)
		w.ensure(a)
		w.ensure(b)
		require.Len(t, w.sim.ACLItems(), 2)
		for n, s := range []*v1.Service{a, b} {
			i := w.sim.ACLItems()[n]
			assert.Equal(t, reasonPrefix+nameOf(s, ""), i.Reason)
			assert.Equal(t, []string{"tcp", "Allow", "Ingress"}, []string{i.Protocol, i.Action, i.Traffic})
		}
		w.requireNoWrites(a)
		require.NoError(t, w.Remove(w.loadBalancers, "", a))
		require.Len(t, w.sim.ACLItems(), 1)
		assert.Equal(t, reasonPrefix+nameOf(b, ""), w.sim.ACLItems()[0].Reason)
		require.NoError(t, w.Remove(w.loadBalancers, "", b))
		assert.Empty(t, w.sim.ACLItems())
		assert.Empty(t, w.takenAddresses())
	})
}

// TestRangesThatCannotBeEnforced: nothing is opened to everybody.
func TestRangesThatCannotBeEnforced(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		_, list := w.sim.MakeTier()
		w.sim.AddACLItem(cloudstacksim.ACLItem{
			List: list, Protocol: "TCP", Start: 80, End: 80, CIDRs: []string{everybody}, Action: "Allow",
			Traffic: "Ingress",
		})
		s := service("web", nil, port("http", 80, 30080))
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.Apply(s)
		_, err := w.try(s)
		require.ErrorContains(t, err, "cannot be enforced")
		assert.Empty(t, w.sim.Rules())
		assert.Empty(t, w.takenAddresses())
	})
}

// TestFilters: a network that has a firewall uses it, tiers of a VPC included; one that has neither filters nothing.
func TestFilters(t *testing.T) {
	t.Parallel()
	of := func(names ...string) (n network) {
		for _, name := range names {
			n.Services = append(n.Services, networkService{Name: name})
		}
		n.ACL = someID
		return n
	}
	assert.Equal(t, byFirewall, of("Lb", "Firewall").filter())
	assert.Equal(t, byFirewall, of("Lb", "Firewall", "NetworkACL").filter())
	assert.Equal(t, byACL, of("Lb", "NetworkACL").filter())
	assert.Equal(t, open, of("Lb").filter())
}

// TestFirewallOf: beside the rule that a Service asks for, those for exactly its port stay that let in nobody else.
func TestFirewallOf(t *testing.T) {
	t.Parallel()
	rules := func(lists ...string) (all []firewallRule) {
		for _, cidrs := range lists {
			all = append(all, firewallRule{ID: cidrs, AddressID: someID, Protocol: "tcp", Start: 80, End: 80, CIDRs: cidrs})
		}
		return all
	}
	for name, c := range map[string]struct {
		all     []firewallRule
		sources string
		missing string
		surplus []string
	}{
		"as asked for": {all: rules("10.0.0.0/8"), sources: "10.0.0.0/8"},
		"a part of what is asked for": {
			all: rules("10.1.0.0/16", "10.0.0.0/8"), sources: "10.0.0.0/8", surplus: []string{"10.1.0.0/16"},
		},
		"a part of everybody": {
			all: rules("192.0.2.0/24,198.51.100.7/32", everybody), sources: everybody, surplus: []string{"192.0.2.0/24,198.51.100.7/32"},
		},
		"others": {
			all: rules("10.0.0.0/8", "192.0.2.0/24"), sources: "10.0.0.0/8", surplus: []string{"192.0.2.0/24"},
		},
		"others beside a part": {
			all: rules("10.0.0.0/8", "10.1.0.0/16,192.0.2.0/24"), sources: "10.0.0.0/8",
			surplus: []string{"10.1.0.0/16,192.0.2.0/24"},
		},
		"more than is asked for": {all: rules("10.1.0.0/16", "10.0.0.0/8"), sources: "10.1.0.0/16", surplus: []string{"10.0.0.0/8"}},
		"former ranges, before the new one": {
			all: rules("10.1.0.0/16"), sources: "10.0.0.0/8", missing: "10.0.0.0/8", surplus: []string{"10.1.0.0/16"},
		},
		"one of two":           {all: rules("10.0.0.0/8"), sources: "10.0.0.0/8,192.0.2.0/24", missing: "192.0.2.0/24"},
		"both, by a rule each": {all: rules("192.0.2.0/24", "10.0.0.0/8"), sources: "10.0.0.0/8,192.0.2.0/24"},
		"with bits of hosts":   {all: rules("10.7.7.7/8"), sources: "10.0.0.0/8"},
		"what cannot be read":  {all: rules("10.0.0.0/8", "nonsense"), sources: "10.0.0.0/8", surplus: []string{"nonsense"}},
		"a port that goes":     {all: rules("10.0.0.0/8", "192.0.2.0/24"), surplus: []string{"10.0.0.0/8", "192.0.2.0/24"}},
	} {
		var sources []string
		if c.sources != "" {
			sources = cidrs(c.sources)
		}
		missing, surplus := firewallOf(
			append(c.all, firewallRule{AddressID: someID, Protocol: "tcp", Start: 1, End: 1024, CIDRs: "192.0.2.0/24"}),
			someID, "tcp", 80, sources,
		)
		var ids []string
		for _, f := range surplus {
			ids = append(ids, f.ID)
		}
		assert.Equal(t, c.missing, strings.Join(missing, ","), name)
		assert.Equal(t, c.surplus, ids, name)
	}
}

// TestFirewallRulesMadeByHand is about a fault of CloudStack's own controller, which deletes all others for the port, and may lose the
// error of that: a deletion that fails is tried again, also that of a rule that lets in nobody else.
func TestFirewallRulesMadeByHand(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		rule := func(cidrs string) {
			byHand(w, "createFirewallRule", params{
				"ipaddressid": w.sim.Rules()[0].Address, "protocol": "tcp", "startport": "80", "endport": "80", "cidrlist": cidrs,
			})
		}
		opened := func() (lists []string) {
			for _, f := range w.sim.Firewalls() {
				lists = append(lists, strings.Join(f.CIDRs, ","))
			}
			slices.Sort(lists)
			return lists
		}
		fail := func(times int) {
			w.sim.FailJobs(cloudstacksim.Failure{Command: "deleteFirewallRule", Code: 530, Text: "the router is down", Count: times})
		}
		rule("192.0.2.7/32")
		time.Sleep(2 * observedMaxAge)
		fail(1)
		_, err := w.try(s)
		require.ErrorContains(t, err, "the router is down")
		w.ensure(s)
		assert.Equal(t, []string{everybody}, opened(), "firewall rules of the address are the program's")

		rule("192.0.2.7/32")
		time.Sleep(2 * observedMaxAge)
		w.alter(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"} })
		// Both rules are tried to be deleted first, and again with all other changes.
		fail(3)
		_, err = w.try(s)
		require.ErrorContains(t, err, "the router is down")
		time.Sleep(2 * observedMaxAge)
		w.ensure(s)
		assert.Equal(t, []string{"198.51.100.0/24"}, opened())

		rule("192.0.2.7/32")
		rule("198.51.100.128/25")
		time.Sleep(2 * observedMaxAge)
		w.ensure(s)
		assert.Equal(t, []string{"198.51.100.0/24"}, opened(), "what the Service does not ask for is closed")
		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Empty(t, w.sim.Firewalls(), "nothing is behind the port")
		assert.Empty(t, w.takenAddresses())
	})
}

// TestItemThatCannotBeDeleted: the rule stays until its item is gone, so that the deletion is tried again.
func TestItemThatCannotBeDeleted(t *testing.T) {
	inWorld(t, func(s *cloudstacksim.Sim) { s.MakeTier() }, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		w.sim.FailJobs(cloudstacksim.Failure{Command: "deleteNetworkACL", Code: 530, Text: "the router is down"})
		require.ErrorContains(t, w.Remove(w.loadBalancers, "", s), "the router is down")
		assert.Len(t, w.sim.Rules(), 1)
		assert.Len(t, w.sim.ACLItems(), 1)
		time.Sleep(2 * observedMaxAge)
		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Empty(t, w.sim.Rules())
		assert.Empty(t, w.sim.ACLItems())
		assert.Empty(t, w.takenAddresses())
	})
}

const unfiltered = "network without a firewall"

// removeFirewall has the network of the nodes filter nothing, so that the rules alone let clients in.
func removeFirewall(s *cloudstacksim.Sim) {
	s.EditNetwork(s.SeedNetwork(), func(n *cloudstacksim.Network) { n.Services = []string{"Dhcp", "Dns", "Lb", "SourceNat"} })
}

// TestEachFormerPortIsClosed: that one port cannot be closed keeps no other one open, and its rule stays until it is. The same holds for
// items that have lost their rules.
func TestEachFormerPortIsClosed(t *testing.T) {
	for name, prepare := range map[string]func(*cloudstacksim.Sim){isolated: nil, vpcTier: networkKinds[vpcTier], unfiltered: removeFirewall} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, prepare, func(w *world) {
				t := w.T
				ports := []v1.ServicePort{port("http", 80, 30080), port("https", 443, 30443), port("more", 8443, 30444)}
				s := service("web", nil, ports...)
				w.Apply(s)
				w.ensure(s)
				opened := func() int {
					if name == unfiltered {
						return len(w.sim.Rules())
					}
					return len(w.sim.Firewalls()) + len(w.sim.ACLItems())
				}
				refuseOne := func() {
					command := map[string]string{isolated: "deleteFirewallRule", vpcTier: "deleteNetworkACL", unfiltered: "deleteLoadBalancerRule"}[name]
					w.sim.FailJobs(cloudstacksim.Failure{Command: command, Code: 530, Text: "the router is down"})
				}
				refuseOne()
				w.alter(s, func(s *v1.Service) { s.Spec.Ports = ports[:1] })
				_, err := w.try(s)
				require.ErrorContains(t, err, "the router is down")
				assert.Equal(t, 2, opened(), "one of the former ports is closed")
				time.Sleep(2 * observedMaxAge)
				w.ensure(s)
				assert.Equal(t, 1, opened())
				assert.Len(t, w.sim.Rules(), 1)
				if name == isolated {
					return
				}
				w.alter(s, func(s *v1.Service) { s.Spec.Ports = ports[:2] })
				w.ensure(s)
				if name == vpcTier {
					w.sim.RemoveRules()
				}
				time.Sleep(2 * observedMaxAge)
				refuseOne()
				require.ErrorContains(t, w.Remove(w.loadBalancers, "", s), "the router is down")
				assert.Equal(t, 1, opened(), "one of the items without a rule goes, or of the rules")
				assert.Len(t, w.takenAddresses(), 1, "it is released last")
			})
		})
	}
}

// TestFormerRuleGetsNoWiderFilter: a rule that stays with its own wider networks does not let in more, because its filter stays too.
func TestFormerRuleGetsNoWiderFilter(t *testing.T) {
	inWorld(t, func(s *cloudstacksim.Sim) { s.SetVersion(cloudstacksim.V420) }, func(w *world) {
		s := service("web", nil, port("http", 80, 30080))
		s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		w.Apply(s)
		w.ensure(s)
		w.alter(s, func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = nil
			s.Annotations = map[string]string{annotationSourceCIDRs: "10.1.0.0/16"}
		})
		w.sim.FailJobs(cloudstacksim.Failure{Command: "deleteLoadBalancerRule", Code: 530, Text: "the router is down"})
		_, err := w.try(s)
		require.ErrorContains(w.T, err, "the router is down")
		require.Len(w.T, w.sim.Firewalls(), 1)
		assert.Equal(w.T, []string{"10.0.0.0/8"}, w.sim.Firewalls()[0].CIDRs)
		time.Sleep(time.Minute)
		w.ensure(s)
		assert.Equal(w.T, []string{"0.0.0.0/0"}, w.sim.Firewalls()[0].CIDRs)
		w.requireNoWrites(s)
	})
}

// TestRuleThatIsBeingDeleted: a rule that somebody deletes is waited for, and made again without a conflict.
func TestRuleThatIsBeingDeleted(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		id := w.sim.Rules()[0].ID
		w.sim.HoldJobs(true)
		require.NoError(t, w.api.call(t.Context(), "deleting by hand", "deleteLoadBalancerRule", params{"id": id}, &struct{}{}))
		time.Sleep(2 * observedMaxAge)
		began := w.server.Calls().ByOperation["createLoadBalancerRule"]
		for range 3 {
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "", w.Current(s), w.nodes)
			require.ErrorContains(t, err, "still deleting load balancer rule "+nameOf(s, "-tcp-80"))
			time.Sleep(time.Minute)
		}
		assert.Equal(t, began, w.server.Calls().ByOperation["createLoadBalancerRule"])
		w.sim.HoldJobs(false)
		time.Sleep(2 * observedMaxAge)
		w.ensure(s)
		require.Len(t, w.sim.Rules(), 1)
		assert.NotEqual(t, id, w.sim.Rules()[0].ID)
		assert.Len(t, w.sim.Rules()[0].Members, 2)
		assert.Len(t, w.takenAddresses(), 1)
		assert.Equal(t, began+1, w.server.Calls().ByOperation["createLoadBalancerRule"])
	})
}

// TestConflictsOfTwoControllers: CloudStack refuses for a moment what collides with another controller's work in the network; that is tried
// again, and both are served.
func TestConflictsOfTwoControllers(t *testing.T) {
	for _, command := range []string{"createLoadBalancerRule", "assignToLoadBalancerRule", "createFirewallRule"} {
		t.Run(command, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				t := w.T
				a, b := service("a", nil, port("http", 80, 30080)), another(service("b", nil, port("http", 80, 30081)))
				w.Apply(a, b)
				w.ensure(a)
				w.restart() // the other one
				w.sim.FailJobs(cloudstacksim.Failure{Command: command, Code: 537, Text: "There is already a concurrent operation on the network"})
				_, err := w.try(b)
				require.ErrorContains(t, err, "concurrent")
				time.Sleep(2 * creationShows)
				w.ensure(b)
				assert.Len(t, w.sim.Rules(), 2)
				for _, r := range w.sim.Rules() {
					assert.Len(t, r.Members, 2, r.Name)
				}
				assert.Len(t, w.sim.Firewalls(), 2)
				assert.Len(t, w.takenAddresses(), 2)
				w.requireNoWrites(a)
				w.requireNoWrites(b)
			})
		})
	}
}

// TestLimitOfCalls: under the limit that CloudStack has by default nothing is refused, and where it refuses everything for a while, no node
// is gone and the Service is served afterwards.
func TestLimitOfCalls(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		w.sim.SetLimit(cloudstacksim.PublishedCalls, cloudstacksim.PublishedInterval)
		w.sim.Seed(40)
		for n := range 40 {
			w.addNode("more-" + string(rune('a'+n%26)) + string(rune('a'+n/26)))
		}
		s := service("web", nil, port("http", 80, 30080), port("https", 443, 30443))
		w.Apply(s)
		w.ensure(s)
		for _, c := range w.server.Calls().Latest {
			require.NotEqual(t, 429, c.Status, c.Operation)
		}
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, For: simkit.Duration(10 * time.Second)})
		require.NoError(t, err)
		for _, n := range w.nodes[:3] {
			exists, err := w.instances.InstanceExists(t.Context(), n)
			assert.True(t, exists || err != nil)
		}
		w.alter(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
		w.ensure(s)
		assert.Len(t, w.sim.Rules(), 1)
	})
}

// TestRangesAreNeverOpen: while a Service's source ranges change, and whatever fails meanwhile, no port is open to more clients than
// it was before or is to be.
func TestRangesAreNeverOpen(t *testing.T) {
	for _, tier := range []bool{false, true} {
		for _, broken := range []string{"", "createFirewallRule", "deleteFirewallRule", "createNetworkACL", "deleteNetworkACL"} {
			t.Run(map[bool]string{true: "tier", false: "isolated"}[tier]+" "+broken, func(t *testing.T) {
				prepare := func(s *cloudstacksim.Sim) string {
					if tier {
						s.MakeTier()
					}
					return ""
				}
				inCluster(t, prepare, func(w *cluster) {
					s := w.serve("web", port("http", 80, 30080))
					w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24"} })
					w.server.Inspect(func(*http.Request, []byte, func(*http.Request) *httptest.ResponseRecorder) func() {
						for _, f := range w.sim.Firewalls() {
							assert.NotContains(t, f.CIDRs, everybody)
						}
						for _, i := range w.sim.ACLItems() {
							assert.NotContains(t, i.CIDRs, everybody)
						}
						return nil
					})
					if broken != "" {
						w.sim.FailJobs(cloudstacksim.Failure{Command: broken, Code: 530, Text: "the router is down", Count: 2})
					}
					for _, list := range [][]string{nil, {"192.0.2.0/24"}, {"192.0.2.0/24", "203.0.113.0/24"}, {"198.51.100.0/25"}} {
						if list != nil {
							w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = list })
						}
						for range 4 {
							if _, err := w.insist(s); err == nil {
								break
							}
							time.Sleep(time.Minute)
						}
						w.requireServed(s)
					}
					w.server.Inspect(nil)
					if tier {
						require.Len(t, w.sim.ACLItems(), 1)
						assert.Equal(t, []string{"198.51.100.0/25"}, w.sim.ACLItems()[0].CIDRs)
					} else {
						require.Len(t, w.sim.Firewalls(), 1)
						assert.Equal(t, []string{"198.51.100.0/25"}, w.sim.Firewalls()[0].CIDRs)
					}
					w.remove(s)
					assert.Empty(t, w.sim.Firewalls())
					assert.Empty(t, w.sim.ACLItems())
					assert.Empty(t, w.takenTexts())
				})
			})
		}
	}
}

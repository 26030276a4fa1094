package azure

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// kept and former are ranges of which only the first is asked for later.
const kept, former = "10.0.0.0/8", "192.0.2.0/24"

// mayEnter are the sources that the rules let in to an address.
func (w *world) mayEnter(ip string) (list []string) {
	for _, rule := range w.securityRules() {
		if str(rule, "properties", "access") == "Allow" && slices.Contains(destinationsOf(rule), ip) {
			list = append(list, fieldValues(rule, "sourceAddressPrefix", "sourceAddressPrefixes")...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func narrowed(to ...string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = to }
}

// serveNarrowed runs a test for a Service with one node that is open to the ranges given.
func serveNarrowed(t *testing.T, from []string, test func(w *world, s *v1.Service, ip string)) {
	t.Helper()
	t.Parallel()
	s := webService(nil, narrowed(from...))
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		require.NotEmpty(w, w.mayEnter(ip))
		waitFor(2 * observeMaxAge)
		test(w, s, ip)
	})
}

// changeGroup changes the rules of the security group as somebody does by hand.
func (w *world) changeGroup(change func(rules []doc) []doc) {
	group := w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName))
	setList(group, "securityRules", change(docs(group, "properties", "securityRules")))
	w.sim.Leave(str(group, "id"), group)
	waitFor(2 * observeMaxAge)
}

// fail makes all calls of an operation fail.
func (w *world) fail(operation string) {
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: operation})
	require.NoError(w, err)
}

// joinAlone adds a node that no scale set brings into the pool.
func (w *world) joinAlone(name string) { w.joinAs(name, w.sim.AddMachine(name)) }

// TestNarrowingIsNotHeldUpByARefusedWrite of the load balancer, of its members, or of an address.
func TestNarrowingIsNotHeldUpByARefusedWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused string
		change  func(w *world, s *v1.Service)
	}{
		"load balancer": {"PUT Microsoft.Network/loadBalancers", func(_ *world, s *v1.Service) { s.Annotations[annotationIdle] = "30" }},
		"members":       {"PUT Microsoft.Network/networkInterfaces", func(w *world, _ *v1.Service) { w.joinAlone("n2") }},
		"address":       {"PUT Microsoft.Network/publicIPAddresses", func(_ *world, s *v1.Service) { s.Annotations[annotationTags] = "team=web" }},
	} {
		t.Run(name, func(t *testing.T) {
			serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
				w.fail(c.refused)
				w.change(s, func(s *v1.Service) {
					narrowed(kept)(s)
					c.change(w, s)
				})
				for range 3 {
					_ = w.refuse(s)
					waitFor(2 * observeMaxAge)
				}
				assert.Equal(w, []string{kept}, w.mayEnter(ip))
			})
		})
	}
}

// TestNarrowingKeepsTheInternet as a service tag that the Service names: its rule is not written again.
func TestNarrowingKeepsTheInternet(t *testing.T) {
	t.Parallel()
	for _, tags := range []string{"Internet", "Internet,AzureCloud"} {
		inWorld(t, func(w *world) {
			w.join("n1")
			s := webService(map[string]string{annotationServiceTags: tags})
			w.Apply(s)
			w.ensure(s)
			w.quiet(s)
			w.change(s, func(s *v1.Service) { s.Annotations[annotationServiceTags] = "AzureCloud" })
			s = w.ensure(s)
			assert.Equal(w, []string{"AzureCloud"}, w.mayEnter(s.Status.LoadBalancer.Ingress[0].IP))
			w.quiet(s)
		})
	}
}

// TestNarrowingIsNotHeldUpByACheck of something else.
func TestNarrowingIsNotHeldUpByACheck(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, s *v1.Service){
		"illegal annotation": func(_ *world, s *v1.Service) { s.Annotations[annotationIdle] = "nonsense" },
		"address not there":  func(_ *world, s *v1.Service) { s.Spec.LoadBalancerIP = "20.99.0.1" },
		"further address":    func(w *world, s *v1.Service) { s.Annotations[annotationAdditional] = internalIP(w.nodes[0], false) },
	} {
		t.Run(name, func(t *testing.T) {
			serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
				w.change(s, func(s *v1.Service) {
					narrowed(kept)(s)
					change(w, s)
				})
				_ = w.refuse(s)
				assert.Equal(w, []string{kept}, w.mayEnter(ip))
			})
		})
	}
}

// TestNarrowingIsNotHeldUpByMachines whose network interfaces cannot be listed.
func TestNarrowingIsNotHeldUpByMachines(t *testing.T) {
	serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
		w.joinAlone("n2")
		w.ensure(s)
		w.restart()
		w.fail("GET Microsoft.Network/networkInterfaces")
		w.change(s, narrowed(kept))
		_, err := w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes)
		assert.Equal(w, []string{kept}, w.mayEnter(ip), "%v", err)
	})
}

// TestNarrowingOfNodesIsNotHeldUpByOneMachine: where rules name nodes, one whose machine cannot be read holds up no other. It is narrowed
// by a process that has read it before.
func TestNarrowingOfNodesIsNotHeldUpByOneMachine(t *testing.T) {
	t.Parallel()
	// Nodes come in any order, and some hide the fault.
	for _, restart := range []bool{false, true, true, true, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			s := webService(map[string]string{annotationNoFloating: "true"})
			withNode(t, s, func(w *world) {
				// Its machine is read by itself.
				far := internalIP(w.joinAs("far", w.sim.AddMachineTo(azuresim.OtherGroup, "far")), false)
				w.ensure(s)
				require.NotEmpty(w, w.mayEnter(far))
				waitFor(2 * time.Hour)
				if restart {
					w.restart()
				}
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Names: "far-nic", Reads: true})
				require.NoError(w, err)
				w.change(s, narrowed(kept))
				err = w.refuse(s)
				assert.Equal(w, []string{kept}, w.mayEnter(internalIP(w.nodes[0], false)), "the other node is open to everybody: %v", err)
				assert.NotEmpty(w, w.mayEnter(far), "it serves on: %v", err)
				if !restart {
					assert.Equal(w, []string{kept}, w.mayEnter(far), "%v", err)
				}
				assert.Empty(w, w.cloud.reconciler.former.leftovers, "no node has gone")
				w.server.ClearFaults()
				w.ensure(s)
				for _, n := range w.nodes {
					assert.Equal(w, []string{kept}, w.mayEnter(internalIP(n, false)))
				}
			})
		})
	}
}

// TestNarrowingWithoutNodes: a Service that no node serves is narrowed all the same.
func TestNarrowingWithoutNodes(t *testing.T) {
	serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
		w.nodes = nil
		w.change(s, narrowed(kept))
		w.ensure(s)
		assert.Equal(w, []string{kept}, w.mayEnter(ip))
	})
}

// TestRefusedServiceDeniesOthers: all others are denied although something else is refused, and former clients with them.
func TestRefusedServiceDeniesOthers(t *testing.T) {
	t.Parallel()
	for kind, annotations := range map[string]map[string]string{"public": {}, "internal": {annotationInternal: "true"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := webService(annotations, narrowed(kept, former))
			withNode(t, s, func(w *world) {
				ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
				waitFor(2 * observeMaxAge)
				w.change(s, func(s *v1.Service) {
					narrowed(kept)(s)
					s.Annotations[annotationDenyAll], s.Annotations[annotationIdle] = "true", "nonsense"
				})
				_ = w.refuse(s)
				assert.True(w, w.isDenied(ip), "all others may connect")
				assert.Equal(w, []string{kept}, w.mayEnter(ip))
				writes := w.server.Calls().Writes
				_ = w.refuse(s)
				assert.Equal(w, writes, w.server.Calls().Writes, "it is denied once")
			})
		})
	}
}

// TestNarrowingOfServiceTags: tags that are asked for no more go, and new ones come in only where everybody was let in, or all was.
func TestNarrowingOfServiceTags(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		have, tags, want []string
		whole            bool
	}{
		"one of two goes":          {[]string{"AzureCloud", "Storage"}, []string{"Storage"}, []string{"Storage"}, false},
		"another one comes":        {[]string{"AzureCloud"}, []string{"Storage"}, nil, false},
		"and nothing is wrong":     {[]string{"AzureCloud"}, []string{"Storage"}, []string{"Storage"}, true},
		"instead of everybody":     {[]string{sourceInternet}, []string{"Storage"}, []string{"Storage"}, false},
		"instead of a network":     {[]string{former}, []string{"Storage"}, nil, false},
		"nobody is to be shut out": {[]string{"Storage"}, []string{"AzureCloud", "Storage"}, []string{"Storage"}, false},
	} {
		after, narrower := clients{sources.New(nil, false), c.tags, c.whole}.narrow(c.have, false)
		assert.Equal(t, c.want, after, name)
		assert.Equal(t, name != "nobody is to be shut out", narrower, name)
	}
}

// TestSourcesOfSeveralDestinationsCountOnce: where one source fits, it may connect to all nodes.
func TestSourcesOfSeveralDestinationsCountOnce(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true"}, narrowed(former))
	withNode(t, s, func(w *world) {
		w.joinAlone("n2")
		w.ensure(s)
		waitFor(2 * observeMaxAge)
		w.changeGroup(fullOfSources)
		w.change(s, narrowed(kept, "198.51.100.0/24"))
		err := w.refuse(s)
		for _, n := range w.nodes {
			assert.Len(w, w.mayEnter(internalIP(n, false)), 1, "%v", err)
		}
	})
}

// fullOfSources has somebody's rule take all sources of a security group but one.
func fullOfSources(rules []doc) []doc {
	var many []any
	for i := range azurelimits.Sources.Max - 1 {
		many = append(many, netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}).String())
	}
	theirs := leftAllow("IPv4", "", 300, "Tcp", many, "10.0.0.9", "22")
	theirs["name"] = "theirs"
	return append(rules, theirs)
}

// TestNarrowingIsNotHeldUpByAFullGroup: former clients leave, and members join, where there is no room for the new ones.
func TestNarrowingIsNotHeldUpByAFullGroup(t *testing.T) {
	t.Parallel()
	full := map[string]func(rules []doc) []doc{
		"sources": fullOfSources,
		"rules": func(rules []doc) []doc {
			for p := firstPriority + 1; p < firstPriority+azurelimits.SecurityRules.Max; p++ {
				theirs := leftAllow("IPv4", "", p, "Tcp", "10.0.0.8", "10.0.0.9", "22")
				theirs["name"] = fmt.Sprint("theirs-", p)
				rules = append(rules, theirs)
			}
			return rules
		},
	}
	for name, fill := range full {
		t.Run(name, func(t *testing.T) {
			serveNarrowed(t, []string{former}, func(w *world, s *v1.Service, ip string) {
				w.changeGroup(fill)
				w.change(s, func(s *v1.Service) {
					s.Spec.LoadBalancerSourceRanges = []string{kept, "198.51.100.0/24"}
					s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP, NodePort: 30053})
				})
				w.joinAlone("n2")
				err := w.refuse(s)
				assert.NotContains(w, w.mayEnter(ip), former, "%v", err)
				assert.Equal(w, 2, strings.Count(w.sim.Snapshot(), " pool kubernetes member "), "n2 has joined: %v", err)
			})
		})
	}
}

// TestRuleWithAPriorityOfSomebodys: a rule of ours that was given another priority by hand is still one that a Service leaves.
func TestRuleWithAPriorityOfSomebodys(t *testing.T) {
	t.Parallel()
	moved := func(rules []doc) []doc {
		props(rules[0])["priority"] = 400
		return rules
	}
	t.Run("narrowed", func(t *testing.T) {
		serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
			w.changeGroup(moved)
			w.change(s, narrowed(kept))
			w.ensure(s)
			assert.Equal(w, []string{kept}, w.mayEnter(ip))
		})
	})
	t.Run("removed", func(t *testing.T) {
		serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
			w.changeGroup(moved)
			w.remove(s)
			assert.Empty(w, w.mayEnter(ip))
		})
	})
	t.Run("joined", func(t *testing.T) {
		serveNarrowed(t, nil, func(w *world, _ *v1.Service, _ string) {
			w.changeGroup(moved)
			second := webNumber(1, nil)
			w.Apply(second)
			ip := w.ensure(second).Status.LoadBalancer.Ingress[0].IP
			require.Equal(w, []string{"Internet"}, w.mayEnter(ip))
			waitFor(2 * observeMaxAge)
			w.remove(second)
			assert.Empty(w, w.mayEnter(ip))
		})
	})
}

// TestNarrowingLeavesWhatAnotherServiceGotMeanwhile, on an address that both have.
func TestNarrowingLeavesWhatAnotherServiceGotMeanwhile(t *testing.T) {
	t.Parallel()
	later := func(ip string) *v1.Service {
		return webNumber(1, map[string]string{annotationIPv4: ip}, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 })
	}
	t.Run("planned before", func(t *testing.T) {
		serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
			second := later(ip)
			w.Apply(second)
			w.change(s, narrowed(kept))
			r := w.cloud.reconciler
			q := services.Request{Purpose: services.Ensure, Cluster: clusterName, Service: w.Current(s), Nodes: w.nodes}
			o, err := r.Observe(w.Context(), q)
			require.NoError(w, err)
			o, _, err = r.CheckOwner(w.Context(), q, o)
			require.NoError(w, err)
			d, _, err := r.Desire(w.Context(), q, o)
			require.NoError(w, err)
			changes, err := r.Changes(q, o, d)
			require.NoError(w, err)
			require.Len(w, changes, 1)
			w.ensure(second)
			require.True(w, w.allowed(ip, "8080"))
			_, err = changes[0].Make(w.Context(), &q, o)
			require.NoError(w, err)
			assert.True(w, w.allowed(ip, "8080"), "the second one was let in already")
		})
	})
	for _, half := range []int{0, 3, 6, 9} {
		t.Run(fmt.Sprint("at the same time ", half), func(t *testing.T) {
			serveNarrowed(t, nil, func(w *world, s *v1.Service, ip string) {
				second := later(ip)
				w.Apply(second)
				w.change(s, narrowed(kept))
				for i := range 3 {
					w.joinAlone(fmt.Sprint("alone-", i))
				}
				var all sync.WaitGroup
				all.Go(func() {
					_, err := w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(second), w.nodes)
					assert.NoError(w, err)
				})
				waitFor(time.Duration(half) * 500 * time.Millisecond)
				w.ensure(s)
				all.Wait()
				assert.Equal(w, []string{kept, "Internet"}, w.mayEnter(ip), "both are served")
			})
		})
	}
}

// TestRuleThatSomebodyChanged says again what its name stands for, whatever somebody has made of it by hand.
func TestRuleThatSomebodyChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p doc){
		"sources":      func(p doc) { setFieldValues(p, "sourceAddressPrefix", "sourceAddressPrefixes", []string{"*"}) },
		"denied":       func(p doc) { p["access"] = "Deny" },
		"ports":        func(p doc) { setFieldValues(p, "destinationPortRange", "destinationPortRanges", []string{"80", "22"}) },
		"all ports":    func(p doc) { setFieldValues(p, "destinationPortRange", "destinationPortRanges", []string{"*"}) },
		"protocol":     func(p doc) { p["protocol"] = "*" },
		"source ports": func(p doc) { p["sourcePortRange"] = "1024-65535" },
	} {
		for _, from := range [][]string{{kept}, nil} {
			t.Run(fmt.Sprint(name, " ", from), func(t *testing.T) {
				serveNarrowed(t, from, func(w *world, s *v1.Service, _ string) {
					before := w.securityRules()
					w.changeGroup(func(rules []doc) []doc {
						change(props(rules[0]))
						return rules
					})
					w.restart()
					w.ensure(s)
					after := w.securityRules()
					require.Len(w, after, 1)
					assert.Equal(w, accessOf(parsed[securityRule](before[0])), accessOf(parsed[securityRule](after[0])))
					assert.Equal(w, "*", str(after[0], "properties", "sourcePortRange"))
					w.server.ResetCalls()
					w.ensure(s)
					assert.Zero(w, w.server.Calls().Writes)
				})
			})
		}
	}
}

package oci

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// marks are the descriptions of the rules about a port in the security list of load balancers.
func (w *testWorld) marks(port int) (all []string) {
	w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
		for n, rules := range [][]any{in, out} {
			for _, v := range rules {
				rule, _ := v.(document)
				if o, single := openingOf(rule, n == 1); single && o.port == port {
					said, _ := rule["description"].(string)
					all = append(all, said)
				}
			}
		}
		return in, out
	})
	slices.Sort(all)
	return all
}

// TestRulesOfALaterService: what a Service closes when the cloud's work has ended is judged by the Services of then.
func TestRulesOfALaterService(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		a := conformance.Service("web", map[string]string{}, web())
		w.serving(a)
		w.requireServed(a, nodes)
		a = local(a.DeepCopy())
		w.serving(a)
		w.sim.SetWorkTime(time.Minute)
		done := make(chan error, 1)
		go func() {
			_, err := w.ensure(a, nodes)
			done <- err
		}()
		time.Sleep(5 * time.Second)
		w.sim.SetWorkTime(time.Second)
		b := other(map[string]string{}, conformance.Port("alt", 8080, 30081))
		w.serving(a, b)
		w.requireServed(b, nodes)
		require.NoError(w, <-done)
		assert.ElementsMatch(w, []string{
			"ingress 6 80 0.0.0.0/0", "egress 6 30080 " + nodeNet, "egress 6 32000 " + nodeNet,
			"ingress 6 8080 0.0.0.0/0", "egress 6 30081 " + nodeNet, "egress 6 10256 " + nodeNet,
		}, w.sim.SecurityRules(ocisim.BalancerList))
	})
}

// TestRulesOfTwoClusters: clusters that share a subnet share rules, and none takes those away that another one needs.
func TestRulesOfTwoClusters(t *testing.T) {
	const theirs = "anyccm:99999999-7a66-4b58-8b4b-0a61c1f9e0a1"
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		mark, err := w.cloud.loadBalancers.cluster.Mark(w.Context())
		require.NoError(w, err)
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 80, everybody}.rule(theirs)), out
		})
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.requireServed(s, nodes)
		require.Len(w, w.marks(80), 1, "the rule is not doubled")
		assert.Contains(w, w.marks(80)[0], theirs)
		assert.Contains(w, w.marks(80)[0], mark, "the other cluster must know that this one needs it as well")
		w.Server.ResetCalls()
		w.start()
		w.serving(s)
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		w.deleted(s)
		assert.Equal(w, []string{theirs}, w.marks(80), "the other cluster needs it still")
		assert.Empty(w, w.marks(30080))
	})
}

// TestRangesOfFamilies: everybody of one family is not everybody of the other one.
func TestRangesOfFamilies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ranges   []string
		families []v1.IPFamily
		want     []string
	}{
		"none":            {nil, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{everybody, everybodyIPv6}},
		"everybody alone": {[]string{everybody}, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{everybody, everybodyIPv6}},
		"everybody of IPv4": {
			[]string{everybody, "2001:db8::/32"}, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{everybody, "2001:db8::/32"},
		},
		"everybody of IPv6": {
			[]string{"10.0.0.0/8", everybodyIPv6}, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{"10.0.0.0/8", everybodyIPv6},
		},
		"a network of IPv6 alone":    {[]string{everybody, "2001:db8::/32"}, []v1.IPFamily{v1.IPv6Protocol}, []string{everybody, "2001:db8::/32"}},
		"everybody, and some others": {[]string{everybody, "10.0.0.0/8"}, nil, []string{everybody, "10.0.0.0/8"}},
	} {
		s := conformance.Service("web", nil, web())
		s.Spec.LoadBalancerSourceRanges, s.Spec.IPFamilies = c.ranges, c.families
		got, err := sourcesOf(s)
		require.NoError(t, err)
		assert.ElementsMatch(t, c.want, got, name)
	}
}

// TestRulesByHand: a rule without a description that was there before a load balancer of ours is somebody's, and stays when it goes. Of
// one that Oracle's own controller has made, rules without a description are its own.
func TestRulesByHand(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 80, everybody}.rule("")), out
		})
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.requireServed(s, nodes)
		w.deleted(s)
		assert.Equal(w, fronts(everybody), w.sim.SecurityRules(ocisim.BalancerList))
		assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
	})
}

// TestRuleFullOfMarks: a rule whose description has no room for our mark stands for ours, until the other clusters need it no more and a
// Service changes. It never goes with ours.
func TestRuleFullOfMarks(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		mark, err := w.cloud.loadBalancers.cluster.Mark(w.Context())
		require.NoError(w, err)
		var theirs []string
		for n := range 5 {
			theirs = append(theirs, fmt.Sprintf("anyccm:9999999%d-7a66-4b58-8b4b-0a61c1f9e0a1", n))
		}
		full := strings.Join(append(theirs, "anyccm:9999999a-7a66-4b58-8b4b"), " ")
		require.Error(w, ocilimits.RuleDescription.CheckText(full+" "+mark))
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 80, everybody}.rule(full)), out
		})
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.requireServed(s, nodes)
		require.Equal(w, []string{full}, w.marks(80))
		w.deleted(s)
		require.Equal(w, []string{full}, w.marks(80), "it is theirs")
		s = s.DeepCopy()
		w.requireServed(s, nodes)
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return slices.DeleteFunc(in, func(r any) bool { return r.(document)["description"] == full }), out
		})
		time.Sleep(time.Hour)
		w.requireServed(s, nodes)
		require.Equal(w, []string{mark}, w.marks(80))
	})
}

// TestNodesJoinWithoutRules: security lists that cannot be changed keep no node from joining or leaving.
func TestNodesJoinWithoutRules(t *testing.T) {
	for name, annotations := range map[string]map[string]string{typeBalancer: {}, typeNLB: ofNetwork(annotationRuleMode, "SL-All")} {
		for fault, cause := range map[string]func(w *testWorld){
			"full": func(w *testWorld) {
				w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
					for n := len(out); n < 200; n++ {
						out = append(out, opening{true, numberTCP, 20000 + n, everybody}.rule("by hand"))
					}
					return in, out
				})
			},
			"hidden": func(w *testWorld) { w.sim.Hide("/securityLists/") },
		} {
			t.Run(name+" "+fault, func(t *testing.T) {
				marking(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := conformance.Service("web", annotations, web())
					w.serving(s)
					w.requireServed(s, nodes[:1])
					time.Sleep(time.Minute)
					cause(w)
					asked := w.Server.Calls().ByOperation[putList]
					err := w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes)
					require.Error(w, err, "which is told")
					if fault == "full" {
						require.ErrorContains(w, err, "a security list would have 202 egress rules, and the cloud takes at most 200; use fewer")
					}
					assert.Equal(w, asked, w.Server.Calls().ByOperation[putList], "what must fail is not asked for")
					var doc document
					if name == typeBalancer {
						doc = w.balancer().Doc
					} else {
						doc = w.nlb().Doc
					}
					assert.Len(w, fieldOf[[]any](doc["backendSets"].(document)["TCP-80"].(document), "backends"), 2)
				})
			})
		}
	}
}

// TestRulesInUse: what the load balancer of another Service still uses stays open, whatever that Service asks for meanwhile.
func TestRulesInUse(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		a, b := conformance.Service("web", map[string]string{}, web()), other(map[string]string{}, conformance.Port("alt", 8080, 30081))
		w.serving(a, b)
		w.requireServed(a, nodes)
		w.requireServed(b, nodes)
		changed := b.DeepCopy()
		changed.Spec.Ports = []v1.ServicePort{conformance.Port("alt", 8081, 30082)}
		changed.Annotations[annotationPolicy] = "no policy"
		_, err := w.ensure(changed, nodes)
		require.Error(w, err)
		w.serving(a, changed)
		time.Sleep(time.Minute)
		a.Spec.Ports[0].NodePort = 30099
		w.requireServed(a, nodes)
		for _, want := range []string{"ingress 6 8080 0.0.0.0/0", "egress 6 30081 " + nodeNet} {
			assert.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), want)
		}
		assert.Contains(w, w.sim.SecurityRules(ocisim.DefaultList), "ingress 6 30081 "+balancerNet)
		w.serving(a, b)
		b.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		w.requireServed(b, nodes)
		assert.NotContains(w, w.sim.SecurityRules(ocisim.BalancerList), "ingress 6 8080 0.0.0.0/0")
	})
}

// TestRulesAfterAModeChange: rules that a process before this one made go with their Service, however they are managed now.
func TestRulesAfterAModeChange(t *testing.T) {
	for _, mode := range []string{modeNone, "SL-Frontend", modeGroups} {
		for _, kind := range []string{typeBalancer, typeNLB} {
			t.Run(mode+" "+kind, func(t *testing.T) {
				marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
					s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
					w.serving(s)
					w.requireServed(s, nodes)
					require.NotEmpty(w, w.allRules())
					s = s.DeepCopy()
					s.Annotations[annotationRuleMode] = mode
					byHand := []opening{{false, numberTCP, 80, "192.0.2.0/24"}, {true, numberTCP, 30080, "192.0.2.0/24"}}
					w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
						return append(in, byHand[0].rule("")), append(out, byHand[1].rule(""))
					})
					w.start()
					w.cloud.loadBalancers.setEvents(events)
					w.serving(s)
					w.requireServed(s, nodes)
					w.deleted(s)
					assert.Equal(w, "egress 6 30080 192.0.2.0/24\ningress 6 80 192.0.2.0/24", w.allRules())
				})
			})
		}
	}
}

// TestRulesWhereAddressesAreHidden: the rules of nodes go with their Service although nobody may list addresses, with the mark of the
// cluster or without, and although the nodes are gone before. Where the subnet may not be read either, an event says what may be left.
func TestRulesWhereAddressesAreHidden(t *testing.T) {
	worlds := map[string]func(*testing.T, []string, func(*testWorld, []*v1.Node, *record.FakeRecorder)){"marked": marking, "without a mark": balancing}
	for world, run := range worlds {
		for _, kind := range []string{typeBalancer, typeNLB} {
			for subnet, readable := range map[string]bool{"subnet read": true, "subnet hidden": false} {
				t.Run(world+" "+kind+" "+subnet, func(t *testing.T) {
					run(t, nil, func(w *testWorld, _ []*v1.Node, events *record.FakeRecorder) {
						node, nodes := w.join("a", nil), w.Nodes
						s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
						w.start()
						w.serving(s)
						w.requireServed(s, nodes)
						require.Contains(w, w.sim.SecurityRules(ocisim.DefaultList), "ingress 6 30080 "+balancerNet)
						w.Nodes = nil
						w.start()
						w.cloud.loadBalancers.setEvents(events)
						w.serving(s)
						if w.sim.Hide("/privateIps"); !readable {
							w.sim.Hide("/privateIps", "/subnets/"+w.subnetOf(node))
						}
						w.deleted(s)
						if readable {
							assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
							return
						}
						require.NotEmpty(w, events.Events, "rules stay: %v", w.sim.SecurityRules(ocisim.DefaultList))
						assert.Contains(w, <-events.Events, "rules that were made for the Service may be left: ")
					})
				})
			}
		}
	}
}

// subnetOf is the subnet of a node's first network interface.
func (w *testWorld) subnetOf(n *v1.Node) (id string) {
	w.Helper()
	require.NoError(w, w.sim.Change(mustID(w, n), func(i *ocisim.Instance) {
		i.Interfaces(func(all []ocisim.VNIC) []ocisim.VNIC { id = all[0].Subnet; return all })
	}))
	return id
}

// TestGroupsAfterARestart: rules of security lists that a Service still needs stay until it has its network security group.
func TestGroupsAfterARestart(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNLB} {
		t.Run(kind, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
				b := other(map[string]string{}, conformance.Port("alt", 8080, 30081))
				w.serving(s, b)
				w.requireServed(s, nodes)
				w.requireServed(b, nodes)
				s = s.DeepCopy()
				s.Annotations[annotationRuleMode], s.Annotations[annotationBackGroups] = modeGroups, ocisim.GroupID(1)
				w.start()
				w.serving(s, b)
				b.Spec.Ports[0].NodePort = 30082
				w.requireServed(b, nodes)
				for _, want := range []string{"ingress 6 80 0.0.0.0/0", "egress 6 30080 " + nodeNet, "ingress 6 30080 " + balancerNet} {
					assert.Contains(w, w.allRules(), want, "nothing else lets its clients in yet")
				}
				w.requireServed(s, nodes)
				time.Sleep(time.Minute)
				b.Spec.Ports[0].NodePort = 30083
				w.requireServed(b, nodes)
				assert.NotContains(w, w.allRules(), " 30080 ")
			})
		})
	}
}

// TestOtherKindAfterARestart: what a load balancer of the other kind still uses stays open after a restart, too.
func TestOtherKindAfterARestart(t *testing.T) {
	for _, kinds := range [][2]string{{typeBalancer, typeNLB}, {typeNLB, typeBalancer}} {
		t.Run(kinds[0], func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{annotationType: kinds[0], annotationRuleMode: "SL-All"}, web())
				b := other(map[string]string{annotationType: kinds[1], annotationRuleMode: "SL-All"}, conformance.Port("alt", 8080, 30081))
				w.serving(s, b)
				w.requireServed(s, nodes)
				w.requireServed(b, nodes)
				s = s.DeepCopy()
				s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 81, 30090
				s.Annotations[annotationRetries], s.Annotations[nlbRetries] = "many", "many"
				w.start()
				w.serving(s, b)
				_, err := w.ensure(s, nodes)
				require.Error(w, err)
				b.Spec.Ports[0].NodePort = 30082
				w.requireServed(b, nodes)
				for _, want := range []string{"ingress 6 80 0.0.0.0/0", "egress 6 30080 " + nodeNet, "ingress 6 30080 " + balancerNet} {
					assert.Contains(w, w.allRules(), want)
				}
			})
		})
	}
}

// TestModesWithRestarts: rules of each mode go when the mode has changed, whatever process made them, and nothing is left in the end.
func TestModesWithRestarts(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNLB} {
		for _, modes := range [][]string{{"SL-All", modeNone, modeGroups}, {modeGroups, modeNone, "SL-All"}, {"SL-All", modeGroups, "SL-Frontend"}} {
			t.Run(kind+" "+strings.Join(modes, " "), func(t *testing.T) {
				marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := conformance.Service("web", map[string]string{annotationType: kind, annotationBackGroups: ocisim.GroupID(1)}, web())
					for _, mode := range modes {
						s = s.DeepCopy()
						s.Annotations[annotationRuleMode] = mode
						w.start()
						w.serving(s)
						w.requireServed(s, nodes)
						switch mode {
						case modeGroups:
							require.Len(w, w.managed(), 1)
							assert.NotEmpty(w, w.managed()[0].Rules)
						case modeNone:
							assert.Empty(w, w.managed())
						default:
							assert.Empty(w, w.managed())
							assert.Contains(w, w.allRules(), "ingress 6 80 0.0.0.0/0")
						}
						time.Sleep(time.Minute)
					}
					w.start()
					w.serving(s)
					w.deleted(s)
					assert.Empty(w, w.allRules())
					assert.Empty(w, w.managed())
					assert.Empty(w, w.sim.Groups()[0].Rules)
				})
			})
		}
	}
}

// TestRangesThereAndBack: source ranges of security lists that change there and back, with restarts.
func TestRangesThereAndBack(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(map[bool]string{true: "restarts", false: "one process"}[restarts], func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s, b := conformance.Service("web", map[string]string{}, web()), other(map[string]string{}, conformance.Port("http", 80, 30090))
				b.Spec.LoadBalancerSourceRanges = []string{"10.1.0.0/16", "10.9.0.0/16"}
				w.serving(s, b)
				w.requireServed(b, nodes)
				for _, ranges := range [][]string{{"10.8.0.0/16"}, {"10.9.0.0/16"}, {"10.8.0.0/16"}, {"10.9.0.0/16", "10.8.0.0/16"}, {"10.8.0.0/16"}} {
					s = s.DeepCopy()
					s.Spec.LoadBalancerSourceRanges = ranges
					if restarts {
						w.start()
					}
					w.serving(s, b)
					w.requireServed(s, nodes)
					var fronts []string
					for _, rule := range w.sim.SecurityRules(ocisim.BalancerList) {
						if network, ok := strings.CutPrefix(rule, "ingress 6 80 "); ok {
							fronts = append(fronts, network)
						}
					}
					want := slices.Sorted(slices.Values(append(ranges, b.Spec.LoadBalancerSourceRanges...)))
					assert.ElementsMatch(w, slices.Compact(want), fronts)
				}
				w.deleted(b)
				w.serving(s)
				assert.NotContains(w, w.allRules(), "10.9.0.0/16")
				w.deleted(s)
				assert.Empty(w, w.allRules())
			})
		})
	}
}

// TestNodePortOfAnother: that another Service's node port has the number of a Service's own port keeps no client of the latter in, neither
// when its source ranges are narrowed nor when it goes.
func TestNodePortOfAnother(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, conformance.Port("web", 30090, 30080))
		b := other(map[string]string{}, conformance.Port("alt", 8080, 30090))
		w.serving(s, b)
		w.requireServed(s, nodes)
		w.requireServed(b, nodes)
		s = s.DeepCopy()
		s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		w.serving(s, b)
		w.requireServed(s, nodes)
		assert.Equal(w, []string{"10.0.0.0/8", balancerNet}, w.mayConnect("30090"))
		w.deleted(s)
		assert.Equal(w, []string{balancerNet}, w.mayConnect("30090"), "the load balancer of the other Service reaches the nodes")
		assert.Contains(w, w.allRules(), "egress 6 30090 "+nodeNet)
	})
}

// TestRulesOfATakeoverGo: rules without a description of exactly the ports of a load balancer that Oracle's own controller made go with it,
// where no other Service has the port: that one leaves them open when source ranges are narrowed, and takes them away in the end.
func TestRulesOfATakeoverGo(t *testing.T) {
	for shared, left := range map[bool][]string{false: nil, true: {everybody}} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{}, web())
				w.serving(s)
				w.requireServed(s, nodes)
				require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { delete(lb.Doc, "freeformTags") }))
				w.sim.EditList(ocisim.BalancerList, func([]any, []any) (in, out []any) {
					return []any{
							opening{false, numberTCP, 80, everybody}.rule(""), opening{false, numberTCP, 80, "198.51.100.0/24"}.rule(""),
							opening{false, numberTCP, 81, "198.51.100.0/24"}.rule(""), opening{false, numberTCP, 80, "192.0.2.0/24"}.rule("by hand"),
						},
						[]any{opening{true, numberTCP, 30080, "10.0.128.0/18"}.rule(""), opening{true, numberTCP, kubeProxy, "10.0.128.0/18"}.rule("")}
				})
				w.start()
				w.serving(s)
				if shared {
					b := other(map[string]string{}, conformance.Port("http", 80, 30090))
					w.serving(s, b)
				}
				w.deleted(s)
				assert.Equal(w, slices.Sorted(slices.Values(append(left, "192.0.2.0/24"))), w.mayConnect("80"))
				assert.Equal(w, []string{"198.51.100.0/24"}, w.mayConnect("81"), "a port of nobody's")
				assert.NotContains(w, w.allRules(), "egress 6 30080")
				assert.Contains(w, w.allRules(), "egress 6 10256 10.0.128.0/18", "all Services may have the port of health checks")
			})
		})
	}
}

// TestRulesOfALeftPortGo: a port that a load balancer of Oracle's own controller leaves takes its rules along, whichever process narrowed
// them, unless another Service has it. Where nobody knows which cluster this is they stay, and the event names them.
func TestRulesOfALeftPortGo(t *testing.T) {
	for name, c := range map[string]struct{ known, shared, stays, told bool }{
		"of its own":           {known: true},
		"of another, too":      {known: true, shared: true, stays: true},
		"of nobody knows whom": {stays: true, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
				if c.known {
					w.mark()
				}
				s := conformance.Service("web", map[string]string{}, web())
				all := []*v1.Service{s}
				if c.shared {
					all = append(all, other(map[string]string{}, conformance.Port("http", 80, 30090)))
				}
				w.serving(all...)
				s.Status.LoadBalancer = *w.requireServed(s, nodes)
				require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { delete(lb.Doc, "freeformTags") }))
				w.sim.EditList(ocisim.BalancerList, func(_, out []any) (in, _ []any) {
					span := opening{false, numberTCP, 80, "198.18.0.0/15"}.rule("")
					span["tcpOptions"].(document)["destinationPortRange"].(document)["max"] = float64(81)
					return []any{
						opening{false, numberTCP, 80, everybody}.rule(""), opening{false, numberTCP, 80, "192.0.2.0/24"}.rule("by hand"),
						opening{false, numberUDP, 80, everybody}.rule(""), span,
					}, out
				})
				w.start()
				w.cloud.loadBalancers.setEvents(events)
				s.Spec.LoadBalancerSourceRanges, s.Spec.Ports[0].Port = []string{"203.0.113.0/24"}, 8080
				w.serving(all...)
				w.requireServed(s, nodes)
				after := w.sim.SecurityRules(ocisim.BalancerList)
				assert.Equal(w, c.stays, slices.Contains(after, "ingress 6 80 "+everybody), "%v", after)
				assert.Subset(w, after, []string{
					"ingress 17 80 " + everybody, "ingress 6 80 192.0.2.0/24", "ingress 6 80-81 198.18.0.0/15", "ingress 6 8080 203.0.113.0/24",
				}, "of another protocol, described by somebody, of more ports, and asked for")
				text := drainEvents(events)
				assert.Equal(w, c.told, strings.Contains(text, "TCP port 80 from 0.0.0.0/0 by a rule without a description"), text)
			})
		})
	}
}

// TestProcessThatEndsBeforeListsClose: a Service moves from security lists to a group, and the process ends at each of the writes. The next
// one closes the lists, also where the Service is refused by then and has its group, and reads them no more afterwards.
func TestProcessThatEndsBeforeListsClose(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNLB} {
		for at := 1; at <= 6; at++ {
			t.Run(fmt.Sprint(kind, " at write ", at), func(t *testing.T) {
				marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
					w.serving(s)
					s.Status.LoadBalancer = *w.requireServed(s, nodes)
					require.NotEmpty(w, w.allRules())
					s = s.DeepCopy()
					s.Annotations[annotationRuleMode], s.Annotations[annotationBackGroups] = modeGroups, ocisim.GroupID(1)
					w.serving(s)
					w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Writes: true, From: at})
					_, err := w.ensure(s, nodes)
					require.Error(w, err)
					require.NotEmpty(w, w.allRules())
					w.Server.ClearFaults()
					w.start()
					w.serving(s)
					if at == 6 { // the group is attached
						s.Annotations[annotationPolicy], s.Annotations[nlbPolicy] = "no policy", "no policy"
						_, err := w.ensure(s, nodes)
						require.Error(w, err)
						assert.Empty(w, w.allRules(), "the Service is refused")
						return
					}
					w.requireServed(s, nodes)
					assert.Empty(w, w.allRules())
					time.Sleep(time.Minute)
					w.requireServed(s, nodes)
					w.Server.ResetCalls()
					time.Sleep(time.Minute)
					w.requireServed(s, nodes)
					assert.Zero(w, w.Calls("GET /securityLists/{id}"), "once is enough")
				})
			})
		}
	}
}

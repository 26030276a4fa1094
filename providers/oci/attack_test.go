package oci

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
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

// TestOthersCompartment: a Service that names a compartment which the user may not read holds up no other Service.
func TestOthersCompartment(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		hostile := other(byHand(annotationCompartment, "ocid1.compartment.oc1..nobodys"), web())
		for round, annotations := range []map[string]string{
			{}, ofNetwork(), {annotationRuleMode: modeGroups, annotationBackGroups: ocisim.GroupID(1)},
		} {
			s := conformance.Service("web", annotations, web())
			w.serving(s, hostile)
			w.served(s, nodes)
			time.Sleep(time.Minute)
			w.deleted(s)
			_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
			require.NoError(w, err, round)
			assert.False(w, exists)
			assert.Empty(w, w.sim.LoadBalancers())
			assert.Empty(w, w.sim.NetworkLoadBalancers())
			assert.Empty(w, w.managed())
		}
		_, err := w.ensure(hostile, nodes)
		require.Error(w, err)
		w.deleted(hostile) // it never had one
		hostile.Annotations[annotationCompartment] = ocisim.Compartment
		w.served(hostile, nodes)
	})
}

// TestRulesOfALaterService: what a Service closes when the cloud's work has ended is judged by the Services of then.
func TestRulesOfALaterService(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		a := conformance.Service("web", map[string]string{}, web())
		w.serving(a)
		w.served(a, nodes)
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
		w.served(b, nodes)
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
		mark, err := w.cloud.reconciler.cluster.Mark(w.Context())
		require.NoError(w, err)
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 80, everybody}.rule(theirs)), out
		})
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.served(s, nodes)
		require.Len(w, w.marks(80), 1, "the rule is not doubled")
		assert.Contains(w, w.marks(80)[0], theirs)
		assert.Contains(w, w.marks(80)[0], mark, "the other cluster must know that this one needs it as well")
		w.Server.ResetCalls()
		w.start()
		w.serving(s)
		w.served(s, nodes)
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
		"none":            {nil, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{everybody, everybodySix}},
		"everybody alone": {[]string{everybody}, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{everybody, everybodySix}},
		"everybody of IPv4": {
			[]string{everybody, "2001:db8::/32"}, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{everybody, "2001:db8::/32"},
		},
		"everybody of IPv6": {
			[]string{"10.0.0.0/8", everybodySix}, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, []string{"10.0.0.0/8", everybodySix},
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

// TestCompartmentChanges: a load balancer is not lost from sight when its Service names another compartment, or none any more.
func TestCompartmentChanges(t *testing.T) {
	const compartment = "ocid1.compartment.oc1..aaaaother"
	for name, annotations := range map[string]map[string]string{typeBalancer: byHand(), typeNetwork: ofNetwork()} {
		t.Run(name, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				w.sim.Add("elsewhere", func(i *ocisim.Instance) { i.Compartment = compartment })
				annotations[annotationCompartment] = compartment
				s := conformance.Service("web", annotations, web())
				_, err := w.kube.CoreV1().Services(s.Namespace).Create(w.Context(), s, metav1.CreateOptions{})
				require.NoError(w, err)
				w.serving(s)
				status := w.served(s, nodes)
				s = s.DeepCopy()
				delete(s.Annotations, annotationCompartment)
				w.serving(s)
				time.Sleep(time.Hour)
				assert.Equal(w, status, w.served(s, nodes), "it stays where it is")
				assert.Len(w, w.sim.Holdings(), 1)
				time.Sleep(time.Hour)
				w.deleted(s)
				assert.Empty(w, w.sim.Holdings())
			})
		})
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
		w.served(s, nodes)
		w.deleted(s)
		assert.Equal(w, fronts(everybody), w.sim.SecurityRules(ocisim.BalancerList))
		assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
	})
}

// TestChangedBetweenWrites: what somebody sets by hand between two writes of ours stays.
func TestChangedBetweenWrites(t *testing.T) {
	for name, annotations := range map[string]map[string]string{typeBalancer: byHand(), typeNetwork: ofNetwork()} {
		t.Run(name, func(t *testing.T) {
			balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", annotations, web(), conformance.Port("alt", 8080, 30081))
				w.served(s, nodes[:1])
				drain := func(d document) {
					backend, _ := listOf(d["backendSets"].(document)["TCP-8080"].(document)["backends"])[0].(document)
					backend[map[string]string{typeBalancer: "drain", typeNetwork: "isDrain"}[name]] = true
				}
				w.sim.SetWorkTime(3 * time.Second)
				done := make(chan error, 1)
				go func() { done <- w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes) }()
				time.Sleep(3500 * time.Millisecond) // the first work has ended, and nobody has looked yet
				if name == typeBalancer {
					require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { drain(lb.Doc) }))
				} else {
					require.NoError(w, w.sim.EditNetworkLoadBalancer(testNetworkName, func(lb *ocisim.NetworkLoadBalancer) { drain(lb.Doc) }))
				}
				require.NoError(w, <-done)
				var doc document
				if name == typeBalancer {
					doc = w.balancer().Doc
				} else {
					doc = w.nlb().Doc
				}
				backends := listOf(doc["backendSets"].(document)["TCP-8080"].(document)["backends"])
				require.Len(w, backends, 2)
				drained := slices.ContainsFunc(backends, func(v any) bool { b := v.(document); return b["drain"] == true || b["isDrain"] == true })
				assert.True(w, drained)
			})
		})
	}
}

// TestLostPermissionForLoadBalancers: policies name load balancers apart from networks. Who may not see them any more does not take them
// for gone.
func TestLostPermissionForLoadBalancers(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.served(s, nodes)
		time.Sleep(time.Minute)
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
		require.NoError(w, err)
		require.True(w, exists)
		w.sim.Hide("/20170115/")
		require.Error(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s), "within the age of what is known")
		w.sim.Hide()
		assert.Len(w, w.sim.LoadBalancers(), 1)
		w.deleted(s)
	})
}

// TestForeignSubnet: an instance of somebody else in the compartment, in a network that the user may not read, holds up no node.
func TestForeignSubnet(t *testing.T) {
	const theirs = "ocid1.subnet.oc1.phx.aaaatheirs"
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.sim.Add("foreign", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC { v[0].Subnet = theirs; return v })
		})
		twice := w.sim.Add("with two interfaces", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC {
				more := w.sim.SecondInterfaceOf(v[0])
				more.Subnet = theirs
				return append(v, more)
			})
		})
		require.NotEmpty(w, twice)
		w.sim.Hide("subnetId="+theirs, "/subnets/"+theirs, "/vnics/ocid1.vnic.oc1.phx.aasecond")
		w.start()
		w.RequireMetadata(nodes[0])
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.served(s, nodes)
		w.deleted(s)
		assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
		unnamed := conformance.NewNode("b", "")
		w.sim.Add("b", nil)
		time.Sleep(time.Minute)
		w.RequireMetadata(unnamed)
	})
}

// TestNodesJoinWithoutRules: security lists that cannot be changed keep no node from joining or leaving.
func TestNodesJoinWithoutRules(t *testing.T) {
	for name, annotations := range map[string]map[string]string{typeBalancer: {}, typeNetwork: ofNetwork(annotationRuleMode, "SL-All")} {
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
					w.served(s, nodes[:1])
					time.Sleep(time.Minute)
					cause(w)
					require.Error(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes), "which is told")
					var doc document
					if name == typeBalancer {
						doc = w.balancer().Doc
					} else {
						doc = w.nlb().Doc
					}
					assert.Len(w, listOf(doc["backendSets"].(document)["TCP-80"].(document)["backends"]), 2)
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
		w.served(a, nodes)
		w.served(b, nodes)
		changed := b.DeepCopy()
		changed.Spec.Ports = []v1.ServicePort{conformance.Port("alt", 8081, 30082)}
		changed.Annotations[annotationPolicy] = "no policy"
		_, err := w.ensure(changed, nodes)
		require.Error(w, err)
		w.serving(a, changed)
		time.Sleep(time.Minute)
		a.Spec.Ports[0].NodePort = 30099
		w.served(a, nodes)
		for _, want := range []string{"ingress 6 8080 0.0.0.0/0", "egress 6 30081 " + nodeNet} {
			assert.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), want)
		}
		assert.Contains(w, w.sim.SecurityRules(ocisim.DefaultList), "ingress 6 30081 "+balancerNet)
		w.serving(a, b)
		b.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		w.served(b, nodes)
		assert.NotContains(w, w.sim.SecurityRules(ocisim.BalancerList), "ingress 6 8080 0.0.0.0/0")
	})
}

// TestRulesAfterAModeChange: rules that a process before this one made go with their Service, however they are managed now.
func TestRulesAfterAModeChange(t *testing.T) {
	for _, mode := range []string{modeNone, "SL-Frontend", modeGroups} {
		for _, kind := range []string{typeBalancer, typeNetwork} {
			t.Run(mode+" "+kind, func(t *testing.T) {
				marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
					s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
					w.serving(s)
					w.served(s, nodes)
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
					w.served(s, nodes)
					w.deleted(s)
					assert.Equal(w, "egress 6 30080 192.0.2.0/24\ningress 6 80 192.0.2.0/24", w.allRules())
				})
			})
		}
	}
}

// TestDeletionWithAVanishedNode: a Node whose instance nobody can tell about holds up no deletion.
func TestDeletionWithAVanishedNode(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNetwork} {
		t.Run(kind, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
				w.served(s, nodes)
				w.sim.Forget(strings.TrimPrefix(nodes[0].Spec.ProviderID, providerIDPrefix))
				w.start()
				w.serving(s)
				w.deleted(s)
				assert.Empty(w, w.sim.Holdings())
				assert.Empty(w, w.sim.SecurityRules(ocisim.BalancerList))
			})
		})
	}
}

// TestOrderOfTheStatus: another order of the same addresses is no news.
func TestOrderOfTheStatus(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := dual(conformance.Service("web", byHand(annotationSubnet1, ocisim.DualSubnet()), web()), v1.IPFamilyPolicyRequireDualStack)
		status := w.served(s, nodes)
		require.Len(w, status.Ingress, 2)
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{status.Ingress[1], status.Ingress[0]}
		assert.Equal(w, &s.Status.LoadBalancer, w.served(s, nodes))
	})
}

// TestPortsThatWereAllocated: a Service that wants no node ports any more keeps those that it has, and is served.
func TestPortsThatWereAllocated(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNetwork} {
		t.Run(kind, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", byHand(annotationType, kind), web())
				s.Spec.AllocateLoadBalancerNodePorts = new(bool)
				w.served(s, nodes)
				w.Server.ResetCalls()
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 0))
				_, err := w.ensure(s, nodes)
				require.ErrorContains(w, err, "node ports")
				assert.Empty(w, w.writes())
			})
		})
	}
}

// TestProtectedFromDeletion: what somebody has protected is said to be so.
func TestProtectedFromDeletion(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.served(s, nodes)
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { lb.Doc["isDeleteProtectionEnabled"] = true }))
		w.Server.ResetCalls()
		err := w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s)
		require.ErrorContains(w, err, "delete protection")
		assert.LessOrEqual(w, w.Calls(http.MethodDelete+" /loadBalancers/{id}"), 2)
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { delete(lb.Doc, "isDeleteProtectionEnabled") }))
		w.deleted(s)
	})
}

// TestGroupsAfterARestart: rules of security lists that a Service still needs stay until it has its network security group.
func TestGroupsAfterARestart(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNetwork} {
		t.Run(kind, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
				b := other(map[string]string{}, conformance.Port("alt", 8080, 30081))
				w.serving(s, b)
				w.served(s, nodes)
				w.served(b, nodes)
				s = s.DeepCopy()
				s.Annotations[annotationRuleMode], s.Annotations[annotationBackGroups] = modeGroups, ocisim.GroupID(1)
				w.start()
				w.serving(s, b)
				b.Spec.Ports[0].NodePort = 30082
				w.served(b, nodes)
				for _, want := range []string{"ingress 6 80 0.0.0.0/0", "egress 6 30080 " + nodeNet, "ingress 6 30080 " + balancerNet} {
					assert.Contains(w, w.allRules(), want, "nothing else lets its clients in yet")
				}
				w.served(s, nodes)
				time.Sleep(time.Minute)
				b.Spec.Ports[0].NodePort = 30083
				w.served(b, nodes)
				assert.NotContains(w, w.allRules(), " 30080 ")
			})
		})
	}
}

// TestOtherKindAfterARestart: what a load balancer of the other kind still uses stays open after a restart, too.
func TestOtherKindAfterARestart(t *testing.T) {
	for _, kinds := range [][2]string{{typeBalancer, typeNetwork}, {typeNetwork, typeBalancer}} {
		t.Run(kinds[0], func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{annotationType: kinds[0], annotationRuleMode: "SL-All"}, web())
				b := other(map[string]string{annotationType: kinds[1], annotationRuleMode: "SL-All"}, conformance.Port("alt", 8080, 30081))
				w.serving(s, b)
				w.served(s, nodes)
				w.served(b, nodes)
				s = s.DeepCopy()
				s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 81, 30090
				s.Annotations[annotationRetries], s.Annotations[networkRetries] = "many", "many"
				w.start()
				w.serving(s, b)
				_, err := w.ensure(s, nodes)
				require.Error(w, err)
				b.Spec.Ports[0].NodePort = 30082
				w.served(b, nodes)
				for _, want := range []string{"ingress 6 80 0.0.0.0/0", "egress 6 30080 " + nodeNet, "ingress 6 30080 " + balancerNet} {
					assert.Contains(w, w.allRules(), want)
				}
			})
		})
	}
}

// TestModesWithRestarts: rules of each mode go when the mode has changed, whatever process made them, and nothing is left in the end.
func TestModesWithRestarts(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNetwork} {
		for _, modes := range [][]string{{"SL-All", modeNone, modeGroups}, {modeGroups, modeNone, "SL-All"}, {"SL-All", modeGroups, "SL-Frontend"}} {
			t.Run(kind+" "+strings.Join(modes, " "), func(t *testing.T) {
				marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := conformance.Service("web", map[string]string{annotationType: kind, annotationBackGroups: ocisim.GroupID(1)}, web())
					for _, mode := range modes {
						s = s.DeepCopy()
						s.Annotations[annotationRuleMode] = mode
						w.start()
						w.serving(s)
						w.served(s, nodes)
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
				w.served(b, nodes)
				for _, ranges := range [][]string{{"10.8.0.0/16"}, {"10.9.0.0/16"}, {"10.8.0.0/16"}, {"10.9.0.0/16", "10.8.0.0/16"}, {"10.8.0.0/16"}} {
					s = s.DeepCopy()
					s.Spec.LoadBalancerSourceRanges = ranges
					if restarts {
						w.start()
					}
					w.serving(s, b)
					w.served(s, nodes)
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

// TestDeletionAfterALostCreation: what a lost creation makes goes with its Service, which the next process deletes at once.
func TestDeletionAfterALostCreation(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNetwork} {
		for _, now := range []string{typeBalancer, typeNetwork} {
			t.Run(kind+" "+now, func(t *testing.T) {
				balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := conformance.Service("web", byHand(annotationType, kind), web())
					s.CreationTimestamp = metav1.Now()
					s.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer}
					time.Sleep(time.Minute)
					w.Fail(simkit.Fault{Kind: simkit.FaultLate, Late: simkit.Duration(20 * time.Second), Writes: true, Status: http.StatusGatewayTimeout})
					_, err := w.ensure(s, nodes)
					require.Error(w, err)
					w.Server.ClearFaults()
					s.Annotations[annotationType] = now
					w.start()
					for range 40 {
						var exists bool
						if _, exists, err = w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s); err == nil && !exists {
							break
						}
						if exists {
							err = w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s)
						}
						time.Sleep(5 * time.Second)
					}
					require.NoError(w, err)
					time.Sleep(time.Hour)
					assert.Empty(w, w.sim.Holdings())
				})
			})
		}
	}
}

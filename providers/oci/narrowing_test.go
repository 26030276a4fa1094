package oci

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
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

// mayConnect are the networks that rules of lists and groups let in to a port.
func (w *testWorld) mayConnect(port string) (all []string) {
	rules := strings.Split(w.allRules(), "\n")
	for _, g := range w.sim.Groups() {
		rules = append(rules, g.Rules...)
	}
	for _, rule := range rules {
		words := strings.Fields(rule)
		if len(words) > 3 && words[0] == "ingress" && words[2] == port && !strings.HasPrefix(words[3], "ocid1.") {
			all = append(all, words[3])
		}
	}
	slices.Sort(all)
	return all
}

// narrowedKinds are how rules of both kinds of load balancers are managed.
func narrowedKinds() map[string]map[string]string {
	return map[string]map[string]string{
		"lb, lists": {}, "lb, clients alone": {annotationRuleMode: "SL-Frontend"}, "lb, groups": groupsOf(),
		"nlb, lists":  ofNetwork(annotationRuleMode, "SL-All"),
		"nlb, groups": ofNetwork(annotationRuleMode, modeGroups, annotationBackGroups, ocisim.GroupID(3)),
	}
}

// TestFormerClientsAreShutOut although something else of the Service is refused.
func TestFormerClientsAreShutOut(t *testing.T) {
	refusing := func(operation string) func(*testWorld, *v1.Service, *[]*v1.Node) {
		return func(w *testWorld, s *v1.Service, _ *[]*v1.Node) {
			s.Spec.Ports = append(s.Spec.Ports, conformance.Port("more", 54, 30054))
			w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: operation, Writes: true})
		}
	}
	annotation := func(key, value string) func(*testWorld, *v1.Service, *[]*v1.Node) {
		return func(_ *testWorld, s *v1.Service, _ *[]*v1.Node) { s.Annotations[key] = value }
	}
	for name, hinder := range map[string]func(*testWorld, *v1.Service, *[]*v1.Node){
		"a backend set": refusing("/backendSets"), "a listener": refusing("/listeners"),
		"a session affinity": func(_ *testWorld, s *v1.Service, _ *[]*v1.Node) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
		"an address":         func(_ *testWorld, s *v1.Service, _ *[]*v1.Node) { s.Spec.LoadBalancerIP = "192.0.2.99" },
		"a type":             annotation(annotationType, "nonsense"), "another type": func(_ *testWorld, s *v1.Service, _ *[]*v1.Node) {
			s.Annotations[annotationType] = map[bool]string{true: typeBalancer, false: typeNLB}[isNLBService(s)]
			s.Annotations[annotationRuleMode] = modeOfBoth(s)
		},
		"no node": func(_ *testWorld, _ *v1.Service, nodes *[]*v1.Node) { *nodes = nil },
		"a node that cannot be read": func(w *testWorld, _ *v1.Service, _ *[]*v1.Node) {
			w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "GET /instances"})
		},
	} {
		for kind, annotations := range narrowedKinds() {
			t.Run(kind+"/"+name, func(t *testing.T) {
				marking(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := local(conformance.Service("web", maps.Clone(annotations), web()))
					w.serving(s)
					s.Status.LoadBalancer = *w.requireServed(s, nodes)
					require.Contains(w, w.mayConnect("80"), everybody)
					time.Sleep(time.Hour)
					s = s.DeepCopy()
					s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
					hinder(w, s, &nodes)
					w.start()
					w.serving(s)
					_, err := w.ensure(s, nodes)
					assert.Equal(w, []string{"203.0.113.0/24"}, w.mayConnect("80"), "%v", err)
					if name != "a node that cannot be read" { // in what security lists nodes are is not known then
						assert.NotContains(w, w.mayConnect("30080"), everybody, "%v", err)
					}
				})
			})
		}
	}
}

// modeOfBoth is the mode of a Service, said so that it holds for the other type, too.
func modeOfBoth(s *v1.Service) string {
	if mode := s.Annotations[annotationRuleMode]; mode != "" {
		return mode
	}
	return "SL-All"
}

// TestNarrowingOfAFullGroup: what goes makes room for as many of those still asked for as fit.
func TestNarrowingOfAFullGroup(t *testing.T) {
	for _, ranges := range [][]string{{"192.0.2.0/24"}, {"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"}} {
		t.Run(strconv.Itoa(len(ranges)), func(t *testing.T) { narrowFullGroup(t, ranges) })
	}
}

func narrowFullGroup(t *testing.T, ranges []string) {
	t.Helper()
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", groupsOf(), web())
		w.serving(s)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		group := w.sim.Groups()[slices.IndexFunc(w.sim.Groups(), func(g ocisim.Group) bool {
			return slices.ContainsFunc(g.Rules, func(r string) bool { return strings.Contains(r, everybody) })
		})]
		add := func(n int) error {
			rule := groupRule(s, false, sideNetwork, everybody, numberTCP, 20000+n)
			rule["description"] = "by hand"
			body := document{"securityRules": []document{rule}}
			_, err := w.cloud.loadBalancers.groups.write(w.Context(), "filling it", groupPath(group.ID)+"/actions/addSecurityRules", body)
			return err
		}
		for n := len(group.Rules); n < ocilimits.GroupRules.Max; n++ {
			require.NoError(w, add(n))
		}
		require.ErrorContains(w, add(ocilimits.GroupRules.Max), "121 rules, and the cloud takes at most 120")
		time.Sleep(time.Hour)
		s = s.DeepCopy()
		s.Spec.LoadBalancerSourceRanges = ranges
		s.Annotations[annotationPolicy] = "no policy"
		w.start()
		w.serving(s)
		_, err := w.ensure(s, nodes)
		require.Error(w, err)
		assert.Equal(w, ranges[:1], w.mayConnect("80"), "%v", err)
		assert.Equal(w, len(ranges) > 1, strings.Contains(err.Error(), "takes at most 120"), "what has no room is told: %v", err)
	})
}

// TestNarrowingLeavesOthers: what another Service, another cluster or somebody by hand lets in stays, and so do health checks.
func TestNarrowingLeavesOthers(t *testing.T) {
	const theirs = "anyccm:99999999-7a66-4b58-8b4b-0a61c1f9e0a1"
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 80, "198.51.100.0/24"}.rule("by hand"), opening{false, numberTCP, 80, "192.0.2.0/24"}.rule(theirs)), out
		})
		s := local(conformance.Service("web", ofNetwork(annotationRuleMode, "SL-All"), web()))
		b := other(map[string]string{}, conformance.Port("http", 80, 30090))
		b.Spec.LoadBalancerSourceRanges = []string{"10.1.0.0/16"}
		w.serving(s, b)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		w.requireServed(b, nodes)
		time.Sleep(time.Minute)
		s = s.DeepCopy()
		s.Spec.LoadBalancerSourceRanges, s.Spec.SessionAffinity = []string{"203.0.113.0/24"}, v1.ServiceAffinityClientIP
		w.serving(s, b)
		_, err := w.ensure(s, nodes)
		require.Error(w, err)
		assert.Equal(w, []string{"10.1.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"}, w.mayConnect("80"))
		assert.Equal(w, []string{balancerNet, "203.0.113.0/24"}, w.mayConnect("30080"), "the load balancer reaches the nodes")
		assert.Equal(w, []string{balancerNet}, w.mayConnect("32000"), "health checks get in")
	})
}

// TestRuleWithoutADescription: nothing shows whose a rule without a description is beside a load balancer of ours. It stays where source
// ranges are narrowed across a restart, and an event names it.
func TestRuleWithoutADescription(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		w.sim.EditList(ocisim.BalancerList, func(_, out []any) ([]any, []any) {
			return []any{opening{false, numberTCP, 80, everybody}.rule("")}, out
		})
		w.start()
		w.cloud.loadBalancers.setEvents(events)
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.serving(s)
		w.requireServed(s, nodes)
		assert.Contains(w, w.mayConnect("80"), everybody)
		assert.Contains(w, drainEvents(events), "TCP port 80 from 0.0.0.0/0 by a rule without a description")
	})
}

// TestNodeRuleWithoutADescription: the event names those, too, by which clients come in to nodes that see their addresses, and none by
// which the load balancer does.
func TestNodeRuleWithoutADescription(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := local(conformance.Service("web", ofNetwork(annotationRuleMode, "SL-All"), web()))
		w.serving(s)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		w.sim.EditList(ocisim.DefaultList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 30080, everybody}.rule(""), opening{false, numberTCP, 30080, balancerNet}.rule("")), out
		})
		w.start()
		w.cloud.loadBalancers.setEvents(events)
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.serving(s)
		w.requireServed(s, nodes)
		assert.Contains(w, w.mayConnect("30080"), everybody)
		text := drainEvents(events)
		assert.Contains(w, text, "TCP port 30080 from 0.0.0.0/0 by a rule without a description")
		assert.NotContains(w, text, "TCP port 30080 from "+balancerNet)
	})
}

// TestNarrowingIsTriedInEachList: a list that is refused, or that nobody can read, keeps no other one open.
func TestNarrowingIsTriedInEachList(t *testing.T) {
	for name, fault := range map[string]func(w *testWorld){
		"refused": func(w *testWorld) {
			w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: putList, Names: ocisim.BalancerList})
		},
		"hidden": func(w *testWorld) { w.sim.Hide("/securityLists/" + ocisim.BalancerList) },
	} {
		t.Run(name, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := local(conformance.Service("web", ofNetwork(annotationRuleMode, "SL-All"), web()))
				w.serving(s)
				w.requireServed(s, nodes)
				require.Contains(w, w.mayConnect("30080"), everybody)
				time.Sleep(time.Minute)
				fault(w)
				s = s.DeepCopy()
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				w.serving(s)
				_, err := w.ensure(s, nodes)
				require.ErrorContains(w, err, ocisim.BalancerList)
				assert.NotContains(w, w.mayConnect("30080"), everybody)
			})
		})
	}
}

// TestClosingIsTriedInEachList when a Service goes: what one list refuses keeps no other one open, and the load balancer serves until then.
func TestClosingIsTriedInEachList(t *testing.T) {
	for name, refused := range map[string]string{"the first": ocisim.BalancerList, "the second": ocisim.DefaultList} {
		for kind, annotations := range map[string]map[string]string{"lb": {}, "nlb": ofNetwork(annotationRuleMode, "SL-All")} {
			t.Run(kind+", "+name, func(t *testing.T) {
				marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := local(conformance.Service("web", maps.Clone(annotations), web()))
					w.serving(s)
					w.requireServed(s, nodes)
					before := len(strings.Split(w.allRules(), "\n"))
					w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: putList, Names: refused})
					w.serving()
					require.ErrorContains(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s), refused)
					assert.Less(w, len(strings.Split(w.allRules(), "\n")), before, w.allRules())
				})
			})
		}
	}
}

// TestListThatCannotBeWrittenForNow keeps those in whom a refused Service still asks for; a refusal for good keeps nobody in.
func TestListThatCannotBeWrittenForNow(t *testing.T) {
	for status, c := range map[int]struct {
		count int
		keeps bool
	}{http.StatusPreconditionFailed: {10, true}, http.StatusBadRequest: {1, false}} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{}, web())
				w.serving(s)
				s.Status.LoadBalancer = *w.requireServed(s, nodes)
				time.Sleep(time.Minute)
				s = s.DeepCopy()
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				s.Annotations[annotationType] = "nonsense"
				w.serving(s)
				w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: status, Operation: putList, Count: c.count})
				_, err := w.ensure(s, nodes)
				require.Error(w, err)
				assert.Equal(w, c.keeps, len(w.mayConnect("80")) > 0, "%v", err)
			})
		})
	}
}

// TestNarrowingThatIsNone costs nothing.
func TestNarrowingThatIsNone(t *testing.T) {
	for kind, annotations := range narrowedKinds() {
		t.Run(kind, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := local(conformance.Service("web", maps.Clone(annotations), web()))
				cost := func(ranges ...string) map[string]int {
					s = s.DeepCopy()
					s.Spec.LoadBalancerSourceRanges = ranges
					w.serving(s)
					w.requireServed(s, nodes)
					time.Sleep(time.Minute)
					w.Server.ResetCalls()
					w.requireServed(s, nodes)
					return w.Server.Calls().ByOperation
				}
				assert.Equal(w, cost(), cost("203.0.113.0/24"))
			})
		})
	}
}

// TestNarrowingBesideWhatCannotBeRead: a node or a subnet that cannot be read for now holds up no narrowing elsewhere. Where it leaves a
// doubt nothing closes, and nothing opens.
func TestNarrowingBesideWhatCannotBeRead(t *testing.T) {
	lists := []string{ocisim.BalancerList, ocisim.DefaultList, ocisim.NewerList}
	first, second := ocisim.DomainSubnets()
	subnet := func(id string) func(*testWorld, *v1.Node) {
		return func(w *testWorld, _ *v1.Node) { w.failReading("GET /subnets/{id}", id) }
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		hinder      func(w *testWorld, b *v1.Node)
		narrowed    []string
	}{
		"an instance": {ofNetwork(annotationRuleMode, "SL-All"), func(w *testWorld, b *v1.Node) {
			w.Fail(simkit.Fault{Kind: simkit.FaultUnlisted, Operation: "GET /instances$", Names: mustID(w, b)})
			w.failReading("GET /instances/{id}", mustID(w, b))
		}, lists[:2]},
		"a subnet of nodes": {ofNetwork(annotationRuleMode, "SL-All"), func(w *testWorld, b *v1.Node) {
			w.failReading("GET /subnets/{id}", w.subnetOf(b))
		}, lists[:2]},
		"the subnet of the load balancer": {ofNetwork(annotationRuleMode, "SL-All"), subnet(ocisim.BalancerSubnet()), nil},
		"one of its subnets":              {map[string]string{annotationSubnet1: first, annotationSubnet2: second}, subnet(second), lists[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			marking(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				w.Config = strings.Replace(w.Config, "loadBalancer:\n", fmt.Sprintf("loadBalancer:\n  securityLists: {%s: %s}\n", second, ocisim.NewerList), 1)
				w.start()
				s := local(conformance.Service("web", maps.Clone(c.annotations), web()))
				w.serving(s)
				s.Status.LoadBalancer = *w.requireServed(s, nodes)
				before := map[string][]string{}
				for _, list := range lists {
					before[list] = w.sim.SecurityRules(list)
				}
				w.start()
				s = s.DeepCopy()
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				w.serving(s)
				c.hinder(w, nodes[1])
				_, err := w.ensure(s, nodes)
				require.Error(w, err)
				for _, list := range lists {
					after := w.sim.SecurityRules(list)
					if !slices.Contains(c.narrowed, list) {
						assert.Equal(w, before[list], after, "%s is in doubt: %v", list, err)
						continue
					}
					assert.NotContains(w, strings.Join(after, "\n"), "ingress 6 80 "+everybody, "%s is narrowed: %v", list, err)
					assert.NotContains(w, strings.Join(after, "\n"), "ingress 6 30080 "+everybody, "%s is narrowed: %v", list, err)
				}
				w.Server.ClearFaults()
				w.requireServed(s, nodes)
				assert.NotContains(w, w.allRules(), everybody)
			})
		})
	}
}

// failReading has reads of an object fail.
func (w *testWorld) failReading(operation, id string) {
	w.Helper()
	w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: operation, Names: id})
}

// TestNodeThatCannotBeReadClosesNothing: the rules for its subnet stay, which nobody knows then.
func TestNodeThatCannotBeReadClosesNothing(t *testing.T) {
	marking(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.requireServed(s, nodes)
		before := w.allRules()
		w.start()
		w.serving(s)
		id := mustID(w, nodes[1])
		w.Fail(simkit.Fault{Kind: simkit.FaultUnlisted, Operation: "GET /instances$", Names: id})
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "GET /instances/{id}", Names: id})
		w.requireServed(s, nodes)
		assert.Equal(w, before, w.allRules(), "the node may still be where it was")
	})
}

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
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

const (
	otherUID    = "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0b2"
	nodeNet     = "10.0.64.0/18" // of the first instance
	balancerNet = "10.0.196.0/24"
	putList     = "PUT /securityLists/{id}"
)

// other is a second Service.
func other(annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	s := conformance.Service("other", annotations, ports...)
	s.UID = types.UID(otherUID)
	return s
}

// marking runs a test in a cluster with an identity, by which rules are marked.
func marking(t *testing.T, names []string, test func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder)) {
	t.Helper()
	balancing(t, names, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		w.mark()
		w.cloud.loadBalancers.setEvents(events)
		test(w, nodes, events)
	})
}

func (w *testWorld) deleted(s *v1.Service) {
	w.Helper()
	require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
}

// serving tells the program of Services.
func (w *testWorld) serving(list ...*v1.Service) {
	w.Helper()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, s := range list {
		require.NoError(w, store.Add(s))
	}
	w.cloud.loadBalancers.cluster.SetServices(listers.NewServiceLister(store))
}

func fronts(sources ...string) (all []string) {
	for _, s := range sources {
		all = append(all, "ingress 6 80 "+s)
	}
	return all
}

// TestSecurityLists: scenario 56.
func TestSecurityLists(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) { // a rule of somebody else, and one that does what is needed
			return append(in, opening{false, numberTCP, 8443, "192.0.2.0/24"}.rule(""), opening{false, numberTCP, 80, everybody}.rule("by hand")), out
		})
		s := conformance.Service("web", map[string]string{}, web(), conformance.Port("alt", 8080, 30081))
		w.requireServed(s, nodes)
		assert.ElementsMatch(w, []string{
			"ingress 6 80 0.0.0.0/0", "ingress 6 8080 0.0.0.0/0", "ingress 6 8443 192.0.2.0/24", "egress 6 30080 " + nodeNet, "egress 6 30081 " + nodeNet,
			"egress 6 10256 " + nodeNet,
		}, w.sim.SecurityRules(ocisim.BalancerList), "the older list counts, and nothing is doubled")
		assert.ElementsMatch(w, []string{"ingress 6 30080 " + balancerNet, "ingress 6 30081 " + balancerNet, "ingress 6 10256 " + balancerNet},
			w.sim.SecurityRules(ocisim.DefaultList))
		assert.Empty(w, w.sim.SecurityRules(ocisim.NewerList))
		assert.Equal(w, 2, w.Calls(putList), "one write for each list")

		w.Server.ResetCalls()
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		assert.Equal(w, map[string]int{"GET /loadBalancers": 1, "GET /securityLists/{id}": 2}, w.Server.Calls().ByOperation, "what an unchanged Service costs")

		s.Annotations[annotationRuleMode] = "sl-frontend"
		w.requireServed(s, nodes)
		assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
		assert.ElementsMatch(w, []string{"ingress 6 80 0.0.0.0/0", "ingress 6 8080 0.0.0.0/0", "ingress 6 8443 192.0.2.0/24"}, w.sim.SecurityRules(ocisim.BalancerList))
		s.Annotations[annotationRuleMode] = modeNone
		w.requireServed(s, nodes)
		left := []string{"ingress 6 80 0.0.0.0/0", "ingress 6 8443 192.0.2.0/24"}
		assert.ElementsMatch(w, left, w.sim.SecurityRules(ocisim.BalancerList), "the mode has changed; what was made by hand stays")
		w.deleted(s)
		assert.ElementsMatch(w, left, w.sim.SecurityRules(ocisim.BalancerList))
	})
}

// TestConfiguredList: the cloud config may say which list counts.
func TestConfiguredList(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.Config = strings.Replace(w.Config, "loadBalancer:\n",
			fmt.Sprintf("loadBalancer:\n  securityLists: {%s: %s}\n", ocisim.BalancerSubnet(), ocisim.NewerList), 1)
		w.start()
		w.requireServed(conformance.Service("web", map[string]string{}, web()), nodes)
		assert.Len(w, w.sim.SecurityRules(ocisim.NewerList), 3)
		assert.Empty(w, w.sim.SecurityRules(ocisim.BalancerList))
	})
}

// TestListsAreShared: scenario 57.
func TestListsAreShared(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		a, b := conformance.Service("web", map[string]string{}, web()), other(map[string]string{}, conformance.Port("alt", 8080, 30081))
		w.serving(a, b)
		w.sim.InterfereOnce(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 9999, everybody}.rule("")), out
		})
		done := make(chan error, 2)
		for _, s := range []*v1.Service{a, b} {
			go func() {
				_, err := w.ensure(s, nodes)
				done <- err
			}()
		}
		require.NoError(w, <-done)
		require.NoError(w, <-done)
		for _, want := range append(fronts(everybody), "ingress 6 8080 0.0.0.0/0", "ingress 6 9999 0.0.0.0/0") {
			assert.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), want)
		}
		assert.Len(w, w.sim.SecurityRules(ocisim.DefaultList), 3, "the port of health checks is in it once")
		assert.LessOrEqual(w, w.Calls(putList), 5, "two lists, two Services, and one that was outdated")
		assert.Empty(w, events.Events)
	})
}

// TestSharedPorts: scenario 58.
func TestSharedPorts(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		a := conformance.Service("web", map[string]string{}, web())
		b := other(map[string]string{}, conformance.Port("http", 80, 30090))
		w.serving(a, b)
		w.requireServed(a, nodes)
		w.requireServed(b, nodes)
		w.deleted(b)
		w.serving(a)
		assert.ElementsMatch(w, []string{"ingress 6 80 0.0.0.0/0", "egress 6 30080 " + nodeNet, "egress 6 10256 " + nodeNet},
			w.sim.SecurityRules(ocisim.BalancerList), "the other Service has the port, and health checks")

		narrowed := a.DeepCopy()
		narrowed.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", "192.0.2.7/24"}
		w.serving(narrowed)
		w.requireServed(narrowed, nodes)
		assert.ElementsMatch(w, fronts("10.0.0.0/8", "192.0.2.0/24"), w.sim.SecurityRules(ocisim.BalancerList)[2:], "the old rule goes")
		w.start() // a new process knows nothing of before
		w.serving(a)
		w.requireServed(a, nodes)
		assert.ElementsMatch(w, fronts(everybody), w.sim.SecurityRules(ocisim.BalancerList)[2:])
		w.deleted(a)
		assert.Empty(w, w.sim.SecurityRules(ocisim.BalancerList))
		assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
	})
}

// TestPortsOfGroups: a Service whose rules are in a network security group needs none in security lists, and so keeps none there that
// others leave: when it goes nobody looks at the lists any more.
func TestPortsOfGroups(t *testing.T) {
	for _, of := range []map[string]string{
		{annotationRuleMode: modeGroups}, ofNetwork(annotationRuleMode, modeGroups),
	} {
		t.Run(of[annotationType], func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				a := conformance.Service("web", map[string]string{}, web())
				b := other(of, web())
				w.serving(a, b)
				w.requireServed(a, nodes)
				w.requireServed(b, nodes)
				w.deleted(a)
				assert.Empty(w, w.sim.SecurityRules(ocisim.BalancerList))
				assert.Empty(w, w.sim.SecurityRules(ocisim.DefaultList))
			})
		})
	}
}

// TestNarrowedRulesOfBefore: rules of Oracle's own controller have no mark; what the Service does not want any more goes when that is
// seen.
func TestNarrowedRulesOfBefore(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{annotationRuleMode: "SL-Frontend"}, web())
		w.sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
			return append(in, opening{false, numberTCP, 80, everybody}.rule(""), opening{false, numberTCP, 80, "198.51.100.0/24"}.rule("")), out
		})
		w.requireServed(s, nodes)
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { delete(lb.Doc, "freeformTags") }))
		w.start() // as Oracle's own controller makes it: without a mark
		w.requireServed(s, nodes)
		assert.Zero(w, w.Calls(putList), "a takeover removes nothing")
		s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		w.requireServed(s, nodes)
		assert.ElementsMatch(w, fronts("10.0.0.0/8", "198.51.100.0/24"), w.sim.SecurityRules(ocisim.BalancerList), "what nobody was seen to want stays")
	})
}

// TestRulesFollow: scenario 49, and nodes in another subnet.
func TestRulesFollow(t *testing.T) {
	marking(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.requireServed(s, nodes[:1])
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
		assert.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), "egress 6 30080 10.0.128.0/18")
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes[:1]))
		assert.NotContains(w, w.sim.SecurityRules(ocisim.BalancerList), "egress 6 30080 10.0.128.0/18")
		s = s.DeepCopy()
		s.Spec.Ports[0].NodePort = 30999
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
		w.Server.ResetCalls()
		w.requireServed(s, nodes[:1])
		assert.ElementsMatch(w, []string{"ingress 6 80 0.0.0.0/0", "egress 6 30999 " + nodeNet, "egress 6 32000 " + nodeNet}, w.sim.SecurityRules(ocisim.BalancerList))
		assert.ElementsMatch(w, []string{"ingress 6 30999 " + balancerNet, "ingress 6 32000 " + balancerNet}, w.sim.SecurityRules(ocisim.DefaultList))
		var order []string
		for _, c := range w.Server.Calls().Latest {
			if c.Method == http.MethodPut {
				order = append(order, strings.SplitN(c.Operation, "/", 3)[1])
			}
		}
		assert.Equal(w, []string{"securityLists", "securityLists", "loadBalancers", "securityLists", "securityLists"}, order,
			"the port of health checks is closed when nobody asks there any more")
	})
}

// TestDeletionGoesOn: scenario 60: neither a subnet that is gone nor a fault in an annotation keeps a load balancer from being deleted.
func TestDeletionGoesOn(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		for round, fault := range []func(s *v1.Service){
			func(s *v1.Service) { s.Annotations[annotationRuleMode] = "bad" },
			func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"bad"} },
			func(*v1.Service) { w.sim.RemoveSubnet(ocisim.SubnetID(2)) },
			func(*v1.Service) { w.sim.RemoveSubnet(ocisim.BalancerSubnet()) },
		} {
			s := conformance.Service("web", map[string]string{}, web())
			if round == 3 {
				s.Annotations[annotationRuleMode] = "SL-Frontend"
			}
			w.requireServed(s, nodes)
			fault(s)
			w.start()
			w.cloud.loadBalancers.setEvents(events)
			time.Sleep(2 * time.Hour)
			w.deleted(s)
			assert.Empty(w, w.sim.LoadBalancers())
			if round < 2 {
				assert.Empty(w, w.sim.SecurityRules(ocisim.BalancerList))
				continue
			}
			assert.Contains(w, <-events.Events, eventRulesLeft)
		}
	})
}

// TestGroups: scenario 52.
func TestGroups(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(annotationGroups, ocisim.GroupID(1)+", "+ocisim.GroupID(2)+","+ocisim.GroupID(1)), web())
		w.requireServed(s, nodes)
		assert.ElementsMatch(w, []any{ocisim.GroupID(1), ocisim.GroupID(2)}, w.balancer().Doc["networkSecurityGroupIds"])
		s.Annotations[annotationGroups] = ocisim.GroupID(3)
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Equal(w, []any{ocisim.GroupID(3)}, w.balancer().Doc["networkSecurityGroupIds"])
		assert.Equal(w, []string{"PUT /loadBalancers/{id}/networkSecurityGroups"}, w.writes())
	})
}

// managed is the group that was made for a Service.
func (w *testWorld) managed() (made []ocisim.Group) {
	return slices.DeleteFunc(w.sim.Groups(), func(g ocisim.Group) bool { return g.Name == "by hand" })
}

// TestManagedGroup: scenario 59.
func TestManagedGroup(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		ports := []v1.ServicePort{web()}
		for n := range int32(15) {
			ports = append(ports, conformance.Port(fmt.Sprint("p", n), 9000+n, 31000+n))
		}
		w.sim.EditGroup(ocisim.GroupID(2), func(d document) { d["freeformTags"] = document{"team": "a"} })
		s := conformance.Service("web", map[string]string{annotationRuleMode: "nsg", annotationBackGroups: ocisim.GroupID(2)}, ports...)
		w.requireServed(s, nodes)
		require.Len(w, w.managed(), 1)
		made := w.managed()[0]
		assert.Equal(w, "default/web/"+testUID+"/nsg", made.Name)
		assert.Equal(w, createdBy, made.Tags[tagCreatedBy])
		assert.Equal(w, testUID, made.Tags[tagService])
		assert.Len(w, made.Rules, 33, "a listener and a port of nodes for each, and that of health checks")
		assert.Contains(w, made.Rules, "ingress 6 80 0.0.0.0/0 (service-uid-"+testUID+")")
		assert.Equal(w, 3, w.Calls("POST /networkSecurityGroups/{id}/actions/addSecurityRules"), "up to 25 at once")
		assert.Equal(w, []any{made.ID}, w.balancer().Doc["networkSecurityGroupIds"])
		back := w.sim.Groups()
		at := slices.IndexFunc(back, func(g ocisim.Group) bool { return g.ID == ocisim.GroupID(2) })
		assert.Equal(w, document{"team": "a", tagManagedBy: createdBy}, back[at].Tags)
		assert.Len(w, back[at].Rules, 17)

		w.sim.EditGroup(made.ID, func(d document) { d["freeformTags"].(document)["cost"] = "1" })
		w.Server.ResetCalls()
		w.start()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes(), "a further tag does not make it another's")

		s = s.DeepCopy()
		s.Spec.Ports = s.Spec.Ports[:1]
		w.requireServed(s, nodes)
		assert.Len(w, w.managed()[0].Rules, 3)
		s.Annotations[annotationRuleMode] = modeNone
		w.requireServed(s, nodes)
		assert.Empty(w, w.managed(), "the mode has changed")
		assert.Empty(w, w.balancer().Doc["networkSecurityGroupIds"])
		assert.Empty(w, w.sim.Groups()[1].Rules)
	})
}

// TestRulesOfUDP: scenario 59: rules for ports of UDP are about UDP.
func TestRulesOfUDP(t *testing.T) {
	t.Parallel()
	s := conformance.Service("dns", nil, conformance.Port("dns", 53, 30053))
	s.Spec.Ports[0].Protocol = v1.ProtocolUDP
	a, err := accessOf(s, true)
	require.NoError(t, err)
	rules := desiredGroupRules(s, a, "front", []string{"back"})
	require.Len(t, rules["front"], 3)
	assert.Equal(t, numberUDP, rules["front"][0]["protocol"])
	assert.NotNil(t, rules["front"][0]["udpOptions"])
	assert.Len(t, rules["back"], 3, "and clients reach the nodes where their addresses are preserved")
	claimed := claim{wanted: a.frontOpenings([]string{nodeNet})}
	after, added, _ := claimed.apply(document{ingressField: []any{}, egressField: []any{}})
	assert.Len(t, added, 3)
	assert.NotNil(t, fieldOf[[]any](after, ingressField)[0].(document)["udpOptions"])
}

// TestClaims: what a Service leaves alone in a security list.
func TestClaims(t *testing.T) {
	t.Parallel()
	web := opening{false, numberTCP, 80, everybody}
	ranged := document{"protocol": "6", "source": everybody, "tcpOptions": document{"destinationPortRange": document{"min": 80.0, "max": 90.0}}}
	from := web.rule("")
	from["tcpOptions"].(document)["sourcePortRange"] = document{"min": 1.0, "max": 2.0}
	for name, c := range map[string]struct {
		rule  document
		claim claim
		stays bool
	}{
		"wanted":                  {web.rule("mine"), claim{wanted: openings{web: true}, mark: "mine"}, true},
		"of before":               {web.rule(""), claim{former: openings{web: true}, unmarked: true}, false},
		"of somebody else":        {web.rule(""), claim{former: openings{web: true}, mark: "mine"}, true},
		"of nobody knows whom":    {web.rule(""), claim{}, true},
		"marked":                  {web.rule("mine"), claim{mark: "mine"}, false},
		"of another cluster":      {web.rule("theirs"), claim{mark: "mine", former: openings{web: true}}, true},
		"needed by others":        {web.rule("mine"), claim{mark: "mine", others: neighbourNeeds{clients: openings{web: true}}}, true},
		"a port that others have": {web.rule("mine"), claim{mark: "mine", others: neighbourNeeds{fronts: map[int]string{80: "default/other"}}}, true},
		"a port of nodes":         {web.rule("mine"), claim{mark: "mine", others: neighbourNeeds{backs: map[int]bool{80: true}}}, false},
		"a subnet to nodes": {
			opening{false, numberTCP, 80, balancerNet}.rule("mine"), claim{mark: "mine", others: neighbourNeeds{backs: map[int]bool{80: true}}}, true,
		},
		"a range of ports":         {ranged, claim{former: openings{web: true}, unmarked: true}, true},
		"only some ports of those": {from, claim{former: openings{web: true}, unmarked: true}, true},
		"kept for a while":         {web.rule("mine"), claim{mark: "mine", keep: []int{80}}, true},
	} {
		after, _, removed := c.claim.apply(document{ingressField: []any{c.rule}, egressField: []any{}})
		assert.Equal(t, c.stays, after == nil && len(removed) == 0, name)
	}
}

// TestRangesWhileAListingLags: source ranges that change there and back leave nothing open, and close nothing.
func TestRangesWhileAListingLags(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{annotationRuleMode: "nsg", annotationBackGroups: ocisim.GroupID(2)}, web())
		w.serving(s)
		s.Spec.LoadBalancerSourceRanges = []string{"10.8.0.0/16"}
		w.requireServed(s, nodes)
		w.Fail(simkit.Fault{Kind: simkit.FaultUnlisted, Operation: "securityRules", Names: "10.9.0.0/16", For: simkit.Duration(time.Minute)})
		s.Spec.LoadBalancerSourceRanges = []string{"10.9.0.0/16"}
		w.requireServed(s, nodes)
		s.Spec.LoadBalancerSourceRanges = []string{"10.8.0.0/16"}
		w.requireServed(s, nodes)
		rules := strings.Join(w.managed()[0].Rules, "\n")
		assert.Contains(w, rules, "10.8.0.0/16")
		assert.NotContains(w, rules, "10.9.0.0/16")
	})
}

// TestGroupOfAnotherService is not given to a load balancer that does not have it: Oracle deletes no group that one has.
func TestGroupOfAnotherService(t *testing.T) {
	eachKind(t, []string{"a"}, func(w *testWorld, s *v1.Service, nodes []*v1.Node) {
		s.Annotations[annotationRuleMode] = modeGroups
		w.serving(s)
		w.requireServed(s, nodes)
		made := w.sim.Groups()[len(w.sim.Groups())-1]
		require.NotEmpty(w, made.Tags[tagService])
		for _, annotations := range []map[string]string{byHand(annotationGroups, made.ID), ofNetwork(nlbGroups, made.ID)} {
			claim := other(annotations, conformance.Port("alt", 8080, 30081))
			w.serving(s, claim)
			_, err := w.ensure(claim, nodes)
			require.ErrorContains(w, err, "was made for another Service")
		}
		time.Sleep(time.Minute)
		w.deleted(s)
		assert.NotContains(w, string(w.sim.State()), made.ID)
	})
}

// TestGroupOfAServiceThatIsGone hinders no Service of its cluster that names it. Of another cluster's nobody can tell.
func TestGroupOfAServiceThatIsGone(t *testing.T) {
	for name, theirs := range map[string]bool{"ours": false, "another cluster's": true} {
		t.Run(name, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{annotationRuleMode: modeGroups}, web())
				w.serving(s)
				w.requireServed(s, nodes)
				made := w.sim.Groups()[len(w.sim.Groups())-1]
				again := other(byHand(annotationGroups, made.ID), conformance.Port("alt", 8080, 30081))
				w.serving(again)
				if theirs {
					tags := document{"freeformTags": document{tagCreatedBy: createdBy, tagService: testUID, tagCluster: "anyccm:another"}}
					require.Equal(w, http.StatusOK, w.call(http.MethodPut, "/20160918"+groupPath(made.ID), tags).Code)
					w.cloud.loadBalancers.groups.known.InvalidateAll()
				}
				if _, err := w.ensure(again, nodes); theirs {
					require.ErrorContains(w, err, "was made for another Service")
				} else {
					require.NoError(w, err)
				}
			})
		})
	}
}

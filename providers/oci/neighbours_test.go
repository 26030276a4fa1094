package oci

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const everybodyAt80 = "ingress 6 80 " + everybody

// narrowBeside serves a Service to everybody beside another one with the same port, narrows it, and deletes it. hinder says what becomes of
// the other one meanwhile, and check looks after both.
func narrowBeside(
	t *testing.T, b *v1.Service, served bool, hinder func(*testWorld, *v1.Service), check func(*testWorld, *v1.Service, *record.FakeRecorder),
) {
	t.Helper()
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		a, b := conformance.Service("web", map[string]string{}, web()), b.DeepCopy()
		w.serving(a, b)
		if w.requireServed(a, nodes); served {
			b.Status.LoadBalancer = *w.requireServed(b, nodes)
		}
		require.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), everybodyAt80)
		time.Sleep(time.Hour)
		b = b.DeepCopy()
		if hinder != nil {
			hinder(w, b)
		}
		w.cloud.loadBalancers.setEvents(events)
		a = a.DeepCopy()
		a.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.serving(a, b)
		w.requireServed(a, nodes)
		assert.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), "ingress 6 80 203.0.113.0/24")
		check(w, b, events)
		w.serving(b)
		w.deleted(a)
		check(w, b, events)
	})
}

// editBalancer changes the load balancer of a Service, as somebody does by hand.
func (w *testWorld) editBalancer(s *v1.Service, change func(*ocisim.LoadBalancer)) {
	w.Helper()
	require.NoError(w, w.sim.EditLoadBalancer(balancerName("", s), change))
}

// moveTo has the cloud show the load balancer of a Service in another subnet.
func (w *testWorld) moveTo(s *v1.Service, subnet string) {
	w.Helper()
	w.editBalancer(s, func(lb *ocisim.LoadBalancer) { lb.Doc["subnetIds"] = []any{subnet} })
}

func neighbourOf(annotations map[string]string, change func(*v1.Service)) *v1.Service {
	s := other(annotations, conformance.Port("http", 80, 30090))
	if change != nil {
		change(s)
	}
	return s
}

// TestOpeningsThatNeighboursDoNotNeed: a Service that is served elsewhere, or not by us, keeps nobody in.
func TestOpeningsThatNeighboursDoNotNeed(t *testing.T) {
	subnet := map[string]string{annotationSubnet1: ocisim.SubnetID(1)}
	for name, c := range map[string]struct {
		b      *v1.Service
		served bool
	}{
		"in another subnet":            {neighbourOf(subnet, nil), true},
		"to be in another subnet":      {neighbourOf(subnet, nil), false},
		"of another class":             {neighbourOf(map[string]string{}, func(s *v1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") }), false},
		"disowned":                     {neighbourOf(map[string]string{contract.AnnotationDisown: "true"}, nil), false},
		"refused":                      {neighbourOf(map[string]string{annotationPolicy: "no policy"}, nil), false},
		"whose rules are made by hand": {neighbourOf(byHand(), nil), false},
		"to be in an unknown subnet":   {neighbourOf(map[string]string{annotationSubnet1: ocisim.SubnetID(99)}, nil), false},
		"with ranges that cannot be read": {
			neighbourOf(map[string]string{}, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"bad"} }), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			narrowBeside(t, c.b, c.served, nil, func(w *testWorld, _ *v1.Service, _ *record.FakeRecorder) {
				assert.NotContains(w, w.sim.SecurityRules(ocisim.BalancerList), everybodyAt80)
				if c.served {
					assert.Contains(w, w.sim.SecurityRules(ocisim.DefaultList), everybodyAt80, "where it is served itself")
				}
			})
		})
	}
}

// TestOpeningsThatNeighboursNeed: what a Service is served by stays open to its clients, whatever is wrong with it, and
// although a process begins that has not seen it.
func TestOpeningsThatNeighboursNeed(t *testing.T) {
	annotate := func(key, value string) func(*testWorld, *v1.Service) {
		return func(_ *testWorld, s *v1.Service) { s.Annotations[key] = value }
	}
	notListed := func(key, value string) func(*testWorld, *v1.Service) {
		return func(w *testWorld, s *v1.Service) {
			s.Annotations[key] = value
			w.editBalancer(s, func(lb *ocisim.LoadBalancer) { w.Fail(simkit.Fault{Kind: simkit.FaultUnlisted, Names: lb.ID}) })
		}
	}
	for name, hinder := range map[string]func(*testWorld, *v1.Service){
		"served": nil, "disowned": annotate(contract.AnnotationDisown, "true"), "refused": annotate(annotationPolicy, "no policy"),
		"elsewhere from now on": annotate(annotationSubnet1, ocisim.SubnetID(1)), "of the other kind": annotate(annotationType, typeNLB),
		"of another class":           func(_ *testWorld, s *v1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") },
		"in a subnet that is hidden": func(w *testWorld, s *v1.Service) { w.moveTo(s, "hidden") },
		"in a subnet whose reading fails": func(w *testWorld, s *v1.Service) {
			w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: "GET /subnets/{id}", Names: "broken"})
			w.moveTo(s, "broken")
		},
		"not listed, and elsewhere from now on":  notListed(annotationSubnet1, ocisim.SubnetID(1)),
		"not listed, and disowned":               notListed(contract.AnnotationDisown, "true"),
		"not listed, and by a group from now on": notListed(annotationRuleMode, modeGroups),
		"in a compartment that is hidden": func(w *testWorld, s *v1.Service) {
			notListed(annotationSubnet1, ocisim.SubnetID(1))(w, s)
			s.Status = v1.ServiceStatus{}
			places := w.cloud.loadBalancers.lb.compartments
			places.placeOf, places.seen = map[string]string{balancerName("", s): "ocid1.compartment.oc1..hidden"}, map[string]bool{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			restarted := func(w *testWorld, s *v1.Service) {
				if w.start(); hinder != nil {
					hinder(w, s)
				}
			}
			narrowBeside(t, neighbourOf(map[string]string{}, nil), true, restarted, func(w *testWorld, _ *v1.Service, _ *record.FakeRecorder) {
				assert.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), everybodyAt80)
			})
		})
	}
}

// TestNeighbourInAHiddenSubnet: that a neighbour's subnet may not be read is remembered, and costs no call at each look. A credential
// that is refused says nothing of the subnet.
func TestNeighbourInAHiddenSubnet(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusUnauthorized} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				a, b := conformance.Service("web", map[string]string{}, web()), neighbourOf(map[string]string{}, nil)
				w.serving(a, b)
				b.Status.LoadBalancer = *w.requireServed(b, nodes)
				w.moveTo(b, "hidden")
				w.start()
				w.serving(a, b)
				w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: status, Operation: "GET /subnets/{id}", Names: "hidden"})
				w.requireServed(a, nodes)
				w.Server.ResetCalls()
				time.Sleep(time.Minute)
				w.requireServed(a, nodes)
				assert.Equal(w, status == http.StatusUnauthorized, w.Calls("GET /subnets/{id}") > 0, "it is remembered where it is about the subnet")
				if status == http.StatusForbidden {
					time.Sleep(refusalMaxAge)
					w.requireServed(a, nodes)
					assert.NotZero(w, w.Calls("GET /subnets/{id}"), "it may be shown meanwhile")
				}
			})
		})
	}
}

// TestRefusalThatEnded: a subnet that could be read meanwhile is known at once.
func TestRefusalThatEnded(t *testing.T) {
	marking(t, nil, func(w *testWorld, _ []*v1.Node, _ *record.FakeRecorder) {
		book := w.cloud.loadBalancers.lists
		book.refused[ocisim.SubnetID(1)] = refusal{time.Now(), cloudapi.ErrUnauthorized}
		_, err := book.subnetOf(w.Context(), ocisim.SubnetID(1))
		require.ErrorIs(w, err, cloudapi.ErrUnauthorized)
		_, _, err = book.listsOf(w.Context(), ruleRequest{}, []string{ocisim.SubnetID(1)})
		require.NoError(w, err)
		_, err = book.subnetOf(w.Context(), ocisim.SubnetID(1))
		require.NoError(w, err)
	})
}

// TestNeighbourThatIsToBeServed: what a Service is about to be served by stays.
func TestNeighbourThatIsToBeServed(t *testing.T) {
	narrowBeside(t, neighbourOf(map[string]string{}, nil), false, nil, func(w *testWorld, _ *v1.Service, _ *record.FakeRecorder) {
		assert.Contains(w, w.sim.SecurityRules(ocisim.BalancerList), everybodyAt80)
	})
}

// TestNeighbourWithUnreadableRanges: where nobody can tell who its clients are, a Service keeps what it has open itself. A process that
// does not know what that is leaves all that is open at its port, says so, and closes it once the ranges can be read.
func TestNeighbourWithUnreadableRanges(t *testing.T) {
	const theirs = "ingress 6 80 10.1.0.0/16"
	for name, restart := range map[string]bool{"one process": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			hinder := func(w *testWorld, s *v1.Service) {
				if s.Spec.LoadBalancerSourceRanges = []string{"bad"}; restart {
					w.start()
				}
			}
			b := neighbourOf(map[string]string{}, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.1.0.0/16"} })
			narrowBeside(t, b, true, hinder, func(w *testWorld, b *v1.Service, events *record.FakeRecorder) {
				rules, told := w.sim.SecurityRules(ocisim.BalancerList), drainEvents(events)
				assert.Contains(w, rules, theirs, "its clients get in")
				if !restart {
					assert.NotContains(w, rules, everybodyAt80)
					assert.NotContains(w, told, "nobody can tell")
					return
				}
				assert.Contains(w, rules, everybodyAt80)
				assert.Contains(w, told, "lets in TCP port 80 from "+everybody+" as long as nobody can tell who the clients of Service default/other are")
				now := b.DeepCopy()
				if now.Spec.LoadBalancerSourceRanges = []string{"10.1.0.0/16"}; len(w.sim.LoadBalancers()) == 1 {
					w.serving(now)
					w.requireServed(now, w.Nodes)
					assert.NotContains(w, w.sim.SecurityRules(ocisim.BalancerList), everybodyAt80)
				}
			})
		})
	}
}

// TestFailedEditLeavesADoubt: after an edit that failed, perhaps in its answer alone, nothing is certain of what a Service has in a list.
func TestFailedEditLeavesADoubt(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, _ []*v1.Node, _ *record.FakeRecorder) {
		book, service, list := w.cloud.loadBalancers.lists, neighbourOf(map[string]string{}, nil), "unknown"
		have := openings{{port: 80}: true}
		book.noteHeld(service.UID, list, heldRules{openings: have, known: true})
		require.Equal(w, have, book.knownOpenings(service.UID, list))
		_, err := book.changes(service, []listPlan{{id: list}})[0].Make(w.Context(), nil, observed{})
		require.Error(w, err)
		assert.Nil(w, book.knownOpenings(service.UID, list))
		assert.True(w, book.hasRules(service.UID), "it is looked for all the same")
	})
}

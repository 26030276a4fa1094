package gce

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	makesRule      = "POST forwardingRules"
	deletesBackend = "DELETE backendServices/{name}"

	sharedTCP = "k8s-" + usualID + "-internal-tcp-nmv1-6eef6648406c333a"
)

// sharing is the internal Service web with a shared backend service.
func sharing() *v1.Service {
	s := internalService("web")
	s.Annotations[annotationShare] = "true"
	return s
}

// sharingAlso is another such Service.
func sharingAlso(protocol v1.Protocol) *v1.Service {
	s := manyServices(1)[0]
	s.Annotations = map[string]string{annotationType: "Internal", annotationShare: "true"}
	s.Spec.Ports[0].Protocol = protocol
	return s
}

// holdsNothing fails if objects of internal load balancers remain.
func (w *world) holdsNothing() {
	w.T.Helper()
	for _, kind := range []string{"forwardingRules", "firewalls", "backendServices", "healthChecks", "instanceGroups", "addresses"} {
		assert.Empty(w.T, w.sim.Objects(kind), kind)
	}
}

// fail makes calls of an operation fail during do.
func (w *world) fail(operation string, do func()) {
	w.T.Helper()
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: operation, Writes: true})
	require.NoError(w.T, err)
	do()
	w.server.ClearFaults()
	time.Sleep(time.Hour)
}

// noServices is a cache that cannot be read.
type noServices struct{ listers.ServiceLister }

func (noServices) List(labels.Selector) ([]*v1.Service, error) {
	return nil, errors.New("the cache cannot be read")
}

// TestSharedBackendWithoutRule: a shared backend service stays while any Service requests it, even without a forwarding rule, and is
// deleted with the last one.
func TestSharedBackendWithoutRule(t *testing.T) {
	for _, served := range []bool{false, true} {
		for _, shares := range []bool{false, true} {
			t.Run(fmt.Sprintf("served before %v, the other one shares %v", served, shares), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newTestWorld(t, usual)
					w.withIdentity()
					w.addNode(gcesim.Spec{Name: "n1"})
					web := w.apply(sharing())
					if served {
						web, _ = w.ensure(web)
						web.Spec.Ports = append(web.Spec.Ports, conformance.Port("b", 443, 30443))
						w.write(web)
					}
					w.fail(makesRule, func() { _ = w.refuse(web) })
					require.Empty(t, w.sim.Objects("forwardingRules"))
					other := sharingAlso(v1.ProtocolUDP)
					if !shares {
						delete(other.Annotations, annotationShare)
					}
					w.server.ResetCalls()
					w.ensure(w.apply(other))
					assert.Zero(t, w.server.Calls().ByOperation[deletesBackend], "a Service asks for it")
					w.holds("backendServices", sharedTCP, nil)
					web, _ = w.ensure(web)
					for _, s := range []*v1.Service{web, other} {
						require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
					}
					w.holdsNothing()
					assert.Empty(t, w.server.Calls().Refused)
				})
			})
		}
	}
}

// TestSharedBackendAskedForMeanwhile: it is not deleted if another Service has requested it meanwhile.
func TestSharedBackendAskedForMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.withIdentity()
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(sharingAlso(v1.ProtocolTCP)))
		delete(s.Annotations, annotationShare)
		w.server.Inspect(func(r *http.Request, _ []byte, _ func(*http.Request) *httptest.ResponseRecorder) func() {
			if name, _ := w.server.Operation(r); name == makesRule {
				w.apply(sharing())
			}
			return nil
		})
		w.ensure(w.write(s))
		assert.Zero(t, w.server.Calls().ByOperation[deletesBackend])
		w.holds("backendServices", sharedTCP, nil)
	})
}

// TestLeftSharedBackend: after a failed deletion it is deleted with the next reconciliation of an internal load balancer, but not while the
// Services are unknown. The last one leaves nothing.
func TestLeftSharedBackend(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		for _, goes := range []bool{false, true} {
			t.Run(fmt.Sprintf("restarts %v, the Service goes %v", restarts, goes), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newTestWorld(t, usual)
					w.withIdentity()
					w.addNode(gcesim.Spec{Name: "n1"})
					s, _ := w.ensure(w.apply(sharing()))
					delete(s.Annotations, annotationShare)
					w.fail(deletesBackend, func() { _ = w.refuse(s) })
					if restarts {
						w.restart()
					}
					s = w.Current(s)
					w.loadBalancers.reconciler.identity.SetServices(noServices{})
					w.server.ResetCalls()
					require.ErrorContains(t, w.refuse(s), "the cache cannot be read")
					assert.Zero(t, w.server.Calls().Writes)
					w.loadBalancers.reconciler.identity.SetServices(w.Services())
					if !goes {
						w.ensure(s)
						require.Len(t, w.sim.Objects("backendServices"), 1)
						assert.Equal(t, testLB, w.sim.Objects("backendServices")[0]["name"])
					}
					require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
					w.holdsNothing()
				})
			})
		}
	}
}

// TestRuleAtAStrangersBackend: a foreign backend service, set by hand in the forwarding rule, is never written.
func TestRuleAtAStrangersBackend(t *testing.T) {
	for _, s := range []*v1.Service{internalService("web"), sharing()} {
		t.Run("shared "+s.Annotations[annotationShare], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.withIdentity()
				w.addNode(gcesim.Spec{Name: "n1"})
				s, _ := w.ensure(w.apply(s))
				w.sim.Put("global/healthChecks/theirs", map[string]any{"type": "HTTP", "httpHealthCheck": map[string]any{"port": 80.0}})
				const theirs = "regions/us-central1/backendServices/team-bs"
				w.sim.Put(theirs, map[string]any{"loadBalancingScheme": "INTERNAL", "protocol": "TCP", "healthChecks": []any{"global/healthChecks/theirs"}})
				w.sim.Edit("forwardingRules", testLB, func(d map[string]any) { d["backendService"] = "projects/my-project/" + theirs })
				w.restart()
				w.addNode(gcesim.Spec{Name: "n2", Zone: "us-central1-b"})
				require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes))
				w.holds("backendServices", "team-bs", map[string]any{"backends": nil})
				require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
				require.Len(t, w.sim.Objects("backendServices"), 1)
				assert.Equal(t, "team-bs", w.sim.Objects("backendServices")[0]["name"])
				assert.Empty(t, w.sim.Objects("forwardingRules"))
			})
		})
	}
}

// TestSharingWhileAZoneIsNotReachable: instances of an unreachable zone stay when the backend service becomes shared, and back.
func TestSharingWhileAZoneIsNotReachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, s := inTwoZones(t, "Internal")
		w.sim.SetUnreachable("us-central1-b", true)
		for _, value := range []string{"true", "false"} {
			s.Annotations[annotationShare] = value
			s, _ = w.ensure(w.write(s))
			require.Len(t, w.sim.Objects("backendServices"), 1)
			assert.Len(t, w.sim.Objects("backendServices")[0]["backends"], 2, "shared %s", value)
			assert.Equal(t, []string{"a1", "b1"}, w.membersEverywhere())
		}
	})
}

// TestSharedBackendDescription: a foreign description stays, and causes no write.
func TestSharedBackendDescription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.withIdentity()
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(sharing()))
		w.sim.Edit("backendServices", sharedTCP, func(d map[string]any) { d["description"] = "ask the network team" })
		w.restart()
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
	})
}

// TestSwitchesOfGoogle: Google's own controller accepts only "true". Other spellings mean no here too, with an event, so that a takeover
// changes nothing.
func TestSwitchesOfGoogle(t *testing.T) {
	for _, key := range []string{annotationShare, annotationAlphaShare, annotationGlobalAccess} {
		for _, value := range []string{"True", "TRUE", "1", "t", "yes", " true"} {
			t.Run(key+"="+value, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newTestWorld(t, usual)
					w.withIdentity()
					w.addNode(gcesim.Spec{Name: "n1"})
					originalsInternal(w, usualID, "regions/us-central1/subnetworks/nodes")
					s := testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
					s.Annotations[annotationType], s.Annotations[key] = "Internal", value
					s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup", finalizerILB}
					w.apply(s)
					w.server.ResetCalls()
					_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
					require.NoError(t, err)
					assert.Zero(t, w.server.Calls().Writes)
					assert.Contains(t, strings.Join(w.Events(), "\n"), fmt.Sprintf(`annotation %s: %q is not one of "true", "false"`, key, value))
				})
			})
		}
	}
}

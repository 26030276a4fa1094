package gce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// ensure reconciles a Service until it is served, and returns it with its address.
func (w *world) ensure(s *v1.Service) (*v1.Service, string) {
	w.T.Helper()
	status, err := w.Reconcile(w.loadBalancers, "kubernetes", s, w.nodes)
	require.NoError(w.T, err)
	require.Len(w.T, status.Ingress, 1)
	return w.SetStatus(s, status), status.Ingress[0].IP
}

func (w *world) apply(s *v1.Service) *v1.Service {
	w.Apply(s)
	return s
}

const testLB = "a3c1f6b527a664b588b4b0a61c1f9e0a"

// usualID is the cluster's ID in most tests.
const usualID = "0123456789abcdef"

func (w *world) withIdentity() { w.withIdentityOf(usualID) }

// withIdentityOf sets the ID of Google's own controllers, which may be empty.
func (w *world) withIdentityOf(cluster string) {
	w.T.Helper()
	_, err := w.Kube.CoreV1().ConfigMaps("kube-system").Create(w.T.Context(), &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: idConfigMap},
		Data:       map[string]string{idKey: usualID, idProviderKey: cluster},
	}, metav1.CreateOptions{})
	require.NoError(w.T, err)
}

// originals creates the objects as Google's own controller leaves them.
func originals(w *world, cluster string) {
	shared := "k8s-" + cluster + "-node"
	w.sim.Put("global/httpHealthChecks/"+shared, map[string]any{
		"description": `{"kubernetes.io/service-name":"` + shared + `"}`, "port": 10256, "requestPath": "/healthz", "checkIntervalSec": 8, "timeoutSec": 1,
		"healthyThreshold": 1, "unhealthyThreshold": 3,
	})
	w.sim.Put("global/firewalls/"+shared+"-http-hc", map[string]any{
		"description": `{"kubernetes.io/cluster-id":"` + cluster + `"}`, "network": "global/networks/cluster", "targetTags": []any{"node"}, "priority": 1000,
		"sourceRanges":      []any{"130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"},
		"destinationRanges": []any{"203.0.113.77"}, "allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"10256"}}},
	})
	w.sim.Put("regions/us-central1/targetPools/"+testLB, map[string]any{
		"description": `{"kubernetes.io/service-name":"default/web"}`, "sessionAffinity": "NONE", "instances": []any{"zones/us-central1-a/instances/n1"},
		"healthChecks": []any{"global/httpHealthChecks/" + shared},
	})
	w.sim.Put("regions/us-central1/forwardingRules/"+testLB, map[string]any{
		"description": `{"kubernetes.io/service-name":"default/web"}`, "IPProtocol": "TCP", "portRange": "80-443", "networkTier": "PREMIUM",
		"target": "regions/us-central1/targetPools/" + testLB,
	})
	ip := w.sim.Objects("forwardingRules")[0]["IPAddress"]
	w.sim.Put("global/firewalls/k8s-fw-"+testLB, map[string]any{
		"description": fmt.Sprintf(`{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"%v"}`, ip), "network": "global/networks/cluster",
		"targetTags": []any{"node"}, "sourceRanges": []any{"0.0.0.0/0"}, "destinationRanges": []any{ip}, "priority": 1000,
		"allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"80", "443"}}},
	})
}

// TestTakeover: Google's own controller's objects are taken over without a write to the cloud or the cluster, also after a restart.
func TestTakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.withIdentity()
		w.addNode(gcesim.Spec{Name: "n1"})
		originals(w, usualID)
		s := testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
		s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup", finalizerNetLB}
		w.apply(s)
		w.Kube.ClearActions()
		w.server.ResetCalls()
		for range 2 {
			status, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
			require.NoError(t, err)
			assert.Equal(t, w.sim.Objects("forwardingRules")[0]["IPAddress"], status.Ingress[0].IP)
			w.restart()
		}
		assert.Zero(t, w.server.Calls().Writes)
		for _, a := range w.Kube.Actions() {
			assert.Contains(t, []string{"get", "list"}, a.GetVerb())
		}
	})
}

// TestEmptyProviderUID: if Google's own key in the ConfigMap is empty, names of shared objects use that and not the other key. Such objects
// are taken over without a write, and new Services use them.
func TestEmptyProviderUID(t *testing.T) {
	for kind, finalizer := range map[string]string{"": finalizerNetLB, "Internal": finalizerILB} {
		t.Run("kind "+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.withIdentityOf("")
				w.addNode(gcesim.Spec{Name: "n1"})
				if kind == "" {
					originals(w, "")
				} else {
					originalsInternal(w, "", "regions/us-central1/subnetworks/nodes")
					require.Equal(t, "k8s-ig", w.sim.Objects("instanceGroups")[0]["name"])
				}
				s := testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
				s.Annotations[annotationType] = kind
				s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup", finalizer}
				w.apply(s)
				w.server.ResetCalls()
				for range 2 {
					w.ensure(s)
					require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes))
					w.restart()
				}
				assert.Zero(t, w.server.Calls().Writes)

				other := manyServices(1)[0]
				other.Annotations[annotationType] = kind
				w.ensure(w.apply(other))
				for collection, n := range map[string]int{"httpHealthChecks": 1, "healthChecks": 1, "instanceGroups": 1, "firewalls": 3} {
					assert.LessOrEqual(t, len(w.sim.Objects(collection)), n, collection)
				}
				for _, gone := range []*v1.Service{s, other} {
					require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", w.Current(gone)))
				}
				for _, kind := range snapshotKinds {
					assert.Empty(t, w.sim.Objects(kind), kind)
				}
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestTakeoverWithoutFinalizer: an older release of Google's own controller wrote no finalizer. It is added without a write to the cloud.
func TestTakeoverWithoutFinalizer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.withIdentity()
		w.addNode(gcesim.Spec{Name: "n1"})
		originals(w, usualID)
		s := testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
		s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
		w.apply(s)
		w.server.ResetCalls()
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.NoError(t, err)
		assert.Contains(t, w.Current(s).Finalizers, finalizerNetLB)
		assert.Zero(t, w.server.Calls().Writes)
	})
}

// TestNoAddressWithoutNeed: a reconciliation without changes reserves no address, and all Services share reads.
func TestNoAddressWithoutNeed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		all := manyServices(20)
		for _, s := range all {
			w.ensure(w.apply(s))
		}
		assert.Empty(t, w.sim.Objects("addresses"))
		time.Sleep(time.Hour)
		w.server.ResetCalls()
		for _, s := range all {
			w.ensure(s)
		}
		calls := w.server.Calls()
		assert.Zero(t, calls.Writes)
		assert.LessOrEqual(t, calls.Total, 7, "one listing of each kind for all, and a token: %v", calls.ByOperation)
	})
}

func manyServices(n int) (list []*v1.Service) {
	for i := range n {
		s := testService(fmt.Sprint("web-", i), conformance.Port("a", 80, int32(30080+i)))
		s.UID = types.UID(fmt.Sprintf("%08d-7a66-4b58-8b4b-0a61c1f9e0a1", i))
		list = append(list, s)
	}
	return list
}

// TestJoiningNode: with 20 Services it costs one listing, and one write for each target pool.
func TestJoiningNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		all := manyServices(20)
		for _, s := range all {
			w.ensure(w.apply(s))
		}
		w.addNode(gcesim.Spec{Name: "n2", Zone: "us-central1-b"})
		time.Sleep(2 * time.Minute)
		w.server.ResetCalls()
		for _, s := range all {
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes))
		}
		calls := w.server.Calls()
		assert.Equal(t, 20, calls.Writes)
		assert.Equal(t, 20, calls.ByOperation["POST targetPools/{name}/addInstance"])
		lists := 0
		for name, n := range calls.ByOperation {
			if strings.HasPrefix(name, "GET ") && !strings.Contains(name, "operations") {
				lists += n
			}
		}
		assert.Equal(t, 1, lists, "%v", calls.ByOperation)
	})
}

// TestTheAddressStays: the address survives every replacement of the forwarding rule, and no reservation remains.
func TestTheAddressStays(t *testing.T) {
	for name, change := range map[string]func(*v1.Service){
		"a port outside of the range": func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("c", 8443, 30999)) },
		"another protocol":            func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP },
		"affinity":                    func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
		"local traffic": func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30777
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
				before := s.DeepCopy()
				for _, to := range []func(*v1.Service){change, func(s *v1.Service) { s.Spec = before.Spec }} {
					to(s)
					var after string
					s, after = w.ensure(w.write(s))
					assert.Equal(t, ip, after)
					assert.Empty(t, w.sim.Objects("addresses"))
					assert.Len(t, w.sim.Objects("targetPools"), 1)
					assert.Len(t, w.sim.Objects("httpHealthChecks"), 1, "the other health check is gone")
					assert.Len(t, w.sim.Objects("firewalls"), 2)
				}
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestSharedFirewallHasNoAddress: the shared health check's rule admits it to every load balancer.
func TestSharedFirewallHasNoAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.withIdentity()
		w.addNode(gcesim.Spec{Name: "n1"})
		for _, s := range manyServices(2) {
			w.ensure(w.apply(s))
		}
		for _, f := range w.sim.Objects("firewalls") {
			if f["name"] == "k8s-0123456789abcdef-node-http-hc" {
				assert.NotContains(t, f, "destinationRanges")
				return
			}
		}
		t.Fatal("there is no rule for the shared health check")
	})
}

// TestLeftAlone: a Service of ingress-gce causes no write, and is never reported as missing.
func TestLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*v1.Service){
		"annotation": func(s *v1.Service) { s.Annotations[annotationRBS] = rbsEnabled },
		"finalizer":  func(s *v1.Service) { s.Finalizers = []string{finalizerNetLBv3} },
		"internal": func(s *v1.Service) {
			s.Finalizers = []string{finalizerILBv2}
			s.Annotations[annotationType] = typeInternal
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				s := testService("web", conformance.Port("a", 80, 30080))
				change(s)
				w.apply(s)
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
				require.ErrorIs(t, err, cloudprovider.ImplementedElsewhere)
				require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
				require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
				assert.Zero(t, w.server.Calls().Writes)
			})
		})
	}
}

// TestOneStuckOperationHoldsUpNobody: other Services are served while one operation never ends.
func TestOneStuckOperationHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		two := manyServices(2)
		w.ensure(w.apply(two[0]))
		w.sim.Stick("insert forwardingRules", true)
		w.apply(two[1])
		done := make(chan error)
		go func() {
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(two[1]), w.nodes)
			done <- err
		}()
		time.Sleep(5 * time.Minute)
		w.ensure(two[0])
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(two[0]), w.nodes))
		w.sim.Stick("insert forwardingRules", false)
		require.NoError(t, <-done)
		assert.Len(t, w.sim.Objects("forwardingRules"), 2)
	})
}

// TestSharedNetworkAsksTheAdministratorOnce: commands for unwritable rules of another project are reported once.
func TestSharedNetworkAsksTheAdministratorOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, strings.Replace(usual, "subnetwork-name = nodes\n", "network-project-id = host-project\n", 1))
		w.sim.AddNetwork(gcesim.HostProject, "cluster", "nodes", "10.130.0.0/20")
		w.sim.Deny("POST firewalls", true)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		w.ensure(s)
		events := w.Events()
		count := 0
		for _, e := range events {
			if strings.Contains(e, eventByHand) {
				count++
			}
		}
		assert.Equal(t, 2, count, "one for each rule, and none again: %v", events)
		assert.True(t, slices.ContainsFunc(events, func(e string) bool {
			return strings.Contains(e, "gcloud compute firewall-rules create k8s-fw-"+testLB+" --network cluster --description ") &&
				strings.Contains(e, "--allow tcp:80 --source-ranges 0.0.0.0/0 --destination-ranges 203.0.") &&
				strings.HasSuffix(strings.TrimSuffix(e, "`"), "--target-tags node --priority 1000 --project host-project")
		}), "%v", events)
	})
}

// TestSharedCheckInUse: a health check used by another process's load balancer stays after our last one is deleted, without an error.
func TestSharedCheckInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, kind := range []string{"", "Internal"} {
			w := newTestWorld(t, usual)
			w.withIdentity()
			w.addNode(gcesim.Spec{Name: "n1"})
			s := testService("web", conformance.Port("a", 80, 30080))
			s.Annotations[annotationType] = kind
			s, _ = w.ensure(w.apply(s))
			if kind == "" {
				w.sim.Put("regions/us-central1/targetPools/theirs", map[string]any{"healthChecks": []any{"global/httpHealthChecks/" + sharedCheck}})
			} else {
				w.sim.Put("regions/us-central1/backendServices/theirs", map[string]any{
					"loadBalancingScheme": "INTERNAL", "protocol": "TCP", "healthChecks": []any{"global/healthChecks/" + sharedCheck},
					"backends": []any{map[string]any{"group": "zones/us-central1-a/instanceGroups/k8s-ig--0123456789abcdef"}},
				})
			}
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			assert.Len(t, append(w.sim.Objects("httpHealthChecks"), w.sim.Objects("healthChecks")...), 1)
			firewalls := w.sim.Objects("firewalls")
			require.Len(t, firewalls, 1, "its firewall rule stays with it")
			assert.Contains(t, firewalls[0]["name"], sharedCheck)
			assert.Empty(t, w.sim.Objects("forwardingRules"))
			if kind != "" {
				assert.Len(t, w.members(), 1, "the other one's instances stay")
			}
			_, exists, err := w.loadBalancers.GetLoadBalancer(t.Context(), "kubernetes", w.Current(s))
			require.NoError(t, err)
			assert.False(t, exists)
		}
	})
}

// TestLocalTrafficThenClusterIP: a Service with local traffic that is no longer a load balancer has lost its health check port. Its own
// health check is deleted nevertheless.
func TestLocalTrafficThenClusterIP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for _, c := range []string{"rich", "withinRich"} {
			s, _ := w.ensure(w.apply(cases()[c].Service))
			s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceTypeClusterIP, "", 0
			w.restart()
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			for _, kind := range snapshotKinds {
				assert.Empty(t, w.sim.Objects(kind), "%s: %s", c, kind)
			}
		}
	})
}

// TestFinalizerThatIsForbidden: the error names the missing permission.
func TestFinalizerThatIsForbidden(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		w.Kube.PrependReactor("patch", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource("services/status"), "web", errors.New("no"))
		})
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.apply(testService("web", conformance.Port("a", 80, 30080))), w.nodes)
		require.ErrorContains(t, err, "grant patch on services/status")
	})
}

// TestRuleThatVanished: a forwarding rule deleted by hand does not block other deletions.
func TestRuleThatVanished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for name, service := range cases() {
			s, _ := w.ensure(w.apply(service.Service))
			w.sim.Edit("forwardingRules", loadBalancerName("", s), nil)
			w.restart()
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s), name)
			for _, kind := range snapshotKinds {
				assert.Empty(t, w.sim.Objects(kind), "%s: %s", name, kind)
			}
		}
	})
}

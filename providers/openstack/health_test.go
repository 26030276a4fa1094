package openstack

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// One that could not be built is built again; one that served is failed over, or the user is told who can do that. Neither its address
// nor the load balancer is given up.

func breakDown(lb *openstacksim.LoadBalancer) { lb.ProvisioningStatus = openstacksim.Failed }

// A broken load balancer: never built.
func TestBrokenNeverBuilt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", func(s *openstacksim.Sim) { s.FailCreations(2) })
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.Apply(web(nil))
		w.ensure(web(nil))
		require.Len(t, w.sim.LoadBalancers(), 1)
		assert.Equal(t, 3, w.server.Calls().ByOperation[creation])
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventRecreated)
	})
}

// A broken load balancer: failed over.
func TestBrokenFailedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.AllowFailover(true)
		before := w.sim.LoadBalancers()[0]
		w.sim.ChangeLoadBalancer(before.ID, breakDown)
		w.restart()
		_, status := w.ensure(s)
		assert.Equal(t, s.Status.LoadBalancer, *status)
		assert.Equal(t, before.ID, w.sim.LoadBalancers()[0].ID)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventFailover)
	})
}

// A broken load balancer: a process that starts during the failover orders no other one.
func TestBrokenFailoverAcrossARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.AllowFailover(true)
		w.sim.ChangeLoadBalancer(w.sim.LoadBalancers()[0].ID, breakDown)
		for range 2 {
			w.restart()
			_, _, err := w.reconciler.GetLoadBalancer(t.Context(), w.cluster, w.Current(s))
			require.NoError(t, err)
			require.NoError(t, healthCheck{w.reconciler, w.Services()}.run(t.Context()))
		}
		assert.Equal(t, 1, w.server.Calls().ByOperation["PUT /load-balancer/v2.0/lbaas/loadbalancers/{id}/failover"])
	})
}

// A broken load balancer: found though nothing changes.
func TestBrokenFoundThoughNothingChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.AllowFailover(true)
		job := healthCheck{w.reconciler, w.Services()}.job()
		require.NoError(t, job.Run(t.Context()))
		assert.Equal(t, openstacksim.Active, w.sim.LoadBalancers()[0].ProvisioningStatus)
		w.sim.ChangeLoadBalancer(s.Annotations[annotationID], breakDown)
		w.restart()
		w.reconciler.finder.clusterName.Store(w.cluster) // the framework looks at every Service first
		job = healthCheck{w.reconciler, w.Services()}.job()
		w.server.ResetCalls()
		require.NoError(t, job.Run(t.Context()))
		made := w.server.Calls()
		logins, versions := made.ByOperation["POST /identity/v3/auth/tokens"], made.ByOperation["GET /load-balancer"]
		assert.Equal(t, 2, made.Total-logins-versions, "a listing and the failover")
		assert.Equal(t, openstacksim.Active, w.sim.LoadBalancers()[0].ProvisioningStatus)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventFailover)
	})
}

// A broken load balancer: named by an older Service that it is not for.
func TestBrokenNamedByAnOlderServiceThatItIsNotFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.AllowFailover(true)
		stranger := w.sim.AddLoadBalancer("users-own", firstSubnet)
		for i, id := range []string{s.Annotations[annotationID], stranger.ID} {
			claim := rename(service("claim", map[string]string{annotationID: id}, servicePort("x", 81, 30081)), fmt.Sprintf("claim-%d", i))
			claim.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
			claim.Status = s.Status
			w.Apply(claim)
			w.sim.ChangeLoadBalancer(id, breakDown)
		}
		w.restart()
		_, _, err := w.reconciler.GetLoadBalancer(t.Context(), w.cluster, w.Current(s))
		require.NoError(t, err)
		w.server.ResetCalls()
		require.NoError(t, healthCheck{w.reconciler, w.Services()}.run(t.Context()))
		assert.Equal(t, 1, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
		for _, lb := range w.sim.LoadBalancers() {
			assert.Equal(t, lb.ID == stranger.ID, lb.ProvisioningStatus == openstacksim.Failed, lb.Name)
		}
	})
}

// A broken load balancer: well again before anything is done.
func TestBrokenWellAgainBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.AllowFailover(true)
		before := w.sim.LoadBalancers()[0]
		w.sim.ChangeLoadBalancer(before.ID, breakDown)
		w.restart()
		_, _, err := w.reconciler.GetLoadBalancer(t.Context(), w.cluster, w.Current(s)) // it is seen to be broken
		require.NoError(t, err)
		time.Sleep(time.Second)
		w.sim.ChangeLoadBalancer(before.ID, func(lb *openstacksim.LoadBalancer) { lb.ProvisioningStatus = openstacksim.Active })
		w.requireNoWrites(s)
	})
}

// A broken load balancer: no right to do so.
func TestBrokenWithoutTheRightToFailOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		before := w.sim.LoadBalancers()[0]
		w.sim.ChangeLoadBalancer(before.ID, breakDown)
		w.restart()
		_, err := w.try(s)
		require.ErrorContains(t, err, "openstack loadbalancer failover "+before.ID)
		assert.Equal(t, 1, w.server.Calls().ByOperation["PUT /load-balancer/v2.0/lbaas/loadbalancers/{id}/failover"], "once in a while, not again and again")
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventBroken)
		assert.Equal(t, before.ID, w.sim.LoadBalancers()[0].ID)
		require.NoError(t, w.remove(s), "it can be deleted")
		assert.Empty(t, w.sim.LoadBalancers())
	})
}

// A broken load balancer: deleted behind our back.
func TestBrokenDeletedBySomebodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.DropLoadBalancer(w.sim.LoadBalancers()[0].ID)
		w.restart()
		s, _ = w.ensure(s)
		require.Len(t, w.sim.LoadBalancers(), 1)
		assert.Equal(t, w.sim.LoadBalancers()[0].ID, s.Annotations[annotationID])
	})
}

// madeAgain replaces a Service by another one of its name.
func madeAgain(w *world, s *v1.Service, annotations map[string]string) *v1.Service {
	w.vanish(s)
	again := web(annotations)
	again.UID = "made-again"
	return again
}

// A load balancer that was kept, or that served, is failed over, whatever the Service remembers of it.
func TestBrokenAndKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(w *world, s *v1.Service) *v1.Service
		fails   bool
	}{
		"kept, and its Service comes back": {prepare: func(w *world, s *v1.Service) *v1.Service { return madeAgain(w, s, nil) }},
		"kept, and its Service comes back with a record": {prepare: func(w *world, s *v1.Service) *v1.Service {
			return madeAgain(w, s, map[string]string{annotationID: s.Annotations[annotationID], annotationMade: s.Annotations[annotationID]})
		}},
		"kept, and its Service is a load balancer again": {prepare: func(_ *world, s *v1.Service) *v1.Service {
			s.Annotations, s.Status = map[string]string{}, v1.ServiceStatus{}
			return s
		}},
		"it has an address that the Service does not show yet": {prepare: func(_ *world, s *v1.Service) *v1.Service {
			delete(s.Annotations, annotationAddress)
			s.Status = v1.ServiceStatus{}
			return s
		}},
		"nobody may fail it over": {fails: true, prepare: func(w *world, s *v1.Service) *v1.Service {
			w.sim.AllowFailover(false)
			return madeAgain(w, s, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				w.sim.AllowFailover(true)
				before := w.sim.LoadBalancers()[0]
				w.sim.ChangeLoadBalancer(before.ID, breakDown)
				w.restart()
				now := c.prepare(w, w.Current(s))
				w.Apply(now)
				_, err := w.Kube.CoreV1().Services(now.Namespace).UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
				require.NoError(t, err)
				status, err := w.try(now)
				events := strings.Join(w.Events(), "\n")
				assert.NotContains(t, events, eventRecreated)
				require.Len(t, w.sim.LoadBalancers(), 1)
				assert.Equal(t, before.ID, w.sim.LoadBalancers()[0].ID)
				assert.Equal(t, before.VIPAddress, w.sim.LoadBalancers()[0].VIPAddress)
				require.Len(t, w.sim.FloatingIPs(), 1)
				assert.Equal(t, before.VIPPortID, deref(w.sim.FloatingIPs()[0].PortID))
				if c.fails {
					require.ErrorContains(t, err, "openstack loadbalancer failover "+before.ID)
					assert.Contains(t, events, eventBroken)
					return
				}
				require.NoError(t, err)
				assert.Contains(t, events, eventFailover)
				assert.Equal(t, s.Status.LoadBalancer, *status)
			})
		})
	}
}

// A broken load balancer: of a Service that disowns it.
func TestBrokenAndDisowned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.AllowFailover(true)
		w.sim.ChangeLoadBalancer(s.Annotations[annotationID], breakDown)
		disowned := w.Current(s).DeepCopy()
		disowned.Annotations[contract.AnnotationDisown] = "true"
		w.Apply(disowned)
		w.restart()
		w.reconciler.finder.clusterName.Store(w.cluster)
		w.server.ResetCalls()
		require.NoError(t, healthCheck{w.reconciler, w.Services()}.run(t.Context()))
		assert.Zero(t, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
	})
}

package ibm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestListingThatShifts: a load balancer is deleted while a listing of several pages is read, so that another one falls between two pages.
// It is not taken for absent by that.
func TestListingThatShifts(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		for n := range 100 {
			w.sim.AddLoadBalancer(fmt.Sprint("other-", n), ibmsim.VPC)
		}
		s := web()
		w.mustEnsure(s)
		for n := range 5 {
			w.sim.AddLoadBalancer(fmt.Sprint("later-", n), ibmsim.VPC)
		}
		w.restart()
		w.sim.DropAfterPage("other-0")
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
		assert.True(w.t, err != nil || exists, "or the framework takes it for deleted")
	})
}

// TestListingThatLacksParts (5): where a listing lacks a pool or a listener that the load balancer shows, nothing is written, and it is
// looked at again.
func TestListingThatLacksParts(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"pools", "listeners"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 2, 0, nil, func(w *world) {
				s := web()
				w.mustEnsure(s)
				lb := w.sim.LoadBalancers()[0]
				id := map[string]string{"pools": lb.Pools[1].ID, "listeners": lb.Listeners[1].ID}[of]
				before := snapshot(w.t, w.sim)
				w.writes()
				w.restart()
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultUnlisted, Names: id, Operation: "GET " + oneLB + "/" + of})
				require.NoError(w.t, err)
				var later *cloudproviderapi.RetryError
				require.ErrorAs(w.t, w.ensure(s), &later)
				require.ErrorAs(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes[:1]), &later)
				assert.Empty(w.t, w.writes())
				w.server.ClearFaults()
				w.mustEnsure(s)
				assert.Empty(w.t, w.writes())
				assert.Equal(w.t, before, snapshot(w.t, w.sim))
				assert.NotContains(w.t, w.drainEvents(), "Warning")
			})
		})
	}
}

// TestUnlistedAtDeletion: a credential that lost the right to see load balancers still sees the subnets. That its listing is empty proves
// no absence of a load balancer that the Service shows, or at least somebody is told.
func TestUnlistedAtDeletion(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"while it runs": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := web()
				w.mustEnsure(s)
				require.NotEmpty(w.t, s.Status.LoadBalancer.Ingress)
				time.Sleep(5 * time.Minute)
				if restarts {
					w.restart()
				}
				w.drainEvents()
				id := w.sim.LoadBalancers()[0].ID
				for _, f := range []simkit.Fault{{Kind: "empty-list", Operation: "GET /v1/load_balancers$"}, {Kind: simkit.FaultVanished, Names: id}} {
					_, err := w.server.AddFault(f)
					require.NoError(w.t, err)
				}
				_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
				if err == nil && exists {
					err = w.remove(s)
				}
				require.Len(w.t, w.sim.LoadBalancers(), 1)
				assert.True(w.t, err != nil || w.drainEvents() != "", "it stays in the cloud for ever, and nobody knows")
			})
		})
	}
}

// TestGoneWhenNodesChange: a load balancer that somebody deleted is made again at the next change of nodes, as the monitor's event says, or
// the framework is told that there is none.
func TestGoneWhenNodesChange(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		s.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer}
		w.mustEnsure(s)
		w.sim.RemoveLoadBalancers()
		time.Sleep(5 * time.Minute)
		w.addNode("worker-2")
		err := w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes)
		assert.True(w.t, err != nil || len(w.sim.LoadBalancers()) == 1, "success, and nothing is there")
	})
}

// TestClusterBesideCluster: a second cluster in the VPC has a Service of the same UID, with the same name, record, node ports and status,
// as one that was restored from a backup of the first. Its nodes are others. What the first one has is not touched.
func TestClusterBesideCluster(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		w.config = strings.Replace(w.config, "clusterID = "+ibmsim.Cluster, "clusterID = restored", 1)
		w.bench.Unregister(w.nodes[0])
		w.nodes = nil
		w.restart()
		w.addNode("restored-worker-1")
		w.writes()
		_ = w.ensure(s)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
		_ = w.remove(s)
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
	})
}

// TestDeletionIsWaitedFor (7): a load balancer that is being deleted is waited for, and then made again. That is no failure, and no event.
func TestDeletionIsWaitedFor(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, time.Minute, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		time.Sleep(2 * time.Minute)
		first := w.sim.LoadBalancers()[0]
		request := request{what: "deleting it by hand", method: "DELETE", path: "/load_balancers/" + first.ID}
		require.NoError(w.t, w.cloud.api.call(w.t.Context(), request, nil))
		s.Status = v1.ServiceStatus{}
		w.restart()
		began := time.Now()
		w.mustEnsure(s)
		assert.GreaterOrEqual(w.t, time.Since(began), 50*time.Second)
		require.Len(w.t, w.sim.LoadBalancers(), 1)
		assert.NotEqual(w.t, first.ID, w.sim.LoadBalancers()[0].ID)
		assert.Empty(w.t, w.drainEvents())
	})
}

package azure

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestFailedWork: what Azure says about work that failed is the error, and the next try does it, for every kind of resource.
func TestFailedWork(t *testing.T) {
	t.Parallel()
	groupID := azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName)
	for _, kind := range []string{"loadBalancers", "publicIPAddresses", "networkSecurityGroups", "privateLinkServices"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			if kind == "privateLinkServices" {
				s = linked(nil)
			}
			withNode(t, s, func(w *world) {
				w.sim.Fail("Microsoft.Network/"+kind, "SubscriptionIsOverQuota", "no more "+kind)
				require.ErrorContains(w, w.refuse(s), "no more "+kind)
				w.ensure(s)
				for _, id := range []string{lbID("kubernetes"), lbID("kubernetes-internal"), pipID(webPIP), linkID("pls-" + base), groupID} {
					if shown := w.sim.Shown(id); shown != nil {
						assert.Equal(w, "Succeeded", str(shown, "properties", "provisioningState"), id)
					}
				}
				time.Sleep(time.Minute) // what was asked for may still come to be
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}

// TestSlowWork: work that is in progress for several polls, whose polls fail, and during which the program starts again.
func TestSlowWork(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]*simkit.Fault{
		"slow":      nil,
		"not found": {Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: "GET operation", Count: 2},
		"broken":    {Kind: simkit.FaultStatus, Status: http.StatusBadGateway, Operation: "GET operation", Count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.sim.SetActivation(40 * time.Second)
				if fault != nil {
					_, err := w.server.AddFault(*fault)
					require.NoError(w, err)
				}
				w.server.ResetCalls()
				w.tryOften(s)
				polls := w.server.Calls().ByOperation["GET operation"]
				assert.Greater(w, polls, 8, "in progress for several polls each")
				assert.Len(w, w.parts("kubernetes", "loadBalancingRules"), 1)
				assert.Equal(w, 1, w.server.Calls().ByOperation["PUT Microsoft.Network/networkSecurityGroups/{name}"])
			})
		})
	}
	t.Run("restart in the middle", func(t *testing.T) {
		t.Parallel()
		for _, after := range []time.Duration{time.Second, 30 * time.Second, 70 * time.Second, 110 * time.Second} {
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.sim.SetActivation(40 * time.Second)
				old := w.cloud
				var all sync.WaitGroup
				all.Go(func() { _, _ = old.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes) })
				time.Sleep(after)
				w.restart()
				w.tryOften(s)
				all.Wait()
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		}
	})
}

// tryOften serves a Service as the framework does: an error is tried again.
func (w *world) tryOften(s *v1.Service) {
	w.Helper()
	var err error
	for range 10 {
		var status *v1.LoadBalancerStatus
		if status, err = w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes); err == nil {
			w.SetStatus(s, status)
			return
		}
		time.Sleep(10 * time.Second)
	}
	require.NoError(w, err)
}

// TestThrottled: a short pause is waited for, while everything else goes on; a long one is an error at once, and no loop.
func TestThrottled(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.restart()
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, RetryAfter: 5, Operation: "GET Microsoft.Network/loadBalancers", Count: 1})
		require.NoError(w, err)
		began := time.Now()
		w.ensure(s)
		assert.GreaterOrEqual(w, time.Since(began), 5*time.Second, "it waits as long as it is told")
		assert.Less(w, time.Since(began), time.Minute)
		w.restart()
		_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, RetryAfter: 600, Operation: "GET Microsoft.Network/loadBalancers"})
		require.NoError(w, err)
		w.server.ResetCalls()
		require.Error(w, w.refuse(s))
		assert.LessOrEqual(w, w.server.Calls().Total, 10, "%v", w.server.Calls().ByOperation)
		began = time.Now()
		exists, err := w.cloud.instances.InstanceExists(w.Context(), w.nodes[0])
		require.NoError(w, err)
		assert.True(w, exists, "machines are another provider of Azure, which has not refused anything")
		assert.Less(w, time.Since(began), 5*time.Second)
	})
}

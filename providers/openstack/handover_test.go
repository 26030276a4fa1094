package openstack

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestHandover: a cluster that was built again gets its load balancers back, with what shares them, when the operator says so.
func TestHandover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, owner := newServedWorld(t, "", web(nil))
		guest := rename(service("guest", map[string]string{annotationID: owner.Annotations[annotationID]}, servicePort("x", 90, 30090)), "guest")
		w.Apply(guest)
		guest, _ = w.ensure(guest)
		lb := w.sim.LoadBalancers()[0]
		cluster, _ := ownership.Marked(lb.Tags)

		restored := w.anotherCluster("kubernetes", "")
		again, sharing := rename(w.Current(owner), "web"), rename(w.Current(guest), "guest")
		sharing.UID = "guest-of-the-restored"
		restored.Apply(again)
		restored.Apply(sharing)
		_, err := restored.try(again)
		require.ErrorContains(t, err, "belongs to another cluster")
		services := []*v1.Service{restored.Current(sharing), restored.Current(again)}
		w.server.ResetCalls()
		marked, err := restored.MarkedLoadBalancers(t.Context(), services)
		require.NoError(t, err)
		assert.Equal(
			t,
			[]contract.MarkedLoadBalancer{{ID: lb.ID, Name: lb.Name, Cluster: cluster, ServiceUID: string(owner.UID), Claims: []string{"default/web"}}},
			marked,
		)
		assert.Zero(t, w.server.Calls().Writes)

		stale := marked[0]
		stale.Cluster = "another"
		require.ErrorContains(t, restored.RemarkLoadBalancer(t.Context(), stale, again.UID), "carries other marks by now")
		assert.Zero(t, w.server.Calls().Writes)
		require.NoError(t, restored.RemarkLoadBalancer(t.Context(), marked[0], again.UID))
		tags := w.sim.LoadBalancers()[0].Tags
		assert.Contains(t, tags, ownership.ServiceMark(again.UID))
		assert.NotContains(t, tags, ownership.ClusterMark(cluster))
		for _, l := range w.sim.Listeners() {
			assert.NotContains(t, l.Tags, ownership.ClusterMark(cluster))
		}
		require.ErrorContains(t, restored.RemarkLoadBalancer(t.Context(), marked[0], again.UID), "carries other marks by now")
		restored.requireNoWrites(again)
		restored.requireNoWrites(sharing)
		require.NoError(t, restored.remove(sharing))
		require.NoError(t, restored.remove(again))
		assert.Empty(t, w.sim.LoadBalancers())
	})
}

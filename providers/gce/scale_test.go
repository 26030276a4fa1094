package gce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// TestPoolsOfManyInstancesAreListed: 500 target pools with the maximum of 1,000 instances would exceed the limit of a response. Equal lists
// are stored once.
func TestPoolsOfManyInstancesAreListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pools, instances = 2*poolsPerPage + 20, 1000
		w := newTestWorld(t, usual)
		links := make([]any, instances)
		for i := range links {
			links[i] = fmt.Sprintf("%s/compute/v1/projects/my-project/zones/us-central1-a/instances/gke-production-default-pool-%08x-%04d", w.url, i, i)
		}
		for i := range pools {
			name := fmt.Sprintf("a%031x", i)
			w.sim.Put("regions/us-central1/targetPools/"+name, map[string]any{})
			require.True(t, w.sim.Edit("targetPools", name, func(pool map[string]any) { pool["instances"] = links }))
		}
		w.server.ResetCalls()
		all, err := w.api.stores.pools.All(t.Context(), inventory.Query{})
		require.NoError(t, err)
		require.Len(t, all, pools)
		assert.Equal(t, 3, w.server.Calls().ByOperation["GET targetPools"])
		for _, p := range all {
			require.Len(t, p.Instances, instances)
			require.Same(t, &all[0].Instances[0], &p.Instances[0], "one list in memory")
		}
	})
}

// crowd adds many nodes with instances in the first zone.
func (w *world) crowd(from, to int) {
	w.T.Helper()
	for i := from; i < to; i++ {
		name := fmt.Sprintf("n%04d", i)
		node := nodeNamed(name, w.sim.AddInstance(gcesim.Spec{Name: name}))
		w.nodes = append(w.nodes, node)
		w.Register(node)
	}
}

// TestManyMembers: a pool is created with the maximum of instances per call, and the rest are added in large steps.
func TestManyMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.crowd(0, 250)
		s, _ := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		calls := w.server.Calls()
		assert.Equal(t, 1, calls.ByOperation["POST targetPools"])
		assert.Equal(t, 1, calls.ByOperation["POST targetPools/{name}/addInstance"])
		assert.Len(t, w.sim.Objects("targetPools")[0]["instances"], 250)
		w.crowd(250, 2550)
		time.Sleep(5 * time.Minute)
		w.server.ResetCalls()
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
		calls = w.server.Calls()
		assert.Equal(t, 3, calls.ByOperation["POST targetPools/{name}/addInstance"])
		assert.Equal(t, 3, calls.Writes)
		assert.Len(t, w.sim.Objects("targetPools")[0]["instances"], 2550)
		assert.Empty(t, calls.Refused)
	})
}

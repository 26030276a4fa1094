package gce

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// TestPoolsOfManyInstancesAreListed: with 1,000 instances in each, the most that they take, 500 target pools would be more text than an
// answer may be. Their instances are in memory once.
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
		all, err := w.loadBalancers.reconciler.api.stores.pools.All(t.Context(), inventory.Query{})
		require.NoError(t, err)
		require.Len(t, all, pools)
		assert.Equal(t, 3, w.server.Calls().ByOperation["GET targetPools"])
		for _, p := range all {
			require.Len(t, p.Instances, instances)
			require.Same(t, &all[0].Instances[0], &p.Instances[0], "one list in memory")
		}
	})
}

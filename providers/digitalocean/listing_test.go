package digitalocean

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestManyDropletsAreListedSoon: the pages of a large account are read together, as many calls as one after the other, so that the first
// of 15,000 nodes waits for a third of the time.
func TestManyDropletsAreListedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const droplets, latency = 15_000, 40 * time.Millisecond
		w := newVirtualWorld(t, nil)
		w.sim.Seed(droplets)
		w.server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(latency) })
		w.server.ResetCalls()
		began := time.Now()
		all, err := w.instances.droplets.All(t.Context(), inventory.Query{})
		require.NoError(t, err)
		calls := w.server.Calls().Total
		t.Logf("%d droplets: %s, %d calls, one after the other %s", len(all), time.Since(began), calls, time.Duration(calls)*latency)
		assert.Len(t, all, droplets)
		assert.LessOrEqual(t, calls, droplets/pageSize+1, "one more is that of droplets with GPUs")
		assert.LessOrEqual(t, time.Since(began), time.Duration(calls)*latency/3)
	})
}

package linode

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// TestManyLinodesAreListedSoon: the pages of a large account are read together, as many calls as one after the other, so that the first of
// 15,000 nodes waits for a third of the time.
func TestManyLinodesAreListedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const linodes, latency = 15_000, 40 * time.Millisecond
		_, server := linodesim.New(linodesim.Options{Token: testToken, Seed: simkit.SeedOf(t)})
		server.Seed(linodes)
		server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(latency) })
		network := simkit.NewNetwork()
		in := testInputs(network.Serve(t, server), nil, map[string]string{})
		in.Dial = network.Dial
		c, err := newCloud(in)
		require.NoError(t, err)
		server.ResetCalls()
		began := time.Now()
		all, err := c.instances.linodes.All(t.Context(), inventory.Query{})
		require.NoError(t, err)
		calls := server.Calls().Total
		t.Logf("%d Linodes: %s, %d calls, one after the other %s", len(all), time.Since(began), calls, time.Duration(calls)*latency)
		assert.Len(t, all, linodes)
		assert.LessOrEqual(t, calls, linodes/pageSize)
		assert.LessOrEqual(t, time.Since(began), time.Duration(calls)*latency/3)
	})
}

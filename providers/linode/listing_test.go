package linode

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// TestRestartCost counts the calls by which a new process finds that nothing has changed: the ports of each NodeBalancer, and the nodes of
// each port.
func TestRestartCost(t *testing.T) {
	t.Parallel()
	const n = 20
	w := newTestWorld(t, nil, nil)
	for i := range 3 {
		w.addNode(linodesim.Spec{Label: fmt.Sprint("worker-", i), Private: true})
	}
	all := make([]*v1.Service, n)
	for i := range all {
		s := service(fmt.Sprint("web-", i), nil, port("http", 80, 30000+int32(2*i)), port("https", 443, 30001+int32(2*i)))
		s.UID = types.UID(fmt.Sprintf("%08x-7a66-4b58-8b4b-0a61c1f9e0a1", i+1))
		w.Apply(s)
		all[i], _ = w.ensure(s)
	}
	w.restart()
	w.server.ResetCalls()
	for _, s := range all {
		w.ensure(s)
	}
	calls := w.server.Calls()
	t.Logf("%d unchanged NodeBalancers of 2 ports after a restart: %d calls, %v", n, calls.Total, calls.ByOperation)
	assert.Zero(t, calls.Writes)
	assert.LessOrEqual(t, calls.Total, 3*n+6)
}

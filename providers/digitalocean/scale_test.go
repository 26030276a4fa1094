package digitalocean

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestManyDeletionsShareTheirReads: each load balancer is looked at once more before it is deleted, and many that go together by one
// listing, which begins after the last of them was asked about.
func TestManyDeletionsShareTheirReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 2*pageSize + 20 // three pages
		w := newVirtualWorld(t, map[string]string{"DO_API_RATE_LIMIT_QPS": "10000"})
		w.addNode(digitaloceansim.Spec{Name: "node-1"})
		services := make([]*v1.Service, n)
		for i := range services {
			services[i] = aged(service("", nil, port("http", 80, 30080)), fmt.Sprintf("web-%d", i), i+1)
			w.Apply(services[i])
			services[i], _ = w.ensure(services[i])
		}
		time.Sleep(3 * time.Minute)
		w.server.ResetCalls()
		w.server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(40 * time.Millisecond) })
		var group sync.WaitGroup
		for i, s := range services {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond) // as they are withdrawn one by one
				assert.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
			})
		}
		group.Wait()
		calls := w.server.Calls()
		assert.Empty(t, w.sim.LoadBalancers())
		assert.Equal(t, n, calls.Writes)
		t.Logf("%d load balancers: %d reads", n, calls.Reads)
		assert.LessOrEqual(t, calls.Reads, 40, "%v", calls.ByOperation)
	})
}

// TestLargeLoadBalancersAreListed: with 15,000 droplets behind each, a page of 200 load balancers would be larger than an answer may be.
// Their droplets are in memory once.
func TestLargeLoadBalancersAreListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const balancers, droplets = 180, 15_000
		w := newVirtualWorld(t, map[string]string{"DO_API_RATE_LIMIT_QPS": "10000"})
		w.addNode(digitaloceansim.Spec{Name: "node-1"})
		ids := make([]int, droplets)
		for i := range ids {
			ids[i] = 512_345_678 + i
		}
		s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
		w.Apply(s)
		w.ensure(s)
		one, err := w.api.loadBalancer(t.Context(), w.sim.LoadBalancers()[0].ID)
		require.NoError(t, err)
		for i := range balancers - 1 {
			request := one.AsRequest()
			request.Name, request.Region = fmt.Sprintf("lb-%d", i), one.Region.Slug
			_, err := w.api.createLoadBalancer(t.Context(), request)
			require.NoError(t, err)
		}
		for _, lb := range w.sim.LoadBalancers() {
			w.sim.ChangeLoadBalancer(lb.ID, func(lb *digitaloceansim.LoadBalancer) { lb.DropletIDs = ids })
		}
		_, _, err = listAll(t.Context(), "load balancers", pageSize, w.api.sdk.LoadBalancers.List, identity)
		require.ErrorContains(t, err, "larger than 24 MiB", "so many are on no page of 200")
		keep := keepDroplets(inventory.NewLists[int]())
		for _, refused := range []int{1, 0} { // it is known from then on
			all, pages, err := w.api.loadBalancers(t.Context(), 1, keep)
			require.NoError(t, err, "a small cluster in the account of a large one")
			require.Len(t, all, balancers)
			assert.Equal(t, (balancers+pageSize/4-1)/(pageSize/4)+refused, pages)
		}
		all, pages, err := w.api.loadBalancers(t.Context(), droplets, keep)
		require.NoError(t, err)
		assert.LessOrEqual(t, pages, balancers/balancersPerPage(droplets)+2)
		require.Len(t, all, balancers)
		first := all[0].DropletIDs
		for _, lb := range all {
			require.Len(t, lb.DropletIDs, droplets)
			require.Same(t, &first[0], &lb.DropletIDs[0], "one list in memory")
		}
		assert.Equal(t, ids, first)
	})
}

func TestBalancersPerPage(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]int{0: 200, 1000: 200, 3000: 200, 5000: 144, 15_000: 49, 1_000_000: 1} {
		assert.Equal(t, want, balancersPerPage(nodes), nodes)
	}
}

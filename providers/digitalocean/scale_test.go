package digitalocean

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/godo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
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
		list := func(nodes int) ([]*godo.LoadBalancer, error) {
			all, pages, err := w.api.loadBalancers(context.Background(), nodes, newDropletLists())
			assert.LessOrEqual(t, pages, balancers/balancersPerPage(droplets)+2)
			return all, err
		}
		_, _, err = w.api.balancersOnPages(context.Background(), pageSize, newDropletLists())
		require.ErrorContains(t, err, "larger than 24 MiB", "so many are on no page of 200")
		lists := newDropletLists()
		for _, refused := range []int{1, 0} { // it is known from then on
			all, pages, err := w.api.loadBalancers(context.Background(), 1, lists)
			require.NoError(t, err, "a small cluster in the account of a large one")
			require.Len(t, all, balancers)
			assert.Equal(t, (balancers+pageSize/4-1)/(pageSize/4)+refused, pages)
		}
		all, err := list(droplets)
		require.NoError(t, err)
		require.Len(t, all, balancers)
		first := all[0].DropletIDs
		for _, lb := range all {
			require.Len(t, lb.DropletIDs, droplets)
			require.Same(t, &first[0], &lb.DropletIDs[0], "one list in memory")
		}
		assert.Equal(t, ids, first)
	})
}

// whileEncoded is a value that does something while it is made text.
type whileEncoded func()

func (f whileEncoded) MarshalJSON() ([]byte, error) {
	f()
	return []byte(`{}`), nil
}

// TestLateBody: HTTP/2 closes a body while another goroutine reads it, which must not change it under the reader.
func TestLateBody(t *testing.T) {
	t.Parallel()
	body := &lazyBody{}
	times := 0
	body.value = whileEncoded(func() {
		times++
		assert.False(t, body.mu.TryLock(), "who closes it waits")
	})
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, "{}\n", string(text))
	require.NoError(t, body.Close())
	n, err := body.Read(make([]byte, 1))
	assert.Zero(t, n)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, 1, times, "nothing is encoded again")
}

func TestBalancersPerPage(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]int{0: 200, 1000: 200, 3000: 200, 5000: 144, 15_000: 49, 1_000_000: 1} {
		assert.Equal(t, want, balancersPerPage(nodes), nodes)
	}
}

// TestDecodeBalancers: a page is decoded as the SDK does it, and nothing else is taken for one.
func TestDecodeBalancers(t *testing.T) {
	t.Parallel()
	const text = `{"new_field": {"load_balancers": [1]}, "meta": {"total": 3}, "load_balancers": [
		{"id": "a", "droplet_ids": [3, 1, 2], "tags": ["x"]}, {"id": "b", "droplet_ids": []}, {"id": "c", "droplet_ids": [1, 2, 3]}],
		"links": {"pages": {"next": "https://api.example/v2/load_balancers?page=2"}}}`
	lists := newDropletLists()
	p, err := decodeBalancers(strings.NewReader(text), lists)
	require.NoError(t, err)
	assert.True(t, p.more)
	assert.Equal(t, 3, p.total)
	var sdk struct {
		LoadBalancers []*godo.LoadBalancer `json:"load_balancers"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &sdk))
	for i, lb := range sdk.LoadBalancers {
		slices.Sort(lb.DropletIDs)
		if len(lb.DropletIDs) == 0 {
			lb.DropletIDs = nil
		}
		assert.Equal(t, lb, p.kept[i])
	}
	assert.Same(t, &p.kept[0].DropletIDs[0], &p.kept[2].DropletIDs[0])
	again, err := decodeBalancers(strings.NewReader(text), lists)
	require.NoError(t, err)
	assert.Equal(t, p, again, "from known texts")

	p, err = decodeBalancers(strings.NewReader(`{"load_balancers": null, "meta": null, "links": {}}`), lists)
	require.NoError(t, err)
	assert.Equal(t, page[*godo.LoadBalancer]{total: -1}, p)
	for _, wrong := range []string{
		"", "null", "[]", "<html>", `{`, `{"load_balancers": [`, `{"load_balancers": [{"id": "a"}`, `{"load_balancers": {}}`, `{"load_balancers": 1}`,
		`{"load_balancers": [{"droplet_ids": "1"}]}`, `{"load_balancers": [{"droplet_ids": {}}]}`, `{"load_balancers": [{"droplet_ids": [1.5]}]}`,
		`{"load_balancers": ["a"]}`, `{"load_balancers": []`, `{"meta": 1}`,
	} {
		_, err := decodeBalancers(strings.NewReader(wrong), lists)
		require.Error(t, err, wrong)
		require.NotErrorIs(t, apiError(err, "listing"), cloudapi.ErrNotFound, wrong)
	}
}

package inventory

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

// TestUninitializedNodesShareTheirReads: nodes join at any speed, with objects that were made long ago or a moment before, and are looked
// for by ID or by name. A joining node costs at most the calls of one single read, or of one listing where its ID is not known, all of
// them together at most one call in gatherPerCall, and who comes alone waits for nobody.
func TestUninitializedNodesShareTheirReads(t *testing.T) {
	t.Parallel()
	n, pageSize := 300, 60
	if tier.All() {
		n, pageSize = 1000, 200
	}
	for _, getCalls := range []int{1, 3} { // 3: a Linode and its addresses in a VPC
		for _, every := range []time.Duration{
			0, 10 * time.Millisecond, 60 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second,
		} {
			for _, seeded := range []bool{true, false} {
				for _, byName := range []bool{false, true} {
					name := fmt.Sprintf("%d calls, one every %s, seeded %t, by name %t", getCalls, every, seeded, byName)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { joinAll(t, n, pageSize, getCalls, every, seeded, byName) })
					})
				}
			}
		}
	}
}

// pageCounting is the inventory of a cloud, and how many pages its listings took.
func pageCounting(c *fakeCloud, getCalls int) (*Inventory[int, object], *int) {
	pages := 0
	return New(Source[int, object]{
		Kind: "thing", ID: func(o object) int { return o.id }, GetCalls: getCalls, Get: c.get,
		List: func(ctx context.Context) ([]object, int, error) {
			all, took, err := c.list(ctx)
			c.mu.Lock()
			pages += took
			c.mu.Unlock()
			return all, took, err
		},
		Indexes: map[string]func(object) []string{"name": func(o object) []string { return []string{o.name} }},
	}), &pages
}

func joinAll(t *testing.T, n, pageSize, getCalls int, every time.Duration, seeded, byName bool) {
	c := newCloud(0)
	c.pageSize = pageSize
	if seeded {
		c = newCloud(n)
		c.pageSize = pageSize
	}
	inv, pages := pageCounting(c, getCalls)
	_, err := inv.All(t.Context(), Query{})
	assert.NoError(t, err)
	began := time.Now()
	var group sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	uninitialized := 0
	for id := 1; id <= n; id++ {
		group.Go(func() {
			time.Sleep(time.Duration(id) * every)
			c.set(object{id: id, name: fmt.Sprintf("n%d", id)})
			mu.Lock()
			uninitialized++
			q := Query{MaxAge: time.Minute, MaxMissAge: 5 * time.Second, Expected: uninitialized, Uninitialized: true}
			mu.Unlock()
			asked := time.Now()
			if byName {
				found, err := inv.Find(priority.Urgent(t.Context()), "name", fmt.Sprintf("n%d", id), q)
				assert.NoError(t, err)
				assert.Len(t, found, 1)
			} else {
				_, err := inv.Get(priority.Urgent(t.Context()), id, q)
				assert.NoError(t, err)
			}
			mu.Lock()
			defer mu.Unlock()
			uninitialized--
			slowest = max(slowest, time.Since(asked))
		})
	}
	group.Wait()
	most := n/pageSize + 1
	calls := *pages + c.gets*getCalls
	span := time.Since(began)
	start := 3 * most
	assert.LessOrEqual(t, calls, start+int(span/gatherPerCall)+most, "no more than a call in %s", gatherPerCall)
	assert.LessOrEqual(t, calls, start+aloneCost(n, pageSize, getCalls, seeded, byName), "no more than a single read, or listing, each")
	if seeded {
		assert.LessOrEqual(t, calls, start+(int(span/time.Minute)+1)*(most+most), "what was listed is read once a minute")
	}
	longest := time.Duration(most)*gatherPerCall + 5*c.latency
	assert.LessOrEqual(t, slowest, longest)
	if every >= 5*time.Second {
		assert.LessOrEqual(t, slowest, 2*c.latency, "who comes alone waits for nobody")
	}
}

// aloneCost is the number of calls for n joining objects if each is looked up alone: by a listing if its ID is not known.
func aloneCost(n, pageSize, getCalls int, seeded, byName bool) (calls int) {
	for there := range n {
		switch {
		case !byName:
			calls += getCalls
		case seeded:
			calls += n/pageSize + 1
		default:
			calls += (there+1)/pageSize + 1
		}
	}
	return calls
}

// TestGathered: many that look at objects at the same time, right before something that cannot be undone, share listings that began after
// their questions. One who is alone reads that very object.
func TestGathered(t *testing.T) {
	t.Parallel()
	const n, pageSize, pages = 1000, 200, 5
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(n)
		c.pageSize = pageSize
		inv, listed := pageCounting(c, 1)
		_, err := inv.All(t.Context(), Query{})
		require.NoError(t, err)
		*listed = 0
		look := func(id int, name string) {
			c.set(object{id: id, name: name})
			got, err := inv.Get(t.Context(), id, Query{Gathered: true})
			assert.NoError(t, err)
			assert.Equal(t, name, got.name, "it was read after the question")
		}
		time.Sleep(time.Minute)
		look(1, "alone")
		assert.Equal(t, 1, c.gets)
		assert.Zero(t, *listed)

		time.Sleep(time.Minute)
		var group sync.WaitGroup
		for id := 1; id <= n; id++ {
			group.Go(func() {
				time.Sleep(time.Duration(id/100) * time.Second)
				look(id, fmt.Sprintf("now %d", id))
			})
		}
		group.Wait()
		assert.LessOrEqual(t, c.gets+*listed, 8*pages, "of 1,000 single reads")
	})
}

package inventory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPrefetchAsksTheInventory: what to read along may depend on what is known, such as which object has a name.
func TestPrefetchAsksTheInventory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := &batchCloud{objects: map[int]string{1: "a", 2: "b"}}
		i := New(Source[int, object]{
			Kind: "thing", ID: func(o object) int { return o.id }, Get: cloud.get, GetMany: cloud.getMany, BatchSize: 3,
			Indexes: map[string]func(object) []string{"name": func(o object) []string { return []string{o.name} }},
		})
		i.Put(object{id: 2, name: "b"})
		time.Sleep(time.Millisecond) // what is known is older than the question
		prefetch := WithPrefetch(t.Context(), func() []int {
			var ids []int
			for _, o := range i.PeekIndex("name", "b") {
				ids = append(ids, i.ID(o))
			}
			return ids
		})
		_, err := i.Get(prefetch, 1, Query{}) // an inventory that waits for itself is a deadlock, which the bubble reports
		require.NoError(t, err)
		cloud.mu.Lock()
		defer cloud.mu.Unlock()
		assert.Equal(t, [][]int{{1, 2}}, cloud.batches)
		assert.True(t, i.ReadsBatches())
	})
}

// TestCompanyCrashes: the objects that were asked for are read all the same.
func TestCompanyCrashes(t *testing.T) {
	t.Parallel()
	cloud := &batchCloud{objects: map[int]string{1: "a"}}
	i := New(Source[int, object]{Kind: "thing", ID: func(o object) int { return o.id }, Get: cloud.get, GetMany: cloud.getMany, BatchSize: 3})
	for range 2 {
		_, err := i.Get(WithPrefetch(t.Context(), func() []int { panic("no") }), 1, Query{})
		require.NoError(t, err)
	}
}

// TestListingIsSaidOnce: an error that says itself what was done is not told so twice.
func TestListingIsSaidOnce(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"listing things, page 1: refused": "listing things, page 1: refused", "refused": "listing things: refused",
	} {
		i := New(Source[int, object]{
			Kind: "thing", ID: func(o object) int { return o.id },
			List: func(context.Context) ([]object, int, error) { return nil, 0, errors.New(said) },
		})
		_, err := i.All(t.Context(), Query{})
		require.EqualError(t, err, want)
	}
}

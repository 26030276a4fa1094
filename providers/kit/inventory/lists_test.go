package inventory

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func listOf(first, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = first + i
	}
	return list
}

// TestLists: equal lists are one, whatever others came between, and nobody appends to what others have.
func TestLists(t *testing.T) {
	t.Parallel()
	l := NewLists[int]()
	one := l.Same(listOf(1, 100))
	assert.Same(t, &one[0], &l.Same(listOf(1, 100))[0])
	longer := append(l.Same(append(make([]int, 0, 200), listOf(1, 100)...)), 7)
	assert.NotSame(t, &one[0], &longer[0])
	other := append(make([]int, 0, 10), 5, 6)
	kept := l.Same(other)
	assert.NotSame(t, &kept[0], &append(kept, 7)[0])
	for i := range recentLists - 2 {
		l.Same(listOf(1000+i, 3))
	}
	assert.Same(t, &one[0], &l.Same(listOf(1, 100))[0], "it is among the recent ones")
	for i := range recentLists {
		l.Same(listOf(2000+i, 3))
	}
	assert.NotSame(t, &one[0], &l.Same(listOf(1, 100))[0], "only so many are known")
	assert.Len(t, l.recent, recentLists)
	assert.Nil(t, l.Same(nil))
}

// TestKeep: what is kept of a listing, a single read and a write shares what it can.
func TestKeep(t *testing.T) {
	t.Parallel()
	type balancer struct {
		id       int
		backends []int
	}
	lists := NewLists[int]()
	make1 := func(id int) *balancer { return &balancer{id, listOf(1, 50)} }
	i := New(Source[int, *balancer]{
		Kind: "balancer", ID: func(b *balancer) int { return b.id },
		List: func(context.Context) ([]*balancer, int, error) { return []*balancer{make1(1), make1(2)}, 1, nil },
		Get:  func(_ context.Context, id int) (*balancer, error) { return make1(id), nil },
		Keep: func(b *balancer) *balancer { return &balancer{b.id, lists.Same(b.backends)} },
	})
	_, err := i.All(t.Context(), Query{})
	require.NoError(t, err)
	_, err = i.Get(t.Context(), 3, Query{})
	require.NoError(t, err)
	i.Put(make1(4))
	i.PutPartial(make1(5))
	first, _ := i.Peek(1)
	for id := 2; id <= 5; id++ {
		b, ok := i.Peek(id)
		require.True(t, ok)
		assert.Same(t, &first.backends[0], &b.backends[0], "balancer %d", id)
	}
}

package inventory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestIndex: an index is what a set of objects for each value would be, whatever is added and removed.
func TestIndex(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) // the same every time
	x, want := index[int]{}, map[string]map[int]bool{}
	for range 20_000 {
		value, id := string(rune('a'+random.IntN(4))), random.IntN(5)
		if random.IntN(2) == 0 {
			x.add(value, id)
			if want[value] == nil {
				want[value] = map[int]bool{}
			}
			want[value][id] = true
		} else {
			x.remove(value, id)
			delete(want[value], id)
		}
		var ids []int
		for id := range want[value] {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		assert.Equal(t, ids, slices.Sorted(x.lookup(value)))
		_, kept := x[value]
		assert.Equal(t, len(ids) > 0, kept, "a value that nothing has is not kept")
	}
}

// TestIndexMemory: values that one object has each, as nearly all have, cost little more than themselves.
func TestIndexMemory(t *testing.T) {
	const n = 15_000
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("node-%d", i)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	x := index[int]{}
	for i, v := range values {
		x.add(v, i)
	}
	each := float64(heap()-before) / n
	assert.Less(t, each, 120.0, "bytes for each object; a map for each would be 350")
	runtime.KeepAlive(x)
	runtime.KeepAlive(values)
}

package simkit

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDisorder(t *testing.T) {
	t.Parallel()
	list := []string{}
	for i := range 20 {
		list = append(list, fmt.Sprint("item ", i))
	}
	itself := func(s string) string { return s }
	var d Disorder
	assert.Equal(t, list, Shuffled(&d, list), "without a seed everything keeps its order")
	assert.Equal(t, list, Scattered(&d, list, itself))

	d.Seed(SeedOf(t))
	first, second := Shuffled(&d, list), Shuffled(&d, list)
	assert.NotEqual(t, first, second)
	assert.ElementsMatch(t, list, first)
	var same Disorder
	same.Seed(SeedOf(t))
	assert.Equal(t, first, Shuffled(&same, list), "one seed, one sequence")

	scattered := Scattered(&d, list, itself)
	assert.NotEqual(t, list, scattered)
	assert.ElementsMatch(t, list, scattered)
	assert.Equal(t, scattered, Scattered(&d, list, itself), "pages fit together")
	fewer := Scattered(&d, slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "item 3" }), itself)
	assert.Equal(t, slices.DeleteFunc(scattered, func(s string) bool { return s == "item 3" }), fewer, "also when an object goes")
}

func TestLagging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Lagging[int]
		l.Wrote(1)
		_, lags := l.Seen()
		assert.False(t, lags, "without a lag every write shows at once")

		l.SetLag(10*time.Second, 2)
		seen := func() int { state, _ := l.Seen(); return state }
		assert.Equal(t, 2, seen())
		l.Wrote(3)
		time.Sleep(6 * time.Second)
		l.Wrote(4)
		assert.Equal(t, 2, seen(), "no write shows yet")
		time.Sleep(4 * time.Second)
		assert.Equal(t, 3, seen())
		time.Sleep(6 * time.Second)
		assert.Equal(t, 4, seen())
	})
}

// TestReplicas: a read sees any state that is not older than the lag allows, and none that is.
func TestReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Lagging[int]
		first, last := func(int) int { return 0 }, func(n int) int { return n - 1 }
		_, lags := l.Any(first)
		assert.False(t, lags)
		l.SetLag(4*time.Second, 1)
		time.Sleep(time.Minute)
		l.Wrote(2)
		time.Sleep(3 * time.Second)
		for want, choose := range map[int]func(int) int{1: first, 2: last} {
			got, lags := l.Any(choose)
			assert.True(t, lags)
			assert.Equal(t, want, got)
		}
		time.Sleep(time.Second)
		got, _ := l.Any(first)
		assert.Equal(t, 2, got)
	})
}

package inventory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOwnWrites: for a while, reads of single objects and listings are not believed about what we wrote, and then they are.
func TestOwnWrites(t *testing.T) {
	t.Parallel()
	type object struct {
		id           int
		ours, theirs string
	}
	for name, c := range map[string]struct {
		// after is when it is read again after our write.
		after      time.Duration
		invalidate bool
		want       object
	}{
		"at once":              {time.Second, false, object{1, "new", "changed"}},
		"later":                {10 * time.Second, false, object{1, "old", "changed"}},
		"the write is unknown": {time.Second, true, object{1, "old", "changed"}},
	} {
		for _, listed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					lagging := object{1, "old", "changed"}
					i := New(Source[int, object]{
						Kind: "own test object", ID: func(o object) int { return o.id },
						List: func(context.Context) ([]object, int, error) { return []object{lagging}, 1, nil },
						Get:  func(context.Context, int) (object, error) { return lagging, nil },
						Lag:  5 * time.Second, Own: func(known, read object) object {
							read.ours = known.ours
							return read
						},
					})
					i.Put(object{1, "new", ""})
					if c.invalidate {
						i.Invalidate(1)
					}
					time.Sleep(c.after)
					if listed {
						all, err := i.All(t.Context(), Query{})
						require.NoError(t, err)
						assert.Equal(t, []object{c.want}, all)
					}
					seen, err := i.Get(t.Context(), 1, Query{})
					require.NoError(t, err)
					assert.Equal(t, c.want, seen)
				})
			})
		}
	}
}

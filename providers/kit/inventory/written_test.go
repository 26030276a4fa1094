package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// lagCloud is a cloud whose listings show an older state than reads of single objects.
type lagCloud struct {
	*fakeCloud
	shown map[int]object
}

func (c *lagCloud) inventory() *Inventory[int, object] {
	return New(Source[int, object]{
		Kind: "thing", ID: func(o object) int { return o.id }, Get: c.get,
		List: func(ctx context.Context) ([]object, int, error) {
			if _, _, err := c.list(ctx); err != nil {
				return nil, 0, err
			}
			return slices.Collect(maps.Values(c.shown)), 1, nil
		},
		Wrote:   func(known, listed object) bool { return known.rev == listed.rev },
		Indexes: map[string]func(object) []string{"name": func(o object) []string { return []string{o.name} }},
	})
}

var known = Query{MaxAge: 10 * time.Second}

func findByName(t *testing.T, i *Inventory[int, object], name string) []object {
	t.Helper()
	all, err := i.Find(t.Context(), "name", name, known)
	require.NoError(t, err)
	return all
}

// TestOwnCreationsOutliveListings: what we made is found by its name for as long as listings may lag, one that shows it and a
// later one that does not included; it costs a read of its own only where it is too old for the question.
func TestOwnCreationsOutliveListings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &lagCloud{fakeCloud: newCloud(0)}
		i := c.inventory()
		made := object{id: 7, name: "mine"}
		c.set(made)
		i.Put(made)
		for s := range 80 {
			time.Sleep(time.Second)
			c.shown = nil
			if s%10 == 3 {
				c.shown = map[int]object{7: made} // by another replica
			}
			_, err := i.All(t.Context(), Query{})
			require.NoError(t, err)
			require.Equal(t, []object{made}, findByName(t, i, "mine"), "after %d s", s)
			require.Empty(t, findByName(t, i, "other"))
		}
		assert.LessOrEqual(t, c.counts()[1], 11, "it is read when it is too old, not at each question")

		time.Sleep(time.Hour)
		c.shown = nil
		gets := c.counts()[1]
		_, err := i.All(t.Context(), Query{})
		require.NoError(t, err)
		assert.Empty(t, findByName(t, i, "mine"), "in the end listings tell")
		assert.Equal(t, gets, c.counts()[1])
	})
}

// TestOwnCreationThatIsGone: a read of the object alone ends the memory of it, at once where somebody asks for it, and with the
// next question by a key.
func TestOwnCreationThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &lagCloud{fakeCloud: newCloud(0)}
		i := c.inventory()
		for id, ask := range map[int]func() bool{
			7: func() bool { return len(findByName(t, i, "mine")) > 0 },
			8: func() bool { _, err := i.Get(t.Context(), 8, known); return !errors.Is(err, cloudapi.ErrNotFound) },
			9: func() bool { return i.Look(t.Context(), []int{9})[9].Err == nil },
		} {
			i.Put(object{id: id, name: "mine"}) // and somebody deletes it in the control panel
			time.Sleep(11 * time.Second)
			assert.False(t, ask(), "%d", id)
			assert.Empty(t, findByName(t, i, "mine"))
		}
		c.setFail(&cloudapi.Error{Class: cloudapi.ErrTransient})
		i.Put(object{id: 7, name: "mine"})
		time.Sleep(11 * time.Second)
		_, err := i.Find(t.Context(), "name", "mine", known)
		require.Error(t, err, "no answer is no absence")
	})
}

// TestDeletedStaysDeleted: what we deleted is not brought back by a listing that lags, but by a read of it alone.
func TestDeletedStaysDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &lagCloud{fakeCloud: newCloud(1), shown: map[int]object{1: {id: 1, name: "n1"}}}
		i := c.inventory()
		require.Len(t, findByName(t, i, "n1"), 1)
		i.Forget(1)
		for range 30 {
			time.Sleep(time.Second)
			require.Empty(t, findByName(t, i, "n1"))
		}
		_, err := i.Get(t.Context(), 1, known)
		require.NoError(t, err, "the cloud has it all the same")
		assert.Len(t, findByName(t, i, "n1"), 1)
		time.Sleep(15 * time.Second)
		assert.Len(t, findByName(t, i, "n1"), 1, "and listings tell of it again")
		c.remove(1)
		c.shown = nil
		time.Sleep(15 * time.Second)
		assert.Empty(t, findByName(t, i, "n1"))
	})
}

// TestOwnChangesOutliveListings: a listing that shows an object as it was before our write does not make us believe that: what
// is written next would follow from it, or not be written at all. What others change is seen.
func TestOwnChangesOutliveListings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &lagCloud{fakeCloud: newCloud(1), shown: map[int]object{1: {id: 1, name: "n1"}}}
		i := c.inventory()
		require.Len(t, findByName(t, i, "n1"), 1)
		for rev, write := range []func(object){1: i.Put, 2: i.PutPartial} {
			if write == nil {
				continue
			}
			now := object{id: 1, name: "n1", rev: rev}
			c.set(now)
			write(now)
			for range 30 {
				time.Sleep(time.Second)
				_, err := i.All(t.Context(), Query{})
				require.NoError(t, err)
				got, err := i.Get(t.Context(), 1, known)
				require.NoError(t, err)
				require.Equal(t, now, got)
				require.Equal(t, []object{now}, findByName(t, i, "n1"))
			}
		}
		c.set(object{id: 1, name: "n1", rev: 9}) // somebody else's
		c.shown = map[int]object{1: {id: 1, name: "n1", rev: 9}}
		time.Sleep(11 * time.Second)
		assert.Equal(t, 9, findByName(t, i, "n1")[0].rev)
		gets := c.counts()[1]
		time.Sleep(11 * time.Second)
		assert.Equal(t, 9, findByName(t, i, "n1")[0].rev)
		assert.Equal(t, gets, c.counts()[1], "what a listing confirms is not read alone")
	})
}

// TestManyWritesCostOneListing: objects that we wrote after a listing began, whose answers did not show them whole, are not read one by
// one while that listing is young; a few of them cost no listing.
func TestManyWritesCostOneListing(t *testing.T) {
	t.Parallel()
	for written, want := range map[int][2]int{1: {2, 1}, 10: {2, 10}, 11: {3, 0}, 300: {3, 0}} {
		synctest.Test(t, func(t *testing.T) {
			const n, pageSize = 1000, 110 // 10 pages
			c := newCloud(n)
			c.pageSize = pageSize
			inv := newInventory(c)
			read := func(q Query) {
				_, err := inv.All(t.Context(), q)
				require.NoError(t, err)
			}
			read(Query{})
			time.Sleep(40 * time.Second)
			inv.mu.Lock()
			listing, err := inv.listLocked(t.Context(), time.Now())
			inv.mu.Unlock()
			time.Sleep(c.latency / 2)
			for id := 1; id <= written; id++ {
				o := object{id: id, name: fmt.Sprintf("n%d", id), rev: 1}
				c.set(o)
				inv.PutPartial(o)
			}
			require.NoError(t, waitListed(t.Context(), listing, err, time.Now().Add(-time.Minute)))
			time.Sleep(30 * time.Second)
			for id := 1; id <= n; id++ {
				o, err := inv.Get(t.Context(), id, Query{MaxAge: time.Minute, Expected: n})
				require.NoError(t, err)
				require.Equal(t, id <= written, o.rev == 1, id)
			}
			assert.Equal(t, want, c.counts(), "%d written: listings and single reads", written)
		})
	}
}

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

// TestWriteThatTakesEffectLate: what is read soon after a write that failed may be older than its effect, and answers nobody who asks
// later, until the write has surely ended.
func TestWriteThatTakesEffectLate(t *testing.T) {
	t.Parallel()
	for name, rev := range map[string]func(t *testing.T, i *Inventory[int, object]) int{
		"alone": func(t *testing.T, i *Inventory[int, object]) int {
			o, err := i.Get(t.Context(), 1, known)
			require.NoError(t, err)
			return o.rev
		},
		"by a key": func(t *testing.T, i *Inventory[int, object]) int {
			all := findByName(t, i, "n1")
			require.Len(t, all, 1)
			return all[0].rev
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(2)
				i := newInventory(c)
				require.Equal(t, 0, rev(t, i))
				i.Doubt(1)
				require.Equal(t, 0, rev(t, i))
				time.Sleep(time.Second)
				c.set(object{id: 1, name: "n1", rev: 7})
				assert.Equal(t, 7, rev(t, i))

				time.Sleep(pendingMemory)
				require.Equal(t, 7, rev(t, i))
				calls := c.counts()
				time.Sleep(time.Second)
				assert.Equal(t, 7, rev(t, i))
				assert.Equal(t, calls, c.counts(), "the write has ended, and what is read is remembered again")
			})
		})
	}
	t.Run("a creation", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(2)
			i := newInventory(c)
			i.Doubt(9)
			remember := Query{MaxAge: time.Minute, MaxMissAge: time.Minute}
			_, err := i.Get(t.Context(), 9, remember)
			require.ErrorIs(t, err, cloudapi.ErrNotFound)
			time.Sleep(time.Second)
			c.set(object{id: 9})
			_, err = i.Get(t.Context(), 9, remember)
			assert.NoError(t, err)
		})
	})
}

// TestReadUnderWayAtALateWrite: who asks while a read is under way that began after a write failed does not get what that one shows.
func TestReadUnderWayAtALateWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(95)
		i := newInventory(c)
		_, err := i.Get(t.Context(), 1, known)
		require.NoError(t, err)
		c.latency = 3 * time.Second
		i.Doubt(1)
		go func() { _, _ = i.Get(t.Context(), 1, known) }()
		time.Sleep(2 * time.Second)
		c.set(object{id: 1, name: "n1", rev: 7})
		o, err := i.Get(t.Context(), 1, known)
		require.NoError(t, err)
		assert.Equal(t, 7, o.rev)
	})
}

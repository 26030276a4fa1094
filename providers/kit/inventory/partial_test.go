package inventory

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errPartMissing = errors.New("the even ones cannot be reached")

// cutOff makes listings lack objects that are there, and say that they may lack all with even numbers.
func (c *fakeCloud) cutOff(numbers ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range numbers {
		c.omitted[n] = true
	}
	c.partial = &Partial[int]{Lacks: func(id int) bool { return id%2 == 0 }, Err: errPartMissing}
}

func (c *fakeCloud) reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.omitted)
	c.partial = nil
}

// A listing that lacks a part answers about the rest, and of the part it says nothing: neither that it is there nor that it is not.
func TestPartialListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(6)
		c.pageSize = 4
		i := newInventory(c)
		q := Query{MaxAge: time.Minute, MaxMissAge: time.Minute, MaxUnlistedAge: time.Minute, Expected: 6}
		_, err := i.Get(t.Context(), 2, q)
		require.NoError(t, err)
		require.NoError(t, i.Lacking(2))

		time.Sleep(2 * time.Minute)
		c.cutOff(2, 4, 6)
		c.remove(3)
		c.set(object{id: 5, name: "n5", rev: 7})
		c.lists, c.gets = 0, 0
		for range 3 {
			for id := range 7 {
				v, err := i.Get(t.Context(), id, q)
				switch {
				case id == 0:
				case id%2 == 0:
					require.ErrorIs(t, err, errPartMissing, "%d", id)
				case id == 3:
					require.Error(t, err)
					require.NotErrorIs(t, err, errPartMissing)
				case id == 5:
					assert.Equal(t, 7, v.rev)
				default:
					require.NoError(t, err)
				}
			}
		}
		assert.Equal(t, 1, c.lists, "one listing for all")
		assert.LessOrEqual(t, c.gets, 6, "what is missing there is asked by no single read")
		require.ErrorIs(t, i.Lacking(2), errPartMissing)
		require.NoError(t, i.Lacking(5))
		v, known := i.Peek(4)
		assert.True(t, known, "what was known of it stays")
		assert.Equal(t, "n4", v.name)

		c.reconnect()
		time.Sleep(2 * time.Minute)
		_, err = i.Get(t.Context(), 2, q)
		require.NoError(t, err)
		require.NoError(t, i.Lacking(2))
	})
}

// A key that is found counts, and nothing is taken for absent because of a listing that lacks a part.
func TestPartialListingProvesNoAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		i := newInventory(c)
		q := Query{MaxAge: time.Minute, MaxMissAge: time.Minute, MaxUnlistedAge: time.Minute}
		_, err := i.All(t.Context(), q)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		c.cutOff(2, 4)
		found, err := i.Find(t.Context(), "name", "n5", q)
		require.NoError(t, err)
		assert.Len(t, found, 1)
		for _, name := range []string{"n2", "ghost"} {
			for range 2 {
				_, err = i.Find(t.Context(), "name", name, q)
				require.ErrorIs(t, err, errPartMissing, name)
				_, err = i.Find(t.Context(), "name", name, Query{})
				require.ErrorIs(t, err, errPartMissing, "%s, demanding a read after the question", name)
			}
		}
		_, err = i.All(t.Context(), q)
		require.ErrorIs(t, err, errPartMissing)

		// One that joins in the part that is there is found, however young the listing is.
		c.set(object{id: 7, name: "n7"})
		found, err = i.Find(t.Context(), "name", "n7", Query{MaxAge: time.Minute, MaxMissAge: time.Minute})
		require.NoError(t, err)
		assert.Len(t, found, 1)

		// One of the missing part has had the name of another one.
		c.set(object{id: 5, name: "n2"})
		time.Sleep(2 * time.Minute)
		_, err = i.Find(t.Context(), "name", "n2", q)
		require.ErrorIs(t, err, errPartMissing, "it may be either")

		listed := Query{Expected: 20}.listedSince(0)
		_, err = i.Get(t.Context(), 8, listed)
		require.ErrorIs(t, err, errPartMissing, "that it is not listed proves nothing")
		_, err = i.Get(t.Context(), 9, listed)
		require.Error(t, err)
		require.NotErrorIs(t, err, errPartMissing)

		c.reconnect()
		time.Sleep(2 * time.Minute)
		found, err = i.Find(t.Context(), "name", "ghost", q)
		require.NoError(t, err)
		assert.Empty(t, found)
	})
}

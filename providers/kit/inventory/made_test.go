package inventory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// slowLag is how long the cloud of these tests may not show what was made.
const slowLag = 5 * time.Second

// slowInventory is the view of a cloud whose reads, single ones too, may be behind writes.
func slowInventory(c *fakeCloud, get func(context.Context, int) (object, error)) *Inventory[int, object] {
	return New(Source[int, object]{
		Kind: "thing", ID: func(o object) int { return o.id }, List: c.list, Get: get, Lag: slowLag,
		Indexes: map[string]func(object) []string{"name": func(o object) []string { return []string{o.name} }},
	})
}

func asksForTime(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "does not show yet")
	assert.ErrorAs(t, err, new(*cloudproviderapi.RetryError))
	assert.NotErrorIs(t, err, cloudapi.ErrNotFound)
}

// TestJustMade: the absence of what was just made is no answer, whoever asks for it and however. It is one later, after a deletion of ours,
// and for a process that has just begun.
func TestJustMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(0)
		i := slowInventory(c, c.get)
		get := func(i *Inventory[int, object], id int) error { _, err := i.Get(t.Context(), id, Query{}); return err }
		require.ErrorIs(t, get(i, 8), cloudapi.ErrNotFound)
		i.Put(object{id: 7, name: "mine"})
		i.Made(8)
		i.PutPartial(object{id: 9, name: "partly"})
		for range 2 {
			i.InvalidateAll() // others' failures change nothing
			for _, id := range []int{7, 8, 9} {
				assert.True(t, i.JustMade(id))
				asksForTime(t, get(i, id))
			}
			_, err := i.Find(t.Context(), "name", "mine", Query{})
			asksForTime(t, err)
			found, err := i.Find(t.Context(), "name", "other", Query{})
			require.NoError(t, err)
			assert.Empty(t, found, "only what was made is waited for")
		}
		require.ErrorIs(t, get(slowInventory(c, c.get), 7), cloudapi.ErrNotFound, "another process knows nothing of it")
		i.Forget(9)
		require.ErrorIs(t, get(i, 9), cloudapi.ErrNotFound)
		c.set(object{id: 8, name: "shown"})
		require.NoError(t, get(i, 8))

		time.Sleep(slowLag)
		assert.False(t, i.JustMade(7))
		require.ErrorIs(t, get(i, 7), cloudapi.ErrNotFound, "somebody has deleted it")
		c.remove(8)
		i.Put(object{id: 8, name: "changed"})
		time.Sleep(time.Second)
		require.ErrorIs(t, get(i, 8), cloudapi.ErrNotFound, "a change makes nothing")
	})
}

// TestMadeAgain: what was deleted and made again a moment later, and is known in part, is what a listing shows.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(1)
		i := slowInventory(c, c.get)
		i.Forget(1)
		i.PutPartial(object{id: 1, name: "n1"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		found, err := i.Find(ctx, "name", "n1", Query{})
		require.NoError(t, err)
		assert.Equal(t, []object{{id: 1, name: "n1"}}, found)
		assert.Equal(t, 1, c.lists)
	})
}

// TestJustMadeIsListed: where only listings show objects, what was just made is among them.
func TestJustMadeIsListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := slowInventory(newCloud(1), nil)
		all := func() (n int) {
			list, err := i.All(t.Context(), Query{})
			require.NoError(t, err)
			found, err := i.Find(t.Context(), "name", "mine", Query{})
			require.NoError(t, err)
			assert.Len(t, found, len(list)-1)
			return len(list)
		}
		i.Put(object{id: 7, name: "mine"})
		assert.Equal(t, 2, all())
		i.Forget(7)
		assert.Equal(t, 1, all(), "we have deleted it")
		i.Put(object{id: 7, name: "mine"})
		time.Sleep(slowLag - time.Second)
		assert.Equal(t, 2, all())
		time.Sleep(time.Second)
		assert.Equal(t, 1, all(), "somebody else has")
	})
}

// TestRecent: what was made is remembered for as long as reads may lack it, which counts from the beginning of a read.
func TestRecent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := Recent[string]{Within: slowLag}
		assert.False(t, m.Has("a"))
		m.Add("a")
		time.Sleep(slowLag - time.Second)
		m.Add("b")
		assert.ElementsMatch(t, []string{"a", "b"}, m.All())
		began := time.Now()
		time.Sleep(time.Second)
		m.Add("c")
		assert.False(t, m.Has("a"))
		assert.True(t, m.mayLack("a", began))
		m.Remove(func(k string) bool { return k == "b" })
		assert.Equal(t, []string{"c"}, m.All())
	})
}

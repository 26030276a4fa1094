package inventory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

type object struct {
	id   int
	name string
	rev  int
}

// fakeCloud holds objects and counts reads. Every read takes latency.
type fakeCloud struct {
	mu      sync.Mutex
	objects map[int]object
	// omitted objects are found by single reads alone.
	omitted  map[int]bool
	pageSize int
	latency  time.Duration
	fail     error
	// partial lists the parts that listings lack.
	partial *Partial[int]

	lists, gets int
}

func newCloud(n int) *fakeCloud {
	c := &fakeCloud{objects: map[int]object{}, omitted: map[int]bool{}, pageSize: 10, latency: 100 * time.Millisecond}
	for id := range n {
		id++ // 0 is no identity
		c.objects[id] = object{id: id, name: fmt.Sprintf("n%d", id)}
	}
	return c
}

func (c *fakeCloud) list(ctx context.Context) ([]object, int, error) {
	c.mu.Lock()
	c.lists++
	var all []object
	for id, o := range c.objects {
		if !c.omitted[id] {
			all = append(all, o)
		}
	}
	err, pages := c.fail, len(c.objects)/c.pageSize+1
	if c.partial != nil {
		err = c.partial
	}
	c.mu.Unlock()
	if !pause(ctx, c.latency) {
		return nil, 0, ctx.Err()
	}
	return all, pages, err
}

func (c *fakeCloud) get(ctx context.Context, id int) (object, error) {
	c.mu.Lock()
	c.gets++
	o, ok := c.objects[id]
	err := c.fail
	c.mu.Unlock()
	if !pause(ctx, c.latency) {
		return object{}, ctx.Err()
	}
	switch {
	case err != nil:
		return object{}, err
	case !ok:
		return object{}, &cloudapi.Error{Class: cloudapi.ErrNotFound}
	}
	return o, nil
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *fakeCloud) set(o object) { c.mu.Lock(); c.objects[o.id] = o; c.mu.Unlock() }
func (c *fakeCloud) remove(id int) {
	c.mu.Lock()
	delete(c.objects, id)
	c.mu.Unlock()
}
func (c *fakeCloud) setFail(err error) { c.mu.Lock(); c.fail = err; c.mu.Unlock() }
func (c *fakeCloud) counts() [2]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [2]int{c.lists, c.gets}
}

func newInventory(c *fakeCloud) *Inventory[int, object] {
	return New(Source[int, object]{
		Kind: "thing", ID: func(o object) int { return o.id }, List: c.list, Get: c.get,
		Indexes: map[string]func(object) []string{"name": func(o object) []string { return []string{o.name} }},
	})
}

var fresh = Query{MaxAge: 30 * time.Second}

func TestManyQuestionsShareOneListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(1000)
		inv := newInventory(c)
		var group sync.WaitGroup
		for id := range 1000 {
			id++
			group.Go(func() {
				o, err := inv.Get(t.Context(), id, fresh)
				assert.NoError(t, err)
				assert.Equal(t, id, o.id)
			})
		}
		group.Wait()
		assert.Equal(t, [2]int{1, 0}, c.counts())

		time.Sleep(29 * time.Second)
		_, err := inv.Get(t.Context(), 7, fresh)
		require.NoError(t, err)
		assert.Equal(t, [2]int{1, 0}, c.counts(), "young enough")
	})
}

func TestFewQuestionsReadSingleObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(95) // 10 pages
		inv := newInventory(c)
		_, err := inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		require.Equal(t, [2]int{1, 0}, c.counts(), "the first question lists: the number of pages is unknown")

		time.Sleep(time.Minute)
		for id := range 3 {
			id++
			_, err := inv.Get(t.Context(), id, fresh)
			require.NoError(t, err)
		}
		assert.Equal(t, [2]int{1, 3}, c.counts(), "3 reads are cheaper than 10 pages")

		time.Sleep(time.Minute)
		_, err = inv.Get(t.Context(), 1, Query{MaxAge: 30 * time.Second, Expected: 50})
		require.NoError(t, err)
		assert.Equal(t, [2]int{2, 3}, c.counts(), "a caller that expects 50 questions gets a listing")

		time.Sleep(time.Minute)
		for id := range 95 {
			id++
			_, err := inv.Get(t.Context(), id, fresh)
			require.NoError(t, err)
		}
		assert.Equal(t, [2]int{3, 13}, c.counts(), "after 10 single reads the guess is given up")
	})
}

func TestMissingIsReadAfterTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		_, err := inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)

		c.set(object{id: 99, name: "late"})
		_, err = inv.Get(t.Context(), 99, fresh)
		require.NoError(t, err, "created after the listing, found by a single read")
		assert.Equal(t, [2]int{1, 1}, c.counts())

		for want := 2; want <= 4; want++ {
			_, err = inv.Get(t.Context(), 42, fresh)
			require.ErrorIs(t, err, cloudapi.ErrNotFound)
			assert.Equal(t, [2]int{1, want}, c.counts(), "every question about a missing object is a read of its own")
		}
		for range 3 {
			_, err = inv.Get(t.Context(), 42, Query{MaxAge: 30 * time.Second, MaxMissAge: 5 * time.Second})
			require.ErrorIs(t, err, cloudapi.ErrNotFound)
		}
		assert.Equal(t, [2]int{1, 4}, c.counts(), "unless the caller accepts an older answer")
	})
}

func TestAbsenceFromAListingIsNotDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		c.omitted[3] = true
		inv := newInventory(c)
		o, err := inv.Get(t.Context(), 3, Query{Expected: 1000})
		require.NoError(t, err)
		assert.Equal(t, 3, o.id)
		for id := range 5 {
			id++
			c.omitted[id] = true // an empty listing
		}
		time.Sleep(time.Minute)
		for id := range 5 {
			id++
			_, err := inv.Get(t.Context(), id, Query{MaxAge: 30 * time.Second, Expected: 1000})
			require.NoError(t, err)
		}
	})
}

func TestFailedListingChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		_, err := inv.All(t.Context(), Query{})
		require.NoError(t, err)

		broken := &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "page 3 is cut"}
		c.setFail(broken)
		_, err = inv.All(t.Context(), Query{})
		require.ErrorIs(t, err, cloudapi.ErrTransient)
		_, err = inv.Get(t.Context(), 2, fresh)
		require.NoError(t, err, "what was known is still known")

		_, err = inv.All(t.Context(), Query{})
		require.Error(t, err)
		before := c.counts()
		for range 100 {
			_, err = inv.All(t.Context(), Query{})
			require.ErrorIs(t, err, cloudapi.ErrTransient)
		}
		assert.Equal(t, before, c.counts(), "repeated failures are answered from memory for a while")

		time.Sleep(failureHold)
		c.setFail(nil)
		all, err := inv.All(t.Context(), Query{})
		require.NoError(t, err)
		assert.Len(t, all, 5)
	})
}

func TestAListingThatIsNotFoundIsNoAbsence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		c.setFail(&cloudapi.Error{Class: cloudapi.ErrNotFound, Message: "no such path"})
		_, err := inv.Get(t.Context(), 1, Query{Expected: 1000})
		require.Error(t, err)
		require.NotErrorIs(t, err, cloudapi.ErrNotFound)
		require.ErrorContains(t, err, "no such path")
	})
}

func TestListingInFlightIsTooOldForALaterMiss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		go func() { _, _ = inv.All(t.Context(), Query{}) }()
		time.Sleep(50 * time.Millisecond) // the listing has read the cloud, its answer is on the way
		c.set(object{id: 77, name: "new"})
		found, err := inv.Find(t.Context(), "name", "new", Query{MaxAge: time.Minute})
		require.NoError(t, err)
		require.Len(t, found, 1, "a listing that began before the question cannot prove absence")
		assert.Equal(t, [2]int{2, 0}, c.counts())
	})
}

func TestReadInFlightIsTooOldForALaterMiss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		_, err := inv.All(t.Context(), Query{})
		require.NoError(t, err)
		go func() { _, _ = inv.Get(t.Context(), 77, fresh) }()
		time.Sleep(50 * time.Millisecond) // the read has seen the cloud, its answer is on the way
		c.set(object{id: 77, name: "new"})
		found, err := inv.Get(t.Context(), 77, fresh)
		require.NoError(t, err, "a read that began before the question cannot prove absence")
		assert.Equal(t, "new", found.name)
		assert.Equal(t, [2]int{1, 2}, c.counts())
	})
}

func TestAMissIsReusedForTheSameKeyAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		q := Query{MaxAge: time.Minute, MaxMissAge: 5 * time.Second}
		for range 3 {
			found, err := inv.Find(t.Context(), "name", "ghost", q)
			require.NoError(t, err)
			assert.Empty(t, found)
		}
		assert.Equal(t, [2]int{1, 0}, c.counts(), "asked again, answered from memory")
		c.set(object{id: 9, name: "new"})
		found, err := inv.Find(t.Context(), "name", "new", q)
		require.NoError(t, err)
		assert.Len(t, found, 1, "a name that nobody asked about before is looked for")
		assert.Equal(t, [2]int{2, 0}, c.counts())
		time.Sleep(6 * time.Second)
		_, err = inv.Find(t.Context(), "name", "ghost", q)
		require.NoError(t, err)
		assert.Equal(t, [2]int{3, 0}, c.counts())
	})
}

func TestARecentListingProvesTheAbsenceOfWhatNobodyElseMakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		q := Query{MaxAge: time.Minute, MaxUnlistedAge: 3 * time.Second}
		ask := func(name string) int {
			found, err := inv.Find(t.Context(), "name", name, q)
			require.NoError(t, err)
			return len(found)
		}
		for n := range 20 {
			assert.Zero(t, ask(fmt.Sprint("new-", n)))
		}
		assert.Equal(t, [2]int{1, 0}, c.counts(), "one listing serves all of them")
		time.Sleep(4 * time.Second)
		assert.Zero(t, ask("new-0"))
		assert.Equal(t, [2]int{2, 0}, c.counts())

		// A write failed, and may have taken effect.
		c.set(object{id: 9, name: "new-0"})
		inv.Invalidate(0)
		assert.Equal(t, 1, ask("new-0"), "no listing from before the write proves anything")

		// The same while a listing that began before the write is in flight.
		c.set(object{id: 10, name: "x"})
		go func() { _, _ = inv.All(t.Context(), Query{}) }()
		time.Sleep(c.latency / 2)
		c.set(object{id: 11, name: "late"})
		inv.InvalidateAll()
		time.Sleep(c.latency)
		assert.Equal(t, 1, ask("late"))
	})
}

func TestManyNamesShareTheListingInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(1000)
		inv := newInventory(c)
		var group sync.WaitGroup
		for id := range 1000 {
			id++
			group.Go(func() {
				time.Sleep(time.Duration(id) * 50 * time.Microsecond) // one after the other, while the first listing runs
				found, err := inv.Find(t.Context(), "name", fmt.Sprintf("n%d", id), fresh)
				assert.NoError(t, err)
				assert.Len(t, found, 1)
			})
		}
		group.Wait()
		assert.Equal(t, [2]int{1, 0}, c.counts())
	})
}

func TestWritesAreNotUndoneByAnOlderListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		var group sync.WaitGroup
		group.Go(func() { _, _ = inv.All(t.Context(), Query{}) })
		time.Sleep(50 * time.Millisecond)
		renamed := object{id: 1, name: "renamed", rev: 2}
		c.set(renamed)
		inv.Put(renamed)
		inv.Put(object{id: 50, name: "created"})
		inv.Forget(2)
		c.remove(2)
		group.Wait()

		o, err := inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		assert.Equal(t, 2, o.rev)
		_, err = inv.Get(t.Context(), 50, fresh)
		require.NoError(t, err)
		_, err = inv.Get(t.Context(), 2, fresh)
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		found, err := inv.Find(t.Context(), "name", "n1", fresh)
		require.NoError(t, err)
		assert.Empty(t, found, "the index follows the rename")
	})
}

func TestInvalidate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(95)
		inv := newInventory(c)
		_, err := inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		c.set(object{id: 1, rev: 9})
		time.Sleep(time.Second)
		inv.Invalidate(1)
		o, err := inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		assert.Equal(t, 9, o.rev)
	})
}

// TestInvalidateOfTheUnknown: where something may have been made, what is known of a key is not taken for all that has it, until it was
// listed.
func TestInvalidateOfTheUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		c.set(object{id: 1, name: "web"})
		inv := newInventory(c)
		find := func() int {
			found, err := inv.Find(t.Context(), "name", "web", fresh)
			require.NoError(t, err)
			return len(found)
		}
		require.Equal(t, 1, find())
		c.set(object{id: 9, name: "web"})
		time.Sleep(time.Second)
		inv.Invalidate(9)
		assert.Equal(t, 2, find())
		assert.Equal(t, 2, find())
		assert.Equal(t, [2]int{2, 0}, c.counts(), "one listing is enough")

		inv.Invalidate(1)
		_, err := inv.Find(t.Context(), "name", "n3", fresh)
		require.NoError(t, err)
		assert.Equal(t, [2]int{2, 0}, c.counts(), "the doubt about the unknown is over, and another object is not concerned")
	})
}

func TestCallerThatGivesUpDoesNotSpoilTheRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		inv := newInventory(c)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := inv.Get(ctx, 1, fresh)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		assert.Equal(t, [2]int{1, 0}, c.counts(), "the second caller joined the read of the first")
	})
}

// TestRandomRun compares the inventory with the truth while the cloud changes under many callers: what was there all
// the time is always found, what was never there never is.
func TestRandomRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(100) // 1..100 stay for ever
		inv := newInventory(c)
		long := 2 * time.Minute
		if tier.All() {
			long = 10 * time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() { // 101..200 come and go
			for n := 0; ctx.Err() == nil; n++ {
				id := 101 + n%100
				if n%200 < 100 {
					c.set(object{id: id, name: fmt.Sprintf("n%d", id)})
				} else {
					c.remove(id)
					inv.Forget(id)
				}
				if n%17 == 0 {
					c.setFail(&cloudapi.Error{Class: cloudapi.ErrTransient})
				} else {
					c.setFail(nil)
				}
				pause(ctx, 130*time.Millisecond)
			}
		})
		for worker := range 8 {
			group.Go(func() {
				for n := worker; ctx.Err() == nil; n += 8 {
					query := Query{MaxAge: time.Duration(n%4) * 5 * time.Second, Expected: n % 30}
					_, err := inv.Get(ctx, 1+n%100, query)
					assert.NotErrorIs(t, err, cloudapi.ErrNotFound)
					_, err = inv.Get(ctx, 1000+n, query)
					assert.Error(t, err)
					if found, err := inv.Find(ctx, "name", fmt.Sprintf("n%d", 1+n%100), query); err == nil {
						assert.Len(t, found, 1)
					}
					pause(ctx, 70*time.Millisecond)
				}
			})
		}
		group.Wait()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		time.Sleep(readTimeout) // reads outlive the callers that began them
	})
}

func TestAmendKeepsTheAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(95)
		inv := newInventory(c)
		_, err := inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		time.Sleep(20 * time.Second)
		inv.PutPartial(object{id: 1, name: "n1", rev: 5})
		o, err := inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		assert.Equal(t, 5, o.rev)
		time.Sleep(11 * time.Second)
		o, err = inv.Get(t.Context(), 1, fresh)
		require.NoError(t, err)
		assert.Equal(t, 0, o.rev, "30 s after it was read it is read again, whatever was amended meanwhile")
	})
}

// A key that several objects have is answered with all of them, or not from memory.
func TestFindIsComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(0)
		c.objects[1], c.objects[2] = object{id: 1, name: "twin"}, object{id: 2, name: "twin"}
		i := newInventory(c)
		for _, q := range []Query{{}, {MaxAge: time.Hour, MaxMissAge: time.Hour, MaxUnlistedAge: time.Hour}, {MaxUnlistedAge: time.Hour}} {
			found, err := i.Find(t.Context(), "name", "twin", q)
			require.NoError(t, err)
			require.Len(t, found, 2, "what is too old for the question is not absent")
			i.Invalidate(1)
		}
	})
}

// batchCloud reads several objects by one call.
type batchCloud struct {
	mu      sync.Mutex
	objects map[int]string
	err     error
	batches [][]int
	singles []int
}

func (b *batchCloud) getMany(_ context.Context, ids []int) ([]object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches = append(b.batches, slices.Sorted(slices.Values(ids)))
	if b.err != nil {
		return nil, b.err
	}
	var list []object
	for _, id := range ids {
		if name, ok := b.objects[id]; ok {
			list = append(list, object{id: id, name: name})
		}
	}
	return list, nil
}

func (b *batchCloud) get(_ context.Context, id int) (object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.singles = append(b.singles, id)
	if name, ok := b.objects[id]; ok {
		return object{id: id, name: name}, nil
	}
	return object{}, &cloudapi.Error{Class: cloudapi.ErrNotFound}
}

// TestBatches: single reads take others along that are asked for soon; what a batch leaves out is asked for by itself, and
// a failed batch is one failure for all.
func TestBatches(t *testing.T) {
	t.Parallel()
	cloud := &batchCloud{objects: map[int]string{1: "a", 2: "b", 4: "d"}}
	i := New(Source[int, object]{Kind: "thing", ID: func(o object) int { return o.id }, Get: cloud.get, GetMany: cloud.getMany, BatchSize: 3})
	prefetch := WithPrefetch(t.Context(), func() []int { return []int{1, 2, 3, 4} })
	q := Query{MaxAge: time.Hour, MaxMissAge: time.Hour}
	v, err := i.Get(prefetch, 1, q)
	require.NoError(t, err)
	assert.Equal(t, "a", v.name)
	v, err = i.Get(prefetch, 2, q)
	require.NoError(t, err)
	assert.Equal(t, "b", v.name)
	_, err = i.Get(prefetch, 3, q)
	require.ErrorIs(t, err, cloudapi.ErrNotFound)
	cloud.mu.Lock()
	assert.Equal(t, [][]int{{1, 2, 3}}, cloud.batches)
	assert.Equal(t, []int{3}, cloud.singles, "absence is proved by a read of that very object")
	cloud.err = &cloudapi.Error{Class: cloudapi.ErrRateLimited}
	cloud.mu.Unlock()
	_, err = i.Get(t.Context(), 4, q)
	require.ErrorIs(t, err, cloudapi.ErrRateLimited)
	cloud.mu.Lock()
	assert.Len(t, cloud.singles, 1, "one refusal does not become many")
	cloud.err = &cloudapi.Error{Class: cloudapi.ErrNotFound}
	cloud.mu.Unlock()
	v, err = i.Get(t.Context(), 4, q)
	require.NoError(t, err, "where one of them is to blame, each is read by itself")
	assert.Equal(t, "d", v.name)
	known, ok := i.Peek(4)
	assert.True(t, ok)
	assert.Equal(t, "d", known.name)
	_, ok = i.Peek(9)
	assert.False(t, ok)
}

package inventory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// listedSince lets listings of the last seconds prove absence.
func (q Query) listedSince(ago time.Duration) Query {
	q.Absence = evidence.Absence{ListedSince: time.Now().Add(-ago)}
	return q
}

func TestListingProvesAbsenceWhereThatIsEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(20)
		i := newInventory(c)
		for id := 5; id < 15; id++ {
			c.remove(id)
		}
		q := Query{MaxAge: 10 * time.Second, Expected: 10}
		for id := 5; id < 15; id++ {
			_, err := i.Get(t.Context(), id, q.listedSince(2*time.Second))
			require.ErrorIs(t, err, cloudapi.ErrNotFound)
		}
		assert.Equal(t, [2]int{1, 0}, c.counts(), "one listing for all of them")

		_, err := i.Get(t.Context(), 5, q)
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		assert.Equal(t, [2]int{1, 1}, c.counts(), "without the demand a single read proves it, as ever")

		time.Sleep(5 * time.Second)
		_, err = i.Get(t.Context(), 6, q.listedSince(2*time.Second))
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		assert.Equal(t, [2]int{2, 1}, c.counts(), "an older listing is no proof")

		time.Sleep(5 * time.Second)
		q.Expected = 1
		_, err = i.Get(t.Context(), 7, q.listedSince(2*time.Second))
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		assert.Equal(t, [2]int{2, 2}, c.counts(), "one question is cheaper by a single read")
	})
}

func TestFailedListingProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(20)
		i := newInventory(c)
		c.remove(3)
		c.setFail(&cloudapi.Error{Class: cloudapi.ErrNotFound})
		_, err := i.Get(t.Context(), 3, Query{Expected: 10}.listedSince(time.Second))
		require.Error(t, err)
		require.NotErrorIs(t, err, cloudapi.ErrNotFound)
		c.setFail(nil)
		i.InvalidateAll()
		_, err = i.Get(t.Context(), 4, Query{Expected: 10}.listedSince(time.Second))
		require.NoError(t, err)
	})
}

func TestAnswersNoOlderThanDemanded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		i := newInventory(c)
		q := Query{MaxAge: time.Hour, MaxMissAge: time.Hour}
		_, err := i.All(t.Context(), q)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		since := time.Now()
		_, err = i.Get(t.Context(), 1, q)
		require.NoError(t, err)
		assert.Equal(t, [2]int{1, 0}, c.counts())

		demanding := q
		demanding.NotBefore, demanding.Absence = since, evidence.Absence{OwnRead: true}
		c.remove(1)
		_, err = i.Get(t.Context(), 1, demanding)
		require.ErrorIs(t, err, cloudapi.ErrNotFound, "what memory has is too old")
		_, err = i.Get(t.Context(), 2, demanding)
		require.NoError(t, err)
		assert.Equal(t, [2]int{1, 2}, c.counts(), "single reads")
		_, err = i.Get(t.Context(), 2, demanding)
		require.NoError(t, err)
		assert.Equal(t, [2]int{1, 2}, c.counts(), "a read that is young enough serves again")
		found, err := i.Find(NotBefore(t.Context(), time.Now()), "name", "n3", q)
		require.NoError(t, err)
		assert.Len(t, found, 1)
		assert.Equal(t, [2]int{2, 2}, c.counts())
	})
}

func TestExpectedAbsenceGoesPastTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		batches := 0
		i := New(Source[int, object]{
			Kind: "thing", ID: func(o object) int { return o.id }, List: c.list, Get: c.get, BatchSize: 100,
			GetMany: func(context.Context, []int) ([]object, error) { batches++; return nil, nil },
		})
		_, err := i.All(t.Context(), Query{})
		require.NoError(t, err)
		c.remove(1)
		_, err = i.Get(t.Context(), 1, Query{Absence: evidence.Absence{OwnRead: true}})
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		assert.Zero(t, batches)
		assert.Equal(t, [2]int{1, 1}, c.counts())
	})
}

// TestGoneCompanyIsNotProved: what goes along with somebody's read and is not answered has no proof of its own until somebody
// asks for it.
func TestGoneCompanyIsNotProved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(5)
		batches := 0
		i := New(Source[int, object]{
			Kind: "thing", ID: func(o object) int { return o.id }, Get: c.get, BatchSize: 100,
			GetMany: func(context.Context, []int) ([]object, error) { batches++; return nil, nil },
		})
		for id := range 5 {
			c.remove(id)
		}
		ctx := WithPrefetch(t.Context(), func() []int { return []int{0, 1, 2, 3, 4} })
		_, err := i.Get(ctx, 0, Query{})
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		assert.Equal(t, [2]int{0, 1}, c.counts())
		_, err = i.Get(ctx, 1, Query{})
		require.ErrorIs(t, err, cloudapi.ErrNotFound)
		assert.Equal(t, [2]int{0, 2}, c.counts())
		assert.Equal(t, 1, batches, "what a batch did not answer once is not asked for by another one")
	})
}

// TestRememberedAnswersCostNoCall: what was read since a time answers, found or missing; what was not is no answer.
func TestRememberedAnswersCostNoCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(20)
		i := newInventory(c)
		since := time.Now()
		ask := func(id int, q Query) error {
			q.MaxAge, q.NotBefore, q.Absence.ListedSince = time.Second, since, since
			_, err := i.Get(t.Context(), id, q)
			return err
		}
		remembered := Query{Expected: 1, Absence: evidence.Absence{MemoryOnly: true}}
		require.ErrorIs(t, ask(1, remembered), evidence.ErrUnread)
		assert.Equal(t, [2]int{0, 0}, c.counts())
		require.NoError(t, ask(1, Query{Expected: 10, IsExpectedExact: true}))
		assert.Equal(t, [2]int{1, 0}, c.counts(), "one listing for all that are asked about together")

		time.Sleep(10 * time.Second)
		require.NoError(t, ask(2, remembered), "older than the question allows, but not than the demand")
		require.ErrorIs(t, ask(99, remembered), cloudapi.ErrNotFound)
		since = time.Now()
		require.ErrorIs(t, ask(2, remembered), evidence.ErrUnread)
		require.ErrorIs(t, ask(99, remembered), evidence.ErrUnread)
		assert.Equal(t, [2]int{1, 0}, c.counts())
		c.remove(2)
		require.ErrorIs(t, ask(2, Query{Expected: 1, Absence: evidence.Absence{OwnRead: true}}), cloudapi.ErrNotFound)
		require.ErrorIs(t, ask(2, remembered), cloudapi.ErrNotFound, "a proof is remembered too")
	})
}

// TestNarrowedListingProvesNothing: it leaves out objects that exist.
func TestNarrowedListingProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(20)
		source := newInventory(c).source
		source.Narrowed = true
		source.List = func(ctx context.Context) ([]any, int, error) { return nil, 1, ctx.Err() }
		i := newView(source)
		_, err := i.All(t.Context(), Query{})
		require.NoError(t, err)
		_, err = i.Get(t.Context(), 5, Query{MaxAge: 10 * time.Second, Expected: 10}.listedSince(time.Minute))
		require.NoError(t, err, "it is read alone")
	})
}

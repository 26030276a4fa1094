package shared_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/shared"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// list is a cloud's list that many edit. It is of one version at a time, and refuses what holds "bad".
type list struct {
	items []string
	// reads counts them, and writes holds what was written.
	reads  int
	writes [][]string
	// others is called before a write, and err is what a write answers.
	others func()
	err    error
	stale  bool
}

func (l *list) Read(_ context.Context, fresh bool) ([]string, error) {
	if l.reads++; fresh {
		l.stale = false
	}
	return slices.Clone(l.items), nil
}

func (l *list) Write(_ context.Context, before, after []string) ([]string, error) {
	if l.others != nil {
		l.others()
	}
	switch {
	case l.err != nil:
		return nil, l.err
	case !slices.Equal(before, l.items):
		return nil, shared.Outdated(cloudapi.ErrConflict)
	case slices.Contains(after, "bad"):
		return nil, cloudapi.ErrInvalid
	case slices.Contains(after, "many"):
		return nil, cloudapi.ErrQuota
	}
	l.items, l.writes = after, append(l.writes, after)
	return after, nil
}

func add(item string) shared.Edit[[]string] {
	return func(_ context.Context, before []string) ([]string, error) {
		return append(slices.Clone(before), item), nil
	}
}

// submit hands in edits at the same moment, and returns what they answered.
func submit(t *testing.T, l *list, edits ...shared.Edit[[]string]) (docs [][]string, errs []error) {
	t.Helper()
	var w shared.Writer[[]string]
	docs, errs = make([][]string, len(edits)), make([]error, len(edits))
	target := shared.Target[[]string]{
		ID: "l", Name: "list l", Timeout: time.Minute, Open: func() shared.Document[[]string] { return l },
		Gather: func() time.Duration { return time.Millisecond },
	}
	var all sync.WaitGroup
	for n, e := range edits {
		all.Go(func() { docs[n], errs[n] = w.Submit(t.Context(), target, e) })
	}
	all.Wait()
	return docs, errs
}

func TestEditsOfAMomentAreOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{}
		docs, errs := submit(t, l, add("a"), add("b"), add("c"))
		assert.NoError(t, errors.Join(errs...))
		assert.Len(t, l.writes, 1)
		assert.ElementsMatch(t, []string{"a", "b", "c"}, l.items)
		for _, d := range docs {
			assert.Equal(t, l.items, d, "whoever handed in an edit sees the document as it then is")
		}
	})
}

func TestFaultOfAnEditIsItsOwn(t *testing.T) {
	fault := errors.New("the port is taken")
	for name, c := range map[string]struct {
		edit shared.Edit[[]string]
		err  error
	}{
		"refused by the cloud": {add("bad"), cloudapi.ErrInvalid},
		"no room for it":       {add("many"), cloudapi.ErrQuota},
		"an error":             {func(context.Context, []string) ([]string, error) { return nil, fault }, fault},
		"a panic":              {func(context.Context, []string) ([]string, error) { panic("the end") }, rescue.ErrCrashed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &list{}
				_, errs := submit(t, l, add("a"), c.edit, add("c"))
				assert.NoError(t, errors.Join(errs[0], errs[2]))
				assert.ElementsMatch(t, []string{"a", "c"}, l.items, "the edits of the others are written")
				assert.ErrorIs(t, errs[1], c.err)
			})
		})
	}
}

func TestNothingToChangeIsNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{items: []string{"a"}}
		docs, errs := submit(t, l, func(context.Context, []string) ([]string, error) { return nil, shared.ErrKeep })
		require.NoError(t, errs[0])
		assert.Equal(t, []string{"a"}, docs[0])
		assert.Empty(t, l.writes)
	})
}

func TestEditIsMadeAgainOnWhatOthersWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, others := &list{stale: true}, 2
		l.others = func() {
			if others--; others >= 0 {
				l.items = append(l.items, "theirs")
			}
		}
		_, errs := submit(t, l, add("a"))
		require.NoError(t, errs[0])
		assert.Equal(t, []string{"theirs", "theirs", "a"}, l.items)
		assert.False(t, l.stale, "what is edited again is read again")
		assert.Equal(t, 3, l.reads)
	})
}

func TestOthersThatNeverRestEndTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{}
		l.others = func() { l.items = append(l.items, "theirs") }
		_, errs := submit(t, l, add("a"))
		assert.Equal(t, cloudapi.ErrConflict, errs[0])
		assert.Equal(t, 10, l.reads)
	})
}

func TestEditOfWhoeverGaveUpIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{others: func() { time.Sleep(time.Second) }}
		var w shared.Writer[[]string]
		target := shared.Target[[]string]{ID: "l", Name: "list l", Timeout: time.Minute, Open: func() shared.Document[[]string] { return l }}
		var all sync.WaitGroup
		all.Go(func() {
			_, err := w.Submit(t.Context(), target, add("a"))
			assert.NoError(t, err)
		})
		synctest.Wait() // "a" is being written
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := w.Submit(ctx, target, add("b"))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		all.Wait()
		synctest.Wait()
		assert.Equal(t, []string{"a"}, l.items)
	})
}

package inventory

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// crashing is a source whose every function crashes where told.
func crashing(list, get, many, keys bool) Source[int, *object] {
	boom := func(crash bool) {
		if crash {
			var nothing *object
			nothing.id = 1
		}
	}
	one := &object{id: 1, name: "a"}
	s := Source[int, *object]{
		Kind: "thing", ID: func(o *object) int { return o.id },
		List:    func(context.Context) ([]*object, int, error) { boom(list); return []*object{one}, 1, nil },
		Get:     func(context.Context, int) (*object, error) { boom(get); return one, nil },
		Indexes: map[string]func(*object) []string{"name": func(o *object) []string { boom(keys); return []string{o.name} }},
	}
	if many {
		s.GetMany, s.BatchSize = func(context.Context, []int) ([]*object, error) { boom(true); return nil, nil }, 10
	}
	return s
}

// TestACrashIsTheErrorOfItsRead: a panic in a read that is shared would end the process, because no caller can recover it.
func TestACrashIsTheErrorOfItsRead(t *testing.T) {
	t.Parallel()
	single := func(s Source[int, *object]) Source[int, *object] { s.List = nil; return s }
	nothing := crashing(false, false, false, false)
	nothing.List = func(context.Context) ([]*object, int, error) { return []*object{nil}, 1, nil }
	for name, source := range map[string]Source[int, *object]{
		"a listing":             crashing(true, false, false, false),
		"a single read":         single(crashing(false, true, false, false)),
		"a batch":               single(crashing(false, false, true, false)),
		"the keys of a listing": crashing(false, false, false, true),
		"the keys of an object": single(crashing(false, false, false, true)),
		"null in a listing":     nothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := New(source)
			for range 3 { // and nobody hangs on what crashed before
				_, err := i.Get(t.Context(), 1, Query{})
				require.ErrorIs(t, err, rescue.ErrCrashed)
				assert.NotErrorIs(t, err, cloudapi.ErrNotFound)
			}
		})
	}
}

// TestAnObjectWithoutIdentityMakesAListingIncomplete: null in a listing is an object of which nobody knows which one it is.
func TestAnObjectWithoutIdentityMakesAListingIncomplete(t *testing.T) {
	t.Parallel()
	broken := false
	i := New(Source[int, object]{
		Kind: "thing", ID: func(o object) int { return o.id },
		List: func(context.Context) ([]object, int, error) {
			if broken {
				return []object{{}}, 1, nil
			}
			return []object{{id: 1}, {id: 2}}, 1, nil
		},
		Get: func(_ context.Context, id int) (object, error) { return object{id: id}, nil },
	})
	_, err := i.All(t.Context(), Query{})
	require.NoError(t, err)
	broken = true
	_, err = i.All(t.Context(), Query{})
	require.ErrorIs(t, err, cloudapi.ErrTransient)
	require.ErrorContains(t, err, "incomplete")
	all, err := i.All(t.Context(), Query{MaxAge: time.Hour})
	require.NoError(t, err)
	assert.Len(t, all, 2, "and changes nothing")
}

// TestAListingIsBounded: more objects than any account has are an error, not memory.
func TestAListingIsBounded(t *testing.T) {
	t.Parallel()
	i := New(Source[int, object]{
		Kind: "thing", ID: func(o object) int { return o.id },
		List: func(context.Context) ([]object, int, error) {
			all := make([]object, maxObjects+1)
			for n := range all {
				all[n].id = n + 1
			}
			return all, 1, nil
		},
	})
	_, err := i.All(t.Context(), Query{})
	require.ErrorContains(t, err, "more than the 50000")
}

// TestCountsOfReadsAreTrimmed: what is counted over a span is forgotten after it, also where nothing is ever listed.
func TestCountsOfReadsAreTrimmed(t *testing.T) {
	t.Parallel()
	get := func(_ context.Context, id int) (object, error) { return object{id: id}, nil }
	i := New(Source[int, object]{Kind: "thing", ID: func(o object) int { return o.id }, Get: get})
	for range 5000 {
		_, err := i.Get(t.Context(), 1, Query{})
		require.NoError(t, err)
	}
	assert.Empty(t, i.singleReads)
}

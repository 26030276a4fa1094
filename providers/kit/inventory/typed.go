package inventory

import (
	"context"
)

// Inventory is the shared view of one kind of objects. Create it with New; it is safe for concurrent use.
type Inventory[ID comparable, V any] struct {
	*view[ID]
	id func(V) ID
}

// New returns an empty inventory over a source.
func New[ID comparable, V any](source Source[ID, V]) *Inventory[ID, V] {
	return &Inventory[ID, V]{view: newView(source.withChecks().untyped()), id: source.ID}
}

// untyped returns the source with objects as any.
func (s Source[ID, V]) untyped() Source[ID, any] {
	u := Source[ID, any]{
		Kind: s.Kind, BatchSize: s.BatchSize, GetCalls: s.GetCalls, Patience: s.Patience, Narrowed: s.Narrowed, Lag: s.Lag,
		ID: func(v any) ID { return s.ID(castOne[V](v)) },
	}
	if s.List != nil {
		u.List = func(ctx context.Context) ([]any, int, error) {
			objects, pages, err := s.List(ctx)
			return toAny(objects), pages, err
		}
	}
	if s.Get != nil {
		u.Get = func(ctx context.Context, id ID) (any, error) { return s.Get(ctx, id) }
	}
	if s.GetMany != nil {
		u.GetMany = func(ctx context.Context, ids []ID) ([]any, error) {
			objects, err := s.GetMany(ctx, ids)
			return toAny(objects), err
		}
	}
	if s.Wrote != nil {
		u.Wrote = func(known, listed any) bool { return s.Wrote(castOne[V](known), castOne[V](listed)) }
	}
	if s.Keep != nil {
		u.Keep = func(v any) any { return s.Keep(castOne[V](v)) }
	}
	if s.Own != nil {
		u.Own = func(known, read any) any { return s.Own(castOne[V](known), castOne[V](read)) }
	}
	if s.Indexes != nil {
		u.Indexes = make(map[string]func(any) []string, len(s.Indexes))
		for name, keys := range s.Indexes {
			u.Indexes[name] = func(v any) []string { return keys(castOne[V](v)) }
		}
	}
	return u
}

// castOne returns an object as its own type; nil becomes the zero value.
func castOne[V any](v any) V {
	object, _ := v.(V)
	return object
}

func castAll[V any](objects []any) []V {
	if objects == nil {
		return nil
	}
	all := make([]V, len(objects))
	for i, o := range objects {
		all[i] = castOne[V](o)
	}
	return all
}

func toAny[V any](objects []V) []any {
	if objects == nil {
		return nil
	}
	all := make([]any, len(objects))
	for i, o := range objects {
		all[i] = o
	}
	return all
}

// Get returns one object. The error is cloudapi.ErrNotFound only if a single read of that object said so, or a complete
// listing where that is enough (Query.Absence).
func (i *Inventory[ID, V]) Get(ctx context.Context, id ID, q Query) (V, error) {
	v, err := i.view.Get(ctx, id, q)
	return castOne[V](v), err
}

// Find returns all objects with an index key. An empty result comes from a complete listing that began after the question; for a key that
// was looked up before, it may have begun up to MaxMissAge earlier.
func (i *Inventory[ID, V]) Find(ctx context.Context, index, key string, q Query) ([]V, error) {
	found, err := i.view.Find(ctx, index, key, q)
	return castAll[V](found), err
}

// All returns every object of a complete listing that began no longer than MaxAge before the question, in no order.
func (i *Inventory[ID, V]) All(ctx context.Context, q Query) ([]V, error) {
	all, err := i.view.All(ctx, q)
	return castAll[V](all), err
}

// Look reads objects again, in as few calls as possible: by one listing if single reads would be more calls than its pages. It is for
// objects that change by themselves; every answer is from a read that began after the question.
func (i *Inventory[ID, V]) Look(ctx context.Context, ids []ID) map[ID]Seen[V] {
	found := i.view.Look(ctx, ids)
	seen := make(map[ID]Seen[V], len(found))
	for id, s := range found {
		seen[id] = Seen[V]{Value: castOne[V](s.Value), Err: s.Err}
	}
	return seen
}

// Peek returns a known object, however old. It makes no call.
func (i *Inventory[ID, V]) Peek(id ID) (V, bool) {
	v, ok := i.view.Peek(id)
	return castOne[V](v), ok
}

// PeekAll returns all known objects, however old. It makes no call.
func (i *Inventory[ID, V]) PeekAll() []V { return castAll[V](i.view.PeekAll()) }

// PeekIndex returns the known objects with a key, however old. It makes no call.
func (i *Inventory[ID, V]) PeekIndex(index, key string) []V {
	return castAll[V](i.view.PeekIndex(index, key))
}

// ID returns an object's identity.
func (i *Inventory[ID, V]) ID(value V) ID { return i.id(value) }

// Put stores an object that we created or replaced, as the cloud's response shows it.
func (i *Inventory[ID, V]) Put(value V) { i.view.Put(value) }

// PutPartial stores an object with our written values, if the response did not contain all of it.
func (i *Inventory[ID, V]) PutPartial(value V) { i.view.PutPartial(value) }

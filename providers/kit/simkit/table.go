package simkit

import "slices"

// Table has objects of one kind by their IDs, in order of their creation.
type Table[K comparable, V any] struct {
	ByID  map[K]*V
	Order []K
}

// Put adds an object, or replaces the one with its ID.
func (t *Table[K, V]) Put(id K, v *V) *V {
	if t.ByID == nil {
		t.ByID = map[K]*V{}
	}
	if t.ByID[id] == nil {
		t.Order = append(t.Order, id)
	}
	t.ByID[id] = v
	return v
}

// Remove removes the object with an ID, if there is one.
func (t *Table[K, V]) Remove(id K) {
	delete(t.ByID, id)
	t.Order = slices.DeleteFunc(t.Order, func(other K) bool { return other == id })
}

// All returns the objects in a list of its own.
func (t *Table[K, V]) All() []*V {
	list := make([]*V, len(t.Order))
	for i, id := range t.Order {
		list[i] = t.ByID[id]
	}
	return list
}

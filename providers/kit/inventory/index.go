package inventory

import "iter"

// index finds the objects of each value of a key.
type index[ID comparable] map[string]holders[ID]

// holders are the objects with a value. Nearly always there is one, such as for a name or an address, which needs no map: with three
// indexes of 15,000 instances, maps would take 16 MiB.
type holders[ID comparable] struct {
	first ID
	// hasFirst says that first is valid.
	hasFirst bool
	// others are those besides first.
	others map[ID]struct{}
}

func (x index[ID]) add(value string, id ID) {
	h := x[value]
	switch {
	case !h.hasFirst:
		h.first, h.hasFirst = id, true
	case h.first == id:
		return
	case h.others == nil:
		h.others = map[ID]struct{}{id: {}}
	default:
		h.others[id] = struct{}{}
		return
	}
	x[value] = h
}

func (x index[ID]) remove(value string, id ID) {
	h := x[value]
	if h.first != id || !h.hasFirst {
		delete(h.others, id)
		return
	}
	for other := range h.others {
		delete(h.others, other)
		h.first = other
		x[value] = h
		return
	}
	delete(x, value)
}

// lookup returns the objects with a value, in no order.
func (x index[ID]) lookup(value string) iter.Seq[ID] {
	h := x[value]
	return func(yield func(ID) bool) {
		if !h.hasFirst || !yield(h.first) {
			return
		}
		for id := range h.others {
			if !yield(id) {
				return
			}
		}
	}
}

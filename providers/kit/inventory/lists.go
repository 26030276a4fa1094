package inventory

import (
	"slices"
	"sync"
)

// recentLists is how many lists are compared with a new one: those before and after a change of nodes, for a few kinds of load balancers.
const recentLists = 8

// Lists stores equal lists once, for objects with mostly equal lists, such as load balancers and their backends: memory then grows with the
// number of nodes, and not with nodes times load balancers. Lists must not be changed in place.
type Lists[T any] struct {
	same   func(a, b T) bool
	mu     sync.Mutex
	recent [][]T
}

// NewLists returns an empty Lists of comparable elements.
func NewLists[T comparable]() *Lists[T] { return NewListsFunc(func(a, b T) bool { return a == b }) }

// NewListsFunc returns an empty Lists whose elements are compared by same.
func NewListsFunc[T any](same func(a, b T) bool) *Lists[T] { return &Lists[T]{same: same} }

// Same returns a list equal to the given one: the stored one, if there is any.
func (l *Lists[T]) Same(list []T) []T {
	if len(list) == 0 {
		return list
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.recent, func(known []T) bool {
		return len(known) == len(list) && (&known[0] == &list[0] || slices.EqualFunc(known, list, l.same))
	})
	if at >= 0 {
		list = l.recent[at]
	} else {
		list = slices.Clip(slices.Clone(list)) // without spare capacity, so that append copies
		if len(l.recent) < recentLists {
			l.recent = append(l.recent, nil)
		}
		at = len(l.recent) - 1
	}
	copy(l.recent[1:at+1], l.recent[:at])
	l.recent[0] = list
	return list
}

package inventory

import (
	"slices"
	"sync"
)

// recentLists is how many lists are compared with a new one: those of before and after a change of nodes, for a few kinds of load
// balancers.
const recentLists = 8

// Lists keeps equal lists once, for objects of which each has a list that nearly all have, such as load balancers their backends: in
// memory these are then as many as there are nodes, and not nodes times load balancers. Whoever changes such a list makes a copy.
type Lists[T any] struct {
	same   func(a, b T) bool
	mu     sync.Mutex
	recent [][]T
}

// NewLists returns an empty Lists of what can be compared.
func NewLists[T comparable]() *Lists[T] { return NewListsFunc(func(a, b T) bool { return a == b }) }

// NewListsFunc returns an empty Lists of what same compares.
func NewListsFunc[T any](same func(a, b T) bool) *Lists[T] { return &Lists[T]{same: same} }

// Same returns a list that is equal to the given one: the one that others have, if there is one.
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
		list = slices.Clip(slices.Clone(list)) // without the room that decoding left; what is appended to it is none of the others'
		if len(l.recent) < recentLists {
			l.recent = append(l.recent, nil)
		}
		at = len(l.recent) - 1
	}
	copy(l.recent[1:at+1], l.recent[:at])
	l.recent[0] = list
	return list
}

package simkit

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Real clouds promise neither an order of listings nor that a write is visible at once. Ordered, consistent simulators hide faults; these
// helpers remove both, reproducibly for the same seed.

// SeedOf returns the seed of a test: the same in every run, another one for every test.
func SeedOf(t interface{ Name() string }) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name())) // a hash accepts everything
	return max(h.Sum64(), 1)
}

// Disorder orders lists like a cloud without a promised order. The zero value keeps every order.
type Disorder struct {
	mu   sync.Mutex
	seed uint64
	rnd  *rand.Rand
}

// Seed starts the disorder; 0 ends it.
func (d *Disorder) Seed(seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seed, d.rnd = seed, nil
	if seed != 0 {
		d.rnd = rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a test must be reproducible
	}
}

// Shuffled returns a list in another order each time, for lists within objects and listings without pages.
func Shuffled[S ~[]E, E any](d *Disorder, list S) S {
	d.mu.Lock()
	defer d.mu.Unlock()
	list = slices.Clone(list)
	if d.rnd != nil {
		d.rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return list
}

// Scattered returns a list in an order unrelated to key that stays the same from call to call, for listings whose pages must fit together.
func Scattered[S ~[]E, E any](d *Disorder, list S, key func(E) string) S {
	d.mu.Lock()
	seed := d.seed
	d.mu.Unlock()
	list = slices.Clone(list)
	if seed == 0 {
		return list
	}
	type placed struct {
		at uint64
		e  E
	}
	all := make([]placed, len(list)) // a key may be expensive, and sorting asks for it often
	for i, e := range list {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key(e))) // a hash accepts everything
		all[i] = placed{rand.NewPCG(seed, h.Sum64()).Uint64(), e}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	for i, p := range all {
		list[i] = p.e
	}
	return list
}

// Lagging gives reads of an eventually consistent service the state of some time ago. S is a state, or a part of it, that shares nothing
// with the changing one. The zero value does not lag.
type Lagging[S any] struct {
	mu     sync.Mutex
	lag    time.Duration
	states []moment[S]
}

type moment[S any] struct {
	state S
	at    time.Time
}

// SetLag makes writes show after lag, and now begins with what is there; 0 makes them show at once.
func (l *Lagging[S]) SetLag(lag time.Duration, current S) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lag, l.states = lag, []moment[S]{{state: current}}
}

// Wrote records the state after a write.
func (l *Lagging[S]) Wrote(state S) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lag > 0 {
		l.dropLocked()
		l.states = append(l.states, moment[S]{state: state, at: time.Now()})
	}
}

// Seen returns the state that a read sees, and false if it is the current one.
func (l *Lagging[S]) Seen() (state S, lags bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lag == 0 {
		return state, false
	}
	l.dropLocked()
	return l.states[0].state, true
}

// Any returns one of the states that a read may see, as from replicas with different lags, and false if there is only the current one.
// choose returns a number below n; a later read may see an earlier state.
func (l *Lagging[S]) Any(choose func(n int) int) (state S, lags bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lag == 0 {
		return state, false
	}
	l.dropLocked()
	return l.states[choose(len(l.states))].state, true
}

// dropLocked forgets what no read can see any more: all but the newest of the states that are old enough.
func (l *Lagging[S]) dropLocked() {
	visible := time.Now().Add(-l.lag)
	for len(l.states) > 1 && !l.states[1].at.After(visible) {
		l.states = l.states[1:]
	}
}

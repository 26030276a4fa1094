package openstack

import (
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
)

const (
	firstTypical = 3 * time.Second
	leastLook    = time.Second
	mostLook     = 15 * time.Second
	// mostShared is how old a shared answer about work in progress may be.
	mostShared = 2 * time.Second
	// failoverPause keeps failovers that do not help from following each other.
	failoverPause = 10 * time.Minute
)

// works knows which load balancers Octavia works on, since when, and how long that usually takes.
type works struct {
	mu        sync.Mutex
	since     map[string]time.Time
	failovers map[string]time.Time
	typical   time.Duration
}

func (w *works) begin(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.since[id]; !known {
		w.since[id] = time.Now()
	}
}

// end forgets the work on a load balancer; it reports whether there was any.
func (w *works) end(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	began, known := w.since[id]
	if known {
		took := time.Since(began)
		if w.typical == 0 {
			w.typical = took
		}
		w.typical = (3*w.typical + took) / 4
		delete(w.since, id)
	}
	return known
}

// query is how to look at a load balancer: while Octavia works, an answer must be younger than the work, and many that are
// looked at together are listed.
func (w *works) query(id string) inventory.Query {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := inventory.Query{MaxAge: ensureMaxAge, MaxMissAge: newMaxAge, Expected: len(w.since)}
	if began, known := w.since[id]; known {
		age := time.Since(began)
		q.MaxAge, q.MaxMissAge = min(age/4, mostShared), 0
		if w.typical > leastLook && age < w.typical/2 {
			q.MaxAge = age + ensureMaxAge // it is not that quick
		}
	}
	return q
}

// next is when to look again: at about the usual end of the work, then less and less often.
func (w *works) next(id string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	age := time.Duration(0)
	if began, known := w.since[id]; known {
		age = time.Since(began)
	}
	expected := w.typical
	if expected == 0 {
		expected = firstTypical
	}
	return min(max(expected-age, age/3, leastLook), mostLook)
}

// mayFailOver reports whether a failover of a load balancer may be ordered now, and notes that it was.
func (w *works) mayFailOver(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.failovers[id]) < failoverPause {
		return false
	}
	w.failovers[id] = time.Now()
	return true
}

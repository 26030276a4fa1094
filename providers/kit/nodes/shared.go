package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

// maxShared bounds for how many keys results are kept.
const maxShared = 64

// Shared caches a result computed from the nodes behind load balancers, for all Services with the same nodes and the same key, which stands
// for all other input. When a node joins, it is computed once and not for each load balancer. Results must not be changed. The zero value
// with a MaxAge is ready.
type Shared[K comparable, T any] struct {
	// MaxAge is how long a result is used.
	MaxAge time.Duration

	mu      sync.Mutex
	nodes   []*v1.Node
	known   map[K]workedOut[T]
	flights map[K]*working
}

// workedOut is a finished result.
type workedOut[T any] struct {
	value T
	at    time.Time
}

// working is a computation under way, for which others wait.
type working struct {
	nodes []*v1.Node
	// urgent is set if the computation runs for an urgent caller.
	urgent bool
	done   chan struct{}
	err    error
}

func sameList(a, b []*v1.Node) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// Of returns the result of work for the nodes of a Service, computed now or earlier for another Service.
func (s *Shared[K, T]) Of(ctx context.Context, nodes []*v1.Node, key K, work func() (T, error)) (T, error) {
	if !contract.SharedNodes(ctx, nodes) {
		return work()
	}
	for {
		s.mu.Lock()
		known, ok := s.known[key]
		if ok && sameList(s.nodes, nodes) && time.Since(known.at) < s.MaxAge {
			s.mu.Unlock()
			return known.value, nil
		}
		f := s.flights[key]
		urgent := priority.IsUrgent(ctx) // does not wait for a routine caller's computation
		if f == nil || !sameList(f.nodes, nodes) || (urgent && !f.urgent) {
			f = &working{nodes: nodes, urgent: urgent, done: make(chan struct{})}
			if s.flights == nil {
				s.flights = map[K]*working{}
			}
			s.flights[key] = f
			s.mu.Unlock()
			return s.work(f, key, work)
		}
		s.mu.Unlock()
		var none T
		select {
		case <-f.done:
		case <-ctx.Done():
			return none, fmt.Errorf("waiting for what follows from the nodes: %w", ctx.Err())
		}
		if f.err != nil && !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return none, f.err
		}
	}
}

// work runs the computation for all who wait.
func (s *Shared[K, T]) work(f *working, key K, work func() (T, error)) (value T, err error) {
	began := time.Now()
	f.err = context.Canceled // if it panics, the next caller tries again
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.flights[key] == f {
			delete(s.flights, key)
			if f.err == nil {
				s.keepLocked(f.nodes, key, workedOut[T]{value, began})
			}
		}
		close(f.done)
	}()
	value, err = work()
	f.err = err
	return value, err
}

func (s *Shared[K, T]) keepLocked(nodes []*v1.Node, key K, value workedOut[T]) {
	if s.known == nil || len(s.known) >= maxShared || !sameList(s.nodes, nodes) {
		s.known = map[K]workedOut[T]{}
	}
	s.nodes, s.known[key] = nodes, value
}

// Forget discards all results, because their input has changed.
func (s *Shared[K, T]) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes, s.known, s.flights = nil, nil, nil
}

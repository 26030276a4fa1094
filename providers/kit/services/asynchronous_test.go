package services

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
)

// slow is a shelf whose cloud works for a while on each change, and refuses another one meanwhile.
type slow struct {
	*shelf
	mu      sync.Mutex
	rests   time.Time
	refused int
	// lost is how often what was observed is gone when its turn has come.
	lost int
	err  error
}

func (s *slow) Key(_ Request, observed []string) string {
	if observed == nil {
		return ""
	}
	return "shelf"
}

func (s *slow) Observe(ctx context.Context, r Request) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shelf.Observe(ctx, r)
}

func (s *slow) Complete(ctx context.Context, r *Request, observed, desired []string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shelf.Complete(ctx, r, observed, desired)
}

func (s *slow) Settle(_ context.Context, r *Request, observed []string) ([]string, error) {
	s.mu.Lock()
	rests := s.rests
	s.mu.Unlock()
	time.Sleep(time.Until(rests))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 && observed != nil {
		s.lost--
		s.stored = nil
		return nil, ErrGone
	}
	s.calls = append(s.calls, "settle "+string(r.Purpose))
	r.Report(Notice("Settled", "it rests"))
	return observed, s.err
}

func (s *slow) Changes(r Request, observed, desired []string) ([]Change[[]string], error) {
	changes, err := s.shelf.Changes(r, observed, desired)
	for i, c := range changes {
		changes[i].Replan = true
		changes[i].Make = func(ctx context.Context, r *Request, observed []string) ([]string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if time.Now().Before(s.rests) {
				s.refused++
			}
			s.rests = time.Now().Add(time.Second)
			return c.Make(ctx, r, observed)
		}
	}
	return changes, err
}

// Before each change the cloud's work on the one before has ended, for the Service's own and for that of others who share the load
// balancer; plan waits for nothing.
func TestSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{shelf: &shelf{want: []string{"a", "b"}}}
		l, events, service := serve(s.shelf)
		l.Reconciler, l.LookAgain = s, true
		began := time.Now()
		_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, time.Since(began), "the creation, and a change for each of two")
		assert.Equal(t, []string{
			"observe ensure", "settle ensure", "create load balancer", "settle ensure", "create a", "settle ensure", "create b", "settle ensure",
			"observe ensure", "settle ensure", "complete",
		}, s.calls)
		assert.Contains(t, drain(events), "Normal Settled it rests")

		s.calls = nil
		_, err = l.PlanLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.NoError(t, err)
		assert.Equal(t, []string{"observe plan"}, s.calls)

		s.want = []string{"a", "b", "c", "d", "e"}
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service.DeepCopy(), nil)
				assert.NoError(t, err)
			})
		}
		group.Wait()
		assert.Zero(t, s.refused, "one at a time")
		assert.Zero(t, l.locks.Held())
	})
}

// What is gone when its turn has come is observed again, and made again, but not for ever; another failure ends the call at once.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lost int
		err  error
		ends string
	}{{lost: maxLosses - 1}, {lost: maxLosses, ends: "went away as often as it was made"}, {err: errors.New("no answer"), ends: "no answer"}} {
		s := &slow{shelf: &shelf{stored: []string{"a"}, want: []string{"a"}}, lost: c.lost, err: c.err}
		l, _, service := serve(s.shelf)
		l.Reconciler = s
		_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		if c.ends != "" {
			require.ErrorContains(t, err, c.ends)
		} else {
			require.NoError(t, err)
			assert.True(t, slices.Contains(s.calls, "create load balancer"))
		}
		assert.Zero(t, l.locks.Held())
	}
}

// TestTurn: nothing is done while others have their turn; who gives up then says what it has waited for.
func TestTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{shelf: &shelf{stored: []string{"a"}, want: []string{"b"}}}
		l, _, service := serve(s.shelf)
		l.Reconciler = s
		unlock, err := l.Lock(t.Context(), "shelf")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = l.EnsureLoadBalancer(ctx, "kubernetes", service, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waiting for another Service of load balancer shelf")
		assert.Equal(t, []string{"observe ensure"}, s.calls, "others have their turn")
		unlock()
		_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.NoError(t, err)
	})
}

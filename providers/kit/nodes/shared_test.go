package nodes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

func some(n int) []*v1.Node {
	list := make([]*v1.Node, n)
	for i := range list {
		list[i] = &v1.Node{}
	}
	return list
}

// TestSharedWork: what follows from the nodes is worked out once for all Services that have the same ones, and again for others, after a
// while, and after a failure.
func TestSharedWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, list, did := Shared[string, int]{MaxAge: time.Minute}, some(3), atomic.Int32{}
		ctx := contract.WithSharedNodes(t.Context(), list)
		var failure error
		work := func() (int, error) { did.Add(1); time.Sleep(time.Second); return len(list), failure }
		ask := func(of []*v1.Node) (result int) {
			results := make(chan int, 20)
			for range cap(results) {
				go func() {
					n, failed := s.Of(ctx, of, "key", work)
					if failed != nil {
						n = -1
					}
					results <- n
				}()
			}
			result = <-results
			for range cap(results) - 1 {
				assert.Equal(t, result, <-results)
			}
			return result
		}
		assert.Equal(t, 3, ask(list))
		assert.EqualValues(t, 1, did.Load())
		ask(list)
		assert.EqualValues(t, 1, did.Load(), "it is remembered")
		time.Sleep(s.MaxAge)
		ask(list)
		assert.EqualValues(t, 2, did.Load())
		s.Forget()
		failure = errors.New("the cloud fails")
		assert.Equal(t, -1, ask(list))
		assert.EqualValues(t, 3, did.Load(), "a failure is that of all who wait")
		failure = nil
		ask(list)
		assert.EqualValues(t, 4, did.Load())

		other := some(3)
		ask(other)
		assert.EqualValues(t, 24, did.Load(), "who knows whether a list of somebody's own changes")
		_, err := s.Of(ctx, list, "another", work)
		require.NoError(t, err)
		assert.EqualValues(t, 25, did.Load())
		ctx = contract.WithSharedNodes(t.Context(), other)
		ask(other)
		assert.EqualValues(t, 26, did.Load(), "other nodes")
	})
}

// TestSharedWorkThatEnds: who works it out may be told to stop, or crash; the next one does it then.
func TestSharedWorkThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, list := Shared[string, int]{MaxAge: time.Minute}, some(2)
		ctx := contract.WithSharedNodes(t.Context(), list)
		stopped, stop := context.WithCancel(ctx)
		go func() {
			_, err := s.Of(stopped, list, "key", func() (int, error) { <-stopped.Done(); return 0, stopped.Err() })
			assert.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, stop)
		n, err := s.Of(ctx, list, "key", func() (int, error) { return 7, nil })
		require.NoError(t, err)
		assert.Equal(t, 7, n)

		s.Forget()
		assert.Panics(t, func() { _, _ = s.Of(ctx, list, "key", func() (int, error) { panic("a crash") }) })
		n, err = s.Of(ctx, list, "key", func() (int, error) { return 8, nil })
		require.NoError(t, err)
		assert.Equal(t, 8, n)

		s.Forget()
		go func() { _, _ = s.Of(ctx, list, "key", func() (int, error) { time.Sleep(time.Minute); return 9, nil }) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = s.Of(short, list, "key", func() (int, error) { return 0, nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Hour)
	})
}

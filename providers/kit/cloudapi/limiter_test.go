package cloudapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

func TestUrgentCallsDoNotStandBehindRoutineOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter([]Limit{{PerSecond: 1, Burst: 10}})
		var routine atomic.Int32
		var group sync.WaitGroup
		for range 15 {
			group.Go(func() {
				if l.wait(t.Context(), 10*time.Second) == nil {
					routine.Add(1)
				}
			})
		}
		synctest.Wait()
		assert.EqualValues(t, 8, routine.Load(), "two of ten are kept for urgent calls")

		urgent := priority.Urgent(t.Context())
		began := time.Now()
		require.NoError(t, l.wait(urgent, time.Second))
		require.NoError(t, l.wait(urgent, time.Second))
		assert.Zero(t, time.Since(began))
		require.NoError(t, l.wait(urgent, 2*time.Second))
		assert.Equal(t, time.Second, time.Since(began).Round(time.Millisecond), "the reserve is used up, but nobody is ahead")
		group.Wait()
		assert.LessOrEqual(t, int(routine.Load()), 8+10, "the limit holds")
	})
}

func TestRoutineCallsThatWouldWaitTooLongAreToldWhenToComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter([]Limit{{PerSecond: 1, Burst: 10}})
		for range 8 {
			require.NoError(t, l.wait(t.Context(), 0))
		}
		began := time.Now()
		err := l.wait(t.Context(), 500*time.Millisecond)
		require.ErrorIs(t, err, ErrRateLimited)
		assert.Zero(t, time.Since(began))
		after, ok := RetryAfter(err)
		assert.True(t, ok)
		assert.InDelta(t, time.Second, after, float64(time.Millisecond))

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		time.AfterFunc(300*time.Millisecond, cancel)
		require.ErrorIs(t, l.wait(ctx, time.Minute), context.Canceled)
	})
}

func TestARaisedCallStopsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter([]Limit{{PerSecond: 0.1, Burst: 10}})
		for range 8 {
			require.NoError(t, l.wait(t.Context(), 0))
		}
		began := time.Now()
		for _, hold := range []bool{true, false} { // one has its turn, one waits for it
			ctx, raise := priority.Raisable(t.Context())
			time.AfterFunc(time.Second, raise)
			var blocker sync.WaitGroup
			if !hold {
				l.turn <- struct{}{}
				blocker.Go(func() { time.Sleep(5 * time.Second); <-l.turn })
			}
			require.NoError(t, l.wait(ctx, time.Minute))
			blocker.Wait()
		}
		assert.Less(t, time.Since(began), 7*time.Second)
	})
}

func TestAPauseHoldsUrgentCallsToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(nil)
		l.pause(5 * time.Second)
		began := time.Now()
		require.NoError(t, l.wait(priority.Urgent(t.Context()), 10*time.Second))
		assert.Equal(t, 5*time.Second, time.Since(began))
		l.pause(time.Minute)
		require.ErrorIs(t, l.wait(priority.Urgent(t.Context()), 10*time.Second), ErrRateLimited)
	})
}

// TestAdaptiveLimit: where a cloud refuses calls for its rate without saying how long to wait, the rate is halved, at most
// once a second and down to a floor; success brings it back.
func TestAdaptiveLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter([]Limit{{PerSecond: 20, Burst: 100, Floor: 3}, {PerSecond: 100, Burst: 100}})
		rates := func() []float64 { return []float64{float64(l.buckets[0].Limit()), float64(l.buckets[1].Limit())} }
		l.slowDown()
		l.slowDown()
		assert.Equal(t, []float64{10, 100}, rates(), "refusals of calls that were under way together count as one")
		for range 5 {
			time.Sleep(slowDownEvery)
			l.slowDown()
		}
		assert.Equal(t, []float64{3, 100}, rates())
		l.speedUp()
		assert.InDelta(t, 3.4, rates()[0], 0.001)
		for range recoverySteps {
			l.speedUp()
		}
		assert.Equal(t, []float64{20, 100}, rates())
	})
}

// TestUrgentCallsLeaveAShareToRoutineOnes: Services that cannot be made, as beyond the account's quota, are tried again and again.
func TestUrgentCallsLeaveAShareToRoutineOnes(t *testing.T) {
	t.Parallel()
	for _, services := range []int{100, 200, 400, 4000} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter([]Limit{{PerSecond: 2.5, Burst: 100}, {PerSecond: 1.1, Burst: 1000}}) // DigitalOcean's
			urgent := priority.Urgent(t.Context())
			began, asked, answered := time.Now(), 0, 0
			var sent atomic.Int64
			var due float64
			for time.Since(began) < 6*time.Hour {
				time.Sleep(10 * time.Second)
				for due += float64(services) / 30; due >= 1; due-- { // each every 5 minutes
					go func() {
						if l.wait(urgent, maxPatience) == nil {
							sent.Add(1)
						}
					}()
				}
				synctest.Wait()
				asked++
				if l.wait(t.Context(), maxPatience) == nil {
					answered++
				}
			}
			time.Sleep(maxPatience)
			synctest.Wait()
			assert.Equal(t, asked, answered, "%d Services: one routine call in 10 s is below a fifth of the rate", services)
			span := time.Since(began).Seconds()
			assert.LessOrEqual(t, float64(sent.Load())+float64(answered), 1000+1.1*span, "the cloud's limit holds")
			if services >= 400 {
				assert.Greater(t, float64(sent.Load()), 0.7*1.1*span, "and urgent ones get the rest")
			}
		})
	}
}

func TestBudgetIn(t *testing.T) {
	t.Parallel()
	read := BudgetIn("X-RateLimit-")
	b, ok := read(http.Header{"X-Ratelimit-Limit": {"800"}, "X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"1700000000"}})
	assert.True(t, ok)
	assert.Equal(t, Budget{Limit: 800, Remaining: 7, Reset: time.Unix(1700000000, 0)}, b)
	b, ok = read(http.Header{"X-Ratelimit-Limit": {"800"}, "X-Ratelimit-Remaining": {"7"}})
	assert.True(t, ok)
	assert.Zero(t, b.Reset)
	_, ok = read(http.Header{"X-Ratelimit-Limit": {"800"}})
	assert.False(t, ok)
}

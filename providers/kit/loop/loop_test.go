package loop

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"
)

// begin starts a loop in a bubble of virtual time, and ends it with the test.
func begin(t *testing.T, job Job, synced ...cache.DoneChecker) *Loop {
	t.Helper()
	l := New(job)
	stop := make(chan struct{})
	l.Start(stop, synced...)
	l.Start(stop, synced...) // the framework may initialise twice
	t.Cleanup(func() { close(stop); synctest.Wait() })
	return l
}

// filling is a cache that is filled once the channel is closed.
type filling chan struct{}

// Name implements cache.DoneChecker.
func (filling) Name() string { return "filling" }

// Done implements cache.DoneChecker.
func (f filling) Done() <-chan struct{} { return f }

func TestRunsAtOnceAndPeriodically(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		begin(t, Job{Name: "t1", Period: time.Minute, Timeout: time.Second, Run: func(context.Context) error { runs.Add(1); return nil }})
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, runs.Load())
		time.Sleep(3 * time.Minute)
		assert.EqualValues(t, 4, runs.Load())
	})
}

func TestWaitsForCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		filled := make(filling)
		l := begin(
			t, Job{Name: "t2", Period: time.Hour, Timeout: time.Second, Run: func(context.Context) error { runs.Add(1); return nil }},
			filled,
		)
		l.Trigger()
		time.Sleep(10 * time.Second)
		assert.Zero(t, runs.Load(), "an empty cache looks like a cluster without Services")
		close(filled)
		time.Sleep(10 * time.Second)
		assert.Positive(t, runs.Load())
	})
}

func TestTriggersDuringARunLeadToOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		l := begin(t, Job{Name: "t3", Period: time.Hour, Timeout: time.Minute, Run: func(context.Context) error {
			runs.Add(1)
			time.Sleep(10 * time.Second)
			return nil
		}})
		time.Sleep(time.Second)
		for range 50 {
			l.Trigger()
		}
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, runs.Load())
	})
}

func TestManyChangesInARowLeadToFewRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		l := begin(
			t,
			Job{
				Name: "t6", Period: time.Hour, Spacing: 5 * time.Second, Timeout: time.Minute,
				Run: func(context.Context) error { runs.Add(1); return nil },
			},
		)
		time.Sleep(time.Minute)
		runs.Store(0)
		l.Trigger()
		synctest.Wait()
		assert.EqualValues(t, 1, runs.Load(), "a single change is not held up")
		for range 100 {
			l.Trigger()
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1+4, runs.Load(), "20 s of changes, and the last one is not lost")
	})
}

// TestCachesSeeWhatARunWrote: a run does not begin right after the end of one that took long, for what that wrote last is in no cache yet.
func TestCachesSeeWhatARunWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began []time.Duration
		start := time.Now()
		l := begin(t, Job{Name: "t7", Period: time.Hour, Spacing: 2 * time.Second, Timeout: time.Minute, Run: func(context.Context) error {
			began = append(began, time.Since(start))
			time.Sleep(10 * time.Second)
			return nil
		}})
		time.Sleep(5 * time.Second)
		l.Trigger()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, 12 * time.Second}, began)
	})
}

func TestFailuresAreTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		begin(t, Job{Name: "t4", Period: 24 * time.Hour, Timeout: time.Second, Run: func(context.Context) error {
			if runs.Add(1) == 2 {
				panic("once")
			}
			return errors.New("always")
		}})
		time.Sleep(8 * time.Second)
		assert.EqualValues(t, 4, runs.Load(), "at 0, 1, 3 and 7 s, a panic among them")
		time.Sleep(time.Hour)
		assert.Less(t, runs.Load(), int32(25), "every 5 minutes at last")
	})
}

func TestARunHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		begin(t, Job{Name: "t5", Period: time.Hour, Timeout: time.Second, Run: func(ctx context.Context) error {
			<-ctx.Done()
			err = ctx.Err()
			return nil
		}})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

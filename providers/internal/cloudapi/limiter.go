package cloudapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limit is a client-side token bucket. Over any span it lets through at most Burst + PerSecond × span.
type Limit struct {
	PerSecond float64
	Burst     int
}

// limiter holds back calls by every bucket, and by the pause that the cloud asked for.
type limiter struct {
	buckets []*rate.Limiter

	mu          sync.Mutex
	pausedUntil time.Time
}

func newLimiter(limits []Limit) *limiter {
	l := &limiter{}
	for _, limit := range limits {
		l.buckets = append(l.buckets, rate.NewLimiter(rate.Limit(limit.PerSecond), limit.Burst))
	}
	return l
}

// pause holds back all calls for d. A shorter pause never ends a longer one.
func (l *limiter) pause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := time.Now().Add(d); until.After(l.pausedUntil) {
		l.pausedUntil = until
	}
}

// wait returns when the call may go out. If that would be later than maxWait or than the context's end, it returns at
// once, and says when to come back: a worker that sleeps is a worker lost.
func (l *limiter) wait(ctx context.Context, maxWait time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, time.Until(deadline))
	}
	l.mu.Lock()
	delay := time.Until(l.pausedUntil)
	l.mu.Unlock()
	if delay > maxWait {
		return &Error{Class: ErrRateLimited, Message: "the cloud asked to wait", RetryAfter: delay}
	}
	now := time.Now()
	var taken []*rate.Reservation
	for _, b := range l.buckets {
		r := b.ReserveN(now, 1)
		taken = append(taken, r)
		delay = max(delay, r.DelayFrom(now))
	}
	giveBack := func() {
		for _, r := range taken {
			r.CancelAt(now)
		}
	}
	if delay > maxWait {
		giveBack()
		return &Error{Class: ErrRateLimited, Message: "our own limit on calls is reached", RetryAfter: delay}
	}
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		giveBack()
		return fmt.Errorf("waiting for our own limit on calls: %w", ctx.Err())
	}
}

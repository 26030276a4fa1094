package cloudapi

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

const (
	// reservedShare: 1/5 of a bucket's burst is reserved for urgent calls, and routine ones wait instead of using it.
	reservedShare = 5
	// routineShare: 1/5 of the calls is left to routine ones, however many urgent ones there are. Otherwise checks for deleted nodes and
	// drift would starve.
	routineShare = 5
	// maxOwed bounds how many calls routine ones can save up while they are idle.
	maxOwed = 5
)

// Limit is a client-side token bucket. Over any span it lets through at most Burst + PerSecond × span.
type Limit struct {
	PerSecond float64
	Burst     int
	// Floor is the rate that refusals for the cloud's rate limit slow the bucket down to, for clouds that do not tell how
	// long to wait; success brings it back. 0 means that the rate stays.
	Floor float64
}

// limiter holds back calls by every bucket, and by the pause that the cloud demanded.
type limiter struct {
	buckets []*rate.Limiter
	// turn is held by the next routine call; waiting counts those behind it. Routine calls take tokens only when they are sent, so that no
	// urgent call waits behind them.
	turn    chan struct{}
	waiting atomic.Int64

	limits []Limit
	// taking makes checking and taking tokens one step.
	taking      sync.Mutex
	mu          sync.Mutex
	pausedUntil time.Time
	slowed      time.Time
	// owed counts the calls that urgent ones took from the routine share.
	owed float64
}

func newLimiter(limits []Limit) *limiter {
	l := &limiter{turn: make(chan struct{}, 1), limits: limits}
	for _, limit := range limits {
		l.buckets = append(l.buckets, rate.NewLimiter(rate.Limit(limit.PerSecond), limit.Burst))
	}
	return l
}

const (
	// slowDownEvery makes refusals of concurrent calls count once.
	slowDownEvery = time.Second
	// recoverySteps is how many successes bring a bucket from zero back to its full rate.
	recoverySteps = 50
)

// slowDown halves the rates after a refusal for the cloud's rate limit.
func (l *limiter) slowDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.slowed) < slowDownEvery {
		return
	}
	l.slowed = time.Now()
	for i, b := range l.buckets {
		if limit := l.limits[i]; limit.Floor > 0 {
			b.SetLimit(max(b.Limit()/2, rate.Limit(limit.Floor)))
		}
	}
}

// speedUp raises the rates a little after a success.
func (l *limiter) speedUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, b := range l.buckets {
		if full := rate.Limit(l.limits[i].PerSecond); b.Limit() < full {
			b.SetLimit(min(b.Limit()+full/recoverySteps, full))
		}
	}
}

// pause holds back all calls for d. A shorter pause never ends a longer one.
func (l *limiter) pause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := time.Now().Add(d); until.After(l.pausedUntil) {
		l.pausedUntil = until
	}
}

func (l *limiter) pausedFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.pausedUntil), 0)
}

// wait returns when the call may be sent. If that would be later than maxWait or the context's end, it returns at once with the time to
// come back, so that no worker is blocked.
func (l *limiter) wait(ctx context.Context, maxWait time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, time.Until(deadline))
	}
	until := time.Now().Add(maxWait)
	if paused := l.pausedFor(); paused > maxWait {
		return &Error{Class: ErrRateLimited, Message: "the cloud asked to wait", RetryAfter: paused}
	}
	if !priority.IsUrgent(ctx) {
		if done, err := l.waitRoutine(ctx, until); done || err != nil {
			return err
		}
	}
	// Urgent calls reserve less far ahead than routine ones may wait, so that the routine share always has room.
	err := l.reserve(ctx, time.Now().Add(time.Until(until)*(routineShare-1)/routineShare))
	if err == nil {
		l.addOwed()
	}
	return err
}

// reserve takes tokens ahead of time and waits until they are due.
func (l *limiter) reserve(ctx context.Context, until time.Time) error {
	taken, now, delay := l.take(until)
	if taken == nil && len(l.buckets) > 0 || now.Add(delay).After(until) {
		return tooLongError(delay)
	}
	if !pauseUntil(ctx, delay, nil) {
		for _, r := range taken {
			r.CancelAt(now)
		}
		return gaveUpError(ctx)
	}
	return nil
}

// take reserves a token of each bucket if they are due in time. A returned token is lost if others were taken meanwhile, so none is taken
// that comes too late.
func (l *limiter) take(until time.Time) (taken []*rate.Reservation, now time.Time, delay time.Duration) {
	delay = l.pausedFor()
	l.taking.Lock()
	defer l.taking.Unlock()
	now = time.Now()
	for _, b := range l.buckets {
		if lack := 1 - b.TokensAt(now); lack > 0 {
			delay = max(delay, time.Duration(lack/float64(b.Limit())*float64(time.Second)))
		}
	}
	if now.Add(delay).After(until) {
		return nil, now, delay
	}
	for _, b := range l.buckets {
		r := b.ReserveN(now, 1)
		taken = append(taken, r)
		delay = max(delay, r.DelayFrom(now))
	}
	return taken, now, delay
}

// addOwed counts an urgent call: for every few of them a routine one may follow, whatever the reserve.
func (l *limiter) addOwed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = min(l.owed+1./(routineShare-1), maxOwed)
}

// takeOwed takes an owed routine call, and reports whether there was one.
func (l *limiter) takeOwed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed < 1 {
		return false
	}
	l.owed--
	return true
}

// waitRoutine waits for its turn, and then for tokens beyond the reserve. It returns false if the call became urgent.
func (l *limiter) waitRoutine(ctx context.Context, until time.Time) (done bool, err error) {
	behind := l.waiting.Add(1)
	defer l.waiting.Add(-1)
	if delay := l.routineDelay(int(behind)); time.Now().Add(delay).After(until) {
		if l.takeOwed() {
			return true, l.reserve(ctx, until)
		}
		return false, tooLongError(delay)
	}
	raised := priority.Raised(ctx)
	select {
	case l.turn <- struct{}{}: // the usual case, also for calls that would not wait at all
	default:
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		select {
		case l.turn <- struct{}{}:
		case <-raised:
			return false, nil
		case <-timer.C:
			return false, tooLongError(l.routineDelay(int(behind)))
		case <-ctx.Done():
			return false, gaveUpError(ctx)
		}
	}
	defer func() { <-l.turn }()
	for {
		delay := l.routineDelay(1)
		switch {
		case delay <= 0:
			for _, b := range l.buckets {
				b.AllowN(time.Now(), 1)
			}
			return true, nil
		case l.takeOwed():
			return true, l.reserve(ctx, until)
		case time.Now().Add(delay).After(until):
			return false, tooLongError(delay)
		case !pauseUntil(ctx, delay, raised):
			return false, gaveUpError(ctx)
		case priority.IsUrgent(ctx):
			return false, nil
		}
	}
}

// routineDelay is when the n-th routine call from now can go out, if no urgent one comes between.
func (l *limiter) routineDelay(n int) time.Duration {
	now := time.Now()
	delay := l.pausedFor()
	for _, b := range l.buckets {
		lack := float64(n+b.Burst()/reservedShare) - b.TokensAt(now)
		if lack > 0 {
			delay = max(delay, time.Duration(lack/float64(b.Limit())*float64(time.Second))+time.Nanosecond)
		}
	}
	return delay
}

func tooLongError(delay time.Duration) error {
	return &Error{Class: ErrRateLimited, Message: "our own limit on calls is reached", RetryAfter: delay}
}

func gaveUpError(ctx context.Context) error {
	return fmt.Errorf("waiting for our own limit on calls: %w", ctx.Err())
}

// pauseUntil sleeps for d, or until early is closed; it returns false if the context ended.
func pauseUntil(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
		return false
	}
	return true
}

package priority

import (
	"context"
	"sync"
	"time"
)

const (
	// urgentAttempts is how many failures in a row an object may have while its calls are urgent. An object that always fails, as beyond
	// the account's quota, gains nothing by urgency, and would delay all others.
	urgentAttempts = 5
	// attemptsMemory is how long failures count, and bounds the memory for inactive objects.
	attemptsMemory = time.Hour
)

// Attempts counts the failures of objects. The zero value is ready.
type Attempts struct {
	mu     sync.Mutex
	failed map[string]attempt
}

type attempt struct {
	count int
	last  time.Time
}

// Urgent returns a context with urgent calls, unless the object failed too often; pass the result to done.
func (a *Attempts) Urgent(ctx context.Context, object string) (urgent context.Context, done func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	done = func(err error) { a.note(object, err) }
	if f := a.failed[object]; f.count >= urgentAttempts && time.Since(f.last) < attemptsMemory {
		return ctx, done
	}
	return Urgent(ctx), done
}

// Failures counts how often an object has failed in a row.
func (a *Attempts) Failures(object string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.failed[object]; time.Since(f.last) < attemptsMemory {
		return f.count
	}
	return 0
}

func (a *Attempts) note(object string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.failed, object)
		return
	}
	if a.failed == nil {
		a.failed = map[string]attempt{}
	}
	f := a.failed[object]
	if f.count == 0 {
		for other, o := range a.failed {
			if time.Since(o.last) >= attemptsMemory {
				delete(a.failed, other)
			}
		}
	}
	a.failed[object] = attempt{f.count + 1, time.Now()}
}

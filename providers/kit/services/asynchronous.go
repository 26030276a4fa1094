package services

import (
	"context"
	"errors"
	"fmt"

	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

// Asynchronous is implemented by a Reconciler whose cloud works on each change for a while, or whose load balancers may be shared by
// several Services: one change is made at a time. It waits in waiting.Room.
type Asynchronous[O any] interface {
	// Key names what changes are made to: one Service at a time has its turn there. "" is nothing.
	Key(r Request, observed O) string
	// Settle is called in that turn, before changes are computed, each time, and never for Plan. It waits until the cloud's own
	// work on what was observed has ended, and returns what can be changed, with all that the changes are computed from.
	Settle(ctx context.Context, r *Request, observed O) (O, error)
}

// ErrGone is the answer of Settle, and of a Change, when what was observed is there no longer: all is observed again.
var ErrGone = errors.New("the load balancer went away meanwhile")

// maxLosses bounds how often that happens in one call.
const maxLosses = 3

// Lock waits for the turn on an object, as reconciliation does, for other work on it. Call unlock once.
func (l *LoadBalancer[O, D]) Lock(ctx context.Context, key string) (unlock func(), err error) {
	t := turn{locks: &l.locks}
	return t.end, t.take(ctx, key)
}

// turn is the right to work on one object, which one Service has at a time.
type turn struct {
	locks *keylock.Locks
	key   string
	done  func()
}

// take waits for the turn on an object, and ends that on another one; "" is no object.
func (t *turn) take(ctx context.Context, key string) error {
	if key == t.key {
		return nil
	}
	t.end()
	if key == "" {
		return nil
	}
	done, err := t.locks.Lock(ctx, key)
	if err != nil {
		return fmt.Errorf("waiting for another Service of load balancer %s: %w", key, err)
	}
	t.key, t.done = key, done
	return nil
}

func (t *turn) end() {
	if t.done != nil {
		t.done()
	}
	t.key, t.done = "", nil
}

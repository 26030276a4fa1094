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
	// Key names the object of the changes: one Service at a time may change it. "" means none.
	Key(r Request, observed O) string
	// Settle is called while the Service holds the key, each time before changes are computed, and never for Plan. It waits until the
	// cloud's own work on the observed objects has ended, and returns their state then, with all data for computing the changes.
	Settle(ctx context.Context, r *Request, observed O) (O, error)
}

// ErrGone is returned by Settle, or by a Change, if the observed object no longer exists: everything is observed again.
var ErrGone = errors.New("the load balancer went away meanwhile")

// maxLosses bounds how often that happens in one call.
const maxLosses = 3

// Lock waits for an object's key, as reconciliation does, for other work on it. Call unlock once.
func (l *LoadBalancer[O, D]) Lock(ctx context.Context, key string) (unlock func(), err error) {
	t := keyTurn{locks: &l.locks}
	return t.end, t.take(ctx, key)
}

// keyTurn is the exclusive right of one Service to change an object.
type keyTurn struct {
	locks *keylock.Locks
	key   string
	done  func()
}

// take waits for the turn on an object, and ends that on the former one; "" is no object.
func (t *keyTurn) take(ctx context.Context, key string) error {
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

func (t *keyTurn) end() {
	if t.done != nil {
		t.done()
	}
	t.key, t.done = "", nil
}

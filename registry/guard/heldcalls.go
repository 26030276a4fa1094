package guard

import (
	"context"
	"errors"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/progress"
)

// turnPatience bounds how long an operation waits for calls that are held back before it is left to the framework, which tells the
// user of a failure. Within it 1,000 load balancers are made where a cloud allows 250 calls a minute.
const turnPatience = 10 * time.Minute

// heldBack returns how long to wait where nothing has failed, but a call was held back: by our own limit, or by a pause that the cloud
// asked for. Of several errors all must be such ones.
func heldBack(err error) (wait time.Duration, held bool) {
	switch e := err.(type) { //nolint:errorlint // every error of a joined one counts, not the first that fits
	case interface {
		HeldBack() bool
		RetryIn() time.Duration
	}:
		return e.RetryIn(), e.HeldBack() && e.RetryIn() > 0
	case interface{ Unwrap() error }:
		return heldBack(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			d, is := heldBack(each)
			if !is {
				return 0, false
			}
			wait, held = max(wait, d), true
		}
		return wait, held
	}
	return 0, false
}

// inTurn does something again for as long as only calls are held back: a queue is no failure. It ends early where over tells that
// nobody waits for it any more.
func (l *loadBalancers) inTurn(ctx context.Context, over func(error) bool, do func() error) error {
	deadline := time.Now().Add(turnPatience)
	for {
		err := do()
		wait, held := heldBack(err)
		if !held || time.Now().Add(wait).After(deadline) || over(err) {
			return err
		}
		done := progress.Note(ctx, err.Error())
		l.pause(ctx, wait, nil)
		done()
		if ctx.Err() != nil {
			return err
		}
	}
}

// turn tells what only takes time from what failed, over several tries.
type turn struct{ since time.Time }

// retryAfter returns how long to wait before the next try of what has not failed: the cloud still works on it, or calls were held back, and
// that for no longer than turnPatience.
func (t *turn) retryAfter(err error) (time.Duration, bool) {
	if hint, ok := errors.AsType[*cloudproviderapi.RetryError](err); ok {
		return hint.RetryAfter(), true
	}
	wait, held := heldBack(err)
	if !held {
		t.since = time.Time{}
		return 0, false
	}
	now := time.Now()
	if t.since.IsZero() {
		t.since = now
	}
	return wait, now.Add(wait).Before(t.since.Add(turnPatience))
}

package guard

import (
	"context"
	"errors"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/progress"
)

// turnPatience bounds how long an operation waits for calls that are held back before it fails, which the framework shows to the user.
// 1,000 load balancers can be created in it with 250 calls a minute.
const turnPatience = 10 * time.Minute

// heldBackFor returns how long to wait if calls were only held back, by our own limit or by a pause that the cloud demanded. With several
// errors, all must be such.
func heldBackFor(err error) (wait time.Duration, held bool) {
	switch e := err.(type) { //nolint:errorlint // every error of a joined one counts, not the first that fits
	case interface {
		HeldBack() bool
		RetryIn() time.Duration
	}:
		return e.RetryIn(), e.HeldBack() && e.RetryIn() > 0
	case interface{ Unwrap() error }:
		return heldBackFor(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			d, is := heldBackFor(each)
			if !is {
				return 0, false
			}
			wait, held = max(wait, d), true
		}
		return wait, held
	}
	return 0, false
}

// retryHeldBack repeats a function while its calls are only held back, which is no failure. It ends early if over reports that the result
// is no longer needed.
func (l *loadBalancers) retryHeldBack(ctx context.Context, over func() bool, do func() error) error {
	deadline := time.Now().Add(turnPatience)
	for {
		err := do()
		wait, held := heldBackFor(err)
		if !held || time.Now().Add(wait).After(deadline) || over() {
			return err
		}
		done := progress.Note(ctx, err.Error())
		l.pause(ctx, wait)
		done()
		if ctx.Err() != nil {
			return err
		}
	}
}

// heldBackTries distinguishes delays from failures, over several tries.
type heldBackTries struct{ since time.Time }

// retryAfter returns how long to wait before the next try if nothing has failed: the cloud still works, or calls were held back for no
// longer than turnPatience.
func (t *heldBackTries) retryAfter(err error) (time.Duration, bool) {
	if hint, ok := errors.AsType[*cloudproviderapi.RetryError](err); ok {
		return hint.RetryAfter(), true
	}
	wait, held := heldBackFor(err)
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

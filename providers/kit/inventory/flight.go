package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

// flight is a read that several callers wait for.
type flight struct {
	began time.Time
	// patience is how long callers wait for it; 0 is unlimited. hanging counts earlier reads that hang.
	patience time.Duration
	hanging  int
	// raise makes the read urgent when an urgent caller joins it.
	raise func()
	// asked is set if a caller waits for it: prefetches get no read of their own.
	asked bool
	// proves is set if its answer overrides listings that lack the object.
	proves bool
	done   chan struct{}
	value  any
	err    error
}

// newFlight returns a read that outlives its caller, and takes only the urgency from the caller's context.
func newFlight(ctx context.Context) (context.Context, *flight) {
	shared, raise := priority.Raisable(context.Background())
	f := &flight{began: time.Now(), done: make(chan struct{}), raise: raise}
	return shared, f.join(ctx)
}

func (f *flight) join(ctx context.Context) *flight {
	if priority.IsUrgent(ctx) {
		f.raise()
	}
	return f
}

// maxImpatient is how many reads are started beside one that hangs before the next one gets more time.
const maxImpatient = 3

// setPatience sets how long callers wait for a read: longer if reads take long, and if several hang already.
func (f *flight) setPatience(former *flight, patience, took time.Duration) {
	if patience == 0 {
		return
	}
	f.patience = max(patience, 3*took)
	if former != nil {
		f.hanging = former.hanging + 1
	}
	if f.hanging >= maxImpatient {
		f.patience *= 2
	}
}

// isHanging reports whether callers have stopped waiting for a read.
func (f *flight) isHanging() bool { return f.patience > 0 && time.Since(f.began) >= f.patience }

// errHangs is returned if a read exceeds its patience.
var errHangs = &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "the cloud does not answer"}

// mayRetry reports whether a caller tries again after a read that hangs: until it has waited as long as for a single one.
func mayRetry(err error, asked time.Time) bool {
	return errors.Is(err, errHangs) && time.Since(asked) < readTimeout
}

func wait(ctx context.Context, f *flight) (any, error) {
	var over <-chan time.Time
	if f.patience > 0 {
		timer := time.NewTimer(time.Until(f.began.Add(f.patience)))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-f.done:
		return f.value, f.err
	case <-over:
		return nil, errHangs
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the cloud's answer: %w", ctx.Err())
	}
}

// waitListed waits for a listing, or returns err.
func waitListed(ctx context.Context, f *flight, err error, asked time.Time) error {
	if err == nil {
		_, err = wait(ctx, f)
	}
	if mayRetry(err, asked) {
		return nil
	}
	return err
}

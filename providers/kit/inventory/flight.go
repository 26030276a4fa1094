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
	// patience is how long it is waited for; 0 is without an end. beside counts the ones before it that hang.
	patience time.Duration
	beside   int
	// raise makes the read urgent, for when somebody urgent joins it.
	raise func()
	// asked is set where somebody waits for it: reads that go along with another one have no claim to one of their own.
	asked bool
	// proves is set where its answer counts against listings that lack the object.
	proves bool
	done   chan struct{}
	value  any
	err    error
}

// newFlight returns a read that outlives the caller who began it, and takes over nothing of theirs but the urgency.
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

// maxImpatient is how many reads are begun beside one that hangs before the next one is given more time.
const maxImpatient = 3

// bound sets how long a read is waited for: longer where reads take long, and where several hang already.
func (f *flight) bound(former *flight, patience, took time.Duration) {
	if patience == 0 {
		return
	}
	f.patience = max(patience, 3*took)
	if former != nil {
		f.beside = former.beside + 1
	}
	if f.beside >= maxImpatient {
		f.patience *= 2
	}
}

// hangs reports whether nobody waits for a read any more.
func (f *flight) hangs() bool { return f.patience > 0 && time.Since(f.began) >= f.patience }

// errHangs is the answer of a read that takes longer than it is waited for.
var errHangs = &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "the cloud does not answer"}

// goesOn reports whether a question goes on after a read that hangs. It does so for as long as a single one was waited for.
func goesOn(err error, asked time.Time) bool {
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

// waitListed waits for a listing, unless there is none because of err.
func waitListed(ctx context.Context, f *flight, err error, asked time.Time) error {
	if err == nil {
		_, err = wait(ctx, f)
	}
	if goesOn(err, asked) {
		return nil
	}
	return err
}

package guard

import (
	"context"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// A load balancer may serve although some of its nodes have to wait, such as those of a zone that cannot be reached. That is a success:
// to the framework anything else is a failure, which keeps the status from being written. The nodes are applied again by themselves.

// comeBack is when the nodes of a Service are to be applied again: after a while, or as soon as a channel is closed. The zero value is
// never.
type comeBack struct {
	after time.Duration
	when  <-chan struct{}
}

type comeBackKey struct{}

// ComeBack makes the guard apply the nodes of the Service of the operation that runs once more: after a while at the latest, and when a
// channel is closed, which may be nil. Nodes that are newer by then have been applied already, and an operation that fails is tried again
// anyway. The last call counts. Outside of an operation of the guard's it does nothing.
func ComeBack(ctx context.Context, after time.Duration, when <-chan struct{}) {
	if asked, ok := ctx.Value(comeBackKey{}).(*comeBack); ok {
		*asked = comeBack{after, when}
	}
}

// withComeBack returns a context by which an operation says when to come back.
func withComeBack(ctx context.Context, asked *comeBack) context.Context {
	return context.WithValue(ctx, comeBackKey{}, asked)
}

// comeBackLocked applies what was applied again when it is time, and tries until it is done, other nodes were noted, or the Service goes.
func (l *loadBalancers) comeBackLocked(applied wanted, back comeBack) {
	if back.after <= 0 {
		return
	}
	t := &l.states
	s := t.enterLocked(applied.service) // what is known of the Service stays, so that other nodes show
	rescue.Go("coming back to a load balancer", func() {
		base := t.background()
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.leaveLocked(applied.service, s)
		}()
		if !l.awaitTurn(base, s, applied.number, back) {
			return
		}
		for pause := updatePauseLeast; ; pause = min(pause*2, updatePauseMost) {
			err := l.renew(base, applied.service, &update{}, func(s *serviceState) bool {
				if s.deleted || s.newest.number != applied.number {
					return false
				}
				t.number++
				s.newest.number = t.number
				applied.number = t.number
				return true
			})
			if err == nil || !l.mayWrite(applied.service) {
				return
			}
			if l.pause(base, pause, nil); base.Err() != nil {
				return
			}
		}
	})
}

// awaitTurn waits until it is time to come back. It returns false as soon as that is no longer due.
func (l *loadBalancers) awaitTurn(ctx context.Context, s *serviceState, number uint64, back comeBack) bool {
	timer := time.NewTimer(back.after)
	defer timer.Stop()
	for {
		l.states.mu.Lock()
		due, changed := !s.deleted && s.newest.number == number, s.changed
		l.states.mu.Unlock()
		if !due {
			return false
		}
		select {
		case <-timer.C:
			return true
		case <-back.when:
			return true
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

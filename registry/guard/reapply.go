package guard

import (
	"context"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// A load balancer may work although some of its nodes have to wait, such as those of an unreachable zone. That must be a success: after a
// failure the framework does not write the status. The guard applies the nodes again later.

// comeBack says when to apply the nodes of a Service again: after a time, or as soon as a channel is closed. The zero value is never.
type comeBack struct {
	after time.Duration
	when  <-chan struct{}
}

type comeBackKey struct{}

// ComeBack makes the guard apply the nodes of the running operation's Service once more: after a time at the latest, and when a channel is
// closed, which may be nil. Newer nodes will have been applied by then, and a failed operation is retried anyway. The last call counts.
// Outside of the guard's operations it does nothing.
func ComeBack(ctx context.Context, after time.Duration, when <-chan struct{}) {
	if asked, ok := ctx.Value(comeBackKey{}).(*comeBack); ok {
		*asked = comeBack{after, when}
	}
}

// withComeBack returns a context in which an operation can call ComeBack.
func withComeBack(ctx context.Context, asked *comeBack) context.Context {
	return context.WithValue(ctx, comeBackKey{}, asked)
}

// comeBackLocked applies nodes again when it is time, and retries until it succeeds, there are other nodes, or the Service is deleted.
func (l *loadBalancers) comeBackLocked(applied wanted, back comeBack) {
	if back.after <= 0 {
		return
	}
	t := &l.states
	s := t.enterLocked(applied.service) // the Service's state is kept, so that other nodes are noticed
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

// awaitTurn waits until it is time. It returns false as soon as that is no longer necessary.
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

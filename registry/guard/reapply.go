package guard

import (
	"context"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// A load balancer may work although some of its nodes have to wait, such as those of an unreachable zone. That must be a success: after a
// failure the framework does not write the status. The guard applies the nodes again later.

// reapplyLocked applies nodes again when it is time, and retries until it succeeds, there are other nodes, or the Service is deleted.
func (l *loadBalancers) reapplyLocked(applied nodeUpdate, back contract.Reapply) {
	if back.After <= 0 {
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
		if !l.awaitReapply(base, s, applied.number, back) {
			return
		}
		for pause := updatePauseMin; ; pause = min(pause*2, updatePauseMax) {
			err := l.startUpdate(base, applied.service, &updateRun{}, func(s *serviceState) bool {
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

// awaitReapply waits until it is time. It returns false as soon as that is no longer necessary.
func (l *loadBalancers) awaitReapply(ctx context.Context, s *serviceState, number uint64, back contract.Reapply) bool {
	timer := time.NewTimer(back.After)
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
		case <-back.When:
			return true
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

package ocisim

import (
	"cmp"
	"slices"
	"time"
)

// The states of work requests, besides stateFailed.
const (
	workAccepted  = "ACCEPTED"
	workProgress  = "IN_PROGRESS"
	workSucceeded = "SUCCEEDED"

	// usualWork is how long work takes.
	usualWork = 2 * time.Second
)

// work is a work request: each change is one, and a load balancer has one at a time.
type work struct {
	id, kind, target string
	begun, due       time.Time
	state, failure   string
	// done and failed are called at its end.
	done, failed func(*work)
}

// works are the work requests of one API.
type works []*work

func (all works) find(id string) *work {
	at := slices.IndexFunc(all, func(w *work) bool { return w.id == id })
	if at < 0 {
		return nil
	}
	return all[at]
}

// isBusy reports whether the cloud works on a load balancer.
func (all works) isBusy(target string) bool {
	return slices.ContainsFunc(all, func(w *work) bool {
		return w.target == target && (w.state == workAccepted || w.state == workProgress)
	})
}

// end ends what is due.
func (all works) end(now time.Time) {
	for _, w := range all {
		switch {
		case w.state != workAccepted && w.state != workProgress:
		case now.Before(w.due):
			if now.After(w.begun.Add(w.due.Sub(w.begun) / 2)) {
				w.state = workProgress
			}
		case w.failure != "":
			w.state = stateFailed
			w.failed(w)
		default:
			w.state = workSucceeded
			w.done(w)
		}
	}
}

// beginWork begins work.
func (s *Sim) beginWork(all *works, w *work) *work {
	w.begun, w.state, w.failure = time.Now(), workAccepted, s.failNext
	w.due = w.begun.Add(cmp.Or(s.workTime, usualWork))
	s.failNext = ""
	*all = append(*all, w)
	return w
}

// EndWork makes all work that is under way due now.
func (s *Sim) EndWork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, w := range slices.Concat(s.works, s.nlbWorks) {
		if w.due.After(now) {
			w.due = now
		}
	}
}

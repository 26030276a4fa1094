package inventory

import (
	"context"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/priority"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// gatherPerCall is how long questions about new nodes wait for each other, for each call that a listing takes. Together they cost at most a
// call in this time, however fast they arrive, and a single question waits for none.
const gatherPerCall = 400 * time.Millisecond

// gathering is a group of questions about new nodes that one listing answers, or single reads if these are fewer calls.
type gathering struct {
	// ids are looked up by ID; named is set if one is looked up by a key, which only a listing answers.
	ids    map[any]struct{}
	named  bool
	urgent bool
	done   chan struct{}
}

// gather makes a question about a new node wait for others of its kind, if there were any a moment ago. id is nil for a question by a key.
// The lock must not be held.
func (i *view[ID]) gather(ctx context.Context, id any) error {
	i.mu.Lock()
	if i.source.List == nil || i.pages == 0 {
		i.mu.Unlock()
		return nil
	}
	now, span := time.Now(), time.Duration(i.pages)*gatherPerCall
	if i.gathering == nil && now.Sub(i.gathered) >= span {
		i.gathered = now
		if id == nil || i.singlesCost(1) <= i.pages {
			i.mu.Unlock()
			return nil
		}
		f, err := i.listLocked(ctx, now) // all pages are fewer calls than reading this object
		i.mu.Unlock()
		return waitListed(ctx, f, err, now)
	}
	g := i.gathering
	if g == nil {
		g = &gathering{ids: map[any]struct{}{}, done: make(chan struct{})}
		i.gathering = g
		at := i.gathered.Add(span)
		rescue.Go("gathering questions about "+i.source.Kind+"s", func() {
			time.Sleep(time.Until(at))
			i.answerGathering(g)
		})
	}
	if id == nil {
		g.named = true
	} else {
		g.ids[id] = struct{}{}
	}
	g.urgent = g.urgent || priority.IsUrgent(ctx)
	i.mu.Unlock()
	_, err := wait(ctx, &flight{done: g.done})
	return err
}

// answerGathering lists for all who wait, unless single reads are cheaper: then each of them makes its own.
func (i *view[ID]) answerGathering(g *gathering) {
	defer close(g.done)
	i.mu.Lock()
	ctx := context.Background() // no single caller's
	if g.urgent {
		ctx = priority.Urgent(ctx)
	}
	i.gathering, i.gathered = nil, time.Now()
	if !g.named && i.singlesCost(len(g.ids)) < i.pages {
		i.mu.Unlock()
		return
	}
	f, err := i.listLocked(ctx, time.Now())
	i.mu.Unlock()
	_ = waitListed(ctx, f, err, time.Now()) // those who wait check the result and ask again
}

// singlesCost returns how many calls n single reads take.
func (i *view[ID]) singlesCost(n int) int {
	batch := max(i.source.BatchSize, 1)
	return (n + batch - 1) / batch * max(i.source.GetCalls, 1)
}

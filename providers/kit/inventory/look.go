package inventory

import (
	"context"
	"fmt"
	"sync"
)

// lookReads bounds the concurrent single reads of one look.
const lookReads = 8

// Seen is the result for one object: its value, or the reason why there is none. Absence is proved as by Get.
type Seen[V any] struct {
	Value V
	Err   error
}

// Look reads objects again, in as few calls as possible: by one listing if single reads would be more calls than its pages. It is for
// objects that change by themselves; every answer is from a read that began after the question.
func (i *view[ID]) Look(ctx context.Context, ids []ID) map[ID]Seen[any] {
	q := Query{}.ask(ctx)
	i.mu.Lock()
	batch := max(i.source.BatchSize, 1)
	reads := (len(ids) + batch - 1) / batch
	lists := i.source.List != nil && reads > 1 && reads >= i.pages
	i.mu.Unlock()
	seen := make(map[ID]Seen[any], len(ids))
	if lists {
		if _, err := i.All(ctx, Query{}); err != nil {
			for _, id := range ids {
				seen[id] = Seen[any]{Err: err}
			}
			return seen
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	room := make(chan struct{}, max(lookReads, batch))
	for _, id := range ids {
		group.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			v, err := i.readNow(ctx, id, q)
			mu.Lock()
			defer mu.Unlock()
			seen[id] = Seen[any]{v, err}
		})
	}
	group.Wait()
	return seen
}

// readNow returns an object from a read that began after the question: a remembered one, or a new single read.
func (i *view[ID]) readNow(ctx context.Context, id ID, q question) (any, error) {
	for {
		i.mu.Lock()
		if e, ok := i.objects[id]; ok && !e.read.Before(q.asked) {
			i.mu.Unlock()
			return e.value, nil
		}
		f := i.readLocked(ctx, id, q)
		i.mu.Unlock()
		value, err := wait(ctx, f)
		if !f.began.Before(q.asked) && !mayRetry(err, q.asked) {
			return value, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("reading a %s: %w", i.source.Kind, ctx.Err())
		}
	}
}

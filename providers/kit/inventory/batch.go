package inventory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// WithPrefetch returns a context whose single reads also read further objects, if the cloud reads several by one call: unknown ones that
// are likely needed next. The function may use the inventory.
func WithPrefetch[ID comparable](ctx context.Context, ids func() []ID) context.Context {
	return context.WithValue(ctx, prefetchKey{}, ids)
}

type prefetchKey struct{}

// prefetch adds objects to a request's batch that are likely to be needed next.
type prefetch[ID comparable] struct {
	ctx    context.Context
	ids    func() []ID
	oldest time.Time
}

// addPrefetches adds the objects that are likely needed next to the batch. The function is called without the lock, because it may use the
// inventory.
func (i *view[ID]) addPrefetches() {
	i.mu.Lock()
	prefetches := i.prefetches
	i.prefetches = nil
	i.mu.Unlock()
	for _, c := range prefetches {
		i.mu.Lock()
		full := len(i.pending) >= i.source.BatchSize
		i.mu.Unlock()
		if full {
			return
		}
		var ids []ID
		rescue.Do("choosing what to read along", func() { ids = c.ids() })
		i.mu.Lock()
		for _, id := range ids {
			e, known := i.objects[id]
			if i.reads[id] != nil || (known && !e.read.Before(c.oldest)) || len(i.pending) >= i.source.BatchSize {
				continue
			}
			_, f := newFlight(c.ctx)
			i.reads[id] = f
			i.pending = append(i.pending, id)
		}
		i.mu.Unlock()
	}
}

// ReadsBatches reports whether one call reads several objects.
func (i *view[ID]) ReadsBatches() bool { return i.source.GetMany != nil }

// runBatches reads batch by batch until nothing waits. Requests that arrive meanwhile get into the next batch.
func (i *view[ID]) runBatches(ctx context.Context) {
	for {
		i.addPrefetches()
		i.mu.Lock()
		ids := slices.Clone(i.pending[:min(len(i.pending), i.source.BatchSize)])
		i.pending = slices.Clone(i.pending[len(ids):])
		if len(ids) == 0 {
			i.batching = false
			i.mu.Unlock()
			return
		}
		i.countSingleReadLocked()
		i.mu.Unlock()
		i.readBatch(ctx, ids)
	}
}

// errUnanswered ends a prefetch that its batch did not answer.
var errUnanswered = errors.New("the batch did not answer about it")

// readBatch reads objects by one call. An object missing from the response is read alone if a caller waits for it. If the call failed, none
// is, so that one failure does not become many.
func (i *view[ID]) readBatch(ctx context.Context, ids []ID) {
	batchCtx, cancel := context.WithTimeout(ctx, readTimeout)
	values, err := i.source.GetMany(batchCtx, ids)
	cancel()
	countRead(i.source.Kind, "get", err)
	if errors.Is(err, cloudapi.ErrNotFound) || errors.Is(err, cloudapi.ErrInvalid) {
		values, err = nil, nil // one of the objects is to blame
	}
	found := map[ID]any{}
	for _, v := range values {
		found[i.source.ID(v)] = v
	}
	// Complete all at once: each caller requests its next object right away.
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		f := i.reads[id]
		switch v, ok := found[id]; {
		case ok || err != nil:
			i.completeLocked(f, id, v, err)
		case !f.asked:
			i.unanswered[id] = struct{}{}
			i.completeLocked(f, id, nil, errUnanswered)
		default: // the next batch does not wait for this batch's single reads
			rescue.Go("reading "+i.source.Kind, func() { i.read(ctx, f, id) })
		}
	}
}

package inventory

import (
	"context"
	"errors"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// This file keeps what we know of our own writes from listings that are behind them.

// ownMemory is for how long what we wrote ourselves is known better than from listings, which may lag: what we made is there
// though a listing lacks it, and what we deleted is gone though one shows it. A read of the object alone ends that.
const ownMemory = 2 * time.Minute

// pendingMemory is for how long a write that was not answered may still take effect in the cloud.
const pendingMemory = 30 * time.Second

// Doubt is Invalidate for a write that failed: the cloud may still be at it, so that what is read before pendingMemory has passed answers
// only who asked before.
func (i *view[ID]) Doubt(id ID) {
	i.Invalidate(id)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unsettled[id] = time.Now().Add(pendingMemory)
}

// demandLocked adjusts a query whose read began at a time: after an unsettled write, cached results do not count.
func (i *view[ID]) demandLocked(id ID, began time.Time, q Query) Query {
	if began.Before(i.unsettled[id]) {
		q.MaxAge, q.MaxMissAge = 0, 0
	}
	return q
}

// answersLocked reports whether what was read of an object at a time answers a question that lets it be so old.
func (i *view[ID]) answersLocked(id ID, read, asked time.Time, maxAge time.Duration) bool {
	if read.Before(i.unsettled[id]) {
		maxAge = 0
	}
	return !read.Before(asked.Add(-maxAge))
}

// written is when a write whose answer has just come took effect at the latest: a read that begins now is later, and sees it.
func written() time.Time { return time.Now().Add(-time.Nanosecond) }

// Put records the whole object that a write answered, so that nobody has to read it again.
func (i *view[ID]) Put(value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id := i.source.ID(value)
	delete(i.forgotten, id)
	delete(i.unsettled, id)
	i.putLocked(value, time.Now(), written())
	i.wroteLocked(id)
}

// wroteLocked notes that we know an object by a write of ours.
func (i *view[ID]) wroteLocked(id ID) {
	e := i.objects[id]
	e.wrote, e.own = e.since, e.since
	i.objects[id] = e
}

// PutPartial records what a write must have made of an object that the cloud did not answer with. The rest of it is as old
// as before, and counts so.
func (i *view[ID]) PutPartial(value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id := i.source.ID(value)
	i.putLocked(value, i.objects[id].read, written())
	i.wroteLocked(id)
}

// Forget records that an object was deleted.
func (i *view[ID]) Forget(id ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removeLocked(id)
	i.forgotten[id] = written()
}

// ownLocked reports whether a listing that began at a time may be behind a write of ours. Where nothing is read alone, listings
// are all that there is.
func (i *view[ID]) ownLocked(e entry, began time.Time) bool {
	return i.source.Get != nil && !e.wrote.IsZero() && began.Sub(e.wrote) < ownMemory
}

// withOwnLocked returns what a read has shown that began at a time, with what we wrote so shortly before that it may not show yet.
func (i *view[ID]) withOwnLocked(read any, began time.Time) any {
	e, known := i.objects[i.source.ID(read)]
	if !known || i.source.Own == nil || e.own.IsZero() || began.Sub(e.own) >= i.source.Lag {
		return read
	}
	return i.source.Own(e.value, read)
}

// doubtListedLocked notes that a listing tells of an object otherwise than we know. It becomes no younger by it.
func (i *view[ID]) doubtListedLocked(id ID) {
	e := i.objects[id]
	e.doubtful = true
	i.objects[id] = e
}

// settle reads objects alone of which a listing told otherwise than we know. The lock is held before, and not after.
func (i *view[ID]) settle(ctx context.Context, ids []ID, q Query, asked time.Time) error {
	flights := make([]*flight, len(ids))
	for n, id := range ids {
		flights[n] = i.readLocked(ctx, id, q, asked)
	}
	i.mu.Unlock()
	for _, f := range flights {
		if _, err := wait(ctx, f); err != nil && !goesOn(err, asked) && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
	}
	return nil
}

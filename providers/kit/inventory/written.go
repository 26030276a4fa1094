package inventory

import (
	"context"
	"errors"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// This file protects the knowledge of our own writes from outdated listings.

// ownMemory is how long our own writes override listings, which may lag: an object that we created exists though a listing lacks it, and
// one that we deleted is gone though one shows it. A single read of the object ends that.
const ownMemory = 2 * time.Minute

// pendingMemory is how long an unanswered write may still take effect in the cloud.
const pendingMemory = 30 * time.Second

// Doubt is Invalidate for a write that failed: the cloud may still carry it out, so that reads before pendingMemory has passed answer only
// earlier questions.
func (i *view[ID]) Doubt(id ID) {
	i.Invalidate(id)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unsettled[id] = time.Now().Add(pendingMemory)
}

// distrustUnsettledLocked adjusts a question whose read began at a time: after an unsettled write, cached results do not count.
func (i *view[ID]) distrustUnsettledLocked(id ID, began time.Time, q question) question {
	if began.Before(i.unsettled[id]) {
		q.oldest, q.oldestMiss = q.asked, q.asked
	}
	return q
}

// isNewEnoughLocked reports whether a read of an object is new enough for a question that accepts reads since oldest.
func (i *view[ID]) isNewEnoughLocked(id ID, read, oldest, asked time.Time) bool {
	if read.Before(i.unsettled[id]) {
		oldest = asked
	}
	return !read.Before(oldest)
}

// lastWriteTime returns the latest time at which a write with a response took effect: a read that begins now is later, and sees it.
func lastWriteTime() time.Time { return time.Now().Add(-time.Nanosecond) }

// Put stores the whole object from a write's response, so that nobody has to read it again.
func (i *view[ID]) Put(value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id := i.source.ID(value)
	delete(i.forgotten, id)
	delete(i.unsettled, id)
	noteIfMade(&i.made, i.objects, id)
	i.putLocked(value, time.Now(), lastWriteTime())
	i.setOwnLocked(id)
}

// setOwnLocked records that our write defines an object.
func (i *view[ID]) setOwnLocked(id ID) {
	e := i.objects[id]
	e.lastWrite, e.lastKnownWrite = e.produced, e.produced
	i.objects[id] = e
}

// PutPartial stores an object with our written values, if the response did not contain all of it. The rest keeps its age.
func (i *view[ID]) PutPartial(value any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id := i.source.ID(value)
	delete(i.forgotten, id) // or listings that show it again would be ignored, and it would never be new enough
	noteIfMade(&i.made, i.objects, id)
	i.putLocked(value, i.objects[id].read, lastWriteTime())
	i.setOwnLocked(id)
}

// Forget records the deletion of an object.
func (i *view[ID]) Forget(id ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removeLocked(id)
	i.forgotten[id] = lastWriteTime()
	i.made.Remove(func(made ID) bool { return made == id })
}

// mayPredateWriteLocked reports whether a listing that began at a time may be older than our write. Without single reads, listings are
// always trusted.
func (i *view[ID]) mayPredateWriteLocked(e entry, began time.Time) bool {
	return i.source.Get != nil && !e.lastWrite.IsZero() && began.Sub(e.lastWrite) < ownMemory
}

// withOwnLocked returns a read object with our latest written values, if these may not be visible yet.
func (i *view[ID]) withOwnLocked(read any, began time.Time) any {
	e, known := i.objects[i.source.ID(read)]
	if !known || i.source.Own == nil || e.lastKnownWrite.IsZero() || began.Sub(e.lastKnownWrite) >= i.source.Lag {
		return read
	}
	return i.source.Own(e.value, read)
}

// doubtListedLocked records that a listing contradicts our knowledge of an object. The object's age stays.
func (i *view[ID]) doubtListedLocked(id ID) {
	e := i.objects[id]
	e.doubtful = true
	i.objects[id] = e
}

// readDoubtful reads the objects that a listing contradicted, one by one. The lock is held before, and not after.
func (i *view[ID]) readDoubtful(ctx context.Context, ids []ID, q question) error {
	flights := make([]*flight, len(ids))
	for n, id := range ids {
		flights[n] = i.readLocked(ctx, id, q)
	}
	i.mu.Unlock()
	for _, f := range flights {
		if _, err := wait(ctx, f); err != nil && !mayRetry(err, q.asked) && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
	}
	return nil
}

// Package inventory is the shared view of a cloud's objects that every caller reads from.
//
// Nodes and Services ask about objects thousands of times; clouds allow hundreds of calls a minute. The inventory
// answers from paged listings and single reads that all callers share, and keeps one promise: an object that is found
// may have been read up to Query.MaxAge ago, but an object that is missing was missing in a single read of that very
// object which began no longer than Query.MaxMissAge before the question. A failed or partial listing changes nothing.
//
// An object is missing if a single read did not find it, and unlisted if a complete listing lacks it, or its key. It is omitted if it
// exists nevertheless. It is forgotten if we deleted it. A partial listing lacks a part of the cloud.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// readTimeout bounds a shared read, which outlives the caller that began it.
	readTimeout = 60 * time.Second
	// failureHold is how long repeated failures of the listing are answered from memory: otherwise each waiting question would begin a
	// listing during an outage.
	failureHold = 3 * time.Second
	// failuresBeforeHold lets a single hiccup pass unnoticed.
	failuresBeforeHold = 2
	// unlistedMemory bounds how long unlisted keys are remembered; no question accepts an older result.
	unlistedMemory = 15 * time.Minute
	// singleReadsWindow is the span over which single reads are counted against the pages of a listing.
	singleReadsWindow = 30 * time.Second
)

// Source reads objects of one kind from a cloud.
type Source[ID comparable, V any] struct {
	// Kind names the objects in metrics, such as "droplet".
	Kind string
	// ID returns an object's identity.
	ID func(V) ID
	// List returns all objects and the number of calls it took. A listing that is not complete must be an error, and may be a Partial with
	// the objects it has. List is nil if the cloud has no such listing; every question is then a single read, and only Get may be used.
	List func(ctx context.Context) (objects []V, pages int, err error)
	// Narrowed says that listings leave out objects on purpose, such as those outside of a user's filter, so that absence from one proves
	// nothing.
	Narrowed bool
	// Get reads one object. It must return an error that is cloudapi.ErrNotFound only if the cloud itself said so.
	Get func(ctx context.Context, id ID) (V, error)
	// GetMany reads up to BatchSize objects by one call, where the cloud can. Objects that it does not return, or refuses together as
	// ErrNotFound or ErrInvalid, are read by Get, which alone proves absence.
	GetMany   func(ctx context.Context, ids []ID) ([]V, error)
	BatchSize int
	// GetCalls is how many calls Get makes; 0 means one.
	GetCalls int
	// Patience is how long callers wait for a listing, or a read without GetMany, before another one is started beside it: a lost response
	// would otherwise block all callers for the whole timeout. 0 starts none. It is for clouds with long timeouts, and grows with
	// the time that calls take there.
	Patience time.Duration
	// Wrote reports whether a listed object has the values that we last wrote. If not, soon after our write, the listing may be outdated,
	// and the object is read alone. nil trusts listings.
	Wrote func(known, listed V) bool
	// Lag is how long single reads, too, may be behind our successful writes; 0 if these are visible at once. The absence of what was made
	// is not believed for so long (Made), and Own returns a read object with our last written values in place of its own.
	Lag time.Duration
	Own func(known, read V) V
	// Keep returns an object as it is to be stored, such as with parts shared among objects (Lists). nil stores it unchanged.
	Keep func(V) V
	// Indexes name further keys of an object, each with a function that returns its values.
	Indexes map[string]func(V) []string
}

// view is the shared view behind an Inventory. It stores objects as any, so that the compiler generates this code once for each type of ID,
// and not for each type of object.
type view[ID comparable] struct {
	source Source[ID, any]

	mu      sync.Mutex
	objects map[ID]entry
	indexes map[string]index[ID]
	// missing holds when the single read began that did not find an object.
	missing map[ID]time.Time
	// unlisted holds when the listing began that lacked an index key.
	unlisted map[string]time.Time
	// unanswered holds prefetches that their batch did not answer: the next request reads them alone.
	unanswered map[ID]struct{}
	// forgotten holds objects that we deleted, so that an older or outdated listing does not restore them.
	forgotten map[ID]time.Time
	// unsettled holds until when a write of unknown outcome may still change an object; made holds what we just made.
	unsettled map[ID]time.Time
	made      Recent[ID]
	// listed is when the last complete listing began; zero if there was none. Listings that began before distrustedUntil prove nothing.
	listed, distrustedUntil time.Time
	// hidden is when an unknown object may have been created: an index key may have more objects than are known.
	hidden time.Time
	pages  int
	// partial lists the parts that the listing lacks; nil if it was complete. unanswerable holds keys that were requested since and not
	// found.
	partial      *Partial[ID]
	unanswerable map[string]bool

	listing *flight
	reads   map[ID]*flight
	// pending are reads that wait for the next batch; batching is set while batches are read. prefetches add objects to the next one.
	pending     []ID
	prefetches  []prefetch[ID]
	batching    bool
	failures    int
	failed      time.Time
	failure     error
	singleReads []time.Time
	// omitted counts the objects with that flag.
	omitted int
	// listTook and readTook are the durations of the latest listing and read.
	listTook, readTook time.Duration
	// gathering holds the questions about uninitialized nodes that wait for each other; gathered is when the last group was answered.
	gathering *gathering
	gathered  time.Time
}

type entry struct {
	value any
	// read is when the read that produced the value began; it defines the value's age.
	read time.Time
	// produced is when the value was read, or defined by our write; earlier responses are older.
	produced time.Time
	// lastWrite is when we last wrote the object; zero if never. doubtful is set if the latest listing contradicts our write and the object
	// was not read alone since.
	lastWrite time.Time
	doubtful  bool
	// lastKnownWrite is when we last wrote it with a known outcome.
	lastKnownWrite time.Time
	// omitted is set if a single read has shown the object although the latest listing lacked it.
	omitted bool
}

func newView[ID comparable](source Source[ID, any]) *view[ID] {
	registerMetrics(source.Kind)
	i := &view[ID]{
		source: source, objects: map[ID]entry{}, missing: map[ID]time.Time{}, unlisted: map[string]time.Time{}, forgotten: map[ID]time.Time{},
		unsettled: map[ID]time.Time{}, reads: map[ID]*flight{}, unanswered: map[ID]struct{}{}, unanswerable: map[string]bool{},
		indexes: map[string]index[ID]{}, made: Recent[ID]{Within: source.Lag},
	}
	for name := range source.Indexes {
		i.indexes[name] = index[ID]{}
	}
	return i
}

// Get returns one object. The error is cloudapi.ErrNotFound only if a single read of that object said so, or a complete
// listing where that is enough (Query.Absence).
func (i *view[ID]) Get(ctx context.Context, id ID, query Query) (any, error) {
	q := query.ask(ctx)
	alone := q.isAlone()
	for {
		i.mu.Lock()
		if e, ok := i.objects[id]; ok && i.isNewEnoughLocked(id, e.read, i.oldestLocked(e, q), q.asked) {
			i.mu.Unlock()
			countAnswer(i.source.Kind, e.read.Before(q.asked))
			return e.value, nil
		}
		if at, ok := i.missing[id]; ok && i.isNewEnoughLocked(id, at, q.oldestMiss, q.asked) {
			i.mu.Unlock()
			countAnswer(i.source.Kind, at.Before(q.asked))
			return nil, fmt.Errorf("%s %v: %w", i.source.Kind, id, cloudapi.ErrNotFound)
		}
		if i.isUnlistedLocked(id, q) {
			remembered := i.listed.Before(q.asked)
			i.mu.Unlock()
			countAnswer(i.source.Kind, remembered)
			return nil, fmt.Errorf("%s %v is not listed: %w", i.source.Kind, id, cloudapi.ErrNotFound)
		}
		if err := i.whyUnansweredLocked(id, q); err != nil {
			i.mu.Unlock()
			return nil, err
		}
		if !alone {
			i.mu.Unlock()
			alone = true
			if err := i.gather(ctx, id); err != nil {
				return nil, err
			}
			continue
		}
		if oldest, due := i.listingDueLocked(id, q); due {
			f, err := i.listLocked(ctx, oldest)
			i.mu.Unlock()
			if err := waitListed(ctx, f, err, q.asked); err != nil {
				return nil, err
			}
			continue
		}
		f := i.readLocked(ctx, id, q)
		q = i.distrustUnsettledLocked(id, f.began, q)
		i.mu.Unlock()
		value, err := wait(ctx, f)
		if !mayRetry(err, q.asked) && q.isAnsweredBy(err, f.began) {
			if err != nil {
				return nil, err
			}
			countAnswer(i.source.Kind, f.began.Before(q.asked))
			return value, nil
		}
		// The read in flight is too old for this question; another one is needed.
	}
}

// Find returns all objects with an index key. An empty result comes from a complete listing that began after the question; for a key that
// was looked up before, it may have begun up to MaxMissAge earlier.
func (i *view[ID]) Find(ctx context.Context, index, key string, query Query) ([]any, error) {
	q := query.ask(ctx)
	alone := !q.Uninitialized
	for {
		i.mu.Lock()
		found, doubtful, stale := i.findMatchesLocked(index, key, q)
		if len(doubtful) > 0 && !stale {
			if err := i.readDoubtful(ctx, doubtful, q); err != nil {
				return nil, err
			}
			continue
		}
		stale = i.mustListLocked(stale, doubtful)
		if !stale && (len(found) > 0 || i.isKeyUnlistedLocked(index+" "+key, q)) {
			remembered := i.listed.Before(q.asked)
			i.mu.Unlock()
			countAnswer(i.source.Kind, remembered)
			return found, nil
		}
		if err := i.whyKeyUnansweredLocked(index, key, !stale && len(found) == 0, q); err != nil {
			i.mu.Unlock()
			return nil, err
		}
		if !alone {
			i.mu.Unlock()
			if err := i.gather(ctx, nil); err != nil {
				return nil, err
			}
			alone = true
			continue
		}
		oldest := q.asked
		if i.listing != nil && !i.listing.began.Before(q.oldest) {
			// The listing in flight is new enough to find the key; only to prove its absence another one is needed.
			oldest = i.listing.began
		}
		f, err := i.listLocked(ctx, oldest)
		i.mu.Unlock()
		if err := waitListed(ctx, f, err, q.asked); err != nil {
			return nil, err
		}
	}
}

// isKeyUnlistedLocked reports whether a new enough listing lacked a key.
func (i *view[ID]) isKeyUnlistedLocked(key string, q question) bool {
	if i.partial == nil && !i.listed.Before(q.oldestUnlisted) {
		i.unlisted[key] = i.listed
	}
	at, unlisted := i.unlisted[key]
	return unlisted && !at.Before(earliest(q.oldestMiss, q.oldestUnlisted))
}

// All returns every object of a complete listing that began no longer than MaxAge before the question, in no order.
func (i *view[ID]) All(ctx context.Context, query Query) ([]any, error) {
	q := query.ask(ctx)
	for {
		i.mu.Lock()
		if i.partial != nil && !i.listed.Before(q.oldest) {
			err := i.partial
			i.mu.Unlock()
			return nil, err
		}
		if !i.listed.Before(q.oldest) {
			all := make([]any, 0, len(i.objects))
			for _, e := range i.objects {
				all = append(all, e.value)
			}
			i.mu.Unlock()
			return all, nil
		}
		f, err := i.listLocked(ctx, q.oldest)
		i.mu.Unlock()
		if err := waitListed(ctx, f, err, q.asked); err != nil {
			return nil, err
		}
	}
}

// Invalidate makes the next question about an object read it. Call it after a write that has ended; the object may be unknown.
func (i *view[ID]) Invalidate(id ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.invalidateLocked(id)
	i.invalidateListingsLocked()
	if _, ok := i.objects[id]; !ok {
		i.hidden = time.Now()
	}
}

// InvalidateAll makes every further question read the cloud. Call it after a response has shown that the view is outdated.
func (i *view[ID]) InvalidateAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id := range i.objects {
		i.invalidateLocked(id)
	}
	i.invalidateListingsLocked()
}

// invalidateLocked makes an object too old for any question; a read in flight does not refresh it.
func (i *view[ID]) invalidateLocked(id ID) {
	if e, ok := i.objects[id]; ok {
		e.read, e.produced, e.lastKnownWrite = time.Time{}, lastWriteTime(), time.Time{}
		i.objects[id] = e
	}
}

// invalidateListingsLocked makes all listings so far, and one in flight, prove nothing.
func (i *view[ID]) invalidateListingsLocked() {
	i.listed, i.distrustedUntil = time.Time{}, time.Now()
	clear(i.unlisted)
}

// listingPaysLocked decides between listing everything and reading one object. Before the first listing the number of pages is unknown, and
// a listing is tried: it also answers other callers.
func (i *view[ID]) listingPaysLocked(q question, known bool) bool {
	if i.source.List == nil {
		return false
	}
	if i.pages == 0 {
		return true
	}
	i.trimSingleReadsLocked()
	// After as many single reads as a listing would have cost, the estimate that few follow was wrong.
	spent := len(i.singleReads)*max(i.source.GetCalls, 1) + 1
	if q.Uninitialized && !known {
		spent = 0 // a listing saves no other reads; that single reads are cheaper was decided for all who wait
	}
	cost := max(i.singlesCost(q.Expected), spent)
	return cost > i.pages || (q.IsExpectedExact && cost == i.pages)
}

// isUnlistedLocked reports whether a listing that is enough for the question lacks an object.
func (i *view[ID]) isUnlistedLocked(id ID, q question) bool {
	_, known := i.objects[id]
	since := q.Absence.ListedSince
	return !known && !i.source.Narrowed && !since.IsZero() && !i.listed.Before(since) && i.whyLackingLocked(id, since) == nil
}

// listingDueLocked decides whether a listing answers a question, and how old that may be.
func (i *view[ID]) listingDueLocked(id ID, q question) (oldest time.Time, due bool) {
	if q.Absence.OwnRead {
		return time.Time{}, false
	}
	_, known := i.objects[id]
	since := q.Absence.ListedSince
	if !known && !i.source.Narrowed && !since.IsZero() && i.source.List != nil && (i.pages == 0 || q.Expected > i.pages) {
		return since, true // a batch proves nothing, so that many questions would become as many single reads
	}
	if e := i.objects[id]; known && !i.listed.Before(q.oldest) && !e.produced.Before(i.listed) {
		// The listing is new enough, except for objects written after it began.
		q.Expected = min(q.Expected, i.writtenSinceLocked(i.listed, i.pages*max(i.source.BatchSize, 1)+1))
		return e.produced.Add(time.Nanosecond), i.listingPaysLocked(q, known)
	}
	return q.oldest, i.listed.Before(q.oldest) && i.listingPaysLocked(q, known)
}

// writtenSinceLocked counts the objects, up to a limit, about which a listing that began at a time says nothing.
func (i *view[ID]) writtenSinceLocked(began time.Time, limit int) (n int) {
	for _, e := range i.objects {
		if !e.produced.Before(began) && e.read.Before(began) {
			n++
		}
		if n == limit {
			break
		}
	}
	return n
}

// countSingleReadLocked counts a single read that a listing could replace.
func (i *view[ID]) countSingleReadLocked() {
	if i.source.List == nil {
		return
	}
	i.trimSingleReadsLocked()
	i.singleReads = append(i.singleReads, time.Now())
}

func (i *view[ID]) trimSingleReadsLocked() {
	horizon := time.Now().Add(-singleReadsWindow)
	i.singleReads = slices.DeleteFunc(i.singleReads, func(at time.Time) bool { return at.Before(horizon) })
}

// listLocked joins a listing that began at oldest or later, or begins one.
func (i *view[ID]) listLocked(ctx context.Context, oldest time.Time) (*flight, error) {
	if i.listing != nil && !i.listing.began.Before(oldest) && !i.listing.isHanging() {
		return i.listing.join(ctx), nil
	}
	if i.failures >= failuresBeforeHold && time.Since(i.failed) < failureHold {
		return nil, fmt.Errorf("listing %ss failed %d times in a row, next try in %s: %w", i.source.Kind, i.failures,
			(failureHold - time.Since(i.failed)).Round(time.Second), i.failure)
	}
	shared, f := newFlight(ctx)
	f.setPatience(i.listing, i.source.Patience, i.listTook)
	i.listing = f
	i.singleReads = nil
	rescue.Go("listing "+i.source.Kind+"s", func() { i.list(shared, f) })
	return f, nil
}

func (i *view[ID]) list(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	objects, pages, err := i.source.List(ctx)
	countRead(i.source.Kind, "list", err)
	partial := partialOf[ID](err)
	if partial != nil {
		err = nil
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	if i.listing == f {
		i.listing = nil
	}
	switch {
	case err != nil:
		if errors.Is(err, cloudapi.ErrNotFound) {
			// A listing that is not found says nothing about any object: the address may be wrong.
			err = &cloudapi.Error{Class: cloudapi.ErrTransient, Message: err.Error()}
		}
		f.err = err
		if doing := "listing " + i.source.Kind + "s"; !strings.HasPrefix(err.Error(), doing) { // most sources name the operation themselves
			f.err = fmt.Errorf("%s: %w", doing, err)
		}
		if f.isHanging() && i.listed.After(f.began) {
			break // a later listing, begun beside this one, was answered
		}
		i.failures++
		i.failed, i.failure = time.Now(), err
	default:
		i.listTook = time.Since(f.began)
		i.failures, i.pages = 0, max(pages, 1)
		i.replaceLocked(objects, f.began, partial)
	}
	close(f.done)
}

// replaceLocked stores a listing that is complete, or lacks a part. Objects read or written after it began are newer and stay.
func (i *view[ID]) replaceLocked(objects []any, began time.Time, partial *Partial[ID]) {
	if began.Before(i.listed) {
		return
	}
	listed := make(map[ID]struct{}, len(objects))
	for _, v := range objects {
		id := i.source.ID(v)
		listed[id] = struct{}{}
		if at, ok := i.forgotten[id]; ok && began.Sub(at) < ownMemory {
			continue
		}
		e, ok := i.objects[id]
		switch {
		case ok && !e.produced.Before(began):
		case ok && i.mayPredateWriteLocked(e, began) && i.source.Wrote != nil && !i.source.Wrote(e.value, v):
			i.doubtListedLocked(id)
		default:
			i.putLocked(i.withOwnLocked(v, began), began, began)
		}
	}
	i.dropUnlistedLocked(listed, began, partial)
	clear(i.unanswered)
	clear(i.unanswerable)
	maps.DeleteFunc(i.forgotten, func(_ ID, at time.Time) bool { return began.Sub(at) >= ownMemory })
	maps.DeleteFunc(i.unsettled, func(_ ID, until time.Time) bool { return until.Before(began) })
	maps.DeleteFunc(i.missing, func(_ ID, at time.Time) bool { return at.Before(began) })
	maps.DeleteFunc(i.unlisted, func(_ string, at time.Time) bool { return began.Sub(at) > unlistedMemory })
	if !began.Before(i.distrustedUntil) {
		i.listed, i.partial = began, partial
	}
	if partial == nil && !began.Before(i.hidden) {
		i.hidden = time.Time{}
	}
}

// readLocked joins the single read of an object that is in flight, or begins one: alone if demanded, or in the next batch.
func (i *view[ID]) readLocked(ctx context.Context, id ID, q question) *flight {
	former := i.reads[id]
	if former != nil && !former.isHanging() {
		former.asked = true
		former.proves = former.proves || q.PerSingle > 0
		return former.join(ctx)
	}
	shared, f := newFlight(ctx)
	f.asked, f.proves = true, q.PerSingle > 0
	i.reads[id] = f
	if i.source.GetMany == nil {
		f.setPatience(former, i.source.Patience, i.readTook)
	}
	_, unanswered := i.unanswered[id]
	delete(i.unanswered, id)
	if i.source.GetMany == nil || unanswered || q.Absence.OwnRead {
		i.countSingleReadLocked()
		rescue.Go("reading "+i.source.Kind, func() { i.read(shared, f, id) })
		return f
	}
	i.pending = append(i.pending, id)
	if ids, ok := ctx.Value(prefetchKey{}).(func() []ID); ok {
		i.prefetches = append(i.prefetches, prefetch[ID]{ctx: ctx, ids: ids, oldest: q.oldest})
	}
	if !i.batching {
		i.batching = true
		rescue.Go("reading "+i.source.Kind+"s", func() { i.runBatches(shared) })
	}
	return f
}

func (i *view[ID]) read(ctx context.Context, f *flight, id ID) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	value, err := i.source.Get(ctx, id)
	countRead(i.source.Kind, "get", err)

	i.mu.Lock()
	defer i.mu.Unlock()
	i.completeLocked(f, id, value, err)
}

// completeLocked ends a read with its result.
func (i *view[ID]) completeLocked(f *flight, id ID, value any, err error) {
	if i.reads[id] == f {
		delete(i.reads, id)
	}
	if err == nil {
		i.readTook = time.Since(f.began)
		if i.source.Keep != nil {
			value = i.source.Keep(value) // callers share the stored object
		}
	}
	err = i.made.orNotShown(i.source.Kind, id, err, f.began)
	f.value, f.err = value, err
	switch {
	case err == nil:
		if at, gone := i.forgotten[id]; !gone || at.Before(f.began) {
			if e, ok := i.objects[id]; ok && !e.produced.Before(f.began) {
				f.value = e.value // our write overtook the read
			} else {
				f.value = i.withOwnLocked(value, f.began)
				omitted := i.isOmittedLocked(id, f)
				i.putLocked(f.value, f.began, f.began)
				i.setOmittedLocked(id, omitted)
			}
			delete(i.forgotten, id)
		}
	case errors.Is(err, cloudapi.ErrNotFound):
		if e, ok := i.objects[id]; !ok || e.produced.Before(f.began) {
			i.removeLocked(id)
			i.missing[id] = f.began
		}
	}
	close(f.done)
}

func (i *view[ID]) putLocked(value any, read, since time.Time) {
	if i.source.Keep != nil {
		value = i.source.Keep(value)
	}
	id := i.source.ID(value)
	wrote, own := i.objects[id].lastWrite, i.objects[id].lastKnownWrite
	i.removeLocked(id)
	delete(i.missing, id)
	delete(i.unanswered, id)
	i.objects[id] = entry{value: value, read: read, produced: since, lastWrite: wrote, lastKnownWrite: own}
	for name, keys := range i.source.Indexes {
		for _, key := range keys(value) {
			delete(i.unlisted, name+" "+key)
			i.indexes[name].add(key, id)
		}
	}
}

func (i *view[ID]) removeLocked(id ID) {
	e, ok := i.objects[id]
	if !ok {
		return
	}
	delete(i.objects, id)
	if e.omitted {
		i.omitted--
	}
	for name, keys := range i.source.Indexes {
		for _, key := range keys(e.value) {
			i.indexes[name].remove(key, id)
		}
	}
}

// findMatchesLocked returns the objects with a key that are new enough, those that need a single read, and whether there are others, too
// old to tell.
func (i *view[ID]) findMatchesLocked(index, key string, q question) (found []any, doubtful []ID, stale bool) {
	for id := range i.indexes[index].lookup(key) {
		switch e := i.objects[id]; {
		case i.isNewEnoughLocked(id, e.read, q.oldest, q.asked):
			found = append(found, e.value)
		case e.doubtful:
			doubtful = append(doubtful, id)
		default:
			stale = true
		}
	}
	return found, doubtful, stale
}

// PeekIndex returns the known objects with an index key, however old, without any read.
func (i *view[ID]) PeekIndex(index, key string) []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	var found []any
	for id := range i.indexes[index].lookup(key) {
		found = append(found, i.objects[id].value)
	}
	return found
}

// PeekAll returns all known objects, however old, without any read.
func (i *view[ID]) PeekAll() []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make([]any, 0, len(i.objects))
	for _, e := range i.objects {
		all = append(all, e.value)
	}
	return all
}

// Peek returns a known object, however old, without any read.
func (i *view[ID]) Peek(id ID) (any, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e, ok := i.objects[id]
	return e.value, ok
}

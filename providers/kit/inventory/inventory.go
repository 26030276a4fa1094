// Package inventory is the shared view of a cloud's objects that every caller reads from.
//
// Nodes and Services ask about objects thousands of times; clouds allow hundreds of calls a minute. The inventory
// answers from paged listings and single reads that all callers share, and keeps one promise: an object that is found
// may have been read up to Query.MaxAge ago, but an object that is missing was missing in a single read of that very
// object which began no longer than Query.MaxMissAge before the question. A failed or partial listing changes nothing.
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
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// readTimeout bounds a shared read, which outlives the caller that began it.
	readTimeout = 60 * time.Second
	// failureHold is how long repeated failures of the listing are answered from memory: during an outage every
	// waiting question would else begin a listing of its own.
	failureHold = 3 * time.Second
	// failuresBeforeHold lets a single hiccup pass unnoticed.
	failuresBeforeHold = 2
	// absentMemory bounds how long keys that were not found are remembered; no question accepts an older miss.
	absentMemory = 15 * time.Minute
	// directWindow is the span over which single reads are counted against the pages of a listing.
	directWindow = 30 * time.Second
)

// Source reads objects of one kind from a cloud.
type Source[ID comparable, V any] struct {
	// Kind names the objects in metrics, such as "droplet".
	Kind string
	// ID returns an object's identity.
	ID func(V) ID
	// List returns all objects and the number of calls it took. A listing that is not complete must be an error, and may be a Partial
	// with what it shows. It is nil where the cloud has no such listing; every question is then a single read, and only Get may be used.
	List func(ctx context.Context) (objects []V, pages int, err error)
	// Narrowed says that listings leave out objects on purpose, such as those outside of a filter of the user's, so that absence from
	// one says nothing about an object.
	Narrowed bool
	// Get reads one object. It must return an error that is cloudapi.ErrNotFound only if the cloud itself said so.
	Get func(ctx context.Context, id ID) (V, error)
	// GetMany reads up to BatchSize objects by one call, where the cloud can. An object that is not among those it returns,
	// and any of those it refuses together as ErrNotFound or ErrInvalid, is read by Get, which alone proves absence.
	GetMany   func(ctx context.Context, ids []ID) ([]V, error)
	BatchSize int
	// GetCalls is how many calls Get makes; 0 means one.
	GetCalls int
	// Patience is how long a listing, or a read without GetMany, is waited for before another one is begun beside it: one whose
	// answer is lost would else hold up everybody for as long as an attempt may take. 0 means that none is. It is for clouds
	// whose attempts may take long, and grows with the time that they take there.
	Patience time.Duration
	// Wrote reports whether a listed object is as we know it, in what we write of it. Where it is not, soon after a write of ours,
	// the listing may show what was before, and a read of the object alone tells. nil believes listings.
	Wrote func(known, listed V) bool
	// Lag is how long reads of single objects, too, may be behind writes of ours whose effect is known; 0 where they show at once. Own
	// returns what was read with that of it which we wrote, as we know it: for so long it is not believed otherwise.
	Lag time.Duration
	Own func(known, read V) V
	// Keep returns an object as it is kept, where parts of it are shared with others (Lists). nil keeps it as it is.
	Keep func(V) V
	// Indexes name further keys of an object, each with a function that returns its values.
	Indexes map[string]func(V) []string
}

// Query says how fresh an answer must be.
type Query struct {
	// MaxAge is how long ago an object that is found may have been read. 0 demands a read after the question.
	MaxAge time.Duration
	// MaxMissAge is how long ago an object that is missing may have been looked for.
	MaxMissAge time.Duration
	// MaxUnlistedAge is how old a listing may be that proves the absence of an index key which nobody asked about before.
	// It is for keys of which nobody else can make an object; after a write that failed there is no such listing.
	MaxUnlistedAge time.Duration
	// Expected is how many objects are likely asked for at about the same time, as far as the caller knows. It makes
	// the inventory list everything at once where that costs fewer calls than single reads.
	Expected int
	// Uninitialized says that the object was likely made a moment ago, so that others like it are asked for now: all that wait are
	// answered by one listing where that is cheaper, and together they cost no more than a call in gatherPerCall.
	Uninitialized bool
	// Gathered has that of objects that are known: others are likely asked for at the same time.
	Gathered bool
	// PerSingle is the time in which one single read may be spent on objects that listings lack although they exist; 0 means that
	// they are no older than others.
	PerSingle time.Duration
	// together says that Expected is no guess: so many questions follow, so that a listing pays which costs no more than they do.
	together bool
}

// demanded is the query with what the context demands of answers: nothing read before a time.
func (q Query) demanded(d evidence.Demand, asked time.Time) Query {
	if d.Among > 0 {
		q.Expected, q.together = max(q.Expected, d.Among), true
	}
	if age := asked.Sub(d.NotBefore); d.Remembered {
		q.MaxAge, q.MaxMissAge, q.MaxUnlistedAge = age, age, age // nothing that is remembered is too old but for the demand
	}
	if !d.NotBefore.IsZero() {
		age := max(asked.Sub(d.NotBefore), 0)
		q.MaxAge, q.MaxMissAge, q.MaxUnlistedAge = min(q.MaxAge, age), min(q.MaxMissAge, age), min(q.MaxUnlistedAge, age)
	}
	return q
}

// view is the shared view behind an Inventory. It keeps objects as any, so that the compiler writes this code once for each type
// of identity, and not once for each kind of object.
type view[ID comparable] struct {
	source Source[ID, any]

	mu      sync.Mutex
	objects map[ID]entry
	indexes map[string]index[ID]
	// missing holds when a single read of an object that was not found began.
	missing map[ID]time.Time
	// absent holds when the listing began that proved to somebody that an index has no such key.
	absent map[string]time.Time
	// unanswered are those that went along with a batch which did not answer about them: the next question goes past the batch.
	unanswered map[ID]struct{}
	// forgotten holds objects that we deleted, so that a listing begun before, or one that lags, does not bring them back.
	forgotten map[ID]time.Time
	// unsettled holds until when a write whose effect is not known may still change an object.
	unsettled map[ID]time.Time
	// listed is when the last complete listing began; zero if there was none. doubted is the end of what listings that
	// began before it can prove.
	listed, doubted time.Time
	// hidden is when an object may have been made that nobody knows: a key may have more than what is known of it.
	hidden time.Time
	pages  int
	// partial lists the parts that the listing lacks; nil if it was complete. unanswerable holds keys that were requested since and not
	// found.
	partial      *Partial[ID]
	unanswerable map[string]bool

	listing *flight
	reads   map[ID]*flight
	// pending are reads that wait for the next batch; batching is set while batches are under way. prefetches say what else the
	// next one reads.
	pending    []ID
	prefetches []prefetch[ID]
	batching   bool
	failures   int
	failed     time.Time
	failure    error
	direct     []time.Time
	// unlisted is how many objects have that set.
	unlisted int
	// listTook and readTook are how long the latest ones took.
	listTook, readTook time.Duration
	// gathering are questions about uninitialized nodes that wait for each other; gathered is when the last ones were let go.
	gathering *gathering
	gathered  time.Time
}

type entry struct {
	value any
	// read is when the read that produced the value began; it says how fresh the value is.
	read time.Time
	// since is when the value became what it is, by a read or by a write of ours; what the cloud told before is older.
	since time.Time
	// wrote is when we wrote the object last; zero if we did not. doubtful is set where the latest listing told otherwise than
	// we wrote, and nothing was read of the object alone since.
	wrote    time.Time
	doubtful bool
	// own is when we wrote it last, if the effect is known.
	own time.Time
	// unlisted is set where a read of the object alone has shown it although the latest listing lacked it.
	unlisted bool
}

func newView[ID comparable](source Source[ID, any]) *view[ID] {
	registerMetrics(source.Kind)
	i := &view[ID]{
		source: source, objects: map[ID]entry{}, missing: map[ID]time.Time{}, absent: map[string]time.Time{}, forgotten: map[ID]time.Time{},
		unsettled: map[ID]time.Time{}, reads: map[ID]*flight{}, unanswered: map[ID]struct{}{}, unanswerable: map[string]bool{},
		indexes: map[string]index[ID]{},
	}
	for name := range source.Indexes {
		i.indexes[name] = index[ID]{}
	}
	return i
}

// Get returns one object. The error is cloudapi.ErrNotFound only if a single read of that object said so, or a complete
// listing where the context demands no more (evidence.Demand).
func (i *view[ID]) Get(ctx context.Context, id ID, q Query) (any, error) {
	asked, demand := time.Now(), evidence.From(ctx)
	q = q.demanded(demand, asked)
	alone := q.alone() || demand.Single
	for {
		i.mu.Lock()
		if e, ok := i.objects[id]; ok && i.answersLocked(id, e.read, asked, i.maxAgeLocked(e, q, demand)) {
			i.mu.Unlock()
			countAnswer(i.source.Kind, e.read.Before(asked))
			return e.value, nil
		}
		if at, ok := i.missing[id]; ok && i.answersLocked(id, at, asked, q.MaxMissAge) {
			i.mu.Unlock()
			countAnswer(i.source.Kind, at.Before(asked))
			return nil, fmt.Errorf("%s %v: %w", i.source.Kind, id, cloudapi.ErrNotFound)
		}
		if i.unlistedLocked(id, demand) {
			remembered := i.listed.Before(asked)
			i.mu.Unlock()
			countAnswer(i.source.Kind, remembered)
			return nil, fmt.Errorf("%s %v is not listed: %w", i.source.Kind, id, cloudapi.ErrNotFound)
		}
		if err := i.unansweredLocked(id, q, demand, asked); err != nil {
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
		if oldest, due := i.listingDueLocked(id, q, demand, asked); due {
			f, err := i.listLocked(ctx, oldest)
			i.mu.Unlock()
			if err := waitListed(ctx, f, err, asked); err != nil {
				return nil, err
			}
			continue
		}
		f := i.readLocked(ctx, id, q, asked)
		q = i.demandLocked(id, f.began, q)
		i.mu.Unlock()
		value, err := wait(ctx, f)
		if !goesOn(err, asked) && q.settledBy(err, asked.Sub(f.began)) {
			if err != nil {
				return nil, err
			}
			countAnswer(i.source.Kind, f.began.Before(asked))
			return value, nil
		}
		// The read that was in flight is too old for this question: it only proves that another one is due.
	}
}

// alone reports whether a question waits for no others of its kind.
func (q Query) alone() bool { return !q.Uninitialized && !q.Gathered }

// settledBy reports whether a read answers the question, which began so long before it.
func (q Query) settledBy(err error, age time.Duration) bool {
	if err == nil {
		return age <= q.MaxAge
	}
	return !errors.Is(err, cloudapi.ErrNotFound) || age <= q.MaxMissAge
}

// Find returns all objects whose index has the key. An empty result comes from a complete listing that began after the
// question; or, for a key that was asked about before, after an earlier question no longer than MaxMissAge ago.
func (i *view[ID]) Find(ctx context.Context, index, key string, q Query) ([]any, error) {
	asked := time.Now()
	q = q.demanded(evidence.From(ctx), asked)
	alone := !q.Uninitialized
	for {
		i.mu.Lock()
		found, doubtful, stale := i.matchesLocked(index, key, asked, q.MaxAge)
		if len(doubtful) > 0 && !stale {
			if err := i.settle(ctx, doubtful, q, asked); err != nil {
				return nil, err
			}
			continue
		}
		stale = i.mustListLocked(stale, doubtful)
		if !stale && (len(found) > 0 || i.provenAbsentLocked(index+" "+key, q, asked)) {
			remembered := i.listed.Before(asked)
			i.mu.Unlock()
			countAnswer(i.source.Kind, remembered)
			return found, nil
		}
		if err := i.keyUnansweredLocked(index, key, !stale && len(found) == 0, q, asked); err != nil {
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
		oldest := asked
		if i.listing != nil && !i.listing.began.Before(asked.Add(-q.MaxAge)) {
			// The listing in flight is young enough to find the key; only if it does not, another one is due.
			oldest = i.listing.began
		}
		f, err := i.listLocked(ctx, oldest)
		i.mu.Unlock()
		if err := waitListed(ctx, f, err, asked); err != nil {
			return nil, err
		}
	}
}

// provenAbsentLocked reports whether a listing that is young enough showed nothing with a key.
func (i *view[ID]) provenAbsentLocked(key string, q Query, asked time.Time) bool {
	if i.partial == nil && !i.listed.Before(asked.Add(-q.MaxUnlistedAge)) {
		i.absent[key] = i.listed
	}
	provenAt, proven := i.absent[key]
	return proven && !provenAt.Before(asked.Add(-max(q.MaxMissAge, q.MaxUnlistedAge)))
}

// All returns every object of a complete listing that began no longer than MaxAge before the question, in no order.
func (i *view[ID]) All(ctx context.Context, q Query) ([]any, error) {
	asked := time.Now()
	oldest := asked.Add(-q.demanded(evidence.From(ctx), asked).MaxAge)
	for {
		i.mu.Lock()
		if i.partial != nil && !i.listed.Before(oldest) {
			err := i.partial
			i.mu.Unlock()
			return nil, err
		}
		if !i.listed.Before(oldest) {
			all := make([]any, 0, len(i.objects))
			for _, e := range i.objects {
				all = append(all, e.value)
			}
			i.mu.Unlock()
			return all, nil
		}
		f, err := i.listLocked(ctx, oldest)
		i.mu.Unlock()
		if err := waitListed(ctx, f, err, asked); err != nil {
			return nil, err
		}
	}
}

// Invalidate makes the next question about an object read it, for writes that have ended. The object may be one that nobody knows yet.
func (i *view[ID]) Invalidate(id ID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.invalidateLocked(id)
	i.invalidateListingsLocked()
	if _, ok := i.objects[id]; !ok {
		i.hidden = time.Now()
	}
}

// InvalidateAll makes every further question read the cloud, for when an answer has shown that the view is out of date.
func (i *view[ID]) InvalidateAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id := range i.objects {
		i.invalidateLocked(id)
	}
	i.invalidateListingsLocked()
}

// invalidateLocked makes an object too old for any question; a read that is in flight does not make it young again.
func (i *view[ID]) invalidateLocked(id ID) {
	if e, ok := i.objects[id]; ok {
		e.read, e.since, e.own = time.Time{}, written(), time.Time{}
		i.objects[id] = e
	}
}

// invalidateListingsLocked makes every listing so far, and one that is in flight, prove nothing.
func (i *view[ID]) invalidateListingsLocked() {
	i.listed, i.doubted = time.Time{}, time.Now()
	clear(i.absent)
}

// listingPaysLocked decides between listing everything and reading one object. Without any listing so far the number of
// pages is unknown, and a listing is tried: it also answers everyone else.
func (i *view[ID]) listingPaysLocked(q Query, known bool) bool {
	if i.source.List == nil {
		return false
	}
	if i.pages == 0 {
		return true
	}
	i.trimDirectLocked()
	// Once as many single reads were spent as a listing would have cost, the guess that few would ask was wrong.
	spent := len(i.direct)*max(i.source.GetCalls, 1) + 1
	if q.Uninitialized && !known {
		spent = 0 // a listing spares nobody else a read, and that single reads are cheaper was decided for all who wait
	}
	cost := max(i.singlesCost(q.Expected), spent)
	return cost > i.pages || (q.together && cost == i.pages)
}

// unlistedLocked reports whether a listing that is enough for the demand proves that an object is missing.
func (i *view[ID]) unlistedLocked(id ID, d evidence.Demand) bool {
	_, known := i.objects[id]
	shown := !d.ListedSince.IsZero() && !i.listed.Before(d.ListedSince) && i.lackingLocked(id, d.ListedSince) == nil
	return !known && !i.source.Narrowed && shown
}

// listingDueLocked decides whether a question is answered by a listing, and how old that one may be.
func (i *view[ID]) listingDueLocked(id ID, q Query, d evidence.Demand, asked time.Time) (oldest time.Time, due bool) {
	if d.Single {
		return time.Time{}, false
	}
	_, known := i.objects[id]
	if !known && !i.source.Narrowed && !d.ListedSince.IsZero() && i.source.List != nil && (i.pages == 0 || q.Expected > i.pages) {
		return d.ListedSince, true // a batch is no proof, so that many questions would become as many single reads
	}
	oldest = asked.Add(-q.MaxAge)
	if e := i.objects[id]; known && !i.listed.Before(oldest) && !e.since.Before(i.listed) {
		// The listing is young enough, but nothing in it counted for what was written after it began.
		q.Expected = min(q.Expected, i.writtenSinceLocked(i.listed, i.pages*max(i.source.BatchSize, 1)+1))
		return e.since.Add(time.Nanosecond), i.listingPaysLocked(q, known)
	}
	return oldest, i.listed.Before(oldest) && i.listingPaysLocked(q, known)
}

// writtenSinceLocked is how many objects a listing that began at a time says nothing about, counted up to a limit.
func (i *view[ID]) writtenSinceLocked(began time.Time, limit int) (n int) {
	for _, e := range i.objects {
		if !e.since.Before(began) && e.read.Before(began) {
			n++
		}
		if n == limit {
			break
		}
	}
	return n
}

// noteDirectLocked counts a single read, where a listing could take its place.
func (i *view[ID]) noteDirectLocked() {
	if i.source.List == nil {
		return
	}
	i.trimDirectLocked()
	i.direct = append(i.direct, time.Now())
}

func (i *view[ID]) trimDirectLocked() {
	horizon := time.Now().Add(-directWindow)
	i.direct = slices.DeleteFunc(i.direct, func(at time.Time) bool { return at.Before(horizon) })
}

// listLocked joins a listing that began at oldest or later, or begins one.
func (i *view[ID]) listLocked(ctx context.Context, oldest time.Time) (*flight, error) {
	if i.listing != nil && !i.listing.began.Before(oldest) && !i.listing.hangs() {
		return i.listing.join(ctx), nil
	}
	if i.failures >= failuresBeforeHold && time.Since(i.failed) < failureHold {
		return nil, fmt.Errorf("listing %ss failed %d times in a row, next try in %s: %w", i.source.Kind, i.failures,
			(failureHold - time.Since(i.failed)).Round(time.Second), i.failure)
	}
	shared, f := newFlight(ctx)
	f.bound(i.listing, i.source.Patience, i.listTook)
	i.listing = f
	i.direct = nil
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
			// A listing that is not found says nothing about any object: a wrong address looks like this.
			err = &cloudapi.Error{Class: cloudapi.ErrTransient, Message: err.Error()}
		}
		f.err = err
		if doing := "listing " + i.source.Kind + "s"; !strings.HasPrefix(err.Error(), doing) { // most sources say so themselves
			f.err = fmt.Errorf("%s: %w", doing, err)
		}
		if f.hangs() && i.listed.After(f.began) {
			break // a later one, begun beside it, was answered
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

// replaceLocked takes over a listing that is complete, or lacks a part. What was read or written after it began is newer and stays.
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
		case ok && !e.since.Before(began):
		case ok && i.ownLocked(e, began) && i.source.Wrote != nil && !i.source.Wrote(e.value, v):
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
	maps.DeleteFunc(i.absent, func(_ string, at time.Time) bool { return began.Sub(at) > absentMemory })
	if !began.Before(i.doubted) {
		i.listed, i.partial = began, partial
	}
	if partial == nil && !began.Before(i.hidden) {
		i.hidden = time.Time{}
	}
}

// readLocked joins the single read of an object that is in flight, or begins one: alone where that is demanded, or in the
// next batch.
func (i *view[ID]) readLocked(ctx context.Context, id ID, q Query, asked time.Time) *flight {
	former := i.reads[id]
	if former != nil && !former.hangs() {
		former.asked = true
		former.proves = former.proves || q.PerSingle > 0
		return former.join(ctx)
	}
	shared, f := newFlight(ctx)
	f.asked, f.proves = true, q.PerSingle > 0
	i.reads[id] = f
	if i.source.GetMany == nil {
		f.bound(former, i.source.Patience, i.readTook)
	}
	_, unanswered := i.unanswered[id]
	delete(i.unanswered, id)
	if i.source.GetMany == nil || unanswered || evidence.From(ctx).Single {
		i.noteDirectLocked()
		rescue.Go("reading "+i.source.Kind, func() { i.read(shared, f, id) })
		return f
	}
	i.pending = append(i.pending, id)
	if ids, ok := ctx.Value(prefetchKey{}).(func() []ID); ok {
		i.prefetches = append(i.prefetches, prefetch[ID]{ctx: ctx, ids: ids, oldest: asked.Add(-q.MaxAge)})
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

// completeLocked ends a read with its answer.
func (i *view[ID]) completeLocked(f *flight, id ID, value any, err error) {
	if i.reads[id] == f {
		delete(i.reads, id)
	}
	if err == nil {
		i.readTook = time.Since(f.began)
		if i.source.Keep != nil {
			value = i.source.Keep(value) // whoever asked shares what is kept, too
		}
	}
	f.value, f.err = value, err
	switch {
	case err == nil:
		if at, gone := i.forgotten[id]; !gone || at.Before(f.began) {
			if e, ok := i.objects[id]; ok && !e.since.Before(f.began) {
				f.value = e.value // a write of ours overtook the read
			} else {
				f.value = i.withOwnLocked(value, f.began)
				lacked := i.lackedLocked(id, f)
				i.putLocked(f.value, f.began, f.began)
				i.noteUnlistedLocked(id, lacked)
			}
			delete(i.forgotten, id)
		}
	case errors.Is(err, cloudapi.ErrNotFound):
		if e, ok := i.objects[id]; !ok || e.since.Before(f.began) {
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
	wrote, own := i.objects[id].wrote, i.objects[id].own
	i.removeLocked(id)
	delete(i.missing, id)
	delete(i.unanswered, id)
	i.objects[id] = entry{value: value, read: read, since: since, wrote: wrote, own: own}
	for name, keys := range i.source.Indexes {
		for _, key := range keys(value) {
			delete(i.absent, name+" "+key)
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
	if e.unlisted {
		i.unlisted--
	}
	for name, keys := range i.source.Indexes {
		for _, key := range keys(e.value) {
			i.indexes[name].remove(key, id)
		}
	}
}

// matchesLocked returns the objects with a key that are young enough, those that only a read of them alone makes younger, and
// whether there are others, too old to tell.
func (i *view[ID]) matchesLocked(index, key string, asked time.Time, maxAge time.Duration) (found []any, doubtful []ID, stale bool) {
	for id := range i.indexes[index].lookup(key) {
		switch e := i.objects[id]; {
		case i.answersLocked(id, e.read, asked, maxAge):
			found = append(found, e.value)
		case e.doubtful:
			doubtful = append(doubtful, id)
		default:
			stale = true
		}
	}
	return found, doubtful, stale
}

// PeekIndex returns what is known of the objects with a key of an index, however old it is, without any read.
func (i *view[ID]) PeekIndex(index, key string) []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	var found []any
	for id := range i.indexes[index].lookup(key) {
		found = append(found, i.objects[id].value)
	}
	return found
}

// ReadsBatches reports whether several objects are read by one call.
func (i *view[ID]) ReadsBatches() bool { return i.source.GetMany != nil }

// PeekAll returns what is known of all objects, however old it is, without any read.
func (i *view[ID]) PeekAll() []any {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make([]any, 0, len(i.objects))
	for _, e := range i.objects {
		all = append(all, e.value)
	}
	return all
}

// Peek returns what is known of an object, however old it is, without any read.
func (i *view[ID]) Peek(id ID) (any, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e, ok := i.objects[id]
	return e.value, ok
}

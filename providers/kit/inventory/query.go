package inventory

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// Query says how fresh an answer must be.
type Query struct {
	// MaxAge is how long ago a present object may have been read. 0 demands a new read.
	MaxAge time.Duration
	// MaxMissAge is how long ago a missing object may have been looked up.
	MaxMissAge time.Duration
	// MaxUnlistedAge is the maximum age of a listing that proves the absence of an index key which was not looked up before. It is for keys
	// with which nobody else can create an object; after a failed write no such listing counts.
	MaxUnlistedAge time.Duration
	// NotBefore demands that every answer was read at this time or later, whatever the ages allow.
	NotBefore time.Time
	// Absence says what proves that an object is missing. With MemoryOnly, NotBefore alone limits the age of an answer.
	Absence evidence.Absence
	// Expected is how many objects will likely be requested at about the same time. The inventory lists everything at once if that costs
	// fewer calls than single reads. With IsExpectedExact so many questions do follow, and the same number of calls is enough.
	Expected        int
	IsExpectedExact bool
	// Uninitialized says that the object was likely created a moment ago, so that similar ones are requested now: one listing answers all
	// that wait if that is cheaper, and together they cost at most a call in gatherPerCall.
	Uninitialized bool
	// Gathered does the same for known objects that are likely requested together.
	Gathered bool
	// PerSingle is the time per single read of omitted objects; 0 means that they are read as often as others.
	PerSingle time.Duration
}

// question is a query with the times that follow from its ages.
type question struct {
	Query
	asked time.Time
	// oldest, oldestMiss and oldestUnlisted are when a read must have begun that answers, by MaxAge, MaxMissAge and MaxUnlistedAge.
	oldest, oldestMiss, oldestUnlisted time.Time
}

type notBeforeKey struct{}

// NotBefore returns a context whose questions, to every inventory, accept no answer from before a time. The zero time ends that.
func NotBefore(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, notBeforeKey{}, at)
}

// ask returns the question that a query is now.
func (q Query) ask(ctx context.Context) question {
	asked := time.Now()
	if q.Absence.MemoryOnly {
		q.MaxAge, q.MaxMissAge, q.MaxUnlistedAge = math.MaxInt64, math.MaxInt64, math.MaxInt64
	}
	at, _ := ctx.Value(notBeforeKey{}).(time.Time)
	q.NotBefore = earliest(latest(q.NotBefore, at), asked)
	since := func(age time.Duration) time.Time { return latest(asked.Add(-age), q.NotBefore) }
	return question{q, asked, since(q.MaxAge), since(q.MaxMissAge), since(q.MaxUnlistedAge)}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// isAlone reports whether a question waits for no others of its kind.
func (q Query) isAlone() bool { return (!q.Uninitialized && !q.Gathered) || q.Absence.OwnRead }

// isAnsweredBy reports whether a read that began at a time answers the question.
func (q question) isAnsweredBy(err error, began time.Time) bool {
	if err == nil {
		return !began.Before(q.oldest)
	}
	return !errors.Is(err, cloudapi.ErrNotFound) || !began.Before(q.oldestMiss)
}

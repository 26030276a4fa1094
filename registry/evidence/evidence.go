// Package evidence carries, in a context, the demands on answers about cloud objects: the guard sets them, and package inventory honours
// them for every provider.
//
// Without a demand the usual rules apply: a single read that began after the question proves absence.
package evidence

import (
	"context"
	"errors"
	"time"
)

// ErrUnread is returned if a Remembered answer is demanded and there is none.
var ErrUnread = errors.New("it was not read since then")

// Demand limits the evidence that answers may rest on. The zero value accepts any. Make one with the functions below.
type Demand struct {
	// NotBefore demands that the answer, present or missing, was read at this time or later.
	NotBefore time.Time
	// ListedSince allows a complete listing that began at this time or later to prove absence, if it costs fewer calls than single reads.
	// Zero demands single reads.
	ListedSince time.Time
	// Single demands a single read: the object is expected to be missing, which a listing or a batch does not prove.
	Single bool
	// Among is how many objects are requested together: one complete listing answers for all if it costs no more calls than reading each.
	Among int
	// Within is the maximum age of the answer that an instance exists, if the cloud's rate limit allows it. Zero, or more than the
	// provider's own maximum, leaves it to the provider.
	Within time.Duration
	// Remembered demands an answer without a call, from reads since NotBefore; otherwise it is ErrUnread.
	Remembered bool
}

// Proof demands a single read of the object, begun at this time or later. Nothing less may be the last answer before a deletion.
func Proof(at time.Time) Demand { return Demand{Single: true, NotBefore: at} }

// Early accepts a complete listing as the first proof of absence. An answer that the object exists may be as old as within.
func Early(listedSince time.Time, within time.Duration) Demand {
	return Demand{ListedSince: listedSince, Within: within}
}

// ReadSince demands an answer that was read at this time or later; a single read proves absence.
func ReadSince(at time.Time) Demand { return Demand{NotBefore: at} }

// OneOf is ReadSince for one of several objects that are requested now: a listing answers for all if that costs no more calls.
func OneOf(objects int, at time.Time) Demand {
	return Demand{NotBefore: at, ListedSince: at, Among: objects}
}

// FromMemory is ReadSince without a call: if nothing was read since then, the answer is ErrUnread.
func FromMemory(at time.Time) Demand { return Demand{NotBefore: at, ListedSince: at, Remembered: true} }

type key struct{}

// With returns a context with the demand.
func With(ctx context.Context, d Demand) context.Context { return context.WithValue(ctx, key{}, d) }

// From returns the demand of a context, or the zero value.
func From(ctx context.Context) Demand {
	d, _ := ctx.Value(key{}).(Demand)
	return d
}

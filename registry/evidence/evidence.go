// Package evidence carries, in a context, what the guard demands of an answer about a Node's instance. Package nodes alone reads it, and
// passes it on as a query to the inventory of instances: what else a provider reads for the answer is as old as ever.
//
// Without a demand the usual rules apply: a single read that began after the question proves absence.
package evidence

import (
	"context"
	"errors"
	"time"
)

// ErrUnread is returned if an answer from memory is demanded and there is none.
var ErrUnread = errors.New("it was not read since then")

// Absence says what proves that an object is missing. The zero value demands a single read of it.
type Absence struct {
	// ListedSince also accepts a complete listing that began at this time or later, if it costs fewer calls than single reads.
	ListedSince time.Time
	// OwnRead tries neither a listing nor a batch before the single read, because the object is expected to be missing.
	OwnRead bool
	// MemoryOnly allows no call: what was not read yet is ErrUnread.
	MemoryOnly bool
}

// Demand limits the evidence that answers may rest on. The zero value accepts any. Make one with the functions below.
type Demand struct {
	Absence
	// NotBefore demands that the answer, present or missing, was read at this time or later.
	NotBefore time.Time
	// Together is how many objects are requested now: one complete listing answers for all if it costs no more calls than reading each.
	Together int
	// Within is the maximum age of the answer that an instance exists, if the cloud's rate limit allows it. Zero, or more than the
	// provider's own maximum, leaves it to the provider.
	Within time.Duration
}

// Early accepts a complete listing as the first proof of absence. An answer that the object exists may be as old as within.
func Early(listedSince time.Time, within time.Duration) Demand {
	return Demand{Absence: Absence{ListedSince: listedSince}, Within: within}
}

// Proof demands a single read of the object, begun at this time or later. Nothing less may be the last answer before a deletion.
func Proof(at time.Time) Demand { return Demand{Absence: Absence{OwnRead: true}, NotBefore: at} }

// RollCall demands an answer that was read at this time or later; a single read proves absence.
func RollCall(since time.Time) Demand { return Demand{NotBefore: since} }

// Among is the demand for one of several objects that are requested now: a listing answers for all if that costs no more calls.
func (d Demand) Among(objects int) Demand {
	d.ListedSince, d.Together = d.NotBefore, objects
	return d
}

// FromMemory is the demand without a call.
func (d Demand) FromMemory() Demand {
	d.ListedSince, d.MemoryOnly = d.NotBefore, true
	return d
}

type key struct{}

// With returns a context with the demand.
func With(ctx context.Context, d Demand) context.Context { return context.WithValue(ctx, key{}, d) }

// From returns the demand of a context, or the zero value.
func From(ctx context.Context) Demand {
	d, _ := ctx.Value(key{}).(Demand)
	return d
}

// Package evidence says what an answer about a cloud object must rest on, as values of a context: the guard asks for it,
// and the shared view of the cloud's objects honours it for every provider.
//
// A context without a demand leaves the rules as they are: absence is proved by a single read that began after the question.
package evidence

import (
	"context"
	"errors"
	"time"
)

// ErrUnread is the answer to a question that demands what is remembered, where that is nothing.
var ErrUnread = errors.New("it was not read since then")

// Demand limits the evidence that answers may rest on. The zero value accepts any.
type Demand struct {
	// NotBefore demands that whatever is answered, found or missing, was read at this time or later.
	NotBefore time.Time
	// ListedSince lets a complete listing that began at this time or later prove absence where that costs fewer calls than
	// single reads. Zero demands single reads.
	ListedSince time.Time
	// Single demands a read of this very object: it is expected to be missing, of which a listing or a batch is no proof.
	Single bool
	// Among is how many objects are asked about together: one complete listing answers for all of them where that costs no more
	// calls than reading each.
	Among int
	// Within is how old the answer that an instance exists may be, as far as the cloud and its limits on calls allow. Zero, and what is
	// longer than the provider's own bound, leave it to the provider.
	Within time.Duration
	// Remembered demands an answer without a call, from whatever was read since NotBefore; else it is ErrUnread.
	Remembered bool
}

type key struct{}

// With returns a context whose questions carry the demand.
func With(ctx context.Context, d Demand) context.Context { return context.WithValue(ctx, key{}, d) }

// From returns the demand of a context, the zero value where it has none.
func From(ctx context.Context) Demand {
	d, _ := ctx.Value(key{}).(Demand)
	return d
}

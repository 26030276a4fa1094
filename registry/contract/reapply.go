package contract

import (
	"context"
	"time"
)

// Reapply is when the nodes of a Service are to be applied once more: after a while, or as soon as a channel is closed. The zero value is
// never.
type Reapply struct {
	After time.Duration
	When  <-chan struct{}
}

type reapplyKey struct{}

// WithReapply returns a context by which an operation says when its nodes are to be applied once more.
func WithReapply(ctx context.Context, asked *Reapply) context.Context {
	return context.WithValue(ctx, reapplyKey{}, asked)
}

// ComeBack makes the guard apply the nodes of the running operation's Service once more: after a time at the latest, and when a channel is
// closed, which may be nil. Newer nodes will have been applied by then, and a failed operation is retried anyway. The last call counts.
// Outside of the guard's operations it does nothing.
func ComeBack(ctx context.Context, after time.Duration, when <-chan struct{}) {
	if asked, ok := ctx.Value(reapplyKey{}).(*Reapply); ok {
		*asked = Reapply{after, when}
	}
}

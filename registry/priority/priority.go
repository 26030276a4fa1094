// Package priority marks the calls to a cloud that go first when its rate limit is short: those for a new node or a new Service, before
// periodic checks.
package priority

import (
	"context"
	"sync"
)

type key struct{}

// mark is closed when the calls of a context are urgent.
type mark struct {
	urgent chan struct{}
	once   sync.Once
}

func (m *mark) raise() { m.once.Do(func() { close(m.urgent) }) }

// Raisable returns a context whose calls are routine until raise is called, for work shared by several callers.
func Raisable(ctx context.Context) (raisable context.Context, raise func()) {
	m := &mark{urgent: make(chan struct{})}
	return context.WithValue(ctx, key{}, m), m.raise
}

// Urgent returns a context whose calls are urgent.
func Urgent(ctx context.Context) context.Context {
	ctx, raise := Raisable(ctx)
	raise()
	return ctx
}

// Raised returns a channel that is closed when the calls of the context become urgent; nil if they never do.
func Raised(ctx context.Context) <-chan struct{} {
	if m, ok := ctx.Value(key{}).(*mark); ok {
		return m.urgent
	}
	return nil
}

// IsUrgent reports whether the calls of the context are urgent.
func IsUrgent(ctx context.Context) bool {
	select {
	case <-Raised(ctx):
		return true
	default:
		return false
	}
}

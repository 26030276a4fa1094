// Package progress passes the present step of a long operation to the code that reports it to the user.
package progress

import (
	"context"
	"sync"
)

// Board holds the step that an operation waits for. The zero value is empty; it is safe for concurrent use.
type Board struct {
	mu    sync.Mutex
	notes []*string
}

type key struct{}

// With returns a context whose waits are recorded on the board.
func With(ctx context.Context, b *Board) context.Context { return context.WithValue(ctx, key{}, b) }

// Note records a wait until done is called. Without a board it does nothing.
func Note(ctx context.Context, what string) (done func()) {
	b, ok := ctx.Value(key{}).(*Board)
	if !ok {
		return func() {}
	}
	note := &what
	b.mu.Lock()
	b.notes = append(b.notes, note)
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, n := range b.notes {
			if n == note {
				b.notes = append(b.notes[:i:i], b.notes[i+1:]...)
				return
			}
		}
	}
}

// What returns the latest wait under way, or "".
func (b *Board) What() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.notes) == 0 {
		return ""
	}
	return *b.notes[len(b.notes)-1]
}

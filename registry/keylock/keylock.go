// Package keylock keeps operations on the same thing from overlapping.
package keylock

import (
	"context"
	"sync"
)

// Locks holds one lock for each key that somebody holds or waits for. The zero value is ready.
type Locks struct {
	mu   sync.Mutex
	held map[string]*entry
}

type entry struct {
	// token holds one element while the key is free.
	token chan struct{}
	users int
}

// Lock waits for the lock of a key; waiting ends with the context. Call unlock once.
func (k *Locks) Lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*entry{}
	}
	t := k.held[key]
	if t == nil {
		t = &entry{token: make(chan struct{}, 1)}
		t.token <- struct{}{}
		k.held[key] = t
	}
	t.users++
	k.mu.Unlock()

	forget := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(k.held, key)
		}
	}
	select {
	case <-t.token:
		return func() { t.token <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}

// Held returns how many keys somebody holds or waits for.
func (k *Locks) Held() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

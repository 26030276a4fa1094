package guard

import (
	"context"
	"sync"
)

// keyedLock is one lock a key, kept only while somebody holds or wants it. Waiting ends with the context.
type keyedLock struct {
	mu   sync.Mutex
	held map[string]*turnstile
}

type turnstile struct {
	// token holds one element while the key is free.
	token chan struct{}
	users int
}

func (k *keyedLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*turnstile{}
	}
	t := k.held[key]
	if t == nil {
		t = &turnstile{token: make(chan struct{}, 1)}
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

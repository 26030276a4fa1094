// Package session keeps the session that a provider has with an API: one login at a time, one more where a session has ended, and none
// with credentials that were just refused, because a few refused logins lock an account.
package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

const (
	// firstRefusal is how long refused credentials are not tried again; after each further refusal twice as long, up to maxRefusal.
	firstRefusal = time.Minute
	maxRefusal   = 10 * time.Minute
)

var (
	// ErrEnded marks the error of a call whose session is not accepted any more.
	ErrEnded = errors.New("the session has ended")
	// ErrRefused marks the error of a login that the API has refused for what it holds, so that it is no better for being repeated.
	ErrRefused = errors.New("the credentials are refused")
)

// Keeper keeps a session S that is opened with credentials C. Its fields are set before it is used.
type Keeper[C, S comparable] struct {
	// Credentials are those that are to be used now. They may have changed since the last login.
	Credentials func() (C, error)
	// Login opens a session.
	Login func(context.Context, C) (S, error)
	// Renew opens another session in the place of one that has ended, without credentials; nil where there is no such way. Where it is
	// refused there is a login.
	Renew func(context.Context, S) (S, error)

	once sync.Once
	// turn is held by whoever logs in.
	turn chan struct{}

	mu sync.Mutex
	// current is the session that is open, and the zero value if none is; ended is the one before, as long as it may be renewed.
	current, ended S
	refused        refusal[C]
}

// refusal is a refused login.
type refusal[C comparable] struct {
	credentials C
	until       time.Time
	pause       time.Duration
	err         error
}

// Do runs calls in the session. Where that has ended, another one is opened, and the calls are made once more.
func (k *Keeper[C, S]) Do(ctx context.Context, calls func(S) error) error {
	for attempt := 0; ; attempt++ {
		s, err := k.open(ctx)
		if err != nil {
			return err
		}
		err = calls(s)
		if !errors.Is(err, ErrEnded) {
			return err
		}
		k.drop(s)
		if attempt > 0 {
			return err
		}
	}
}

// Set makes a session the one that is open.
func (k *Keeper[C, S]) Set(s S) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = s
}

// Take forgets the session that is open and returns it, and the zero value where there is none.
func (k *Keeper[C, S]) Take() S {
	k.mu.Lock()
	defer k.mu.Unlock()
	var none S
	s := k.current
	k.current, k.ended = none, none
	return s
}

func (k *Keeper[C, S]) opened() (S, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var none S
	return k.current, k.current != none
}

// drop forgets a session that has ended, unless another one has taken its place.
func (k *Keeper[C, S]) drop(s S) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == s {
		var none S
		k.current, k.ended = none, s
	}
}

// open returns the open session, or opens one: one caller at a time, and the others get what it has got.
func (k *Keeper[C, S]) open(ctx context.Context) (s S, err error) {
	k.once.Do(func() { k.turn = make(chan struct{}, 1) })
	if s, ok := k.opened(); ok {
		return s, nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return s, &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "waiting for a login", Message: ctx.Err().Error(), NotSent: true, Cause: ctx.Err()}
	}
	if s, ok := k.opened(); ok {
		return s, nil
	}
	if s, err = k.renewed(ctx); err != nil || s != *new(S) {
		return s, err
	}
	c, err := k.Credentials()
	if err != nil {
		return s, fmt.Errorf("reading the credentials: %w", err)
	}
	k.mu.Lock()
	before := k.refused
	k.mu.Unlock()
	if before.err != nil && before.credentials == c && time.Now().Before(before.until) {
		return s, before.err
	}
	s, err = k.Login(ctx, c)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		k.current, k.refused = s, refusal[C]{}
	case errors.Is(err, ErrRefused):
		pause := firstRefusal
		if before.err != nil && before.credentials == c {
			pause = min(2*before.pause, maxRefusal)
		}
		k.refused = refusal[C]{credentials: c, until: time.Now().Add(pause), pause: pause, err: err}
	}
	return s, err
}

// renewed renews the session that has ended, where there is one. It returns the zero value where a login is due.
func (k *Keeper[C, S]) renewed(ctx context.Context) (s S, err error) {
	k.mu.Lock()
	ended := k.ended
	k.mu.Unlock()
	if k.Renew == nil || ended == s {
		return s, nil
	}
	renewed, err := k.Renew(ctx, ended)
	if err != nil && !errors.Is(err, ErrRefused) {
		return s, err // it is tried again
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = s
	if err != nil {
		return s, nil // the login tells what is wrong
	}
	k.current = renewed
	return renewed, nil
}

// Package session keeps a provider's session with an API: one login at a time, a new one if the session has ended, and none with
// credentials that were just refused, because a few refused logins lock an account.
package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// firstRefusal is how long refused credentials are not tried again; it doubles with each further refusal, up to maxRefusal.
	firstRefusal = time.Minute
	maxRefusal   = 10 * time.Minute
	// firstFailure and maxFailure are the same for logins that failed otherwise: the response of a refusal may have been cut off.
	firstFailure = 5 * time.Second
	maxFailure   = time.Minute
	// loginTimeout bounds a login. It continues after its caller has given up: otherwise the next caller would send the credentials again
	// without knowing whether they are refused.
	loginTimeout = 2 * time.Minute
)

var (
	// ErrEnded marks the error of a call whose session is not accepted any more.
	ErrEnded = errors.New("the session has ended")
	// ErrRefused marks the error of a login that the API has refused and that is useless to repeat.
	ErrRefused = errors.New("the credentials are refused")
)

// Keeper keeps a session S that is opened with credentials C. Its fields are set before it is used.
type Keeper[C, S comparable] struct {
	// Credentials returns the current credentials. They may have changed since the last login.
	Credentials func() (C, error)
	// Login opens a session.
	Login func(context.Context, C) (S, error)
	// Renew replaces an ended session without credentials; nil if that is impossible. If it is refused, Login follows.
	Renew func(context.Context, S) (S, error)

	mu sync.Mutex
	// current is the open session, or the zero value; ended is the one before, as long as it may be renewed.
	current, ended S
	// opening is the login that is under way; nil if none is.
	opening *opening[S]
	// used are the credentials of the last login, failed those that are not tried again for a while.
	used   C
	failed map[C]failure
}

// opening is a login or a renewal that is under way, for all who wait for it.
type opening[S any] struct {
	done    chan struct{}
	session S
	err     error
}

// failure is a login that failed, or whose session was never accepted.
type failure struct {
	until time.Time
	pause time.Duration
	err   error
}

// Do runs calls in the session. If that has ended, it opens another one and repeats the calls.
func (k *Keeper[C, S]) Do(ctx context.Context, calls func(S) error) error {
	for attempt := 0; ; attempt++ {
		s, err := k.open(ctx)
		if err != nil {
			return err
		}
		err = calls(s)
		if !errors.Is(err, ErrEnded) {
			if err == nil {
				k.noteAccepted(s)
			}
			return err
		}
		k.drop(s, err, attempt > 0)
		if attempt > 0 {
			return err
		}
	}
}

// Set stores the open session.
func (k *Keeper[C, S]) Set(s S) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = s
}

// Take removes the open session and returns it, or the zero value.
func (k *Keeper[C, S]) Take() S {
	k.mu.Lock()
	defer k.mu.Unlock()
	var none S
	s := k.current
	k.current, k.ended = none, none
	return s
}

// noteAccepted records that a session works, and so do its credentials.
func (k *Keeper[C, S]) noteAccepted(s S) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == s {
		delete(k.failed, k.used)
	}
}

// drop forgets a session that has ended, unless another one has replaced it. A session that never worked counts as a failed login.
func (k *Keeper[C, S]) drop(s S, err error, atOnce bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == s {
		var none S
		k.current, k.ended = none, s
		if atOnce {
			k.ended = none
			k.failLocked(k.used, err)
		}
	}
}

// failLocked records a failed login.
func (k *Keeper[C, S]) failLocked(c C, err error) {
	now := time.Now()
	maps.DeleteFunc(k.failed, func(_ C, f failure) bool { return now.Sub(f.until) > maxRefusal })
	first, longest := firstFailure, maxFailure
	if errors.Is(err, ErrRefused) {
		first, longest = firstRefusal, maxRefusal
	}
	pause := min(max(2*k.failed[c].pause, first), longest)
	if k.failed == nil {
		k.failed = map[C]failure{}
	}
	k.failed[c] = failure{until: now.Add(pause), pause: pause, err: err}
}

// open returns the open session, or opens one: one caller does, and the others get the same result.
func (k *Keeper[C, S]) open(ctx context.Context) (s S, err error) {
	k.mu.Lock()
	if k.current != s {
		defer k.mu.Unlock()
		return k.current, nil
	}
	o := k.opening
	if o == nil {
		o = &opening[S]{done: make(chan struct{})}
		k.opening = o
		rescue.Go("logging in", func() { k.run(context.WithoutCancel(ctx), o) })
	}
	k.mu.Unlock()
	select {
	case <-o.done:
		return o.session, o.err
	case <-ctx.Done():
		return s, &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "waiting for a login", Message: ctx.Err().Error(), NotSent: true, Cause: ctx.Err()}
	}
}

// run opens a session for all who wait for it.
func (k *Keeper[C, S]) run(ctx context.Context, o *opening[S]) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	defer close(o.done)
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.opening = nil
		if o.err == nil {
			k.current = o.session
		}
	}()
	defer rescue.Into(&o.err, "logging in")
	if o.session, o.err = k.renewEnded(ctx); o.err != nil || o.session != *new(S) {
		return
	}
	c, err := k.Credentials()
	if err != nil {
		o.err = fmt.Errorf("reading the credentials: %w", err)
		return
	}
	k.mu.Lock()
	before := k.failed[c]
	k.used = c
	k.mu.Unlock()
	if time.Now().Before(before.until) {
		o.err = before.err
		return
	}
	if o.session, o.err = k.Login(ctx, c); o.err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.failLocked(c, o.err)
	}
}

// renewEnded renews the ended session, if there is one. It returns the zero value if a login is needed.
func (k *Keeper[C, S]) renewEnded(ctx context.Context) (s S, err error) {
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
	return renewed, nil
}

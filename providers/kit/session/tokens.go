package session

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

// refusedPause is the minimum age at which a refused token is replaced, and the pause after a failure to replace one that is still valid.
const refusedPause = 20 * time.Second

// Tokens keeps a token that expires. It asks for another one in time, or if the API has refused the present one. Its fields are set before
// it is used.
type Tokens[T comparable] struct {
	// Fetch asks for a token, and returns when it expires; the zero time is never.
	Fetch func(context.Context) (token T, expires time.Time, err error)
	// Margin is how long before its end a token is replaced. A short-lived one is used for three quarters of its life.
	Margin time.Duration

	turn    keylock.Locks
	current T
	// failed: when the latest renewal failed. The token is used until it expires.
	expires, fetched, failed time.Time
}

// Get returns a token. refused is one that the API has refused, or the zero value; Get returns it again if it has just been fetched.
func (t *Tokens[T]) Get(ctx context.Context, refused T) (token T, err error) {
	unlock, err := t.turn.Lock(ctx, "")
	if err != nil {
		return token, fmt.Errorf("waiting for a token: %w", err)
	}
	defer unlock()
	now := time.Now()
	known := t.current != token
	usable := known && t.current != refused && (t.expires.IsZero() || now.Before(t.expires))
	if known && !t.isDue(refused, now) || usable && now.Sub(t.failed) < refusedPause {
		return t.current, nil
	}
	fetched, expires, err := t.Fetch(ctx)
	switch {
	case err == nil:
		t.current, t.expires, t.fetched = fetched, expires, now
	case usable:
		t.failed = now
	default:
		return token, err
	}
	return t.current, nil
}

// isDue reports whether another token is needed: the present one expires soon or was refused.
func (t *Tokens[T]) isDue(refused T, now time.Time) bool {
	margin := min(t.Margin, t.expires.Sub(t.fetched)/4)
	return !t.expires.IsZero() && t.expires.Sub(now) < margin || refused == t.current && now.Sub(t.fetched) >= refusedPause
}

// Transport authorizes requests, and repeats a request that the API refuses once with another token.
type Transport[T comparable] struct {
	// Token returns a token other than the refused one, if it can; see Tokens.Get.
	Token func(ctx context.Context, refused T) (T, error)
	// Authorize changes a request so that it carries a token.
	Authorize func(*http.Request, T) error
	Next      http.RoundTripper
}

// RoundTrip implements http.RoundTripper. Without another token, it returns the API's refusal.
func (t *Transport[T]) RoundTrip(r *http.Request) (*http.Response, error) {
	var none T
	token, err := t.Token(r.Context(), none)
	if err != nil {
		return nil, err
	}
	answer, err := t.send(r, token)
	if err != nil || answer.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return answer, err
	}
	another, err := t.Token(r.Context(), token)
	if err != nil || another == token {
		return answer, nil //nolint:nilerr // the refusal is the answer
	}
	answer.Body.Close()
	return t.send(r, another)
}

func (t *Transport[T]) send(r *http.Request, token T) (*http.Response, error) {
	out := r.Clone(r.Context())
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, fmt.Errorf("authorizing a call: %w", err)
		}
		out.Body = body
	}
	if err := t.Authorize(out, token); err != nil {
		return nil, fmt.Errorf("authorizing a call: %w", err)
	}
	return t.Next.RoundTrip(out)
}

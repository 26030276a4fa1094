// Package cloudapi is the only way to a cloud's API: one HTTP transport under every SDK (metrics, rate limits, retries, deadlines, logs
// without secrets) and one set of error classes above them.
package cloudapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// The classes of failure. Code above a provider asks with errors.Is, never by status code or text.
var (
	// ErrNotFound: the cloud itself said that the object in question does not exist.
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized: the credentials were refused, or lack a permission.
	ErrUnauthorized = errors.New("not authorized")
	// ErrRateLimited: the cloud's limit, or our own, is exceeded.
	ErrRateLimited = errors.New("rate limited")
	// ErrConflict: the object is busy or was changed concurrently.
	ErrConflict = errors.New("conflict")
	// ErrQuota: the account's limit is reached.
	ErrQuota = errors.New("quota exceeded")
	// ErrInvalid: the request itself is at fault; repeating it is useless.
	ErrInvalid = errors.New("invalid request")
	// ErrTransient: the network or the cloud failed; a later try may succeed.
	ErrTransient = errors.New("temporary failure")
)

// ErrWrongAnswer means that a successful response does not contain the requested object.
var ErrWrongAnswer = errors.New("the answer does not hold the object that was asked for")

// Error is a failed call. It wraps its class.
type Error struct {
	// Class is one of the classes above.
	Class error
	// Operation says what was tried, such as "creating load balancer web".
	Operation string
	// Status is the HTTP status, or 0 if no answer came.
	Status int
	// Message is the cloud's own text.
	Message string
	// RequestID identifies the call to the cloud's support.
	RequestID string
	// NotSent is set if the call certainly was not sent: our own limit, or a pause that the cloud demanded, held it back.
	NotSent bool
	// Refused is set if the cloud said that it did not carry out the call, although class and status do not imply that.
	Refused bool
	// RetryAfter is how long the cloud asked to wait; 0 if it did not say.
	RetryAfter time.Duration
	// Cause is the SDK's error.
	Cause error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Operation != "" {
		b.WriteString(e.Operation + ": ")
	}
	b.WriteString(e.Class.Error())
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d", e.Status)
		if e.RequestID != "" {
			b.WriteString(", request " + e.RequestID)
		}
		b.WriteString(")")
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, "; next try in %s", e.RetryAfter.Round(time.Second))
	}
	if hint := hints[e.Class]; hint != "" {
		b.WriteString("; " + hint)
	}
	return b.String()
}

// hints are the next steps of failures that an operator can fix.
var hints = map[error]string{
	ErrUnauthorized: "check the credential, its permissions and the account that it belongs to",
	ErrQuota:        "ask the cloud for a higher limit or remove what is not used",
}

// Unwrap makes both the class and the cause visible to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Cause}
}

// Temporary reports whether the same call may succeed later without anybody changing something.
func (e *Error) Temporary() bool { return Retryable(e) }

// NotSent reports whether a call certainly was not sent, so that it cannot have changed anything.
func NotSent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.NotSent
}

// Refused reports whether a call certainly was not carried out: it was not sent, or the cloud refused it. Any other failed call may have
// taken effect, or may still do so.
func Refused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.NotSent || e.Refused ||
		(e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError && e.Status != http.StatusRequestTimeout))
}

// ExplainLimit adds to a refusal which limit it probably was, how many there would be, and what to do. have is how many there would be.
func ExplainLimit(err error, l limits.Limit, have int) error {
	excess := l.CheckNumber(have)
	if excess == nil || !errors.Is(err, ErrQuota) && !errors.Is(err, ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w; %w", err, excess)
}

// RetryIn returns how long to wait before the same call can succeed where that is known, else 0.
func (e *Error) RetryIn() time.Duration { return e.RetryAfter }

// HeldBack reports whether the call only has to wait: for our own limit, or for a pause that the cloud demanded.
func (e *Error) HeldBack() bool { return e.NotSent && errors.Is(e.Class, ErrRateLimited) }

// Describe names the operation in a failed call's error; other errors are wrapped as temporary failures.
func Describe(err error, operation string) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		named := *e
		named.Operation = operation
		return &named
	}
	return &Error{Class: ErrTransient, Operation: operation, Message: err.Error(), Cause: err}
}

// ClassOfStatus returns the class that an HTTP status stands for where the cloud gives no better code.
func ClassOfStatus(status int) error {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return ErrNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrUnauthorized
	case http.StatusTooManyRequests:
		return ErrRateLimited
	case http.StatusConflict, http.StatusLocked, http.StatusPreconditionFailed:
		return ErrConflict
	case http.StatusRequestTimeout:
		return ErrTransient
	}
	if status >= 400 && status < 500 {
		return ErrInvalid
	}
	return ErrTransient
}

// Retryable reports whether the same call may succeed later without anybody changing something.
func Retryable(err error) bool {
	return errors.Is(err, ErrTransient) || errors.Is(err, ErrRateLimited) || errors.Is(err, ErrConflict) ||
		errors.Is(err, context.DeadlineExceeded)
}

// RetryAfter returns how long the cloud asked to wait, if it said so.
func RetryAfter(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	return 0, false
}

// ParseRetryAfter reads the header of RFC 9110 section 10.2.3: seconds or a date. It returns 0 for anything else.
func ParseRetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// IgnoreNotFound returns nil for not found, and any other error unchanged.
func IgnoreNotFound(err error) error {
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	return nil
}

// NotAbsence turns not found into a temporary failure, so that the absence of another object is not taken for that of the one in question.
func NotAbsence(err error) error {
	if errors.Is(err, ErrNotFound) {
		return &Error{Class: ErrTransient, Message: err.Error(), Refused: Refused(err)}
	}
	return err
}

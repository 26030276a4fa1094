// Package rescue keeps a panic in one piece of work from ending the process: it becomes an error, and is logged with its stack. A caller's
// recover does not cover goroutines, so each goroutine is started here or recovers by itself.
package rescue

import (
	"errors"
	"fmt"
	"runtime/debug"

	"k8s.io/klog/v2"
)

// ErrCrashed is part of a panic's error.
var ErrCrashed = errors.New("the work crashed; this is a bug, please report it with the log")

// Into is deferred by work that returns an error: a panic becomes that error.
func Into(err *error, what string) {
	if r := recover(); r != nil {
		*err = note(what, r)
	}
}

// Do runs f; a panic ends f alone.
func Do(what string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			_ = note(what, r)
		}
	}()
	f()
}

// Go runs f on a goroutine of its own; a panic ends that goroutine alone.
func Go(what string, f func()) { go Do(what, f) }

// note logs a panic and returns its error. The panic's value may contain anything, so it is only logged.
func note(what string, r any) error {
	err := fmt.Errorf("%s: %w", what, ErrCrashed)
	klog.ErrorS(err, "Recovered from a panic", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
	return err
}

// Package shared writes documents that several Services edit, such as a security list, a shared load balancer or a ConfigMap. All waiting
// edits are one write, which names the version it is based on.
package shared

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// ErrKeep is returned by an edit that leaves the document unchanged.
var ErrKeep = errors.New("nothing to change")

// errNoResult is returned to edits whose write panicked.
var errNoResult = errors.New("the write ended without a result: this is a bug")

// maxTries bounds how often a document is read and edited again after concurrent writes.
const maxTries = 10

// Edit returns the edited document, without changing its argument. After a concurrent write it is called again with the newer document. Its
// error is returned to its own caller, and does not affect other edits.
type Edit[D any] func(ctx context.Context, before D) (after D, err error)

// Document reads and writes one document. A new Document is created for each write with all its tries.
type Document[D any] interface {
	// Read returns the current document. A cached copy is allowed unless fresh is set.
	Read(ctx context.Context, fresh bool) (D, error)
	// Write stores the edited document, and returns the resulting one. After an Outdated error it is read and edited again.
	Write(ctx context.Context, before, after D) (D, error)
}

// Target names the document of an edit.
type Target[D any] struct {
	// ID identifies the document, and Name is for errors and the log.
	ID, Name string
	// Gather returns how long edits wait for others before each write; nil means no wait.
	Gather func() time.Duration
	// Timeout bounds one write with all its tries.
	Timeout time.Duration
	Open    func() Document[D]
}

// Outdated marks an error of a write that was based on an old version; its message stays.
func Outdated(err error) error { return outdated{err} }

type outdated struct{ error }

func (o outdated) Unwrap() error { return o.error }

// Writer writes documents, at most one write per document at a time. The zero value is ready.
type Writer[D any] struct {
	mu sync.Mutex
	// waiting are the edits for the next write of a document; an entry exists while a goroutine writes that document.
	waiting map[string][]*submission[D]
}

type submission[D any] struct {
	edit Edit[D]
	done chan struct{}
	doc  D
	err  error
}

// make calls the edit; a panic in it becomes its own error.
func (s *submission[D]) make(ctx context.Context, target Target[D], before D) (after D, err error) {
	defer rescue.Into(&err, "editing "+target.Name)
	return s.edit(ctx, before)
}

func (s *submission[D]) complete(d D, err error) {
	s.doc, s.err = d, err
	close(s.done)
}

// Submit adds an edit and waits until it is written. It returns the resulting document. If the context ends, the edit is dropped, unless it
// is already being written.
func (w *Writer[D]) Submit(ctx context.Context, target Target[D], edit Edit[D]) (D, error) {
	mine := &submission[D]{done: make(chan struct{})}
	mine.edit = func(writing context.Context, before D) (D, error) {
		if ctx.Err() != nil {
			return before, ctx.Err()
		}
		return edit(writing, before)
	}
	w.mu.Lock()
	if w.waiting == nil {
		w.waiting = map[string][]*submission[D]{}
	}
	_, busy := w.waiting[target.ID]
	w.waiting[target.ID] = append(w.waiting[target.ID], mine)
	w.mu.Unlock()
	if !busy {
		rescue.Go("writing "+target.Name, func() { w.writeAll(context.WithoutCancel(ctx), target) })
	}
	select {
	case <-mine.done:
		return mine.doc, mine.err
	case <-ctx.Done():
		var none D
		return none, fmt.Errorf("waiting until %s is written: %w", target.Name, ctx.Err())
	}
}

// writeAll writes until no edit waits.
func (w *Writer[D]) writeAll(ctx context.Context, target Target[D]) {
	for busy := true; busy; {
		if target.Gather != nil {
			time.Sleep(target.Gather())
		}
		w.mu.Lock()
		batch := w.waiting[target.ID]
		w.waiting[target.ID] = nil
		w.mu.Unlock()
		writeBatch(ctx, target, batch)
		w.mu.Lock()
		if busy = len(w.waiting[target.ID]) > 0; !busy {
			delete(w.waiting, target.ID)
		}
		w.mu.Unlock()
	}
}

// writeBatch writes a batch. If the cloud refuses it, each edit is tried alone, so that one Service's fault does not affect others.
func writeBatch[D any](ctx context.Context, target Target[D], batch []*submission[D]) {
	var after D
	err := errNoResult
	func() {
		defer rescue.Into(&err, "writing "+target.Name)
		bounded, cancel := context.WithTimeout(ctx, target.Timeout)
		defer cancel()
		after, err = writeWithRetries(bounded, target, &batch)
	}()
	if len(batch) > 1 && (errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrQuota)) {
		for _, s := range batch {
			writeBatch(ctx, target, []*submission[D]{s})
		}
		return
	}
	for _, s := range batch {
		s.complete(after, err)
	}
}

// writeWithRetries writes a batch, repeatedly after concurrent writes. Edits that fail by themselves get their error and leave the batch.
func writeWithRetries[D any](ctx context.Context, target Target[D], batch *[]*submission[D]) (D, error) {
	document := target.Open()
	for try := 1; ; try++ {
		before, err := document.Read(ctx, try > 1)
		if err != nil {
			return before, err
		}
		after, changed := applyEdits(ctx, target, before, batch)
		if !changed {
			return before, nil
		}
		after, err = document.Write(ctx, before, after)
		late, isOutdated := errors.AsType[outdated](err)
		switch {
		case !isOutdated:
			return after, err
		case try == maxTries:
			return after, late.error
		}
	}
}

// applyEdits makes the edits of a batch one after the other.
func applyEdits[D any](ctx context.Context, target Target[D], before D, batch *[]*submission[D]) (after D, changed bool) {
	after = before
	var left []*submission[D]
	for _, s := range *batch {
		next, err := s.make(ctx, target, after)
		switch {
		case err == nil:
			after, changed = next, true
		case !errors.Is(err, ErrKeep):
			s.complete(before, err)
			continue
		}
		left = append(left, s)
	}
	*batch = left
	return after, changed
}

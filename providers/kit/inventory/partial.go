package inventory

import (
	"errors"
	"fmt"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// This file takes over listings from which only a part of the cloud is missing, so that a zone that cannot be reached does not make
// all others unknown.

// Partial is the error of a listing that lacks a part of the cloud, such as a zone that cannot be reached. What it shows counts. Of
// what it may lack nothing is known by it: what was known before stays, as old as it is, and a question that this listing would have
// answered ends with it.
type Partial[ID comparable] struct {
	// Lacks reports whether an object may exist although the listing does not show it.
	Lacks func(ID) bool
	// Err says what is missing, and why.
	Err error
}

// Error implements error.
func (p *Partial[ID]) Error() string { return p.Err.Error() }

// Unwrap returns what is missing, and why.
func (p *Partial[ID]) Unwrap() error { return p.Err }

// partialOf returns the missing part if the error is about a listing that is otherwise complete; nil for other errors, and for none.
func partialOf[ID comparable](err error) *Partial[ID] {
	p, _ := errors.AsType[*Partial[ID]](err)
	return p
}

// Lacking returns why the latest listing could not show an object; nil if it could.
func (i *view[ID]) Lacking(id ID) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lackingLocked(id, time.Time{})
}

// lackingLocked returns why a listing that is young enough could not show an object; nil if it could, or there is no such listing.
func (i *view[ID]) lackingLocked(id ID, oldest time.Time) error {
	if i.partial == nil || i.listed.IsZero() || i.listed.Before(oldest) || !i.partial.Lacks(id) {
		return nil
	}
	return i.partial
}

// unansweredLocked returns why a question about one object has no answer: it may make no call, or a listing that is young enough for it
// was made, and could not show the object.
func (i *view[ID]) unansweredLocked(id ID, q Query, d evidence.Demand, asked time.Time) error {
	if d.Remembered {
		return fmt.Errorf("%s %v: %w", i.source.Kind, id, evidence.ErrUnread)
	}
	oldest := asked.Add(-q.MaxAge)
	if !d.ListedSince.IsZero() && d.ListedSince.Before(oldest) {
		oldest = d.ListedSince
	}
	if d.Single {
		return nil
	}
	return i.lackingLocked(id, oldest)
}

// keyUnansweredLocked is unansweredLocked for a key of an index: an object that had the key may be in what is missing, and where none is
// found also one that nobody knows of. That takes a listing as young as absence does, for another one may find it in a part that is there.
// A key is asked for again and again until its object joins, which the latest listing answers for as long as it would if it were absent.
func (i *view[ID]) keyUnansweredLocked(index, key string, none bool, q Query, asked time.Time) error {
	if i.partial == nil || i.listed.IsZero() {
		return nil
	}
	oldest := asked.Add(-q.MaxAge)
	for id := range i.indexes[index].lookup(key) {
		if e := i.objects[id]; e.read.Before(oldest) && !i.listed.Before(oldest) && i.partial.Lacks(id) {
			return i.partial
		}
	}
	key = index + " " + key
	age := q.MaxUnlistedAge
	if i.unanswerable[key] {
		age = max(age, q.MaxMissAge)
	}
	if none && !i.listed.Before(asked.Add(-age)) {
		i.unanswerable[key] = true
		return i.partial
	}
	return nil
}

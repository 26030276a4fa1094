package inventory

import (
	"errors"
	"fmt"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// This file handles listings that lack a part of the cloud, so that an unreachable zone does not make all others unknown.

// Partial is the error of a listing that lacks a part of the cloud, such as an unreachable zone. Its objects count. About the missing part
// it says nothing: known objects stay, at their age, and a question that this listing would have answered gets its error.
type Partial[ID comparable] struct {
	// Lacks reports whether an object may exist although the listing does not show it.
	Lacks func(ID) bool
	// Err says which part is missing, and why.
	Err error
}

// Error implements error.
func (p *Partial[ID]) Error() string { return p.Err.Error() }

// Unwrap returns Err.
func (p *Partial[ID]) Unwrap() error { return p.Err }

// partialOf returns the missing part if the error is about a listing that is otherwise complete; nil for other errors, and for none.
func partialOf[ID comparable](err error) *Partial[ID] {
	p, _ := errors.AsType[*Partial[ID]](err)
	return p
}

// Lacking returns why the latest listing may lack an object; nil if it is complete for it.
func (i *view[ID]) Lacking(id ID) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.whyLackingLocked(id, time.Time{})
}

// whyLackingLocked returns why a new enough listing may lack an object; nil if it is complete for it, or there is no such listing.
func (i *view[ID]) whyLackingLocked(id ID, oldest time.Time) error {
	if i.partial == nil || i.listed.IsZero() || i.listed.Before(oldest) || !i.partial.Lacks(id) {
		return nil
	}
	return i.partial
}

// whyUnansweredLocked returns why a question about one object has no answer: the query permits no call, or a new enough listing lacked the
// object's part of the cloud.
func (i *view[ID]) whyUnansweredLocked(id ID, q question) error {
	since := q.Absence.ListedSince
	switch {
	case q.Absence.MemoryOnly:
		return fmt.Errorf("%s %v: %w", i.source.Kind, id, evidence.ErrUnread)
	case q.Absence.OwnRead:
		return nil
	case since.IsZero():
		since = q.oldest
	}
	return i.whyLackingLocked(id, earliest(since, q.oldest))
}

// whyKeyUnansweredLocked is whyUnansweredLocked for an index key: the missing part may contain a known object that had the key, and, if
// none is found, an unknown one. Only a listing as new as for absence counts, because a newer one may find the object. A key is looked up
// repeatedly until its object joins; the latest listing answers that as long as an absence.
func (i *view[ID]) whyKeyUnansweredLocked(index, key string, none bool, q question) error {
	if i.partial == nil || i.listed.IsZero() {
		return nil
	}
	for id := range i.indexes[index].lookup(key) {
		if e := i.objects[id]; e.read.Before(q.oldest) && !i.listed.Before(q.oldest) && i.partial.Lacks(id) {
			return i.partial
		}
	}
	key = index + " " + key
	oldest := q.oldestUnlisted
	if i.unanswerable[key] {
		oldest = earliest(oldest, q.oldestMiss)
	}
	if none && !i.listed.Before(oldest) {
		i.unanswerable[key] = true
		return i.partial
	}
	return nil
}

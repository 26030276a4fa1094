package inventory

import (
	"time"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// This file keeps listings that lack objects which exist from causing a single read of each with every question.

// maxUnlistedAge bounds how old the single read of an object may be that listings lack. It lets reads of more than a thousand objects stay
// within a budget of one in 2.5 s; an object that listings have again is as old as they are.
const maxUnlistedAge = time.Hour

// dropUnlistedLocked takes away what a listing lacks that began at a time, but for what is known better.
func (i *view[ID]) dropUnlistedLocked(listed map[ID]struct{}, began time.Time, partial *Partial[ID]) {
	for id, e := range i.objects {
		if _, ok := listed[id]; ok || !e.since.Before(began) || (partial != nil && partial.Lacks(id)) {
			continue
		}
		if i.ownLocked(e, began) || (e.unlisted && began.Sub(e.read) < maxUnlistedAge) {
			i.doubtListedLocked(id)
		} else {
			i.removeLocked(id)
		}
	}
}

// lackedLocked reports whether a single read that was answered shows an object which the latest listing lacked.
func (i *view[ID]) lackedLocked(id ID, f *flight) bool {
	e, known := i.objects[id]
	return f.proves && !i.listed.IsZero() && (!known || e.unlisted)
}

// noteUnlistedLocked notes that of an object that was just put.
func (i *view[ID]) noteUnlistedLocked(id ID, lacked bool) {
	if e := i.objects[id]; lacked && !e.unlisted {
		e.unlisted = true
		i.objects[id] = e
		i.unlisted++
	}
}

// maxAgeLocked is how old an object may be that answers a question. One that listings lack answers for as long as it takes to read
// all of its kind within their budget: reads of them take the place of a listing. Whoever demands a newer answer gets one, and
// absence is proved as ever.
func (i *view[ID]) maxAgeLocked(e entry, q Query, d evidence.Demand) time.Duration {
	if !e.unlisted || !d.NotBefore.IsZero() {
		return q.MaxAge
	}
	return max(q.MaxAge, min(time.Duration(i.singlesCost(i.unlisted))*q.PerSingle, maxUnlistedAge))
}

// mustListLocked reports whether what is known of a key is too old, or may not be all.
func (i *view[ID]) mustListLocked(stale bool, doubtful []ID) bool {
	return stale || len(doubtful) > 0 || !i.hidden.IsZero()
}

package inventory

import "time"

// This file limits the single reads of existing objects that listings lack: otherwise each question would read each of them.

// maxOmittedAge bounds the age of the single read of an omitted object. It lets reads of more than a thousand objects stay within a budget
// of one in 2.5 s.
const maxOmittedAge = time.Hour

// dropUnlistedLocked removes the objects that a listing lacks, except those with newer evidence.
func (i *view[ID]) dropUnlistedLocked(listed map[ID]struct{}, began time.Time, partial *Partial[ID]) {
	for id, e := range i.objects {
		if _, ok := listed[id]; ok || !e.produced.Before(began) || (partial != nil && partial.Lacks(id)) {
			continue
		}
		switch {
		case i.source.Get == nil && i.made.mayLack(id, began): // no single read could show it
			e.read = began
			i.objects[id] = e
		case i.mayPredateWriteLocked(e, began), e.omitted && began.Sub(e.read) < maxOmittedAge:
			i.doubtListedLocked(id)
		default:
			i.removeLocked(id)
		}
	}
}

// isOmittedLocked reports whether a successful single read shows an object that the latest listing lacked.
func (i *view[ID]) isOmittedLocked(id ID, f *flight) bool {
	e, known := i.objects[id]
	return f.proves && !i.listed.IsZero() && (!known || e.omitted)
}

// setOmittedLocked sets the flag of an object that was just stored.
func (i *view[ID]) setOmittedLocked(id ID, omitted bool) {
	if e := i.objects[id]; omitted && !e.omitted {
		e.omitted = true
		i.objects[id] = e
		i.omitted++
	}
}

// oldestLocked returns when an object must have been read to answer a question. An omitted one may be older, as long as it takes to read
// all such objects within their budget. A caller that demands a newer answer gets one, and absence is proved as usual.
func (i *view[ID]) oldestLocked(e entry, q question) time.Time {
	if !e.omitted || !q.NotBefore.IsZero() {
		return q.oldest
	}
	return earliest(q.oldest, q.asked.Add(-min(time.Duration(i.singlesCost(i.omitted))*q.PerSingle, maxOmittedAge)))
}

// mustListLocked reports whether the known objects of a key are too old, or may be incomplete.
func (i *view[ID]) mustListLocked(stale bool, doubtful []ID) bool {
	return stale || len(doubtful) > 0 || !i.hidden.IsZero()
}

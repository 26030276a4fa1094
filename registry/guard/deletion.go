package guard

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

const (
	// listingMaxAge is how old a listing may be that answers a first or middle question; a pass of the loop is longer.
	listingMaxAge = 2 * time.Second
	// holdPause is the time between two questions about a Node that is held: nothing changes from one second to the next.
	holdPause = 30 * time.Second
	// doubtPause is the same while a ready Node contradicts the cloud.
	doubtPause = 10 * time.Second
	// goneByHand is how long a suspect was not asked about whose Node is looked for: what was asked about is there.
	goneByHand = 2 * time.Second
	// singlePause is the time between two single reads of an instance whose Node is held; listings answer in between.
	singlePause = 5 * time.Minute
)

// deletions keeps what the decision about Nodes rests on, and gets what it lacks. It knows nothing of clouds: only answers,
// and when they came.
type deletions struct {
	policy Policy
	// count returns the number of our Nodes in the cluster.
	count func() int
	// changed says how a Node differs from the copy that is asked about, "" where it does not.
	changed func(*v1.Node) string
	// account makes a cheap authenticated call.
	account   func(context.Context) error
	witnesses *witnesses
	heard     *heard

	mu sync.Mutex
	// suspects are Nodes whose instance was called gone and was not seen since, by UID. Those that were let go stay for the
	// window, so that a slow loss of a cluster is noticed too.
	suspects map[string]*memory
	// alive is when an instance of the cluster was last seen, however old that answer was.
	alive time.Time
	// returned is when the instance of a suspect was last seen after a single read had called it gone.
	returned time.Time
	// released is when a Node last went after a hold by share, lastAsked when one was last asked about to go.
	released, lastAsked time.Time
	swept               time.Time
}

// memory is the state kept for a suspect between runs.
type memory struct {
	suspect
	// why and message are the last decision; next is when the cloud is asked again.
	why     hold
	message string
	next    time.Time
	// read is when a single read last called the instance gone; wanted asks for another.
	read   time.Time
	wanted bool
	// heard is when the framework last asked about the Node.
	heard time.Time
	// gone is set when the Node was let go.
	gone bool
}

// verdictOn is a decision that still stands.
type verdictOn struct {
	why     hold
	message string
}

func newDeletions(p Policy, count func() int, changed func(*v1.Node) string, account func(context.Context) error, w *witnesses) *deletions {
	return &deletions{
		policy: p, count: count, changed: changed, account: account, witnesses: w, heard: w.heard, suspects: map[string]*memory{},
	}
}

func key(node *v1.Node) string {
	if node.UID != "" {
		return string(node.UID)
	}
	return node.Name
}

// keys are the keys of Nodes.
func keys(nodes []*v1.Node) map[string]struct{} {
	all := make(map[string]struct{}, len(nodes))
	for _, n := range nodes {
		all[key(n)] = struct{}{}
	}
	return all
}

// noteSeen records that an instance exists. Whatever was said of it before is void.
func (d *deletions) noteSeen(node *v1.Node) {
	now := time.Now()
	retracted := d.witnesses.noteFound(node)
	d.heard.saw(node)
	if existing := d.heard.sweep(d.witnesses.nodes); existing != nil {
		d.witnesses.forget(existing)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if retracted {
		d.voidLocked(now)
	}
	if m, suspected := d.suspects[key(node)]; suspected {
		if !m.read.IsZero() {
			d.returned = now
		}
		delete(d.suspects, key(node))
	}
	d.alive = now
	d.sweepLocked(now)
}

// voidLocked begins every suspicion again: the cloud took back what it said of one Node, as it does when the credential changes or
// when not all of its servers know the same, so that what it said of others meanwhile is worth no more.
func (d *deletions) voidLocked(now time.Time) {
	d.returned = now
	for _, m := range d.suspects {
		if !m.gone {
			m.first, m.answers, m.single, m.wanted, m.next = now, 0, false, false, time.Time{}
		}
	}
}

// suspected reports whether the instance of a Node was called gone and not seen since.
func (d *deletions) suspected(node *v1.Node) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.suspects[key(node)]
	return ok
}

// question returns what the next answer about a Node must rest on; or, with ask false, the decision that still stands. Early
// answers may come from listings, which many Nodes share; the last one is a single read of the instance.
func (d *deletions) question(node *v1.Node) (demand evidence.Demand, ask bool, standing verdictOn) {
	now := time.Now()
	sights, readable := d.witnesses.sights(), d.witnesses.readable(node)
	d.mu.Lock()
	defer d.mu.Unlock()
	m, known := d.suspects[key(node)]
	if !known {
		m = &memory{suspect: suspect{first: now}}
	}
	m.heard = now
	single := evidence.Demand{Single: true, NotBefore: now}
	switch planned := d.policy.planned(node); {
	case known && planned != m.planned:
		return single, true, verdictOn{}
	case known && now.Before(m.next):
		return evidence.Demand{}, false, verdictOn{m.why, m.message}
	case m.why == holdShare || m.why == holdPace:
		if d.policy.holdIsServed(situation{now: now, suspect: m.suspect, covered: sights.covered, returned: d.returned, readable: readable}) {
			if now.Sub(d.lastAsked) < releasePause {
				return evidence.Demand{}, false, verdictOn{m.why, m.message}
			}
			d.lastAsked = now
			return single, true, verdictOn{}
		}
	}
	if m.singleDue(d.policy, now) {
		return single, true, verdictOn{}
	}
	since := now.Add(-listingMaxAge)
	if m.last.After(since) {
		since = m.last // no listing answers twice
	}
	return evidence.Demand{ListedSince: since, Within: d.policy.within()}, true, verdictOn{}
}

// singleDue reports whether the next answer must come from a read of the instance itself.
func (m *memory) singleDue(p Policy, now time.Time) bool {
	if m.why.lasting() {
		return m.wanted || now.Sub(m.read) >= singlePause
	}
	return m.wanted || (m.answers+1 >= p.Confirmations && now.Sub(m.first) >= p.ConfirmationTime)
}

// noteGone records that the cloud called an instance gone, by a single read or not, and decides. The message says what was seen
// and what to do.
func (d *deletions) noteGone(ctx context.Context, node *v1.Node, single bool) (hold, string) {
	s := d.record(node, single)
	p := d.policy
	var account error
	putOff := false
	if why, _ := p.unproven(situation{now: s.last, suspect: s}); why == holdNone {
		if !p.lifted() {
			// Every confirmed suspicion is older than the confirmation time, so that one read serves them all.
			doubt := d.witnesses.contradicts(node, s.first).node != ""
			putOff = d.witnesses.need(ctx, s.first, s.last.Add(-p.ConfirmationTime), doubt, d.suspected)
		} else if !s.planned && d.unseenFor() > p.Window {
			account = d.account(ctx)
		}
	}
	sights := d.witnesses.sights()
	against := d.witnesses.contradicts(node, s.first)
	readable := d.witnesses.readable(node)
	total := d.count()
	if changed := d.changed(node); changed != "" {
		return holdUnconfirmed, changed
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.suspects[key(node)]
	if m == nil {
		return holdUnconfirmed, "the instance was seen while the decision was made"
	}
	vanished, released := d.vanishedLocked()
	if total > 0 { // or the Nodes of the cluster are not known yet, so that Floor alone counts
		total += released
	}
	now := time.Now()
	m.why, m.message = decide(p, situation{
		now: now, suspect: m.suspect, vanished: vanished, total: total, witness: sights.last, covered: sights.covered, unseen: sights.unseen,
		putOff: putOff, readable: readable, returned: d.returned, against: against, released: d.released, account: account,
	})
	d.applyLocked(m, now, vanished > p.limit(total))
	if putOff && m.why == holdUnconfirmed && m.single {
		m.next = now.Add(witnessPause)
	}
	return m.why, m.message
}

// record adds an answer to a suspicion.
func (d *deletions) record(node *v1.Node, single bool) suspect {
	now, planned := time.Now(), d.policy.planned(node)
	heard := d.heard.since(node, planned)
	d.mu.Lock()
	defer d.mu.Unlock()
	m, known := d.suspects[key(node)]
	if !known {
		m = &memory{suspect: suspect{first: now}}
		d.suspects[key(node)] = m
	}
	m.heard = now
	m.last, m.answers, m.single, m.planned, m.heardOf = now, m.answers+1, single, planned, heard
	if single {
		m.read = now
	}
	d.sweepLocked(now)
	return m.suspect
}

// vanishedLocked counts the unplanned suspects, and those of them that were let go.
func (d *deletions) vanishedLocked() (vanished, released int) {
	for _, m := range d.suspects {
		if m.planned {
			continue
		}
		vanished++
		if m.gone {
			released++
		}
	}
	return vanished, released
}

// applyLocked takes over a decision: when the Node is asked about again, and how.
func (d *deletions) applyLocked(m *memory, now time.Time, exceeded bool) {
	m.wanted, m.next = false, time.Time{}
	switch {
	case m.why == holdNone:
		m.gone = true
		if exceeded && !m.planned {
			d.released = now
		}
	case m.why.lasting():
		m.next = now.Add(holdPause)
	case m.why == holdPace:
		m.next = now.Add(releasePause)
	case m.why == holdUnconfirmed && d.policy.confirmed(m.suspect) && m.single:
		m.next = now.Add(doubtPause)
	case m.why == holdUnconfirmed && d.policy.confirmed(m.suspect):
		m.wanted = true
	}
}

// unseenFor is how long no instance was seen.
func (d *deletions) unseenFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.alive)
}

// sweepLocked forgets what is older than the window, and suspects that were not let go and whose Nodes are no more: a person deleted
// them, and they count no longer.
func (d *deletions) sweepLocked(now time.Time) {
	if now.Sub(d.swept) < time.Second {
		return
	}
	d.swept = now
	var exist map[string]struct{}
	for k, m := range d.suspects {
		unheard := now.Sub(m.heard)
		if unheard > goneByHand && !m.gone {
			if exist == nil {
				exist = keys(d.witnesses.nodes())
			}
			if _, exists := exist[k]; !exists && len(exist) > 0 {
				delete(d.suspects, k) // a person deleted the Node
			}
		}
		if unheard > d.policy.Window {
			delete(d.suspects, k)
		}
	}
}

package guard

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

const (
	// listingMaxAge is the maximum age of a listing for the first answers about a suspect; a pass of the framework takes longer.
	listingMaxAge = 2 * time.Second
	// holdPause is the time between two questions about a held Node, whose state changes slowly.
	holdPause = 30 * time.Second
	// doubtPause is the same while a ready Node contradicts the cloud.
	doubtPause = 10 * time.Second
	// goneByHand is the least time since the last question about a suspect after which its Node is looked up: until then it exists.
	goneByHand = 2 * time.Second
	// singlePause is the time between two single reads of an instance whose Node is held; listings answer in between.
	singlePause = 5 * time.Minute
)

// deletions keeps the evidence for decisions about Nodes, and collects what is missing. It depends on no cloud: only on answers and their
// times.
type deletions struct {
	policy Policy
	// count returns the number of our Nodes in the cluster.
	count func() int
	// changed says how a Node differs from the given copy, or "".
	changed func(*v1.Node) string
	// account makes a cheap authenticated call.
	account   func(context.Context) error
	witnesses *witnesses
	heard     *heard

	mu sync.Mutex
	// suspects are Nodes whose instance was called gone and was not observed since, by UID. Those that were deleted stay for the window, so
	// that a slow loss of a cluster is noticed too.
	suspects map[string]*memory
	// alive is when an instance of the cluster was last observed, however old that answer was.
	alive time.Time
	// returned is when the instance of a suspect was last observed after a single read had called it gone.
	returned time.Time
	// released is when a Node was last deleted after a hold by share, lastAsked when one was last considered.
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
	// read is when a single read last called the instance gone; wanted requests another one.
	read   time.Time
	wanted bool
	// heard is when the framework last asked about the Node.
	heard time.Time
	// gone is set when the deletion of the Node was allowed.
	gone bool
}

// verdictOn is a decision that is still valid.
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

// keys returns the keys of Nodes.
func keys(nodes []*v1.Node) map[string]struct{} {
	all := make(map[string]struct{}, len(nodes))
	for _, n := range nodes {
		all[key(n)] = struct{}{}
	}
	return all
}

// noteSeen records that an instance exists, which ends the suspicion.
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

// voidLocked restarts all suspicions: the cloud withdrew its answer about one Node, as after a change of credentials or with inconsistent
// API servers, so that its other answers are doubtful as well.
func (d *deletions) voidLocked(now time.Time) {
	d.returned = now
	for _, m := range d.suspects {
		if !m.gone {
			m.first, m.answers, m.single, m.wanted, m.next = now, 0, false, false, time.Time{}
		}
	}
}

// suspected reports whether the instance of a Node was called gone and not observed since.
func (d *deletions) suspected(node *v1.Node) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.suspects[key(node)]
	return ok
}

// question returns the demand on the next answer about a Node; or, with ask false, the decision that is still valid. Early answers may come
// from shared listings; the last one is a single read of the instance.
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
		since = m.last // each listing counts once
	}
	return evidence.Demand{ListedSince: since, Within: d.policy.within()}, true, verdictOn{}
}

// singleDue reports whether the next answer must come from a single read of the instance.
func (m *memory) singleDue(p Policy, now time.Time) bool {
	if m.why.lasting() {
		return m.wanted || now.Sub(m.read) >= singlePause
	}
	return m.wanted || (m.answers+1 >= p.Confirmations && now.Sub(m.first) >= p.ConfirmationTime)
}

// noteGone records that the cloud called an instance gone, and decides. The message names the evidence and the advice.
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
	if total > 0 { // otherwise the Nodes are not known yet, and Floor alone counts
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

// vanishedLocked counts the unplanned suspects, and those of them that were deleted.
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

// applyLocked applies a decision: when the Node is considered again, and how.
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

// unseenFor returns how long no instance was observed.
func (d *deletions) unseenFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.alive)
}

// sweepLocked drops entries older than the window, and held suspects whose Nodes no longer exist: a person deleted them.
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

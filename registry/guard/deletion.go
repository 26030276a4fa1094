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

// decider keeps the evidence for decisions about Nodes, and collects what is missing. It depends on no cloud: only on answers and their
// times.
type decider struct {
	policy Policy
	// countNodes returns the number of our Nodes in the cluster.
	countNodes func() int
	// whyChanged says how a Node differs from the given copy, or "".
	whyChanged func(*v1.Node) string
	// checkAccount makes a cheap authenticated call.
	checkAccount func(context.Context) error
	witnesses    *witnesses
	records      *nodeRecords

	mu sync.Mutex
	// suspects are Nodes whose instance was called gone and was not observed since, by UID. Those that were deleted stay for the window, so
	// that a slow loss of a cluster is noticed too.
	suspects map[string]*suspicion
	// lastSeen is when an instance of the cluster was last observed, however old that answer was.
	lastSeen time.Time
	// lastReturned is when the instance of a suspect was last observed after a single read had called it gone.
	lastReturned time.Time
	// lastReleased is when a Node was last deleted after a hold by share, lastConsidered when one was last asked about for that.
	lastReleased, lastConsidered time.Time
	swept                        time.Time
}

// suspicion is the state kept for a suspect between runs.
type suspicion struct {
	suspect
	// why and message are the last decision; askAgain is when the cloud is asked again.
	why      hold
	message  string
	askAgain time.Time
	// lastOwnRead is when a single read of this instance last called it gone; needsOwnRead requests another one.
	lastOwnRead  time.Time
	needsOwnRead bool
	// lastAsked is when the framework last asked about the Node.
	lastAsked time.Time
	// isReleased is set when the deletion of the Node was allowed.
	isReleased bool
}

// decision is the result of an earlier answer that is still valid.
type decision struct {
	why     hold
	message string
}

func newDecider(p Policy, count func() int, changed func(*v1.Node) string, account func(context.Context) error, w *witnesses) *decider {
	return &decider{
		policy: p, countNodes: count, whyChanged: changed, checkAccount: account, witnesses: w, records: w.records,
		suspects: map[string]*suspicion{},
	}
}

func nodeKey(node *v1.Node) string {
	if node.UID != "" {
		return string(node.UID)
	}
	return node.Name
}

// nodeKeys returns the keys of Nodes.
func nodeKeys(nodes []*v1.Node) map[string]struct{} {
	all := make(map[string]struct{}, len(nodes))
	for _, n := range nodes {
		all[nodeKey(n)] = struct{}{}
	}
	return all
}

// recordExists records that an instance exists, which ends the suspicion.
func (d *decider) recordExists(node *v1.Node) {
	now := time.Now()
	retracted := d.witnesses.clearAbsence(node)
	d.records.recordSeen(node)
	if existing := d.records.sweep(d.witnesses.nodes); existing != nil {
		d.witnesses.dropDeparted(existing)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if retracted {
		d.restartSuspicionsLocked(now)
	}
	if m, suspected := d.suspects[nodeKey(node)]; suspected {
		if !m.lastOwnRead.IsZero() {
			d.lastReturned = now
		}
		delete(d.suspects, nodeKey(node))
	}
	d.lastSeen = now
	d.sweepLocked(now)
}

// restartSuspicionsLocked restarts all suspicions: the cloud withdrew its answer about one Node, as after a change of credentials or with
// inconsistent API servers, so that its other answers are doubtful as well.
func (d *decider) restartSuspicionsLocked(now time.Time) {
	d.lastReturned = now
	for _, m := range d.suspects {
		if !m.isReleased {
			m.first, m.answers, m.single, m.needsOwnRead, m.askAgain = now, 0, false, false, time.Time{}
		}
	}
}

// isSuspected reports whether the instance of a Node was called gone and not observed since.
func (d *decider) isSuspected(node *v1.Node) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.suspects[nodeKey(node)]
	return ok
}

// nextQuestion returns the demand on the next answer about a Node; or, with ask false, the decision that is still valid. Early answers may
// come from shared listings; the last one is a single read of the instance.
func (d *decider) nextQuestion(node *v1.Node) (demand evidence.Demand, ask bool, standing decision) {
	now := time.Now()
	witnesses, otherReady := d.witnesses.state(), d.witnesses.hasOtherReady(node)
	d.mu.Lock()
	defer d.mu.Unlock()
	m, known := d.suspects[nodeKey(node)]
	if !known {
		m = &suspicion{suspect: suspect{first: now}}
	}
	m.lastAsked = now
	proof := evidence.Proof(now)
	switch planned := d.policy.isAnnounced(node); {
	case known && planned != m.announced:
		return proof, true, decision{}
	case known && now.Before(m.askAgain):
		return evidence.Demand{}, false, decision{m.why, m.message}
	case m.why == holdShare || m.why == holdPace:
		if d.policy.holdIsServed(situation{
			now: now, suspect: m.suspect, witnessedSince: witnesses.witnessedSince, lastReturned: d.lastReturned, hasOtherReady: otherReady,
		}) {
			if now.Sub(d.lastConsidered) < releasePause {
				return evidence.Demand{}, false, decision{m.why, m.message}
			}
			d.lastConsidered = now
			return proof, true, decision{}
		}
	}
	if m.isOwnReadDue(d.policy, now) {
		return proof, true, decision{}
	}
	since := now.Add(-listingMaxAge)
	if m.last.After(since) {
		since = m.last // each listing counts once
	}
	return evidence.Early(since, d.policy.maxExistsAge()), true, decision{}
}

// isOwnReadDue reports whether the next answer must come from a single read of the instance.
func (m *suspicion) isOwnReadDue(p Policy, now time.Time) bool {
	if m.why.isLasting() {
		return m.needsOwnRead || now.Sub(m.lastOwnRead) >= singlePause
	}
	return m.needsOwnRead || (m.answers+1 >= p.Confirmations && now.Sub(m.first) >= p.ConfirmationTime)
}

// decideGone records that the cloud called an instance gone, and decides. The message names the evidence and the advice.
func (d *decider) decideGone(ctx context.Context, node *v1.Node, single bool) (hold, string) {
	s := d.addAnswer(node, single)
	p := d.policy
	var account error
	putOff := false
	if why, _ := p.judgeProof(situation{now: s.last, suspect: s}); why == holdNone {
		if !p.areLimitsLifted() {
			// Every confirmed suspicion is older than the confirmation time, so that one read serves them all.
			doubt := d.witnesses.findContradiction(node, s.first).node != ""
			putOff = d.witnesses.searchIfDue(ctx, s.first, s.last.Add(-p.ConfirmationTime), doubt, d.isSuspected)
		} else if !s.announced && d.unseenFor() > p.Window {
			account = d.checkAccount(ctx)
		}
	}
	witnesses := d.witnesses.state()
	against := d.witnesses.findContradiction(node, s.first)
	otherReady := d.witnesses.hasOtherReady(node)
	total := d.countNodes()
	if changed := d.whyChanged(node); changed != "" {
		return holdUnconfirmed, changed
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.suspects[nodeKey(node)]
	if m == nil {
		return holdUnconfirmed, "the instance was seen while the decision was made"
	}
	vanished, released := d.countVanishedLocked()
	if total > 0 { // otherwise the Nodes are not known yet, and Floor alone counts
		total += released
	}
	now := time.Now()
	m.why, m.message = decide(p, situation{
		now: now, suspect: m.suspect, vanished: vanished, total: total,
		witness: witnesses.lastRead, witnessedSince: witnesses.witnessedSince, whyUnseen: witnesses.whyUnseen, putOff: putOff,
		contradiction: against, hasOtherReady: otherReady, lastReturned: d.lastReturned, lastReleased: d.lastReleased, accountErr: account,
	})
	d.scheduleNextLocked(m, now, vanished > p.limit(total))
	if putOff && m.why == holdUnconfirmed && m.single {
		m.askAgain = now.Add(witnessPause)
	}
	return m.why, m.message
}

// addAnswer adds an answer to a suspicion.
func (d *decider) addAnswer(node *v1.Node, single bool) suspect {
	now, planned := time.Now(), d.policy.isAnnounced(node)
	heard := d.records.knownSince(node, planned)
	d.mu.Lock()
	defer d.mu.Unlock()
	m, known := d.suspects[nodeKey(node)]
	if !known {
		m = &suspicion{suspect: suspect{first: now}}
		d.suspects[nodeKey(node)] = m
	}
	m.lastAsked = now
	m.last, m.answers, m.single, m.announced, m.knownSince = now, m.answers+1, single, planned, heard
	if single {
		m.lastOwnRead = now
	}
	d.sweepLocked(now)
	return m.suspect
}

// countVanishedLocked counts the unplanned suspects, and those of them that were deleted.
func (d *decider) countVanishedLocked() (vanished, released int) {
	for _, m := range d.suspects {
		if m.announced {
			continue
		}
		vanished++
		if m.isReleased {
			released++
		}
	}
	return vanished, released
}

// scheduleNextLocked applies a decision: when the Node is considered again, and how.
func (d *decider) scheduleNextLocked(m *suspicion, now time.Time, exceeded bool) {
	m.needsOwnRead, m.askAgain = false, time.Time{}
	switch {
	case m.why == holdNone:
		m.isReleased = true
		if exceeded && !m.announced {
			d.lastReleased = now
		}
	case m.why.isLasting():
		m.askAgain = now.Add(holdPause)
	case m.why == holdPace:
		m.askAgain = now.Add(releasePause)
	case m.why == holdUnconfirmed && d.policy.isConfirmed(m.suspect) && m.single:
		m.askAgain = now.Add(doubtPause)
	case m.why == holdUnconfirmed && d.policy.isConfirmed(m.suspect):
		m.needsOwnRead = true
	}
}

// unseenFor returns how long no instance was observed.
func (d *decider) unseenFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.lastSeen)
}

// sweepLocked drops entries older than the window, and held suspects whose Nodes no longer exist: a person deleted them.
func (d *decider) sweepLocked(now time.Time) {
	if now.Sub(d.swept) < time.Second {
		return
	}
	d.swept = now
	var exist map[string]struct{}
	for k, m := range d.suspects {
		unheard := now.Sub(m.lastAsked)
		if unheard > goneByHand && !m.isReleased {
			if exist == nil {
				exist = nodeKeys(d.witnesses.nodes())
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

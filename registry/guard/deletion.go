package guard

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

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
	policy    Policy
	ownership *ownership
	// inner answers about instances; nil for a cloud without any.
	inner cloudprovider.InstancesV2
	// checkAccount makes a cheap authenticated call.
	checkAccount func(context.Context) error

	mu sync.Mutex
	// nodes holds the records by UID. Suspects that were deleted stay for the window, so that a slow loss of a cluster is noticed too.
	nodes map[string]*nodeRecord
	// doubted holds the records with an absence or a suspicion, and for a while those that had one: decisions look at these alone, because
	// most Nodes of a large cluster have neither.
	doubted map[string]*nodeRecord
	roll    rollCalls
	// lastSeen is when an instance of the cluster was last observed, however old that answer was.
	lastSeen time.Time
	// lastReturned is when the instance of a suspect was last observed after a single read had called it gone.
	lastReturned time.Time
	// lastReleased is when a Node was last deleted after a hold by share, lastConsidered when one was last asked about for that.
	lastReleased, lastConsidered time.Time
	// sweptNodes and sweptSuspicions are when records were last searched for what is to be forgotten.
	sweptNodes, sweptSuspicions time.Time
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

// ask asks the cloud about the instance of a Node.
func (d *decider) ask(ctx context.Context, node *v1.Node, demand evidence.Demand) (exists bool, err error) {
	defer recoverPanic(&err, "InstanceExists", node.Name)
	return d.inner.InstanceExists(evidence.With(ctx, demand), node)
}

// restartSuspicionsLocked restarts all suspicions: the cloud withdrew its answer about one Node, as after a change of credentials or with
// inconsistent API servers, so that its other answers are doubtful as well.
func (d *decider) restartSuspicionsLocked(now time.Time) {
	d.lastReturned = now
	for _, known := range d.doubted {
		if m := known.suspicion; m != nil && !m.isReleased {
			m.first, m.answers, m.single, m.needsOwnRead, m.askAgain = now, 0, false, false, time.Time{}
		}
	}
}

// nextQuestion returns the demand on the next answer about a Node; or, with ask false, the decision that is still valid. Early answers may
// come from shared listings; the last one is a single read of the instance.
func (d *decider) nextQuestion(node *v1.Node) (demand evidence.Demand, ask bool, why hold, message string) {
	now, announced := time.Now(), d.policy.isAnnounced(node)
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.findRecordLocked(node).suspicion
	if m == nil {
		m = &suspicion{suspect: suspect{first: now, announced: announced}}
	}
	m.lastAsked = now
	switch {
	case announced != m.announced:
		return evidence.Proof(now), true, "", ""
	case now.Before(m.askAgain):
		return evidence.Demand{}, false, m.why, m.message
	case (m.why == holdShare || m.why == holdPace) && d.policy.holdIsServed(d.situationLocked(node, m, now)):
		if now.Sub(d.lastConsidered) < releasePause {
			return evidence.Demand{}, false, m.why, m.message
		}
		d.lastConsidered = now
		return evidence.Proof(now), true, "", ""
	case m.isOwnReadDue(d.policy, now):
		return evidence.Proof(now), true, "", ""
	}
	since := now.Add(-listingMaxAge)
	if m.last.After(since) {
		since = m.last // each listing counts once
	}
	return evidence.Early(since, d.policy.maxExistsAge()), true, "", ""
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
	s, unseen := d.addAnswer(node, single)
	p := d.policy
	var account error
	putOff := false
	if why, _ := p.judgeProof(situation{now: s.last, suspect: s}); why == holdNone {
		if !p.areLimitsLifted() {
			// Every confirmed suspicion is older than the confirmation time, so that one read serves them all.
			putOff = d.callRollIfDue(ctx, node, s.first, s.last.Add(-p.ConfirmationTime))
		} else if !s.announced && unseen > p.Window {
			account = d.checkAccount(ctx)
		}
	}
	if changed := d.ownership.whyChanged(node); changed != "" {
		return holdUnconfirmed, changed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.findRecordLocked(node).suspicion
	if m == nil {
		return holdUnconfirmed, "the instance was seen while the decision was made"
	}
	current := d.situationLocked(node, m, time.Now())
	current.putOff, current.accountErr = putOff, account
	current.contradiction = d.findContradictionLocked(node, s.first)
	m.why, m.message = decide(p, current)
	d.scheduleNextLocked(m, current)
	return m.why, m.message
}

// addAnswer adds an answer to a suspicion, and returns for how long no instance was observed.
func (d *decider) addAnswer(node *v1.Node, single bool) (s suspect, unseen time.Duration) {
	now, announced := time.Now(), d.policy.isAnnounced(node)
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.recordNodeLocked(node)
	if known.suspicion == nil {
		known.suspicion = &suspicion{suspect: suspect{first: now}}
		d.doubted[nodeKey(node)] = known
	}
	m := known.suspicion
	m.lastAsked = now
	m.last, m.answers, m.single, m.announced, m.knownSince = now, m.answers+1, single, announced, known.knownSince(node, announced)
	if single {
		m.lastOwnRead = now
	}
	d.sweepSuspicionsLocked(now)
	return m.suspect, now.Sub(d.lastSeen)
}

// situationLocked returns what is known of a suspect and of the cluster now. Unplanned suspects, and those of them that were deleted, count
// as vanished.
func (d *decider) situationLocked(node *v1.Node, m *suspicion, now time.Time) situation {
	s := situation{
		now: now, suspect: m.suspect, total: len(d.ownership.ourNodes()), hasOtherReady: d.hasOtherReadyLocked(node),
		witness: d.roll.lastRead, witnessedSince: d.roll.witnessedSince, whyUnseen: d.roll.whyUnseen,
		lastReturned: d.lastReturned, lastReleased: d.lastReleased,
	}
	haveListed := s.total > 0 // otherwise the Nodes are not known yet, and Floor alone counts
	for _, other := range d.doubted {
		if other.suspicion == nil || other.suspicion.announced {
			continue
		}
		s.vanished++
		if other.suspicion.isReleased && haveListed {
			s.total++
		}
	}
	return s
}

// scheduleNextLocked applies a decision: when the Node is considered again, and how.
func (d *decider) scheduleNextLocked(m *suspicion, s situation) {
	m.needsOwnRead, m.askAgain = false, time.Time{}
	switch {
	case m.why == holdNone:
		m.isReleased = true
		if !m.announced && s.vanished > d.policy.limit(s.total) {
			d.lastReleased = s.now
		}
	case m.why.isLasting():
		m.askAgain = s.now.Add(holdPause)
	case m.why == holdPace:
		m.askAgain = s.now.Add(releasePause)
	case m.why != holdUnconfirmed:
	case m.single && s.putOff:
		m.askAgain = s.now.Add(witnessPause)
	case d.policy.isConfirmed(m.suspect) && m.single:
		m.askAgain = s.now.Add(doubtPause)
	case d.policy.isConfirmed(m.suspect):
		m.needsOwnRead = true
	}
}

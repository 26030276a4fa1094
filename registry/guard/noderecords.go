package guard

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// sweepPause is the least time between two searches for deleted Nodes.
	sweepPause = time.Minute
	// absenceMaxAge is how long it is remembered that a ready Node's instance was called gone; the framework's periodic update asks again
	// before.
	absenceMaxAge = 15 * time.Minute
)

// nodeRecord holds everything that this process knows about one Node.
type nodeRecord struct {
	acquaintance
	// absence is zero if the instance was observed since.
	absence absence
	// suspicion is nil unless the instance was called gone, and not observed since.
	suspicion *suspicion
}

// acquaintance records when this process first observed a Node, and how. A Node is at least as old as that, regardless of the clocks of the
// API server and of this machine.
type acquaintance struct {
	firstHeard time.Time
	// joined is set for a Node that came after the first list of all Nodes, inFirstList for a Node of that list.
	joined, inFirstList bool
	// seen is set once its instance was seen.
	seen bool
	// lastRead is a time after which its instance was read by a search for witnesses.
	lastRead time.Time
}

// absence records when the cloud called a Node's instance gone without other evidence.
type absence struct {
	// first and last are when the cloud did that; readyFirst and readyLast while the Node was ready.
	first, last, readyFirst, readyLast time.Time
}

// isLasting reports whether the Node was ready for longer than is possible after its machine is gone.
func (a absence) isLasting() bool { return a.readyLast.Sub(a.readyFirst) >= contradictionGrace }

// isKnownByKubeletAlone reports whether nobody can have observed the instance of a Node: it is not initialised, or it joined while this
// process ran and was never observed. Only its kubelet says that it exists.
func (r *nodeRecord) isKnownByKubeletAlone(node *v1.Node) bool {
	return !r.seen && (r.joined || contract.Uninitialized(node))
}

// knownSince returns since when a Node is known to exist. Its creation timestamp counts only if its removal was announced and it is older
// than this process: otherwise every restart would delay planned removals.
func (r *nodeRecord) knownSince(node *v1.Node, announced bool) time.Time {
	if created := node.CreationTimestamp.Time; announced && r.inFirstList && !created.IsZero() && created.Before(r.firstHeard) {
		return created
	}
	return r.firstHeard
}

// findRecordLocked returns the record of a Node, and makes an empty one if there is none.
func (d *decider) findRecordLocked(node *v1.Node) *nodeRecord {
	known, ok := d.nodes[nodeKey(node)]
	if !ok {
		known = &nodeRecord{}
		d.nodes[nodeKey(node)] = known
	}
	return known
}

// recordNodeLocked records that a Node exists.
func (d *decider) recordNodeLocked(node *v1.Node) *nodeRecord {
	known := d.findRecordLocked(node)
	if known.firstHeard.IsZero() {
		known.firstHeard = time.Now()
	}
	return known
}

// recordNode records that a Node exists, and returns since when that is known.
func (d *decider) recordNode(node *v1.Node) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.recordNodeLocked(node).firstHeard
}

// nodeHandler records Nodes from informer events.
func (d *decider) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if node, ok := object.(*v1.Node); ok {
				d.addNode(node, initial)
			}
		},
		UpdateFunc: func(before, now any) {
			old, _ := before.(*v1.Node)
			if node, ok := now.(*v1.Node); ok && old != nil && nodeKey(old) != nodeKey(node) {
				d.addNode(node, false) // the Node was deleted and created again between two events
			}
		},
	}
}

// addNode records a new Node from the informer; it may be recorded already.
func (d *decider) addNode(node *v1.Node, initial bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.recordNodeLocked(node)
	known.inFirstList = known.inFirstList || initial
	known.joined = !known.inFirstList
	d.sweepNodesLocked(time.Now()) // nobody may ask about Nodes here, where the node controllers are off
}

// recordExists records that an instance exists, however old that answer was, which ends the suspicion.
func (d *decider) recordExists(node *v1.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recordExistsLocked(node)
}

func (d *decider) recordExistsLocked(node *v1.Node) {
	now, known := time.Now(), d.recordNodeLocked(node)
	if !known.absence.first.IsZero() && !known.isKnownByKubeletAlone(node) { // some API servers may not know a new instance yet
		d.restartSuspicionsLocked(now)
	}
	if m := known.suspicion; m != nil && !m.lastOwnRead.IsZero() {
		d.lastReturned = now
	}
	known.seen, known.absence, known.suspicion = true, absence{}, nil
	d.lastSeen = now
	d.sweepNodesLocked(now)
	d.sweepSuspicionsLocked(now)
}

// recordReadLocked records that a search has read an instance after a time.
func (d *decider) recordReadLocked(node *v1.Node, after time.Time) {
	known := d.recordNodeLocked(node)
	known.seen = true
	if after.After(known.lastRead) {
		known.lastRead = after
	}
	d.recordExistsLocked(node)
}

// recordAbsence records that the cloud called the instance of a Node gone without other evidence.
func (d *decider) recordAbsence(node *v1.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recordAbsenceLocked(node)
}

func (d *decider) recordAbsenceLocked(node *v1.Node) {
	if d.policy.isAnnounced(node) {
		return // it is expected
	}
	now, known := time.Now(), d.findRecordLocked(node)
	d.doubted[nodeKey(node)] = known
	a := &known.absence
	if a.first.IsZero() {
		a.first = now
	}
	a.last = now
	if isReady(node) {
		a.readyLast = now
		if a.readyFirst.IsZero() {
			a.readyFirst = now
		}
	}
	for _, other := range d.doubted {
		if now.Sub(other.absence.last) > absenceMaxAge && !other.absence.isLasting() {
			other.absence = absence{}
		}
	}
}

// hasOtherReadyLocked reports whether there is another ready Node that must have an instance and whose removal was not announced. It is
// called for suspects in every pass, so it stops at the first.
func (d *decider) hasOtherReadyLocked(suspected *v1.Node) bool {
	return slices.ContainsFunc(d.ownership.ourNodes(), func(n *v1.Node) bool {
		return isReady(n) && nodeKey(n) != nodeKey(suspected) && n.Spec.ProviderID != "" && !d.policy.isAnnounced(n) &&
			!d.findRecordLocked(n).isKnownByKubeletAlone(n)
	})
}

// contradiction is a Node that is ready although the cloud calls its instance gone.
type contradiction struct {
	// node is the Node's name, "" for none; since is when the cloud first called its instance gone.
	node  string
	since time.Time
	// wasSeen is set if this process observed the instance before, so that no kubelet can have invented it.
	wasSeen bool
}

// findContradictionLocked returns the contradiction to the evidence about a suspect, the longest first. The suspect itself counts if it was
// ready for long while the cloud called it gone: that its kubelet stops later does not prove the cloud right. A Node whose instance was
// read after the suspicion began does not count: it vanished later, and the credential showed it until then.
func (d *decider) findContradictionLocked(suspected *v1.Node, suspicion time.Time) (most contradiction) {
	if a := d.findRecordLocked(suspected).absence; a.isLasting() {
		return contradiction{node: suspected.Name, since: a.readyFirst}
	}
	if !d.hasAbsencesLocked() {
		return contradiction{}
	}
	for _, n := range d.ownership.ourNodes() {
		known, isDoubted := d.doubted[nodeKey(n)]
		if !isDoubted || time.Since(known.absence.last) > absenceMaxAge || nodeKey(n) == nodeKey(suspected) ||
			!known.lastRead.Before(suspicion) || !isReady(n) || d.policy.isAnnounced(n) || known.isKnownByKubeletAlone(n) {
			continue
		}
		c := contradiction{node: n.Name, since: known.absence.first, wasSeen: known.seen}
		if most.node == "" || (c.wasSeen && !most.wasSeen) || (c.wasSeen == most.wasSeen && c.since.Before(most.since)) {
			most = c
		}
	}
	return most
}

// hasAbsencesLocked reports whether the cloud called the instance of any Node gone without other evidence.
func (d *decider) hasAbsencesLocked() bool {
	for _, known := range d.doubted {
		if !known.absence.last.IsZero() {
			return true
		}
	}
	return false
}

// sweepNodesLocked forgets Nodes that no longer exist. Their suspicions stay: those of deleted Nodes count as vanished, and end by
// sweepSuspicionsLocked.
func (d *decider) sweepNodesLocked(now time.Time) {
	if now.Sub(d.sweptNodes) < sweepPause {
		return
	}
	d.sweptNodes = now
	exist := nodeKeys(d.ownership.ourNodes())
	if len(exist) == 0 {
		return // the informers have not listed yet
	}
	for k, known := range d.nodes {
		if _, exists := exist[k]; !exists {
			if now.Sub(known.firstHeard) > sweepPause {
				known.acquaintance = acquaintance{}
			}
			if now.Sub(known.absence.last) > sweepPause {
				known.absence = absence{}
			}
		}
		if *known == (nodeRecord{}) {
			delete(d.nodes, k)
			delete(d.doubted, k)
		}
	}
}

// sweepSuspicionsLocked ends suspicions that are older than the window, and those of Nodes that no longer exist: a person deleted them.
func (d *decider) sweepSuspicionsLocked(now time.Time) {
	if now.Sub(d.sweptSuspicions) < time.Second {
		return
	}
	d.sweptSuspicions = now
	var exist map[string]struct{}
	for k, known := range d.doubted {
		m := known.suspicion
		if m == nil {
			if known.absence.last.IsZero() {
				delete(d.doubted, k)
			}
			continue
		}
		unheard := now.Sub(m.lastAsked)
		if unheard > goneByHand && !m.isReleased {
			if exist == nil {
				exist = nodeKeys(d.ownership.ourNodes())
			}
			if _, exists := exist[k]; !exists && len(exist) > 0 {
				known.suspicion = nil // a person deleted the Node
			}
		}
		if unheard > d.policy.Window {
			known.suspicion = nil
		}
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

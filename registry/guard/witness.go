package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

const (
	// witnessPause is the least time between two roll calls; it doubles after unsuccessful ones, up to holdPause.
	witnessPause = 5 * time.Second
	// witnessSample is how many ready Nodes one roll call reads at most: one that exists is enough to show that the credential sees the
	// cluster.
	witnessSample = 5
	// witnessUnread is the least number of Nodes without recent evidence that a roll call reads.
	witnessUnread = 2
	// witnessListing bounds the calls of a complete listing that a roll call may cause.
	witnessListing = 20
	// witnessMaxAge is the maximum age of a witness that allows the deletion of another Node.
	witnessMaxAge = time.Minute
	// witnessGap is the longest time between two observations that counts as continuous.
	witnessGap = 2*witnessMaxAge + 2*holdPause
)

// rollCalls holds the results of searches for existing instances of the cluster: "gone" is believed only if the cloud shows others to the
// same credential. One roll call serves all suspects.
type rollCalls struct {
	// lastRead is a time after which instances were read; witnessedSince is since when there was always such a time.
	lastRead, witnessedSince time.Time
	whyUnseen                string
	// began is when the last one began; underWay is closed at its end, and nil then.
	began    time.Time
	underWay chan struct{}
	// failures counts the unsuccessful ones in a row.
	failures int
}

// pause returns the time between two roll calls; fresh is set if only doubts are checked again.
func (r *rollCalls) pause(fresh bool) time.Duration {
	if fresh {
		return doubtPause
	}
	return min(witnessPause<<min(r.failures, 8), holdPause)
}

// callRollIfDue makes sure that there was a recent roll call after the suspicion of a Node began; it uses answers no older than since. In
// case of doubt, ready Nodes that were missed are read again. Callers wait for one roll call at most: putOff is set if another one is due
// and only has to wait for the pause. The lock is released while it waits and while the cloud is asked.
func (d *decider) callRollIfDue(ctx context.Context, node *v1.Node, suspicion, since time.Time) (putOff bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	fresh := !d.roll.lastRead.Before(suspicion) && now.Sub(d.roll.lastRead) < witnessMaxAge
	settled := fresh && d.findContradictionLocked(node, suspicion).node == ""
	underWay := d.roll.underWay
	if settled || (underWay == nil && now.Sub(d.roll.began) < d.roll.pause(fresh)) {
		return !fresh && d.roll.failures == 0
	}
	if underWay != nil {
		d.mu.Unlock()
		select {
		case <-underWay:
		case <-ctx.Done():
		}
		d.mu.Lock()
		return d.roll.failures == 0 && d.roll.lastRead.Before(suspicion)
	}
	r := &rollCall{d: d, since: since}
	var nodes []*v1.Node
	if fresh {
		r.since, nodes = now, d.doubtfulLocked()
	} else {
		nodes = d.nodesToAskLocked()
	}
	done := make(chan struct{})
	d.roll.began, d.roll.underWay = now, done
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.roll.underWay = nil
		close(done)
	}()
	if fresh {
		r.askCloud(ctx, nodes, nil)
	} else {
		r.call(ctx, nodes)
	}
	return false
}

// doubtfulLocked returns ready Nodes whose instance was missed, the longest missed first.
func (d *decider) doubtfulLocked() []*v1.Node {
	absence := func(n *v1.Node) absence { return d.findRecordLocked(n).absence }
	doubtful := slices.DeleteFunc(slices.Clone(d.ownership.ourNodes()), func(n *v1.Node) bool {
		return absence(n).first.IsZero() || !isReady(n)
	})
	slices.SortFunc(doubtful, func(a, b *v1.Node) int { return absence(a).last.Compare(absence(b).last) })
	return doubtful[:min(len(doubtful), witnessSample)]
}

// nodesToAskLocked returns the Nodes to check, in random order: the ready ones without an announced removal, or else all that may have an
// instance. Suspects that are ready again are included. Nodes outside of --node-selector are not: another release serves them, perhaps in
// another account, so that they prove nothing about our credential.
func (d *decider) nodesToAskLocked() []*v1.Node {
	var likely, others []*v1.Node
	for _, n := range d.ownership.ourNodes() {
		switch {
		case n.Spec.ProviderID == "" || contract.Uninitialized(n) || (d.findRecordLocked(n).suspicion != nil && !isReady(n)):
		case isReady(n) && !d.policy.isAnnounced(n):
			likely = append(likely, n)
		default:
			others = append(others, n)
		}
	}
	if len(likely) == 0 {
		likely = others
	}
	//nolint:gosec // a sample without bias; nothing secret rests on it
	rand.Shuffle(len(likely), func(a, b int) { likely[a], likely[b] = likely[b], likely[a] })
	return likely
}

// rollCall is one search for witnesses.
type rollCall struct {
	d *decider
	// since is a time after which all answers were read.
	since time.Time
	// unlisted are Nodes whose instance a listing lacks, which a single read has to prove.
	unlisted []*v1.Node
	// seen and failed count answers, and reasons are those of the others; the decider's lock guards them.
	seen, failed int
	reasons      []string
}

// call checks the ready Nodes, or others if none is ready: all of them from memory or by one listing, and otherwise a sample by single
// reads.
func (r *rollCall) call(ctx context.Context, nodes []*v1.Node) {
	unread := r.askMemory(ctx, nodes)
	if len(unread) > witnessSample {
		_, _ = r.d.ask(ctx, unread[0], evidence.RollCall(r.since).Among(min(len(unread), witnessListing)))
		unread = r.askMemory(ctx, unread)
	}
	enough := max(witnessSample-r.seen, witnessUnread)
	r.askCloud(ctx, r.unlisted, unread[:min(len(unread), enough)])
	r.finish(len(nodes))
}

// askMemory checks Nodes without a call, and returns those without an answer.
func (r *rollCall) askMemory(ctx context.Context, nodes []*v1.Node) (unread []*v1.Node) {
	for _, node := range nodes {
		exists, err := r.d.ask(ctx, node, evidence.RollCall(r.since).FromMemory())
		switch {
		case errors.Is(err, evidence.ErrUnread):
			unread = append(unread, node)
		case err != nil: // no call can answer, such as for an invalid ID
			r.reasons = append(r.reasons, fmt.Sprintf("asking about node %s: %v", node.Name, err))
		case exists:
			r.record(node, true, nil)
		default:
			r.unlisted = append(r.unlisted, node)
		}
	}
	return unread
}

// askCloud asks the cloud at once about some of the Nodes that it seems to lack, and about a sample of others. The rest of the former
// counts as missed until it is read.
func (r *rollCall) askCloud(ctx context.Context, lacking, others []*v1.Node) {
	sample := lacking[:min(len(lacking), witnessSample)]
	for _, node := range lacking[len(sample):] {
		r.d.recordAbsence(node)
	}
	sample = slices.Concat(sample, others[:min(len(others), witnessSample-len(sample))])
	var group sync.WaitGroup
	for _, node := range sample {
		group.Go(func() {
			exists, err := r.d.ask(ctx, node, evidence.RollCall(r.since))
			r.record(node, exists, err)
		})
	}
	group.Wait()
}

// record records an answer.
func (r *rollCall) record(node *v1.Node, exists bool, err error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	switch {
	case err != nil:
		r.failed++
		r.reasons = append(r.reasons, fmt.Sprintf("asking about node %s: %v", node.Name, err))
	case exists:
		r.seen++
		r.d.recordReadLocked(node, r.since)
	default:
		r.d.recordAbsenceLocked(node)
		r.reasons = append(r.reasons, fmt.Sprintf("the instance of node %s is called gone as well", node.Name))
	}
}

// finish records the result. If more reads fail than succeed, the failed ones may be hidden instances.
func (r *rollCall) finish(candidates int) {
	if candidates == 0 {
		r.reasons = []string{"there is no other Node to ask about"}
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	roll := &r.d.roll
	if r.seen == 0 || r.failed > r.seen {
		roll.whyUnseen = strings.Join(r.reasons[:min(len(r.reasons), 3)], "; ")
		roll.failures++
		return
	}
	roll.failures = 0
	if roll.lastRead.IsZero() || r.since.Sub(roll.lastRead) > witnessGap {
		roll.witnessedSince = r.since
	}
	if r.since.After(roll.lastRead) {
		roll.lastRead = r.since
	}
}

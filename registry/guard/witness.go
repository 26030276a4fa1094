package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// witnessPause is the least time between two searches for witnesses; it doubles after unsuccessful ones, up to holdPause.
	witnessPause = 5 * time.Second
	// witnessSample is how many ready Nodes one search reads at most: one that exists is enough to show that the credential sees the
	// cluster.
	witnessSample = 5
	// witnessUnread is the least number of Nodes without recent evidence that a search reads.
	witnessUnread = 2
	// witnessListing bounds the calls of a complete listing that a search may cause.
	witnessListing = 20
	// witnessMaxAge is the maximum age of a witness that allows the deletion of another Node.
	witnessMaxAge = time.Minute
	// witnessGap is the longest time between two observations that counts as continuous.
	witnessGap = 2*witnessMaxAge + 2*holdPause
	// absenceMaxAge is how long it is remembered that a ready Node's instance was called gone; the framework's periodic update asks again
	// before.
	absenceMaxAge = 15 * time.Minute
)

// witnesses searches for existing instances of the cluster: "gone" is believed only if the cloud shows others to the same credential. One
// search serves all suspects.
type witnesses struct {
	// nodes returns the cluster's Nodes that are ours.
	nodes func() []*v1.Node
	// askExists asks the cloud about a Node's instance.
	askExists func(context.Context, *v1.Node) (bool, error)
	// recordExists is called for Nodes whose instance was read; isAnnounced reports Nodes whose removal was announced.
	recordExists func(*v1.Node)
	isAnnounced  func(*v1.Node) bool
	records      *nodeRecords

	mu sync.Mutex
	// lastRead is a time after which instances were read; covered is since when there was always such a time.
	lastRead, witnessedSince time.Time
	whyUnseen                string
	searching                chan struct{}
	searched                 time.Time
	// failures counts the unsuccessful searches in a row.
	failures int
	// absences are Nodes that were ready while the cloud called their instance gone.
	absences map[string]absence
}

// absence records when the cloud called a Node's instance gone without other evidence.
type absence struct {
	// first and last are when the cloud did that; readyFirst and readyLast while the Node was ready.
	first, last, readyFirst, readyLast time.Time
}

// isLasting reports whether the Node was ready for longer than is possible after its machine is gone.
func (m absence) isLasting() bool { return m.readyLast.Sub(m.readyFirst) >= contradictionGrace }

// witnessState is the witnesses' evidence at one moment.
type witnessState struct {
	lastRead, witnessedSince time.Time
	whyUnseen                string
}

func (w *witnesses) state() witnessState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return witnessState{lastRead: w.lastRead, witnessedSince: w.witnessedSince, whyUnseen: w.whyUnseen}
}

// searchIfDue makes sure that there was a recent search after the suspicion began; a search uses answers no older than since. In case of
// doubt, ready Nodes that were missed are read again. Callers wait for one search at most: putOff is set if another one is due and only has
// to wait for the pause.
func (w *witnesses) searchIfDue(ctx context.Context, suspicion, since time.Time, doubt bool, suspected func(*v1.Node) bool) (putOff bool) {
	w.mu.Lock()
	now := time.Now()
	fresh := !w.lastRead.IsZero() && !w.lastRead.Before(suspicion) && now.Sub(w.lastRead) < witnessMaxAge
	if (fresh && !doubt) || (w.searching == nil && now.Sub(w.searched) < w.pauseLocked(fresh)) {
		defer w.mu.Unlock()
		return !fresh && w.failures == 0
	}
	if flight := w.searching; flight != nil {
		w.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.failures == 0 && w.lastRead.Before(suspicion)
	}
	flight := make(chan struct{})
	w.searching, w.searched = flight, now
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.searching = nil
		w.mu.Unlock()
		close(flight)
	}()
	if fresh {
		(&search{w: w, since: now}).askCloud(ctx, w.doubtfulNodes(), nil)
		return false
	}
	w.search(ctx, since, suspected)
	return false
}

// pauseLocked returns the time between two searches; fresh is set if only doubts are checked again.
func (w *witnesses) pauseLocked(fresh bool) time.Duration {
	if fresh {
		return doubtPause
	}
	return min(witnessPause<<min(w.failures, 8), holdPause)
}

// search checks the ready Nodes, or others if none is ready: all of them from memory or by one listing, and otherwise a sample by single
// reads.
func (w *witnesses) search(ctx context.Context, since time.Time, suspected func(*v1.Node) bool) {
	nodes := w.nodesToAsk(suspected)
	s := &search{w: w, since: since}
	unread := s.askMemory(ctx, nodes)
	if len(unread) > witnessSample {
		_, _ = s.ask(ctx, unread[0], evidence.RollCall(since).Among(min(len(unread), witnessListing)))
		unread = s.askMemory(ctx, unread)
	}
	enough := max(witnessSample-s.seen, witnessUnread)
	s.askCloud(ctx, s.unlisted, unread[:min(len(unread), enough)])
	s.finish(len(nodes))
}

// doubtfulNodes returns ready Nodes whose instance was missed, the longest missed first.
func (w *witnesses) doubtfulNodes() []*v1.Node {
	w.mu.Lock()
	noted := maps.Clone(w.absences)
	w.mu.Unlock()
	doubtful := slices.DeleteFunc(slices.Clone(w.nodes()), func(n *v1.Node) bool {
		_, ok := noted[nodeKey(n)]
		return !ok || !isReady(n)
	})
	slices.SortFunc(doubtful, func(a, b *v1.Node) int { return noted[nodeKey(a)].last.Compare(noted[nodeKey(b)].last) })
	return doubtful[:min(len(doubtful), witnessSample)]
}

// nodesToAsk returns the Nodes to check, in random order: the ready ones without an announced removal, or else all that may have an
// instance. Suspects that are ready again are included. Nodes outside of --node-selector are not: another release serves them, perhaps in
// another account, so that they prove nothing about our credential.
func (w *witnesses) nodesToAsk(suspected func(*v1.Node) bool) []*v1.Node {
	var likely, others []*v1.Node
	for _, n := range w.nodes() {
		switch {
		case n.Spec.ProviderID == "" || contract.Uninitialized(n) || (suspected(n) && !isReady(n)):
		case isReady(n) && !w.isAnnounced(n):
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

// hasOtherReady reports whether there is another ready Node that must have an instance and whose removal was not announced. It is called
// for every suspect in every pass, so it stops at the first.
func (w *witnesses) hasOtherReady(suspect *v1.Node) bool {
	return slices.ContainsFunc(w.nodes(), func(node *v1.Node) bool {
		return isReady(node) && nodeKey(node) != nodeKey(suspect) && node.Spec.ProviderID != "" && !w.isAnnounced(node) &&
			!w.records.isKnownByKubeletAlone(node)
	})
}

// search is one look for witnesses.
type search struct {
	w *witnesses
	// since is a time after which all answers were read.
	since time.Time
	// unlisted are Nodes whose instance a listing lacks, which a single read has to prove.
	unlisted []*v1.Node

	mu           sync.Mutex
	seen, failed int
	reasons      []string
}

func (s *search) ask(ctx context.Context, node *v1.Node, d evidence.Demand) (bool, error) {
	return s.w.askExists(evidence.With(ctx, d), node)
}

// askMemory checks Nodes without a call, and returns those without an answer.
func (s *search) askMemory(ctx context.Context, nodes []*v1.Node) (unread []*v1.Node) {
	for _, node := range nodes {
		exists, err := s.ask(ctx, node, evidence.RollCall(s.since).FromMemory())
		switch {
		case errors.Is(err, evidence.ErrUnread):
			unread = append(unread, node)
		case err != nil: // no call can answer, such as for an invalid ID
			s.reasons = append(s.reasons, fmt.Sprintf("asking about node %s: %v", node.Name, err))
		case exists:
			s.seen++
			s.w.recordRead(node, s.since)
		default:
			s.unlisted = append(s.unlisted, node)
		}
	}
	return unread
}

// askCloud asks the cloud at once about some of the Nodes that it seems to lack, and about a sample of others. The rest of the former
// counts as missed until it is read.
func (s *search) askCloud(ctx context.Context, lacking, others []*v1.Node) {
	sample := lacking[:min(len(lacking), witnessSample)]
	for _, node := range lacking[len(sample):] {
		s.w.recordAbsence(node)
	}
	sample = slices.Concat(sample, others[:min(len(others), witnessSample-len(sample))])
	var group sync.WaitGroup
	for _, node := range sample {
		group.Go(func() {
			exists, err := s.ask(ctx, node, evidence.RollCall(s.since))
			s.recordAnswer(node, exists, err)
		})
	}
	group.Wait()
}

// recordAnswer records an answer.
func (s *search) recordAnswer(node *v1.Node, exists bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.failed++
		s.reasons = append(s.reasons, fmt.Sprintf("asking about node %s: %v", node.Name, err))
	case exists:
		s.seen++
		s.w.recordRead(node, s.since)
	default:
		s.w.recordAbsence(node)
		s.reasons = append(s.reasons, fmt.Sprintf("the instance of node %s is called gone as well", node.Name))
	}
}

// finish records the result of the search. If more reads fail than succeed, the failed ones may be hidden instances.
func (s *search) finish(candidates int) {
	if candidates == 0 {
		s.reasons = []string{"there is no other Node to ask about"}
	}
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.seen == 0 || s.failed > s.seen {
		w.whyUnseen = strings.Join(s.reasons[:min(len(s.reasons), 3)], "; ")
		w.failures++
		return
	}
	w.failures = 0
	if w.lastRead.IsZero() || s.since.Sub(w.lastRead) > witnessGap {
		w.witnessedSince = s.since
	}
	if s.since.After(w.lastRead) {
		w.lastRead = s.since
	}
}

// recordRead records that an instance was read after a time.
func (w *witnesses) recordRead(node *v1.Node, after time.Time) {
	w.records.recordRead(node, after)
	w.recordExists(node)
}

// clearAbsence discards earlier answers about a Node's instance, and reports whether the cloud withdrew "gone". A new instance that some
// API servers do not know yet does not count.
func (w *witnesses) clearAbsence(node *v1.Node) (retracted bool) {
	fresh := w.records.isKnownByKubeletAlone(node)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, retracted = w.absences[nodeKey(node)]
	delete(w.absences, nodeKey(node))
	return retracted && !fresh
}

// dropDeparted drops all but existing Nodes.
func (w *witnesses) dropDeparted(existing map[string]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.absences, func(k string, m absence) bool {
		_, exists := existing[k]
		return !exists && time.Since(m.last) > sweepPause
	})
}

// recordAbsence records that the cloud called the instance of a Node gone without other evidence.
func (w *witnesses) recordAbsence(node *v1.Node) {
	if w.isAnnounced(node) {
		return // it is expected
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.absences == nil {
		w.absences = map[string]absence{}
	}
	m, known := w.absences[nodeKey(node)]
	if !known {
		m.first = now
	}
	m.last = now
	if isReady(node) {
		m.readyLast = now
		if m.readyFirst.IsZero() {
			m.readyFirst = now
		}
	}
	w.absences[nodeKey(node)] = m
	for k, old := range w.absences {
		if now.Sub(old.last) > absenceMaxAge && !old.isLasting() {
			delete(w.absences, k)
		}
	}
}

// contradiction is a Node that is ready although the cloud calls its instance gone.
type contradiction struct {
	// node is the Node's name, "" for none; since is when the cloud first called its instance gone.
	node  string
	since time.Time
	// wasSeen is set if this process observed the instance before, so that no kubelet can have invented it.
	wasSeen bool
}

// findContradiction returns the contradiction to the evidence about a suspect, the longest first. The suspect itself counts if it was ready
// for long while the cloud called it gone: that its kubelet stops later does not prove the cloud right. A Node whose instance was read
// after the suspicion began does not count: it vanished later, and the credential showed it until then.
func (w *witnesses) findContradiction(suspected *v1.Node, suspicion time.Time) contradiction {
	w.mu.Lock()
	noted := maps.Clone(w.absences)
	w.mu.Unlock()
	if len(noted) == 0 {
		return contradiction{}
	}
	if m := noted[nodeKey(suspected)]; m.isLasting() {
		return contradiction{node: suspected.Name, since: m.readyFirst}
	}
	var most contradiction
	for _, node := range w.nodes() {
		m, ok := noted[nodeKey(node)]
		if !ok || nodeKey(node) == nodeKey(suspected) || time.Since(m.last) > absenceMaxAge || !w.isContradiction(node, suspicion) {
			continue
		}
		c := contradiction{node: node.Name, since: m.first, wasSeen: w.records.wasSeen(node)}
		if most.node == "" || (c.wasSeen && !most.wasSeen) || (c.wasSeen == most.wasSeen && c.since.Before(most.since)) {
			most = c
		}
	}
	return most
}

// isContradiction reports whether the absence of a Node's instance contradicts answers since the suspicion began.
func (w *witnesses) isContradiction(node *v1.Node, suspicion time.Time) bool {
	if !isReady(node) || w.isAnnounced(node) || w.records.isKnownByKubeletAlone(node) {
		return false
	}
	at, sighted := w.records.lastReadOf(node)
	return !sighted || at.Before(suspicion)
}

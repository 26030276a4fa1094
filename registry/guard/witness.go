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
	// missedMaxAge is how long it is remembered that a ready Node's instance was called gone; the framework's periodic update asks again
	// before.
	missedMaxAge = 15 * time.Minute
)

// witnesses searches for existing instances of the cluster: "gone" is believed only if the cloud shows others to the same credential. One
// search serves all suspects.
type witnesses struct {
	// nodes returns the cluster's Nodes that are ours.
	nodes func() []*v1.Node
	// exists asks the cloud about a Node's instance.
	exists func(context.Context, *v1.Node) (bool, error)
	// seen is called for Nodes whose instance was read; planned reports Nodes whose removal was announced.
	seen    func(*v1.Node)
	planned func(*v1.Node) bool
	heard   *heard

	mu sync.Mutex
	// last is a time after which instances were read; covered is since when there was always such a time.
	last, covered time.Time
	unseen        string
	searching     chan struct{}
	searched      time.Time
	// vain counts the unsuccessful searches in a row.
	vain int
	// missed are Nodes that were ready while the cloud called their instance gone.
	missed map[string]missed
}

// missed records when the cloud called a Node's instance gone without other evidence.
type missed struct {
	// first and last are when the cloud did that; readyFirst and readyLast while the Node was ready.
	first, last, readyFirst, readyLast time.Time
}

// lasting reports whether the Node was ready for longer than is possible after its machine is gone.
func (m missed) lasting() bool { return m.readyLast.Sub(m.readyFirst) >= contradictionGrace }

// sights is the witnesses' evidence at one moment.
type sights struct {
	last, covered time.Time
	unseen        string
}

func (w *witnesses) sights() sights {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sights{last: w.last, covered: w.covered, unseen: w.unseen}
}

// need makes sure that there was a recent search after the suspicion began; a search uses answers no older than since. In case of doubt,
// ready Nodes that were missed are read again. Callers wait for one search at most: putOff is set if another one is due and only has to
// wait for the pause.
func (w *witnesses) need(ctx context.Context, suspicion, since time.Time, doubt bool, suspected func(*v1.Node) bool) (putOff bool) {
	w.mu.Lock()
	now := time.Now()
	fresh := !w.last.IsZero() && !w.last.Before(suspicion) && now.Sub(w.last) < witnessMaxAge
	if (fresh && !doubt) || (w.searching == nil && now.Sub(w.searched) < w.pauseLocked(fresh)) {
		defer w.mu.Unlock()
		return !fresh && w.vain == 0
	}
	if flight := w.searching; flight != nil {
		w.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.vain == 0 && w.last.Before(suspicion)
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
		(&search{w: w, since: now}).read(ctx, w.doubtfulNodes(), nil)
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
	return min(witnessPause<<min(w.vain, 8), holdPause)
}

// search checks the ready Nodes, or others if none is ready: all of them from memory or by one listing, and otherwise a sample by single
// reads.
func (w *witnesses) search(ctx context.Context, since time.Time, suspected func(*v1.Node) bool) {
	nodes := w.candidates(suspected)
	s := &search{w: w, since: since}
	unread := s.remembered(ctx, nodes)
	if len(unread) > witnessSample {
		_, _ = s.ask(ctx, unread[0], evidence.Demand{ListedSince: since, Among: min(len(unread), witnessListing)})
		unread = s.remembered(ctx, unread)
	}
	enough := max(witnessSample-s.seen, witnessUnread)
	s.read(ctx, s.unlisted, unread[:min(len(unread), enough)])
	s.conclude(len(nodes))
}

// doubtfulNodes returns ready Nodes whose instance was missed, the longest missed first.
func (w *witnesses) doubtfulNodes() []*v1.Node {
	w.mu.Lock()
	noted := maps.Clone(w.missed)
	w.mu.Unlock()
	doubtful := slices.DeleteFunc(slices.Clone(w.nodes()), func(n *v1.Node) bool {
		_, ok := noted[key(n)]
		return !ok || !ready(n)
	})
	slices.SortFunc(doubtful, func(a, b *v1.Node) int { return noted[key(a)].last.Compare(noted[key(b)].last) })
	return doubtful[:min(len(doubtful), witnessSample)]
}

// candidates returns the Nodes to check, in random order: the ready ones without an announced removal, or else all that may have an
// instance. Suspects that are ready again are included. Nodes outside of --node-selector are not: another release serves them, perhaps in
// another account, so that they prove nothing about our credential.
func (w *witnesses) candidates(suspected func(*v1.Node) bool) []*v1.Node {
	var likely, others []*v1.Node
	for _, n := range w.nodes() {
		switch {
		case n.Spec.ProviderID == "" || contract.Uninitialized(n) || (suspected(n) && !ready(n)):
		case ready(n) && !w.planned(n):
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

// readable reports whether there is another ready Node that must have an instance and whose removal was not announced. It is called for
// every suspect in every pass, so it stops at the first.
func (w *witnesses) readable(suspect *v1.Node) bool {
	return slices.ContainsFunc(w.nodes(), func(node *v1.Node) bool {
		return ready(node) && key(node) != key(suspect) && node.Spec.ProviderID != "" && !w.planned(node) && !w.heard.unproved(node)
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
	met          []string
}

func (s *search) ask(ctx context.Context, node *v1.Node, d evidence.Demand) (bool, error) {
	d.NotBefore = s.since
	return s.w.exists(evidence.With(ctx, d), node)
}

// remembered checks Nodes without a call, and returns those without an answer.
func (s *search) remembered(ctx context.Context, nodes []*v1.Node) (unread []*v1.Node) {
	for _, node := range nodes {
		exists, err := s.ask(ctx, node, evidence.Demand{ListedSince: s.since, Remembered: true})
		switch {
		case errors.Is(err, evidence.ErrUnread):
			unread = append(unread, node)
		case err != nil: // no call can answer, such as for an invalid ID
			s.met = append(s.met, fmt.Sprintf("asking about node %s: %v", node.Name, err))
		case exists:
			s.seen++
			s.w.saw(node, s.since)
		default:
			s.unlisted = append(s.unlisted, node)
		}
	}
	return unread
}

// read asks the cloud at once about some of the Nodes that it seems to lack, and about a sample of others. The rest of the former counts as
// missed until it is read.
func (s *search) read(ctx context.Context, lacking, others []*v1.Node) {
	sample := lacking[:min(len(lacking), witnessSample)]
	for _, node := range lacking[len(sample):] {
		s.w.miss(node)
	}
	sample = slices.Concat(sample, others[:min(len(others), witnessSample-len(sample))])
	var group sync.WaitGroup
	for _, node := range sample {
		group.Go(func() {
			exists, err := s.ask(ctx, node, evidence.Demand{})
			s.note(node, exists, err)
		})
	}
	group.Wait()
}

// note records an answer.
func (s *search) note(node *v1.Node, exists bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.failed++
		s.met = append(s.met, fmt.Sprintf("asking about node %s: %v", node.Name, err))
	case exists:
		s.seen++
		s.w.saw(node, s.since)
	default:
		s.w.miss(node)
		s.met = append(s.met, fmt.Sprintf("the instance of node %s is called gone as well", node.Name))
	}
}

// conclude records the result of the search. If more reads fail than succeed, the failed ones may be hidden instances.
func (s *search) conclude(candidates int) {
	if candidates == 0 {
		s.met = []string{"there is no other Node to ask about"}
	}
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.seen == 0 || s.failed > s.seen {
		w.unseen = strings.Join(s.met[:min(len(s.met), 3)], "; ")
		w.vain++
		return
	}
	w.vain = 0
	if w.last.IsZero() || s.since.Sub(w.last) > witnessGap {
		w.covered = s.since
	}
	if s.since.After(w.last) {
		w.last = s.since
	}
}

// saw records that an instance was read after a time.
func (w *witnesses) saw(node *v1.Node, after time.Time) {
	w.heard.sight(node, after)
	w.seen(node)
}

// noteFound discards earlier answers about a Node's instance, and reports whether the cloud withdrew "gone". A new instance that some API
// servers do not know yet does not count.
func (w *witnesses) noteFound(node *v1.Node) (retracted bool) {
	fresh := w.heard.unproved(node)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, retracted = w.missed[key(node)]
	delete(w.missed, key(node))
	return retracted && !fresh
}

// forget drops all but existing Nodes.
func (w *witnesses) forget(existing map[string]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.missed, func(k string, m missed) bool {
		_, exists := existing[k]
		return !exists && time.Since(m.last) > heardSweep
	})
}

// miss records that the cloud called the instance of a Node gone without other evidence.
func (w *witnesses) miss(node *v1.Node) {
	if w.planned(node) {
		return // it is expected
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missed == nil {
		w.missed = map[string]missed{}
	}
	m, known := w.missed[key(node)]
	if !known {
		m.first = now
	}
	m.last = now
	if ready(node) {
		m.readyLast = now
		if m.readyFirst.IsZero() {
			m.readyFirst = now
		}
	}
	w.missed[key(node)] = m
	for k, old := range w.missed {
		if now.Sub(old.last) > missedMaxAge && !old.lasting() {
			delete(w.missed, k)
		}
	}
}

// contradiction is a Node that is ready although the cloud calls its instance gone.
type contradiction struct {
	// node is the Node's name, "" for none; since is when the cloud first called its instance gone.
	node  string
	since time.Time
	// proved is set if this process observed the instance before, so that no kubelet can have invented it.
	proved bool
}

// contradicts returns the contradiction to the evidence about a suspect, the longest first. The suspect itself counts if it was ready for
// long while the cloud called it gone: that its kubelet stops later does not prove the cloud right. A Node whose instance was read after
// the suspicion began does not count: it vanished later, and the credential showed it until then.
func (w *witnesses) contradicts(suspected *v1.Node, suspicion time.Time) contradiction {
	w.mu.Lock()
	noted := maps.Clone(w.missed)
	w.mu.Unlock()
	if len(noted) == 0 {
		return contradiction{}
	}
	if m := noted[key(suspected)]; m.lasting() {
		return contradiction{node: suspected.Name, since: m.readyFirst}
	}
	var most contradiction
	for _, node := range w.nodes() {
		m, ok := noted[key(node)]
		if !ok || key(node) == key(suspected) || time.Since(m.last) > missedMaxAge || !w.speaks(node, suspicion) {
			continue
		}
		c := contradiction{node: node.Name, since: m.first, proved: w.heard.proved(node)}
		if most.node == "" || (c.proved && !most.proved) || (c.proved == most.proved && c.since.Before(most.since)) {
			most = c
		}
	}
	return most
}

// speaks reports whether the absence of a Node's instance contradicts answers since the suspicion began.
func (w *witnesses) speaks(node *v1.Node, suspicion time.Time) bool {
	if !ready(node) || w.planned(node) || w.heard.unproved(node) {
		return false
	}
	at, sighted := w.heard.sighted(node)
	return !sighted || at.Before(suspicion)
}

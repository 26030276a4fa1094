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

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

const (
	// witnessPause is the least time between two searches for witnesses; it doubles after those in vain, up to holdPause.
	witnessPause = 5 * time.Second
	// witnessSample is how many ready Nodes one search reads where there are so many: one that exists shows only that the
	// credential sees something of the cluster.
	witnessSample = 5
	// witnessUnread is how many Nodes a search reads at least of those that nothing was heard of since.
	witnessUnread = 2
	// witnessListing bounds the calls of a complete listing that a search may cause.
	witnessListing = 20
	// witnessMaxAge is how old the sight of an instance may be that lets another one's Node go.
	witnessMaxAge = time.Minute
	// witnessGap is the longest time between two sights that counts as seeing without a break.
	witnessGap = 2*witnessMaxAge + 2*holdPause
	// missedMaxAge is how long it is remembered that a ready Node's instance was called gone; the address loop asks again before.
	missedMaxAge = 15 * time.Minute
)

// witnesses looks for instances of the cluster that exist, so that "gone" is believed only of a cloud that shows others
// to the same credential. One search serves all suspects.
type witnesses struct {
	// nodes returns the cluster's Nodes that are ours.
	nodes func() []*v1.Node
	// exists asks the cloud about a Node's instance.
	exists func(context.Context, *v1.Node) (bool, error)
	// seen is told of Nodes whose instance was read, planned reports those that are removed on purpose.
	seen    func(*v1.Node)
	planned func(*v1.Node) bool
	heard   *heard

	mu sync.Mutex
	// last is a time after which instances were read, covered the time since which that never ceased.
	last, covered time.Time
	unseen        string
	searching     chan struct{}
	searched      time.Time
	// vain counts the searches in a row that showed nothing.
	vain int
	// missed are Nodes that were ready while the cloud called their instance gone.
	missed map[string]missed
}

// missed records when the cloud called a Node's instance gone without other evidence.
type missed struct {
	// first and last are when the cloud did; readyFirst and readyLast when it did while the Node was ready.
	first, last, readyFirst, readyLast time.Time
}

// lasting reports whether the Node was ready for longer than a kubelet can seem so after its machine is gone.
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

// need makes sure that instances were looked for lately, after suspicion; a search reads what is no older than since. Where a Node
// is in doubt, ready ones that were missed are read again. Nobody waits for more than one search: putOff is set where another one is
// due, and nothing speaks against it but that one ended a moment ago.
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

// pauseLocked is the time between two searches; fresh is set where only doubts are looked at again.
func (w *witnesses) pauseLocked(fresh bool) time.Duration {
	if fresh {
		return doubtPause
	}
	return min(witnessPause<<min(w.vain, 8), holdPause)
}

// search looks at the ready Nodes, or at others where none is ready: at all of them as far as that is known or one listing tells,
// and by a sample of reads else.
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

// candidates returns the Nodes to look at, in random order: the ready ones that nobody means to remove, or else all that may have
// an instance. Suspects that are ready again are among them. Nodes outside of --node-selector are not: another release serves
// them, and another account may hold them, so that they show nothing of our credential.
func (w *witnesses) candidates(suspected func(*v1.Node) bool) []*v1.Node {
	var likely, others []*v1.Node
	for _, n := range w.nodes() {
		switch {
		case n.Spec.ProviderID == "" || Uninitialized(n) || (suspected(n) && !ready(n)):
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

// readable reports whether there is a ready Node beside one that nobody means to remove and that must have an instance. It is asked
// for every suspect in every pass, so that it ends with the first.
func (w *witnesses) readable(suspect *v1.Node) bool {
	return slices.ContainsFunc(w.nodes(), func(node *v1.Node) bool {
		return ready(node) && key(node) != key(suspect) && node.Spec.ProviderID != "" && !w.planned(node) && !w.heard.unproved(node)
	})
}

// search is one look for witnesses.
type search struct {
	w *witnesses
	// since is a time that whatever is answered was read after.
	since time.Time
	// unlisted are Nodes whose instance a listing lacks, which a read has to prove.
	unlisted []*v1.Node

	mu           sync.Mutex
	seen, failed int
	met          []string
}

func (s *search) ask(ctx context.Context, node *v1.Node, d evidence.Demand) (bool, error) {
	d.NotBefore = s.since
	return s.w.exists(evidence.With(ctx, d), node)
}

// remembered looks at Nodes without a call, and returns those of which nothing is known.
func (s *search) remembered(ctx context.Context, nodes []*v1.Node) (unread []*v1.Node) {
	for _, node := range nodes {
		exists, err := s.ask(ctx, node, evidence.Demand{ListedSince: s.since, Remembered: true})
		switch {
		case errors.Is(err, evidence.ErrUnread):
			unread = append(unread, node)
		case err != nil: // no call can answer, such as for an ID that makes no sense
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

// read asks the cloud at once about some of the Nodes that it lacks, it seems, and about others as far as the sample reaches. What
// seems missing counts as missed until it is its turn to be read.
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

// note takes an answer over.
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

// conclude records what the search has shown. Where more reads fail than succeed, what failed may be what is hidden.
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

// noteFound voids what was said of a Node's instance before, and reports whether the cloud has taken back what it said. A new instance
// that is not shown everywhere at first takes nothing back.
func (w *witnesses) noteFound(node *v1.Node) (retracted bool) {
	fresh := w.heard.unproved(node)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, retracted = w.missed[key(node)]
	delete(w.missed, key(node))
	return retracted && !fresh
}

// forget drops what is known of Nodes that are no more, given those that are.
func (w *witnesses) forget(existing map[string]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.missed, func(k string, m missed) bool {
		_, exists := existing[k]
		return !exists && time.Since(m.last) > heardSweep
	})
}

// miss records that the cloud called the instance of a Node gone that did not look like it.
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
	// proved is set where this process saw the instance before, so that no kubelet can have made it up.
	proved bool
}

// contradicts returns what speaks against the evidence about a suspect, the longest-standing first. The suspect itself counts
// where it was ready for long while the cloud said so: that its kubelet stops to answer now does not show that the cloud was right.
// A Node whose instance was read after the suspicion does not count: it vanished later, and the credential showed it until then.
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

// speaks reports whether the absence of a Node's instance contradicts what was said since the suspicion began.
func (w *witnesses) speaks(node *v1.Node, suspicion time.Time) bool {
	if !ready(node) || w.planned(node) || w.heard.unproved(node) {
		return false
	}
	at, sighted := w.heard.sighted(node)
	return !sighted || at.Before(suspicion)
}

package guard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

const (
	// witnessPause bounds the searches for a witness, witnessTries the reads of one search.
	witnessPause = 5 * time.Second
	witnessTries = 3
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

	mu sync.Mutex
	// last is a time after which an instance was read, covered the time since which that never ceased.
	last, covered time.Time
	unseen        string
	searching     chan struct{}
	searched      time.Time
	asked         int
	// missed are Nodes that were ready while the cloud called their instance gone.
	missed map[string]missed
}

// missed is what is known of a Node whose instance the cloud called gone although nothing else said so.
type missed struct {
	// first and last are when the cloud did; readyFirst and readyLast when it did while the Node was ready.
	first, last, readyFirst, readyLast time.Time
}

// lasting reports whether the Node was ready for longer than a kubelet can seem so after its machine is gone.
func (m missed) lasting() bool { return m.readyLast.Sub(m.readyFirst) >= contradictionGrace }

// sights is what the witnesses say at one moment.
type sights struct {
	last, covered time.Time
	unseen        string
}

func (w *witnesses) sights() sights {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sights{last: w.last, covered: w.covered, unseen: w.unseen}
}

// need makes sure that an instance was looked for lately, after suspicion; a search reads what is no older than since.
// Nobody waits for more than one search.
func (w *witnesses) need(ctx context.Context, suspicion, since time.Time, suspected func(*v1.Node) bool) {
	w.mu.Lock()
	now := time.Now()
	fresh := !w.last.IsZero() && !w.last.Before(suspicion) && now.Sub(w.last) < witnessMaxAge
	if fresh || (w.searching == nil && now.Sub(w.searched) < witnessPause) {
		w.mu.Unlock()
		return
	}
	if flight := w.searching; flight != nil {
		w.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
		}
		return
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
	w.search(ctx, since, suspected)
}

// search reads instances of Nodes that should exist until one does.
func (w *witnesses) search(ctx context.Context, since time.Time, suspected func(*v1.Node) bool) {
	var met []string
	for _, node := range w.candidates(suspected) {
		exists, err := w.exists(evidence.With(ctx, evidence.Demand{NotBefore: since, Single: true}), node)
		switch {
		case err != nil:
			met = append(met, fmt.Sprintf("asking about node %s: %v", node.Name, err))
		case exists:
			w.saw(node, since)
			return
		default:
			w.miss(node) // counts for our Nodes alone
			met = append(met, fmt.Sprintf("the instance of node %s is called gone as well", node.Name))
		}
	}
	if len(met) == 0 {
		met = []string{"there is no other Node to ask about"}
	}
	w.mu.Lock()
	w.unseen = strings.Join(met, "; ")
	w.mu.Unlock()
}

// candidates returns the Nodes to ask about, others each time, and ready ones first. Nodes outside of --node-selector are none:
// another release serves them, and another account may hold them, so that they show nothing of our credential.
func (w *witnesses) candidates(suspected func(*v1.Node) bool) []*v1.Node {
	usable := func(nodes []*v1.Node) []*v1.Node {
		left := slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool { return n.Spec.ProviderID == "" || Uninitialized(n) || suspected(n) })
		slices.SortFunc(left, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
		return left
	}
	all := usable(w.nodes())
	w.mu.Lock()
	turn := w.asked
	w.asked++
	w.mu.Unlock()
	var likely, others []*v1.Node
	for i := range all {
		if n := all[(i+turn)%len(all)]; ready(n) {
			likely = append(likely, n)
		} else {
			others = append(others, n)
		}
	}
	all = slices.Concat(likely, others)
	return all[:min(len(all), witnessTries)]
}

// saw records that an instance was read after a time.
func (w *witnesses) saw(node *v1.Node, after time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.missed, key(node))
	if w.last.IsZero() || after.Sub(w.last) > witnessGap {
		w.covered = after
	}
	if after.After(w.last) {
		w.last = after
	}
}

// found voids what was said of a Node's instance before.
func (w *witnesses) found(node *v1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.missed, key(node))
}

// miss records that the cloud called the instance of a Node gone that did not look like it.
func (w *witnesses) miss(node *v1.Node) {
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

// contradiction returns the name of a Node that is ready although the cloud calls its instance gone, and since when it does;
// the one that is longest so. The suspect itself counts where it was ready for long while the cloud said so: that its kubelet
// stops to answer now does not show that the cloud was right.
func (w *witnesses) contradiction(suspected *v1.Node, expected func(*v1.Node) bool) (name string, since time.Time) {
	w.mu.Lock()
	noted := maps.Clone(w.missed)
	w.mu.Unlock()
	if len(noted) == 0 {
		return "", time.Time{}
	}
	if m := noted[key(suspected)]; m.lasting() {
		return suspected.Name, m.readyFirst
	}
	for _, node := range w.nodes() {
		m, ok := noted[key(node)]
		if ok && ready(node) && !expected(node) && time.Since(m.last) <= missedMaxAge && (name == "" || m.first.Before(since)) {
			name, since = node.Name, m.first
		}
	}
	return name, since
}

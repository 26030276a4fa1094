package guard

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// heardSweep is the least time between two looks for Nodes that are no more.
const heardSweep = time.Minute

// heard remembers when this process first heard of each Node. A Node is at least as old as that, whatever the clocks of the API
// server and of this machine say.
type heard struct {
	mu    sync.Mutex
	nodes map[string]*hearing
	swept time.Time
}

// hearing records when this process first observed a Node, and how.
type hearing struct {
	at time.Time
	// joined is set for a Node that came after the first list of all Nodes.
	joined bool
	// listed is set for a Node of that list.
	listed bool
	// seen is set once its instance was seen.
	seen bool
	// sighted is a time after which its instance was read.
	sighted time.Time
}

// handler hears of Nodes as the informer does.
func (h *heard) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if node, ok := object.(*v1.Node); ok {
				h.add(node, initial)
			}
		},
		UpdateFunc: func(before, now any) {
			old, _ := before.(*v1.Node)
			if node, ok := now.(*v1.Node); ok && old != nil && key(old) != key(node) {
				h.add(node, false) // deleted and made again while nobody watched
			}
		},
	}
}

// add takes over what the informer says of a new Node, whoever was heard of first.
func (h *heard) add(node *v1.Node, initial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.noteLocked(node)
	known.listed = known.listed || initial
	known.joined = !known.listed
}

// since returns since when a Node is known to be there. The age that it says of itself counts only where its removal was announced
// and it was there before this process: else every restart would delay what is wanted.
func (h *heard) since(node *v1.Node, planned bool) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.noteLocked(node)
	if created := node.CreationTimestamp.Time; planned && known.listed && !created.IsZero() && created.Before(known.at) {
		return created
	}
	return known.at
}

// note records that a Node is there, and returns since when that is known.
func (h *heard) note(node *v1.Node) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noteLocked(node).at
}

func (h *heard) noteLocked(node *v1.Node) *hearing {
	if h.nodes == nil {
		h.nodes = map[string]*hearing{}
	}
	known, ok := h.nodes[key(node)]
	if !ok {
		known = &hearing{at: time.Now()}
		h.nodes[key(node)] = known
	}
	return known
}

// saw records that the instance of a Node was seen, however old that answer was.
func (h *heard) saw(node *v1.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLocked(node).seen = true
}

// sight records that the instance of a Node was read after a time.
func (h *heard) sight(node *v1.Node, after time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.noteLocked(node)
	known.seen = true
	if after.After(known.sighted) {
		known.sighted = after
	}
}

// sighted returns a time after which the instance of a Node was read, where it was.
func (h *heard) sighted(node *v1.Node) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[key(node)]
	if !ok || known.sighted.IsZero() {
		return time.Time{}, false
	}
	return known.sighted, true
}

// proved reports whether this process has seen the instance of a Node.
func (h *heard) proved(node *v1.Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[key(node)]
	return ok && known.seen
}

// unproved reports whether nobody can have seen the instance of a Node: it is not initialised, or it came while this process ran
// and was never seen. What a kubelet says of itself is all there is of such a Node.
func (h *heard) unproved(node *v1.Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[key(node)]
	if ok && known.seen {
		return false
	}
	return Uninitialized(node) || (ok && known.joined)
}

// sweep forgets Nodes that are no more, given those that are, and returns these if it was time to.
func (h *heard) sweep(existing func() []*v1.Node) map[string]struct{} {
	now := time.Now()
	h.mu.Lock()
	due := now.Sub(h.swept) >= heardSweep
	if due {
		h.swept = now
	}
	h.mu.Unlock()
	if !due {
		return nil
	}
	nodes := existing()
	if len(nodes) == 0 {
		return nil // the informers have not listed yet
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	exist := keys(nodes)
	for k, known := range h.nodes {
		if _, ok := exist[k]; !ok && now.Sub(known.at) > heardSweep {
			delete(h.nodes, k)
		}
	}
	return exist
}

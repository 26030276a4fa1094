package guard

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// heardSweep is the least time between two searches for deleted Nodes.
const heardSweep = time.Minute

// heard records when this process first observed each Node. A Node is at least as old as that, regardless of the clocks of the API server
// and of this machine.
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

// handler records Nodes from informer events.
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
				h.add(node, false) // the Node was deleted and created again between two events
			}
		},
	}
}

// add records a new Node from the informer; it may be recorded already.
func (h *heard) add(node *v1.Node, initial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.noteLocked(node)
	known.listed = known.listed || initial
	known.joined = !known.listed
}

// since returns since when a Node is known to exist. Its creation timestamp counts only if its removal was announced and it is older than
// this process: otherwise every restart would delay planned removals.
func (h *heard) since(node *v1.Node, planned bool) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.noteLocked(node)
	if created := node.CreationTimestamp.Time; planned && known.listed && !created.IsZero() && created.Before(known.at) {
		return created
	}
	return known.at
}

// note records that a Node exists, and returns since when that is known.
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

// saw records that the instance of a Node exists, however old that answer was.
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

// sighted returns a time after which the instance of a Node was read, if it was.
func (h *heard) sighted(node *v1.Node) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[key(node)]
	if !ok || known.sighted.IsZero() {
		return time.Time{}, false
	}
	return known.sighted, true
}

// proved reports whether this process has observed the instance of a Node.
func (h *heard) proved(node *v1.Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[key(node)]
	return ok && known.seen
}

// unproved reports whether nobody can have observed the instance of a Node: it is not initialised, or it joined while this process ran and
// was never observed. Only its kubelet says that it exists.
func (h *heard) unproved(node *v1.Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[key(node)]
	if ok && known.seen {
		return false
	}
	return contract.Uninitialized(node) || (ok && known.joined)
}

// sweep forgets all but existing Nodes, and returns these; nil if no sweep is due.
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

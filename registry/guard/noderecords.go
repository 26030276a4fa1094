package guard

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// sweepPause is the least time between two searches for deleted Nodes.
const sweepPause = time.Minute

// nodeRecords records when this process first observed each Node. A Node is at least as old as that, regardless of the clocks of the API
// server and of this machine.
type nodeRecords struct {
	mu    sync.Mutex
	nodes map[string]*nodeRecord
	swept time.Time
}

// nodeRecord records when this process first observed a Node, and how.
type nodeRecord struct {
	firstHeard time.Time
	// joined is set for a Node that came after the first list of all Nodes.
	joined bool
	// inFirstList is set for a Node of that list.
	inFirstList bool
	// seen is set once its instance was seen.
	seen bool
	// lastRead is a time after which its instance was read.
	lastRead time.Time
}

// handler records Nodes from informer events.
func (h *nodeRecords) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if node, ok := object.(*v1.Node); ok {
				h.add(node, initial)
			}
		},
		UpdateFunc: func(before, now any) {
			old, _ := before.(*v1.Node)
			if node, ok := now.(*v1.Node); ok && old != nil && nodeKey(old) != nodeKey(node) {
				h.add(node, false) // the Node was deleted and created again between two events
			}
		},
	}
}

// add records a new Node from the informer; it may be recorded already.
func (h *nodeRecords) add(node *v1.Node, initial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.recordNodeLocked(node)
	known.inFirstList = known.inFirstList || initial
	known.joined = !known.inFirstList
}

// knownSince returns since when a Node is known to exist. Its creation timestamp counts only if its removal was announced and it is older
// than this process: otherwise every restart would delay planned removals.
func (h *nodeRecords) knownSince(node *v1.Node, planned bool) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.recordNodeLocked(node)
	if created := node.CreationTimestamp.Time; planned && known.inFirstList && !created.IsZero() && created.Before(known.firstHeard) {
		return created
	}
	return known.firstHeard
}

// recordNode records that a Node exists, and returns since when that is known.
func (h *nodeRecords) recordNode(node *v1.Node) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.recordNodeLocked(node).firstHeard
}

func (h *nodeRecords) recordNodeLocked(node *v1.Node) *nodeRecord {
	if h.nodes == nil {
		h.nodes = map[string]*nodeRecord{}
	}
	known, ok := h.nodes[nodeKey(node)]
	if !ok {
		known = &nodeRecord{firstHeard: time.Now()}
		h.nodes[nodeKey(node)] = known
	}
	return known
}

// recordSeen records that the instance of a Node exists, however old that answer was.
func (h *nodeRecords) recordSeen(node *v1.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recordNodeLocked(node).seen = true
}

// recordRead records that the instance of a Node was read after a time.
func (h *nodeRecords) recordRead(node *v1.Node, after time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.recordNodeLocked(node)
	known.seen = true
	if after.After(known.lastRead) {
		known.lastRead = after
	}
}

// lastReadOf returns a time after which the instance of a Node was read, if it was.
func (h *nodeRecords) lastReadOf(node *v1.Node) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[nodeKey(node)]
	if !ok || known.lastRead.IsZero() {
		return time.Time{}, false
	}
	return known.lastRead, true
}

// wasSeen reports whether this process has observed the instance of a Node.
func (h *nodeRecords) wasSeen(node *v1.Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[nodeKey(node)]
	return ok && known.seen
}

// isKnownByKubeletAlone reports whether nobody can have observed the instance of a Node: it is not initialised, or it joined while this
// process ran and was never observed. Only its kubelet says that it exists.
func (h *nodeRecords) isKnownByKubeletAlone(node *v1.Node) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.nodes[nodeKey(node)]
	if ok && known.seen {
		return false
	}
	return contract.Uninitialized(node) || (ok && known.joined)
}

// sweep forgets all but existing Nodes, and returns these; nil if no sweep is due.
func (h *nodeRecords) sweep(existing func() []*v1.Node) map[string]struct{} {
	now := time.Now()
	h.mu.Lock()
	due := now.Sub(h.swept) >= sweepPause
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
	exist := nodeKeys(nodes)
	for k, known := range h.nodes {
		if _, ok := exist[k]; !ok && now.Sub(known.firstHeard) > sweepPause {
			delete(h.nodes, k)
		}
	}
	return exist
}

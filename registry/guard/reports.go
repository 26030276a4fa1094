package guard

import (
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/events"
)

// Reasons of the events that the guard writes on Nodes and Services. docs/events.md describes each.
const (
	// EventNodeNotOurs: the Node belongs to another controller, and is ignored.
	EventNodeNotOurs = "NodeNotOurs"
	// EventNodeInitializationFailed: the cloud's error about a new Node, and the advice.
	EventNodeInitializationFailed = "NodeInitializationFailed"
	// EventNodeDeletionHeld: the instance is gone, but the Node is kept, with the reason.
	EventNodeDeletionHeld = "NodeDeletionHeld"
	// EventNodeDeletionHoldEnded: the hold has ended, with the reason.
	EventNodeDeletionHoldEnded = "NodeDeletionHoldEnded"
	// EventNodeInstanceNotVerified: the Node is neither backend nor next hop, because the cloud does not verify its instance.
	EventNodeInstanceNotVerified = "NodeInstanceNotVerified"
	// EventRouteRefused: the Node's pod range may belong to another one, so that it gets no route.
	EventRouteRefused = "RouteRefused"
)

const component = "cloud-controller-manager-guard"

// repeatFirst and repeatMax bound the pauses between two events of one kind on one Node; they double in between.
const (
	repeatFirst = 30 * time.Second
	repeatMax   = 10 * time.Minute
	// forgetAfter drops the reports about inactive Nodes.
	forgetAfter = time.Hour
	// maxReported bounds the memory of foreign Nodes; a cluster has far fewer.
	maxReported = 20000
)

// reports writes events on Nodes, each kind on each Node with growing pauses.
type reports struct {
	once   sync.Once
	mu     sync.Mutex
	events record.EventRecorder
	last   map[string]report
	swept  time.Time
	// reported holds the foreign Nodes that were reported.
	reported map[string]struct{}
}

type report struct {
	at    time.Time
	pause time.Duration
}

func (r *reports) start(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	r.once.Do(func() {
		r.setRecorder(events.NewRecorder(clients.ClientOrDie(component), component, stop))
	})
}

func (r *reports) setRecorder(recorder record.EventRecorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = recorder
}

// writeEvent writes an event on a Service; kind is its type.
func (r *reports) writeEvent(service *v1.Service, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events != nil {
		r.events.Event(service, kind, reason, message)
	}
}

// reportForeign reports once that a Node is ignored.
func (r *reports) reportForeign(node *v1.Node, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events == nil {
		return
	}
	if _, reported := r.reported[nodeKey(node)]; reported {
		return
	}
	if r.reported == nil || len(r.reported) >= maxReported {
		r.reported = map[string]struct{}{}
	}
	r.reported[nodeKey(node)] = struct{}{}
	r.events.Event(node, v1.EventTypeNormal, EventNodeNotOurs, "this cloud controller manager leaves the Node alone: "+why)
}

// warnOfNode writes a warning on a Node unless the last one with the same reason is too recent.
func (r *reports) warnOfNode(node *v1.Node, reason, message string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events == nil {
		return
	}
	if r.last == nil {
		r.last = map[string]report{}
	}
	id, pause := nodeKey(node)+" "+reason, repeatFirst
	if before, ok := r.last[id]; ok {
		if now.Sub(before.at) < before.pause {
			return
		}
		pause = min(before.pause*2, repeatMax)
	}
	if now.Sub(r.swept) > forgetAfter {
		r.swept = now
		maps.DeleteFunc(r.last, func(_ string, l report) bool { return now.Sub(l.at) > forgetAfter*2 })
	}
	r.last[id] = report{at: now, pause: pause}
	r.events.Event(node, v1.EventTypeWarning, reason, message)
}

// clear makes the next failure to initialise a Node be reported at once.
func (r *reports) clear(node *v1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, nodeKey(node)+" "+EventNodeInitializationFailed)
}

// endHold reports the end of a hold, if its beginning was reported. The next hold is reported at once.
func (r *reports) endHold(node *v1.Node, how string) {
	id := nodeKey(node) + " " + EventNodeDeletionHeld
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, told := r.last[id]; told {
		delete(r.last, id)
		r.events.Event(node, v1.EventTypeNormal, EventNodeDeletionHoldEnded, how)
	}
}

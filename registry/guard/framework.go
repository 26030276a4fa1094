package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// The framework's controllers log and report too much: an error in each pass for each Node that is kept or undecided, and an event about an
// updated load balancer if there is none. This file adapts the guarded cloud for them.

// ForControllers returns the cloud for the framework's node lifecycle and service controllers.
func (c *Cloud) ForControllers() cloudprovider.Interface {
	f := &quietCloud{Cloud: c}
	if c.instances != nil {
		f.nodes = &quietInstances{instances: c.instances, lastMessages: map[string]*lastMessage{}}
	}
	return f
}

type quietCloud struct {
	*Cloud

	nodes *quietInstances
}

// InstancesV2 implements cloudprovider.Interface.
func (f *quietCloud) InstancesV2() (cloudprovider.InstancesV2, bool) {
	if f.nodes == nil {
		return nil, false
	}
	return f.nodes, true
}

// LoadBalancer implements cloudprovider.Interface.
func (f *quietCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	if f.loadBalancers == nil {
		return nil, false
	}
	return quietLoadBalancers{f.loadBalancers}, true
}

// heldError says that a Node is kept although the cloud calls its instance gone.
type heldError struct {
	node    string
	why     hold
	message string
}

func (e *heldError) Error() string {
	return "the cloud says that the instance of node " + e.node + " is gone, but the Node is kept: " + e.message
}

// quietInstances logs once why a Node is kept, and again when that changes.
type quietInstances struct {
	*instances

	mu           sync.Mutex
	lastMessages map[string]*lastMessage
	swept        time.Time
}

// lastMessage is the last log message about a Node, to avoid repeating it.
type lastMessage struct {
	// what was logged last, at loggedAt, and the pause before another message of the same kind.
	what     string
	loggedAt time.Time
	pause    time.Duration
	// lastAsked is when the framework last asked about the Node.
	lastAsked time.Time
}

// InstanceExists implements cloudprovider.InstancesV2. For a Node that is kept, the framework is told that the instance exists.
func (f *quietInstances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	exists, err := f.instances.InstanceExists(ctx, node)
	if err == nil {
		f.forget(node, exists)
		return exists, nil
	}
	f.logKept(node, err)
	return true, nil
}

// InstanceShutdown implements cloudprovider.InstancesV2. The cloud is not asked about an instance whose existence is undecided.
func (f *quietInstances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	f.mu.Lock()
	_, kept := f.lastMessages[nodeKey(node)]
	f.mu.Unlock()
	if kept {
		return false, nil
	}
	return f.instances.InstanceShutdown(ctx, node)
}

// logKept logs why a Node is kept, unless it was logged already. A message that differs in each pass is logged with growing pauses.
func (f *quietInstances) logKept(node *v1.Node, err error) {
	what, message := err.Error(), "The cloud cannot say whether the instance of a Node exists; the Node is kept"
	held, isHeld := errors.AsType[*heldError](err)
	if isHeld {
		what, message = string(held.why), "The cloud calls the instance of a Node gone; the Node is kept"
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweepLocked(now)
	s, known := f.lastMessages[nodeKey(node)]
	if !known {
		s = &lastMessage{}
		f.lastMessages[nodeKey(node)] = s
	}
	s.lastAsked = now
	switch {
	case isHeld && !held.why.isLasting():
		klog.V(logSteps).InfoS(message, "node", klog.KObj(node), "reason", held.message)
		return
	case s.what == what, !isHeld && now.Sub(s.loggedAt) < s.pause:
		return
	case isHeld:
		s.pause = 0
		klog.InfoS(message, "node", klog.KObj(node), "reason", held.message)
	default:
		s.pause = min(max(s.pause*2, repeatFirst), repeatMax)
		klog.InfoS(message, "node", klog.KObj(node), "reason", what)
	}
	s.what, s.loggedAt = what, now
}

// logSteps is the verbosity of the normal steps of a deletion.
const logSteps = 4

// forget forgets the messages about a Node.
func (f *quietInstances) forget(node *v1.Node, exists bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, known := f.lastMessages[nodeKey(node)]
	if !known {
		return
	}
	delete(f.lastMessages, nodeKey(node))
	if s.what != "" && exists {
		klog.InfoS("The instance of a Node exists after all", "node", klog.KObj(node))
	}
}

// sweepLocked drops Nodes that the framework no longer asks about.
func (f *quietInstances) sweepLocked(now time.Time) {
	if now.Sub(f.swept) < sweepPause {
		return
	}
	f.swept = now
	for k, s := range f.lastMessages {
		if now.Sub(s.lastAsked) > forgetAfter {
			delete(f.lastMessages, k)
		}
	}
}

// quietLoadBalancers suppresses the event about an updated load balancer if there is none.
type quietLoadBalancers struct{ *loadBalancers }

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (f quietLoadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	err := f.loadBalancers.UpdateLoadBalancer(ctx, cluster, service, nodes)
	if now, _ := f.states.current(service); err == nil && len(now.Status.LoadBalancer.Ingress) == 0 {
		return cloudprovider.ImplementedElsewhere // the framework treats it as success, without an event
	}
	return err
}

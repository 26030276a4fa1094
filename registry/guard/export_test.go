package guard

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
)

// These functions are all that tests of the guard know of the structure of node deletion.

// start lets a guard see Nodes and write events, as the framework does.
func start(c *Cloud, nodes cache.Indexer, events record.EventRecorder) {
	c.ownership.setLister(listers.NewNodeLister(nodes))
	c.reports.setRecorder(events)
}

// tellNode tells a guard of a Node as the informer does; initial is set for those of the first list.
func tellNode(c *Cloud, node *v1.Node, initial bool) {
	c.decider.nodeHandler().OnAdd(node, initial)
}

// tellChange tells a guard that a Node has become another one.
func tellChange(c *Cloud, before, now *v1.Node) {
	c.decider.nodeHandler().OnUpdate(before, now)
}

// knownSince returns since when a guard knows of a Node.
func knownSince(c *Cloud, node *v1.Node) time.Time { return c.decider.recordNode(node) }

// isKnownByKubeletAlone reports whether only a kubelet says that there is an instance.
func isKnownByKubeletAlone(c *Cloud, node *v1.Node) bool {
	c.decider.mu.Lock()
	defer c.decider.mu.Unlock()
	return c.decider.findRecordLocked(node).isKnownByKubeletAlone(node)
}

// recordExists tells a guard that an instance was seen.
func recordExists(c *Cloud, node *v1.Node) { c.decider.recordExists(node) }

// countRecords returns of how many Nodes a guard remembers something, and of how many that they were missed.
func countRecords(c *Cloud) (nodes, missed int) {
	for _, known := range c.decider.nodes {
		if !known.firstHeard.IsZero() {
			nodes++
		}
		if !known.absence.last.IsZero() {
			missed++
		}
	}
	return nodes, missed
}

// countHeld returns how many Nodes of ours are held.
func countHeld(c *Cloud) (held int) {
	for _, n := range c.decider.countHeld(c.ownership.ourNodes()) {
		held += n
	}
	return held
}

// nodesToAsk returns the Nodes that a roll call would ask about, while nobody is suspected.
func nodesToAsk(c *Cloud) []*v1.Node {
	c.decider.mu.Lock()
	defer c.decider.mu.Unlock()
	return c.decider.nodesToAskLocked()
}

// callRoll makes sure that there was a roll call after a suspicion began, and returns when the last one showed something.
func callRoll(ctx context.Context, c *Cloud, suspicion time.Time) (lastRead time.Time, putOff bool) {
	putOff = c.decider.callRollIfDue(ctx, &v1.Node{}, suspicion, suspicion)
	c.decider.mu.Lock()
	defer c.decider.mu.Unlock()
	return c.decider.roll.lastRead, putOff
}

// freezeNodes makes a guard see only these Nodes for the next second.
func freezeNodes(c *Cloud, ours ...*v1.Node) {
	c.ownership.mu.Lock()
	defer c.ownership.mu.Unlock()
	c.ownership.all, c.ownership.ours, c.ownership.counted = ours, ours, time.Now()
}

// These functions are all that tests of the guard know of the structure of changes of nodes.

// showServices shows a guard the Services of the cluster; synced is set if these are all.
func showServices(l *loadBalancers, stored cache.Indexer, synced bool) {
	l.states.setServices(func() (listers.ServiceLister, bool) { return listers.NewServiceLister(stored), synced })
}

// setProvider puts another provider behind a guard.
func setProvider(l *loadBalancers, inner cloudprovider.LoadBalancer) { l.inner = inner }

// endWith ends the background work of a guard when stop is closed.
func endWith(l *loadBalancers, stop <-chan struct{}) { l.states.endWith(stop) }

// occupy begins an operation on a Service, for which others wait.
func occupy(t *testing.T, l *loadBalancers, service *v1.Service) (leave func()) {
	t.Helper()
	_, end, err := l.enter(t.Context(), service)
	require.NoError(t, err)
	return func() { end(&err) }
}

// countServicesUnderWay returns of how many Services a guard remembers that something is under way or due.
func countServicesUnderWay(l *loadBalancers) int {
	l.states.mu.Lock()
	defer l.states.mu.Unlock()
	return max(len(l.states.byID), l.locks.Held())
}

// followedCalls returns the calls that are made again when labels change.
func followedCalls(l *loadBalancers) []nodeUpdate { return l.states.callsWithSelector() }

// tellLabels tells a guard of a Node whose labels have changed.
func tellLabels(l *loadBalancers, before, now *v1.Node) { l.labelHandler().OnUpdate(before, now) }

// setHandler returns what hears of Nodes, and tells the framework's controller of another stand-in.
func setHandler(l *loadBalancers, told cache.ResourceEventHandler) cache.ResourceEventHandler {
	return l.set.Load().handler(told)
}

// setNodes returns the Nodes behind the stand-in.
func setNodes(l *loadBalancers) []*v1.Node { return l.set.Load().nodes }

// countUnservedRemembered returns how much a guard remembers of Services that are not served.
func countUnservedRemembered(l *loadBalancers) int {
	l.states.mu.Lock()
	defer l.states.mu.Unlock()
	return len(l.states.failures) + len(l.states.waitingSince)
}

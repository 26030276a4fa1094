package guard

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
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
	return c.decider.recordLocked(node).isKnownByKubeletAlone(node)
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

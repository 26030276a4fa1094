// Package nodecount counts the cluster's nodes, from which an inventory derives how many questions the framework will ask about them, and
// whether a listing pays.
package nodecount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// refresh is how long a count is used: counting 5,000 nodes for each of 5,000 questions would cost more than it saves.
const refresh = time.Second

// Counter counts nodes. The zero value, without a lister, counts none.
type Counter struct {
	mu     sync.Mutex
	lister listers.NodeLister
	at     time.Time
	counts Counts
}

// Counts are numbers of nodes.
type Counts struct {
	// All nodes of the cluster.
	All int
	// NotReady nodes are checked by the node lifecycle controller every few seconds.
	NotReady int
	// Uninitialized nodes wait for their first metadata.
	Uninitialized int
}

// SetLister gives the counter the nodes to count.
func (c *Counter) SetLister(l listers.NodeLister) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lister = l
}

// Counts returns numbers that are at most a second old.
func (c *Counter) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lister == nil {
		return Counts{}
	}
	if time.Since(c.at) < refresh {
		return c.counts
	}
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return c.counts
	}
	c.counts, c.at = count(nodes), time.Now()
	return c.counts
}

// Nodes returns the nodes of the cluster; none before they are known. They are shared and may not be changed.
func (c *Counter) Nodes() []*v1.Node {
	c.mu.Lock()
	lister := c.lister
	c.mu.Unlock()
	if lister == nil {
		return nil
	}
	nodes, err := lister.List(labels.Everything())
	if err != nil {
		return nil // the cache of an informer cannot fail
	}
	return nodes
}

// ErrUnknown says that the nodes of the cluster are not known yet.
var ErrUnknown = errors.New("the nodes are not known yet")

// nodesKey is that of the nodes in a context.
type nodesKey struct{}

// With adds the nodes of the cluster to a context, for commands, which have no informers.
func With(ctx context.Context, nodes []*v1.Node) context.Context {
	return context.WithValue(ctx, nodesKey{}, nodes)
}

// KnownIn is Known, but prefers nodes in the context.
func (c *Counter) KnownIn(ctx context.Context) ([]*v1.Node, error) {
	if nodes, given := ctx.Value(nodesKey{}).([]*v1.Node); given {
		return nodes, nil
	}
	return c.Known()
}

// Known returns the nodes of the cluster, or ErrUnknown, for callers that must distinguish unknown nodes from absent ones.
func (c *Counter) Known() ([]*v1.Node, error) {
	lister, err := c.nodeLister()
	if err != nil {
		return nil, err
	}
	nodes, err := lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return nodes, nil
}

// Node returns one node of the cluster.
func (c *Counter) Node(name types.NodeName) (*v1.Node, error) {
	lister, err := c.nodeLister()
	if err != nil {
		return nil, err
	}
	node, err := lister.Get(string(name))
	if err != nil {
		return nil, fmt.Errorf("finding node %s: %w", name, err)
	}
	return node, nil
}

func (c *Counter) nodeLister() (listers.NodeLister, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lister == nil {
		return nil, ErrUnknown
	}
	return c.lister, nil
}

func count(nodes []*v1.Node) Counts {
	c := Counts{All: len(nodes)}
	for _, n := range nodes {
		if !Ready(n) {
			c.NotReady++
		}
		if contract.Uninitialized(n) {
			c.Uninitialized++
		}
	}
	return c
}

// Ready reports whether the node's Ready condition is true; the framework asks the cloud about all others.
func Ready(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

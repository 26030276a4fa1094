package guard

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/views"
)

// The framework's controller of Services keeps for each Service a list of its own with the Nodes that it saw last, and compares two such
// lists by name for each Service and each Node that comes or goes. With 15,000 Nodes and 1,000 load balancers these are 15 million
// references, which also keep alive whatever Nodes looked like then, and hundreds of millions of comparisons for one Node that joins.
//
// So it is shown one stand-in for all Nodes that may receive traffic, which is another one whenever these are others. What the controller
// keeps and compares is one object for each Service, and the guard puts the Nodes in its place, in one list that all Services share.

// setMaxAge is the maximum age of the Nodes' copies behind a stand-in. The set of Nodes is always current.
const setMaxAge = time.Second

// nodeSet holds our Nodes that may receive traffic.
type nodeSet struct {
	lister  listers.NodeLister
	foreign func(*v1.Node) string
	seed    maphash.Seed

	mu    sync.Mutex
	nodes []*v1.Node
	// standIn represents them; nil if there are none.
	standIn *v1.Node
	built   time.Time
	// setChanged is set if the set may have changed, copiesChanged if only copies of its Nodes have.
	setChanged, copiesChanged bool
}

// ServiceNodes returns a factory like the given one for the framework's service controller. Its informer shows a stand-in for all our Nodes
// that may receive traffic; EnsureLoadBalancer and UpdateLoadBalancer replace it by these.
func (c *Cloud) ServiceNodes(factory informers.SharedInformerFactory) informers.SharedInformerFactory {
	if c.loadBalancers == nil {
		return factory
	}
	s := &nodeSet{
		lister: factory.Core().V1().Nodes().Lister(), foreign: c.ownership.whyForeign, seed: maphash.MakeSeed(), setChanged: true,
	}
	c.loadBalancers.set.Store(s)
	return views.Nodes(factory, views.View{Handler: s.handler, List: s.list})
}

// expandNodes returns our Nodes among those of a call, and whether they are all that may receive traffic.
func (l *loadBalancers) expandNodes(given []*v1.Node) (ours []*v1.Node, all bool) {
	if len(given) != 1 || !contract.StandsForAll(given[0].Name) {
		return l.ownership.filterOurs(given), false
	}
	ours, _ = l.set.Load().current()
	return ours, true
}

// withNodes tells the provider that the nodes are all that may receive traffic, and that there are Nodes of other clouds.
func (l *loadBalancers) withNodes(ctx context.Context, w nodeUpdate) context.Context {
	ctx = l.ownership.withForeign(ctx)
	if !w.all {
		return ctx
	}
	return contract.WithSharedNodes(ctx, w.nodes)
}

// list answers the controller's listing of all Nodes with the stand-in alone.
func (s *nodeSet) list() []any {
	if _, standIn := s.current(); standIn != nil {
		return []any{standIn}
	}
	return nil
}

// current returns the Nodes and their stand-in. The list is shared and not changed any more.
func (s *nodeSet) current() ([]*v1.Node, *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.setChanged && (!s.copiesChanged || time.Since(s.built) < setMaxAge) {
		return s.nodes, s.standIn
	}
	all, err := s.lister.List(labels.Everything())
	if err != nil {
		return s.nodes, s.standIn // the cache of an informer cannot fail
	}
	nodes := make([]*v1.Node, 0, len(all))
	var sum uint64 // independent of the order
	for _, n := range all {
		if s.contains(n) {
			nodes = append(nodes, n)
			sum += maphash.String(s.seed, n.Name+" "+n.Spec.ProviderID)
		}
	}
	s.nodes, s.standIn, s.built, s.setChanged, s.copiesChanged = nodes, nil, time.Now(), false, false
	if len(nodes) > 0 {
		s.standIn = standIn(len(nodes), sum)
	}
	return s.nodes, s.standIn
}

// standIn returns the stand-in for a number of Nodes. The controller compares names and provider IDs, and writes the name into its events.
func standIn(nodes int, sum uint64) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d nodes", contract.StandInPrefix, nodes)},
		Spec:       v1.NodeSpec{ProviderID: strconv.FormatUint(sum, 16)},
	}
}

// contains reports whether a Node is ours and may receive traffic.
func (s *nodeSet) contains(n *v1.Node) bool { return contract.MayReceive(n) && s.foreign(n) == "" }

// recordChange records a change of a Node, and reports whether the controller must be notified. before or now is nil for a Node that is
// created or deleted.
func (s *nodeSet) recordChange(before, now *v1.Node) (tell bool) {
	was, is := before != nil && s.contains(before), now != nil && s.contains(now)
	others := was != is || (was && is && (before.Name != now.Name || before.Spec.ProviderID != now.Spec.ProviderID))
	s.mu.Lock()
	s.setChanged, s.copiesChanged = s.setChanged || others, true
	s.mu.Unlock()
	// Nodes that are about to be removed leave with the next change of others, as with the framework's own view: their kubelets still
	// answer.
	leaving := was && !is && now != nil && contract.IsIncluded(now) && s.foreign(now) == ""
	return others && !leaving
}

// handler watches Nodes, and notifies the controller when the stand-in changes. All stand-ins have the same key in its queue, so that
// concurrent changes are one.
func (s *nodeSet) handler(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	before, now := standIn(0, 0), standIn(0, 1)
	hear := func(was, is *v1.Node) {
		if was != is && s.recordChange(was, is) {
			h.OnUpdate(before, now)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { hear(nil, nodeOf(o)) },
		UpdateFunc: func(was, is any) { hear(nodeOf(was), nodeOf(is)) },
		DeleteFunc: func(o any) { hear(nodeOf(o), nil) },
	}
}

// nodeOf returns the Node of an informer's event; nil if there is none.
func nodeOf(object any) *v1.Node {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	node, _ := object.(*v1.Node)
	return node
}

package guard

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/registry/views"
)

// OurNodes returns a factory like the given one whose informer of Nodes shows none but ours. Informers, caches and watches are
// the given factory's own.
func (c *Cloud) OurNodes(factory informers.SharedInformerFactory) informers.SharedInformerFactory {
	return views.Nodes(factory, ownNodesView(func(n *v1.Node) bool { return c.ownership.whyForeign(n) == "" }))
}

// ownNodesView shows only our Nodes. To handlers, a Node that becomes ours is added, and one that no longer is, deleted.
func ownNodesView(ours func(*v1.Node) bool) views.View {
	return views.View{
		Handler: func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
			return cache.FilteringResourceEventHandler{FilterFunc: ourObject(ours), Handler: h}
		},
		Show: func(object any) (any, bool) { return object, ourObject(ours)(object) },
	}
}

// ourObject filters the objects of informers and indexers.
func ourObject(ours func(*v1.Node) bool) func(any) bool {
	return func(object any) bool {
		node := nodeOf(object)
		return node != nil && ours(node)
	}
}

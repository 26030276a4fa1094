package guard

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	core "k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// OurNodes returns a factory like the given one whose informer of Nodes shows none but ours. Informers, caches and watches are
// the given factory's own.
func (c *Cloud) OurNodes(factory informers.SharedInformerFactory) informers.SharedInformerFactory {
	return ourFactory{factory, func(n *v1.Node) bool { return c.ownership.foreign(n) == "" }}
}

type ourFactory struct {
	informers.SharedInformerFactory

	ours func(*v1.Node) bool
}

// Core implements informers.SharedInformerFactory.
func (f ourFactory) Core() core.Interface {
	return ourCore{f.SharedInformerFactory.Core(), f.ours}
}

type ourCore struct {
	core.Interface

	ours func(*v1.Node) bool
}

// V1 implements core.Interface.
func (c ourCore) V1() corev1.Interface { return ourV1{c.Interface.V1(), c.ours} }

type ourV1 struct {
	corev1.Interface

	ours func(*v1.Node) bool
}

// Nodes implements corev1.Interface.
func (v ourV1) Nodes() corev1.TypedNodeInformer { return ourNodes{v.Interface.Nodes(), v.ours} }

type ourNodes struct {
	corev1.TypedNodeInformer

	ours func(*v1.Node) bool
}

// Informer implements corev1.TypedNodeInformer.
func (n ourNodes) Informer() cache.SharedIndexInformer {
	return ourInformer{n.TypedNodeInformer.Informer(), n.ours}
}

// TypedInformer implements corev1.TypedNodeInformer.
func (n ourNodes) TypedInformer() corev1.NodeIndexInformer {
	return cache.NewTypedSharedIndexInformer[*v1.Node](n.Informer())
}

// Lister implements corev1.TypedNodeInformer.
func (n ourNodes) Lister() listers.NodeLister {
	return listers.NewNodeLister(n.Informer().GetIndexer())
}

// ourInformer tells handlers of a Node that becomes ours as of a new one, and of one that no longer is as of a deleted one.
type ourInformer struct {
	cache.SharedIndexInformer

	ours func(*v1.Node) bool
}

func (i ourInformer) filtered(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{FilterFunc: ourObject(i.ours), Handler: handler}
}

// ourObject is a filter of what informers and indexers hold.
func ourObject(ours func(*v1.Node) bool) func(any) bool {
	return func(object any) bool {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		node, ok := object.(*v1.Node)
		return ok && ours(node)
	}
}

// AddEventHandler implements cache.SharedInformer.
func (i ourInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(i.filtered(handler))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i ourInformer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.filtered(handler), period)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i ourInformer) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.filtered(handler), o)
}

// GetStore implements cache.SharedInformer.
func (i ourInformer) GetStore() cache.Store { return i.GetIndexer() }

// GetIndexer implements cache.SharedIndexInformer.
func (i ourInformer) GetIndexer() cache.Indexer {
	return ourIndexer{i.SharedIndexInformer.GetIndexer(), ourObject(i.ours)}
}

// ourIndexer shows the objects of an indexer that are ours. Names of indexes and indexed values are those of all.
type ourIndexer struct {
	cache.Indexer

	ours func(any) bool
}

func (i ourIndexer) only(all []any) []any {
	var ours []any
	for _, object := range all {
		if i.ours(object) {
			ours = append(ours, object)
		}
	}
	return ours
}

func (i ourIndexer) one(object any, exists bool, err error) (any, bool, error) {
	if err != nil || !exists || !i.ours(object) {
		return nil, false, err
	}
	return object, true, nil
}

// List implements cache.Store.
func (i ourIndexer) List() []any { return i.only(i.Indexer.List()) }

// ListKeys implements cache.Store.
func (i ourIndexer) ListKeys() []string {
	var keys []string
	for _, object := range i.List() {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Get implements cache.Store.
func (i ourIndexer) Get(object any) (item any, exists bool, err error) {
	return i.one(i.Indexer.Get(object))
}

// GetByKey implements cache.Store.
func (i ourIndexer) GetByKey(key string) (item any, exists bool, err error) {
	return i.one(i.Indexer.GetByKey(key))
}

// Index implements cache.Indexer.
func (i ourIndexer) Index(name string, object any) ([]any, error) {
	all, err := i.Indexer.Index(name, object)
	return i.only(all), err
}

// ByIndex implements cache.Indexer.
func (i ourIndexer) ByIndex(name, value string) ([]any, error) {
	all, err := i.Indexer.ByIndex(name, value)
	return i.only(all), err
}

// IndexKeys implements cache.Indexer.
func (i ourIndexer) IndexKeys(name, value string) ([]string, error) {
	all, err := i.ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(all))
	for _, object := range all {
		key, err := cache.MetaNamespaceKeyFunc(object)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

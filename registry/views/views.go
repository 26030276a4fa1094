// Package views changes how Nodes or Services appear to users of shared informers. Informers, caches and watches stay those of the original
// factory.
package views

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	core "k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// View changes how the objects of one kind appear. A nil field leaves them unchanged.
type View struct {
	// Handler returns the handler to install in place of an added one.
	Handler func(cache.ResourceEventHandler) cache.ResourceEventHandler
	// List returns the objects of a listing in place of all; Show then applies only to objects found by name or index.
	List func() []any
	// Show returns the changed object of a cache, and whether it is visible at all. It keeps the object's namespace and name.
	Show func(object any) (shown any, ok bool)
}

// Nodes returns a factory like the given one whose informer has a view of Nodes.
func Nodes(factory informers.SharedInformerFactory, v View) informers.SharedInformerFactory {
	return viewed{factory, &v, nil}
}

// Services returns a factory like the given one whose informer has a view of Services.
func Services(factory informers.SharedInformerFactory, v View) informers.SharedInformerFactory {
	return viewed{factory, nil, &v}
}

type viewed struct {
	informers.SharedInformerFactory

	nodes, services *View
}

// Core implements informers.SharedInformerFactory.
func (f viewed) Core() core.Interface {
	return viewedCore{f.SharedInformerFactory.Core(), f.nodes, f.services}
}

type viewedCore struct {
	core.Interface

	nodes, services *View
}

// V1 implements core.Interface.
func (c viewedCore) V1() corev1.Interface { return viewedV1{c.Interface.V1(), c.nodes, c.services} }

type viewedV1 struct {
	corev1.Interface

	nodes, services *View
}

// Nodes implements corev1.Interface.
func (v viewedV1) Nodes() corev1.TypedNodeInformer {
	if v.nodes == nil {
		return v.Interface.Nodes()
	}
	return nodes{v.Interface.Nodes(), *v.nodes}
}

// Services implements corev1.Interface.
func (v viewedV1) Services() corev1.TypedServiceInformer {
	if v.services == nil {
		return v.Interface.Services()
	}
	return services{v.Interface.Services(), *v.services}
}

type nodes struct {
	corev1.TypedNodeInformer

	view View
}

// Informer implements corev1.TypedNodeInformer.
func (n nodes) Informer() cache.SharedIndexInformer {
	return informer{n.TypedNodeInformer.Informer(), n.view}
}

// TypedInformer implements corev1.TypedNodeInformer.
func (n nodes) TypedInformer() corev1.NodeIndexInformer {
	return cache.NewTypedSharedIndexInformer[*v1.Node](n.Informer())
}

// Lister implements corev1.TypedNodeInformer.
func (n nodes) Lister() listers.NodeLister { return listers.NewNodeLister(n.Informer().GetIndexer()) }

type services struct {
	corev1.TypedServiceInformer

	view View
}

// Informer implements corev1.TypedServiceInformer.
func (s services) Informer() cache.SharedIndexInformer {
	return informer{s.TypedServiceInformer.Informer(), s.view}
}

// TypedInformer implements corev1.TypedServiceInformer.
func (s services) TypedInformer() corev1.ServiceIndexInformer {
	return cache.NewTypedSharedIndexInformer[*v1.Service](s.Informer())
}

// Lister implements corev1.TypedServiceInformer.
func (s services) Lister() listers.ServiceLister {
	return listers.NewServiceLister(s.Informer().GetIndexer())
}

type informer struct {
	cache.SharedIndexInformer

	view View
}

func (i informer) handler(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	if i.view.Handler == nil {
		return h
	}
	return i.view.Handler(h)
}

// AddEventHandler implements cache.SharedInformer.
func (i informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(i.handler(h))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i informer) AddEventHandlerWithResyncPeriod(
	h cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.handler(h), period)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i informer) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.handler(h), o)
}

// GetStore implements cache.SharedInformer.
func (i informer) GetStore() cache.Store { return i.GetIndexer() }

// GetIndexer implements cache.SharedIndexInformer.
func (i informer) GetIndexer() cache.Indexer {
	if i.view.Show == nil && i.view.List == nil {
		return i.SharedIndexInformer.GetIndexer()
	}
	show := i.view.Show
	if show == nil {
		show = func(object any) (any, bool) { return object, true }
	}
	return indexer{i.SharedIndexInformer.GetIndexer(), show, i.view.List}
}

// indexer applies a view to an indexer. Index names and indexed values are those of the stored objects.
type indexer struct {
	cache.Indexer

	show func(any) (any, bool)
	// list is View.List.
	list func() []any
}

func (i indexer) all(objects []any) []any {
	var shown []any
	for _, object := range objects {
		if object, ok := i.show(object); ok {
			shown = append(shown, object)
		}
	}
	return shown
}

func (i indexer) showObject(object any, exists bool, err error) (any, bool, error) {
	if err != nil || !exists {
		return nil, false, err
	}
	shown, ok := i.show(object)
	if !ok {
		return nil, false, nil
	}
	return shown, true, nil
}

// keys returns the keys of a cache's objects, which always have one.
func keys(objects []any) []string {
	all := make([]string, 0, len(objects))
	for _, object := range objects {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			all = append(all, key)
		}
	}
	return all
}

// List implements cache.Store.
func (i indexer) List() []any {
	if i.list != nil {
		return i.list()
	}
	return i.all(i.Indexer.List())
}

// ListKeys implements cache.Store.
func (i indexer) ListKeys() []string { return keys(i.List()) }

// Get implements cache.Store.
func (i indexer) Get(object any) (item any, exists bool, err error) {
	return i.showObject(i.Indexer.Get(object))
}

// GetByKey implements cache.Store.
func (i indexer) GetByKey(key string) (item any, exists bool, err error) {
	return i.showObject(i.Indexer.GetByKey(key))
}

// Index implements cache.Indexer.
func (i indexer) Index(name string, object any) ([]any, error) {
	objects, err := i.Indexer.Index(name, object)
	return i.all(objects), err
}

// ByIndex implements cache.Indexer.
func (i indexer) ByIndex(name, value string) ([]any, error) {
	objects, err := i.Indexer.ByIndex(name, value)
	return i.all(objects), err
}

// IndexKeys implements cache.Indexer.
func (i indexer) IndexKeys(name, value string) ([]string, error) {
	objects, err := i.ByIndex(name, value)
	return keys(objects), err
}

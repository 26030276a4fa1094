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

// providersView returns a factory like the given one, as a provider gets to see it: no Nodes but ours, and Services with their
// portable annotations translated. Informers, caches and watches are the given factory's own.
func (c *Cloud) providersView(factory informers.SharedInformerFactory) informers.SharedInformerFactory {
	factory = c.OurNodes(factory)
	if c.facts.Translate == nil {
		return factory
	}
	return viewFactory{factory, func(object any) any {
		switch o := object.(type) {
		case *v1.Service:
			return c.facts.translate(o).Service
		case cache.DeletedFinalStateUnknown:
			if s, ok := o.Obj.(*v1.Service); ok {
				o.Obj = c.facts.translate(s).Service
			}
			return o
		}
		return object
	}}
}

type viewFactory struct {
	informers.SharedInformerFactory

	view func(any) any
}

// Core implements informers.SharedInformerFactory.
func (f viewFactory) Core() core.Interface { return viewCore{f.SharedInformerFactory.Core(), f.view} }

type viewCore struct {
	core.Interface

	view func(any) any
}

// V1 implements core.Interface.
func (c viewCore) V1() corev1.Interface { return viewV1{c.Interface.V1(), c.view} }

type viewV1 struct {
	corev1.Interface

	view func(any) any
}

// Services implements corev1.Interface.
func (v viewV1) Services() corev1.TypedServiceInformer {
	return viewServices{v.Interface.Services(), v.view}
}

type viewServices struct {
	corev1.TypedServiceInformer

	view func(any) any
}

// Informer implements corev1.TypedServiceInformer.
func (s viewServices) Informer() cache.SharedIndexInformer {
	return viewInformer{s.TypedServiceInformer.Informer(), s.view}
}

// TypedInformer implements corev1.TypedServiceInformer.
func (s viewServices) TypedInformer() corev1.ServiceIndexInformer {
	return cache.NewTypedSharedIndexInformer[*v1.Service](s.Informer())
}

// Lister implements corev1.TypedServiceInformer.
func (s viewServices) Lister() listers.ServiceLister {
	return listers.NewServiceLister(s.Informer().GetIndexer())
}

// viewInformer shows handlers the objects as they are viewed.
type viewInformer struct {
	cache.SharedIndexInformer

	view func(any) any
}

func (i viewInformer) viewed(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, first bool) { handler.OnAdd(i.view(object), first) },
		UpdateFunc: func(before, now any) { handler.OnUpdate(i.view(before), i.view(now)) },
		DeleteFunc: func(object any) { handler.OnDelete(i.view(object)) },
	}
}

// AddEventHandler implements cache.SharedInformer.
func (i viewInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(i.viewed(handler))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i viewInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.viewed(handler), period)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i viewInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.viewed(handler), o)
}

// GetStore implements cache.SharedInformer.
func (i viewInformer) GetStore() cache.Store { return i.GetIndexer() }

// GetIndexer implements cache.SharedIndexInformer.
func (i viewInformer) GetIndexer() cache.Indexer {
	return viewIndexer{i.SharedIndexInformer.GetIndexer(), i.view}
}

// viewIndexer shows the objects of an indexer as they are viewed. Names of indexes and indexed values are those of the objects.
type viewIndexer struct {
	cache.Indexer

	view func(any) any
}

func (i viewIndexer) all(objects []any) []any {
	viewed := make([]any, len(objects))
	for n, o := range objects {
		viewed[n] = i.view(o)
	}
	return viewed
}

func (i viewIndexer) one(object any, exists bool, err error) (any, bool, error) {
	if err != nil || !exists {
		return object, exists, err
	}
	return i.view(object), true, nil
}

// List implements cache.Store.
func (i viewIndexer) List() []any { return i.all(i.Indexer.List()) }

// Get implements cache.Store.
func (i viewIndexer) Get(object any) (item any, exists bool, err error) {
	return i.one(i.Indexer.Get(object))
}

// GetByKey implements cache.Store.
func (i viewIndexer) GetByKey(key string) (item any, exists bool, err error) {
	return i.one(i.Indexer.GetByKey(key))
}

// Index implements cache.Indexer.
func (i viewIndexer) Index(name string, object any) ([]any, error) {
	objects, err := i.Indexer.Index(name, object)
	return i.all(objects), err
}

// ByIndex implements cache.Indexer.
func (i viewIndexer) ByIndex(name, value string) ([]any, error) {
	objects, err := i.Indexer.ByIndex(name, value)
	return i.all(objects), err
}

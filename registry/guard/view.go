package guard

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/registry/views"
)

// providersView returns a factory like the given one for the provider: only our Nodes, and Services with translated annotations. Informers,
// caches and watches are the given factory's.
func (c *Cloud) providersView(factory informers.SharedInformerFactory) informers.SharedInformerFactory {
	factory = c.OurNodes(factory)
	if c.facts.Translate == nil {
		return factory
	}
	return views.Services(factory, views.View{
		Handler: func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
			return cache.ResourceEventHandlerDetailedFuncs{
				AddFunc:    func(object any, first bool) { h.OnAdd(c.translatedObject(object), first) },
				UpdateFunc: func(before, now any) { h.OnUpdate(c.translatedObject(before), c.translatedObject(now)) },
				DeleteFunc: func(object any) { h.OnDelete(c.translatedObject(object)) },
			}
		},
		Show: func(object any) (any, bool) { return c.translatedObject(object), true },
	})
}

// translatedObject returns an object of an informer or indexer as a provider sees it.
func (c *Cloud) translatedObject(object any) any {
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
}

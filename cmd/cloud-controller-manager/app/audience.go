package app

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/views"
)

// audience are those who hear of Services: the framework's controller, which looks at a Service only when it has changed, or after long
// pauses. It can be shown Services as ones that changed.
type audience struct {
	mu       sync.Mutex
	services listers.ServiceLister
	handlers []cache.ResourceEventHandler
}

// view is a view of Services whose handlers are remembered.
func (a *audience) view() views.View {
	return views.View{Handler: func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.handlers = append(a.handlers, h)
		return h
	}}
}

// showsFrom says where the Services are. Until then none are shown.
func (a *audience) showsFrom(services listers.ServiceLister) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services = services
}

// show shows the Services of type LoadBalancer for which change says that they changed: what an annotation was before, and what it is now.
// No Service that anybody stores has that annotation.
func (a *audience) show(annotation string, change func(*v1.Service) (before, now string, changed bool)) {
	a.mu.Lock()
	services, handlers := a.services, slices.Clone(a.handlers)
	a.mu.Unlock()
	if services == nil {
		return
	}
	all, err := services.List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Services that are to be looked at again cannot be listed", "why", annotation)
		return
	}
	for _, s := range all {
		if s.Spec.Type != v1.ServiceTypeLoadBalancer {
			continue
		}
		before, now, changed := change(s)
		if !changed {
			continue
		}
		klog.InfoS("A Service is looked at again", "service", klog.KObj(s), "why", annotation)
		for _, h := range handlers {
			h.OnUpdate(annotated(s, annotation, before), annotated(s, annotation, now))
		}
	}
}

// annotated is a copy of a Service with one more annotation.
func annotated(s *v1.Service, key, value string) *v1.Service {
	s = s.DeepCopy()
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[key] = value
	return s
}

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

// serviceNotifier can make the framework's service controller reconcile Services that have not changed. Otherwise it does so only after
// long pauses.
type serviceNotifier struct {
	mu       sync.Mutex
	services listers.ServiceLister
	handlers []cache.ResourceEventHandler
}

// watchServices records the handlers of Services.
func (n *serviceNotifier) watchServices() views.View {
	return views.View{Handler: func(h cache.ResourceEventHandler) cache.ResourceEventHandler {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.handlers = append(n.handlers, h)
		return h
	}}
}

// setLister sets the source of the Services. Before, none are shown.
func (n *serviceNotifier) setLister(services listers.ServiceLister) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.services = services
}

// notify presents Services of type LoadBalancer as changed, if change says so. It adds an annotation that no stored Service has, with a
// value before and after.
func (n *serviceNotifier) notify(annotation string, change func(*v1.Service) (before, now string, changed bool)) {
	n.mu.Lock()
	services, handlers := n.services, slices.Clone(n.handlers)
	n.mu.Unlock()
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
			h.OnUpdate(withAnnotation(s, annotation, before), withAnnotation(s, annotation, now))
		}
	}
}

// withAnnotation copies a Service and adds an annotation.
func withAnnotation(s *v1.Service, key, value string) *v1.Service {
	s = s.DeepCopy()
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[key] = value
	return s
}

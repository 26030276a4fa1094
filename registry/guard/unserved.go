package guard

import (
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// unservedReason is the class of reasons for which a Service has no load balancer.
type unservedReason string

const (
	// unservedPending: not tried yet, or the cloud still works on it, or calls are held back.
	unservedPending unservedReason = "pending"
	// unservedSettings: the Service's settings are refused.
	unservedSettings unservedReason = "settings"
	// unservedCloud: the cloud has refused, or did not answer.
	unservedCloud unservedReason = "cloud"
)

func unservedReasons() []unservedReason {
	return []unservedReason{unservedPending, unservedSettings, unservedCloud}
}

// reasonOf returns the class of a reconciliation's error.
func reasonOf(err error) unservedReason {
	if _, held := heldBackFor(err); held {
		return unservedPending
	}
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); later {
		return unservedPending
	}
	if _, wrong := errors.AsType[*schema.Problem](err); wrong {
		return unservedSettings
	}
	return unservedCloud
}

// noteOutcome records why a Service could not be served.
func (t *serviceStates) noteOutcome(service *v1.Service, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.failures, service.UID)
		return
	}
	if t.failures == nil {
		t.failures = map[types.UID]unservedReason{}
	}
	t.failures[service.UID] = reasonOf(err)
}

// awaitsLoadBalancer reports whether a Service needs a load balancer of ours and has none.
func awaitsLoadBalancer(s *v1.Service) bool {
	wants := s.Spec.Type == v1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
	return wants && len(s.Status.LoadBalancer.Ingress) == 0
}

// waitHandler records since when Services wait.
func (t *serviceStates) waitHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, now any) {
			a, okA := before.(*v1.Service)
			b, okB := now.(*v1.Service)
			if okA && okB {
				t.noteWait(a, b)
			}
		},
		DeleteFunc: func(last any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(last); err == nil {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.waitingSince, key)
			}
		},
	}
}

func (t *serviceStates) noteWait(before, now *v1.Service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case before.UID != now.UID || !awaitsLoadBalancer(now):
		delete(t.waitingSince, serviceName(now))
	case !awaitsLoadBalancer(before):
		if t.waitingSince == nil {
			t.waitingSince = map[string]time.Time{}
		}
		t.waitingSince[serviceName(now)] = time.Now()
	}
}

// unservedCount counts the Services without a load balancer for one reason, and keeps since when the first of them waits.
type unservedCount struct {
	count  int
	oldest float64
}

// countUnserved returns the Services that need a load balancer of ours and have none, by reason; each reason is present. known is false on
// a replica that does not lead, because it has no informer.
func (l *loadBalancers) countUnserved() (all map[unservedReason]unservedCount, known bool) {
	l.states.mu.Lock()
	services, failures, since := l.states.services, maps.Clone(l.states.failures), maps.Clone(l.states.waitingSince)
	l.states.mu.Unlock()
	if services == nil {
		return nil, false
	}
	lister, _ := services()
	list, err := lister.List(labels.Everything())
	if err != nil {
		return nil, false
	}
	all = map[unservedReason]unservedCount{}
	for _, why := range unservedReasons() {
		all[why] = unservedCount{}
	}
	for _, s := range list {
		if !awaitsLoadBalancer(s) {
			continue
		}
		if settings, err := l.parseSettings(l.facts.translate(s).Service); err == nil && settings.Disown {
			continue
		}
		why, failed := failures[s.UID]
		if !failed {
			why = unservedPending
		}
		u := all[why]
		u.count++
		began := s.CreationTimestamp.Time
		if changed, noted := since[serviceName(s)]; noted {
			began = changed
		}
		if at := float64(began.Unix()); u.oldest == 0 || at < u.oldest {
			u.oldest = at
		}
		all[why] = u
	}
	return all, true
}

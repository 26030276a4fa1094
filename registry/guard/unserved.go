package guard

import (
	"errors"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// unservedReason is the class of why a Service has no load balancer.
type unservedReason string

const (
	// unservedPending: nobody has tried yet, or the cloud still works on it, or calls wait for their turn.
	unservedPending unservedReason = "pending"
	// unservedSettings: what the Service asks for is refused.
	unservedSettings unservedReason = "settings"
	// unservedCloud: the cloud has refused, or could not be asked.
	unservedCloud unservedReason = "cloud"
)

func unservedReasons() []unservedReason {
	return []unservedReason{unservedPending, unservedSettings, unservedCloud}
}

// reasonOf is the class of what a reconciliation ended with.
func reasonOf(err error) unservedReason {
	if _, held := heldBack(err); held {
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

// noteOutcome remembers why a Service could not be served.
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

// unserved is how many Services have no load balancer for a reason, and when the oldest of them was made.
type unserved struct {
	count  int
	oldest float64
}

// unserved returns those of the Services that want a load balancer of ours and have none, by reason; each reason is there. known is false
// on a replica that does not lead, because it has no source of Services.
func (l *loadBalancers) unserved() (all map[unservedReason]unserved, known bool) {
	l.states.mu.Lock()
	lister, failures := l.states.lister, maps.Clone(l.states.failures)
	l.states.mu.Unlock()
	if lister == nil {
		return nil, false
	}
	list, err := lister.List(labels.Everything())
	if err != nil {
		return nil, false
	}
	all = map[unservedReason]unserved{}
	for _, why := range unservedReasons() {
		all[why] = unserved{}
	}
	for _, s := range list {
		wants := s.Spec.Type == v1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
		if !wants || len(s.Status.LoadBalancer.Ingress) > 0 {
			continue
		}
		if settings, err := l.settings(l.facts.translate(s).Service); err == nil && settings.Disown {
			continue
		}
		why, failed := failures[s.UID]
		if !failed {
			why = unservedPending
		}
		u := all[why]
		u.count++
		if made := float64(s.CreationTimestamp.Unix()); u.oldest == 0 || made < u.oldest {
			u.oldest = made
		}
		all[why] = u
	}
	return all, true
}

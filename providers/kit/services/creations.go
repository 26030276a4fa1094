package services

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// lookPause is the time between two searches for an object that a creation may have left.
const lookPause = 5 * time.Second

// Creations says how to treat creations whose responses were lost, and which may have taken effect, and remembers them. LoadBalancers that
// serve the same Services share one.
type Creations struct {
	// Shows is the maximum time until an object from such a creation is found. The search continues for so long before the object is
	// created again, or taken for absent at a deletion. A process that has just started does the same if the Service has the framework's
	// finalizer and an empty status. 0 disables this.
	Shows time.Duration
	// Repeat is set if names are unique in the cloud: a second creation makes no second object, and need not wait.
	Repeat bool

	mu sync.Mutex
	// began is when this process began to work on Services.
	began time.Time
	// unknown is when the responses were lost, by the UID of the Service.
	unknown map[types.UID]time.Time
	// served are the Services served early in this process: no object of an earlier process is missing for them.
	served map[types.UID]struct{}
}

// patience is for how long a reconciliation itself looks for what may have been made: the framework would tell of that as a failure.
func (c *Creations) patience() time.Duration {
	if c.Repeat {
		return 0
	}
	return c.Shows
}

// recordBegin records that work has begun.
func (c *Creations) recordBegin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = time.Now()
	}
}

// recordServed records that all objects of a Service exist. It is remembered for as long as earlier processes are in doubt.
func (c *Creations) recordServed(service *v1.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.began) > c.Shows {
		c.served = nil
		return
	}
	if c.served == nil {
		c.served = map[types.UID]struct{}{}
	}
	c.served[service.UID] = struct{}{}
}

// recordUnknown records a request's creations of unknown outcome.
func (c *Creations) recordUnknown(r *Request) {
	if !r.unanswered {
		return
	}
	r.unanswered = false
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.unknown, func(_ types.UID, at time.Time) bool { return time.Since(at) > 2*c.Shows })
	if c.unknown == nil {
		c.unknown = map[types.UID]time.Time{}
	}
	c.unknown[r.Service.UID] = time.Now()
}

// unknownSince returns when it became unknown which objects a Service has, and why; zero if it is known.
func (c *Creations) unknownSince(service *v1.Service, what string) (at time.Time, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, why = c.unknown[service.UID], "the answer to the creation of "+what+" was lost"
	// A Service that is no load balancer any more has lost its status, and does not show whether it was served.
	_, served := c.served[service.UID]
	if !served && at.IsZero() && service.CreationTimestamp.Time.Before(c.began) && service.Spec.Type == v1.ServiceTypeLoadBalancer &&
		slices.Contains(service.Finalizers, servicehelper.LoadBalancerCleanupFinalizer) && len(service.Status.LoadBalancer.Ingress) == 0 {
		at, why = c.began, "a process before this one may have had "+what+" made"
	}
	return at, why
}

// searchAgain returns an error with the time to search again, if a missing object may exist nevertheless: created by a call whose response
// was lost, or by an earlier process, which left only the finalizer. what names the object.
func (c *Creations) searchAgain(service *v1.Service, what string) error {
	since, why := c.unknownSince(service, what)
	left := time.Until(since.Add(c.Shows))
	if since.IsZero() || left <= 0 {
		return nil
	}
	return cloudproviderapi.NewRetryError(fmt.Sprintf("%s; it is looked for during the next %s", why, left.Round(time.Second)), min(left, lookPause))
}

// withNewReads demands new reads if there is a doubt or was one a moment ago: older reads prove nothing.
func (c *Creations) withNewReads(ctx context.Context, service *v1.Service) context.Context {
	if since, _ := c.unknownSince(service, ""); since.IsZero() || time.Since(since) > 2*c.Shows {
		return ctx
	}
	return inventory.NotBefore(ctx, time.Now())
}

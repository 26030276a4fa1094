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

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// lookPause is the time between two looks for what a creation may have made.
const lookPause = 5 * time.Second

// Creations says what becomes of creations whose answers are lost, and which may take effect all the same.
type Creations struct {
	// Shows is how long it may take until what such a creation makes is found. So long it is looked for before it is made again, or
	// taken for absent when the Service goes; so does a process that has just begun, where the Service has the framework's finalizer
	// and shows nothing yet. 0 leaves that out.
	Shows time.Duration
	// Repeat is set where names are unique in the cloud: a second creation makes no second object, and waits for nothing.
	Repeat bool
}

// creations remembers creations of which nobody knows what became of them.
type creations struct {
	mu sync.Mutex
	// began is when the first Service was worked on.
	began time.Time
	// unknown is when the answers were lost, by the UID of the Service.
	unknown map[types.UID]time.Time
	// served are the Services that this process has served in its first time: whatever a process before it had made for them was found.
	served map[types.UID]struct{}
}

// begin notes that work has begun.
func (c *creations) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = time.Now()
	}
}

// serve notes that there is all that a Service needs. It is remembered for as long as processes before this one are in doubt.
func (c *creations) serve(service *v1.Service, policy Creations) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.began) > policy.Shows {
		c.served = nil
		return
	}
	if c.served == nil {
		c.served = map[types.UID]struct{}{}
	}
	c.served[service.UID] = struct{}{}
}

// take notes what is not known of creations for a Service.
func (c *creations) take(r *Request, policy Creations) {
	if !r.unanswered {
		return
	}
	r.unanswered = false
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.unknown, func(_ types.UID, at time.Time) bool { return time.Since(at) > 2*policy.Shows })
	if c.unknown == nil {
		c.unknown = map[types.UID]time.Time{}
	}
	c.unknown[r.Service.UID] = time.Now()
}

// since returns since when it is not known what there is of a Service, and why; zero where nothing is in doubt.
func (c *creations) since(service *v1.Service, what string) (at time.Time, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, why = c.unknown[service.UID], "the answer to the creation of "+what+" was lost"
	// One that is no load balancer any more lost its status by that, and shows no longer whether it was served.
	_, served := c.served[service.UID]
	if !served && at.IsZero() && service.CreationTimestamp.Time.Before(c.began) && service.Spec.Type == v1.ServiceTypeLoadBalancer &&
		slices.Contains(service.Finalizers, servicehelper.LoadBalancerCleanupFinalizer) && len(service.Status.LoadBalancer.Ingress) == 0 {
		at, why = c.began, "a process before this one may have had "+what+" made"
	}
	return at, why
}

// doubt is an error that says when to look again, where what is not found may have been made all the same: by a call whose answer was
// lost, or by one of a process before this one, which the finalizer shows and which recorded nothing. what names it.
func (c *creations) doubt(service *v1.Service, what string, policy Creations) error {
	since, why := c.since(service, what)
	left := time.Until(since.Add(policy.Shows))
	if since.IsZero() || left <= 0 {
		return nil
	}
	return cloudproviderapi.NewRetryError(fmt.Sprintf("%s; it is looked for during the next %s", why, left.Round(time.Second)), min(left, lookPause))
}

// readAgain makes everything be read again, where something is in doubt or was a moment ago: what was read before says nothing.
func (c *creations) readAgain(ctx context.Context, service *v1.Service, policy Creations) context.Context {
	if since, _ := c.since(service, ""); since.IsZero() || time.Since(since) > 2*policy.Shows {
		return ctx
	}
	return evidence.With(ctx, evidence.Demand{NotBefore: time.Now()})
}

package openstack

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

// failoverPause keeps failovers that do not help from following each other.
const failoverPause = 10 * time.Minute

// failovers knows when each load balancer was failed over last.
type failovers struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// may reports whether a failover of a load balancer may be ordered now, and notes that it was.
func (f *failovers) may(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.last[id]) < failoverPause {
		return false
	}
	f.last[id] = time.Now()
	return true
}

// mend deals with a load balancer in ERROR, and returns it when it can be changed again. One that never served is deleted, to
// be made anew, and nil is returned; one that did is failed over, which keeps its address.
func (l *loadBalancers) mend(ctx context.Context, service *v1.Service, lb *balancer, r role) (*balancer, error) {
	if l.renewable(service, lb, r) {
		l.event(service, eventRecreated, fmt.Sprintf("Octavia could not build load balancer %s; it is deleted and made anew", lb.ID))
		if err := l.remove(ctx, lb, true); err != nil {
			return nil, err
		}
		return nil, l.record(ctx, service, map[string]any{annotationID: nil, annotationMade: nil})
	}
	ordered, err := l.failOver(ctx, service, lb)
	if !ordered {
		return nil, err
	}
	after, err := l.idle(ctx, lb.ID, "a failover, for it was in ERROR")
	if err == nil && after != nil && after.Status == statusError {
		return nil, cloudproviderapi.NewRetryError(adviceFor(lb), time.Minute)
	}
	return after, err
}

// renewable reports whether a load balancer is this Service's alone and never served.
func (*loadBalancers) renewable(service *v1.Service, lb *balancer, r role) bool {
	fresh := len(service.Status.LoadBalancer.Ingress) == 0 && service.Annotations[annotationAddress] == ""
	return fresh && r.owner && madeByController(lb, service) && !shared(lb, r)
}

func adviceFor(lb *balancer) string {
	return fmt.Sprintf("load balancer %s is in ERROR: it may go on serving, but Octavia changes nothing of it. Ask an administrator of the cloud to run \"openstack loadbalancer failover %s\"", lb.ID, lb.ID)
}

// failOver orders a failover of a load balancer in ERROR, or tells who can do that.
func (l *loadBalancers) failOver(ctx context.Context, service *v1.Service, lb *balancer) (ordered bool, err error) {
	if l.failovers.may(lb.ID) {
		err := l.api.failOver(ctx, lb.ID)
		if err == nil {
			l.event(service, eventFailover, fmt.Sprintf("load balancer %s is in ERROR; a failover was ordered, which keeps its address", lb.ID))
			l.balancers.Invalidate(lb.ID)
			return true, nil
		}
		klog.InfoS("Octavia refused a failover", "loadBalancer", lb.ID, "reason", err.Error())
		l.event(service, eventBroken, adviceFor(lb))
	}
	return false, cloudproviderapi.NewRetryError(adviceFor(lb), time.Minute)
}

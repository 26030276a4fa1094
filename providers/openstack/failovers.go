package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
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

// mend deals with a load balancer in ERROR, and returns it when it can be changed again. One that was made for this Service and
// never served is deleted, to be made again, and nil is returned; any other is failed over, which keeps its address.
func (l *loadBalancers) mend(ctx context.Context, service *v1.Service, lb *balancer, r role) (*balancer, error) {
	id := lb.ID
	lb, err := l.balancers.Get(ctx, id, inventory.Query{}) // what was seen may have passed
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		l.forget(id)
		return nil, nil //nolint:nilnil // absence is an answer here
	case err == nil && lb.pending():
		return l.idle(ctx, id, lb.Status)
	case err != nil || lb.Status != statusError:
		return lb, err
	}
	renew, err := l.renewable(ctx, service, lb, r)
	if err != nil {
		return nil, err
	}
	if renew {
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

// renewable reports whether a load balancer in ERROR was made for this Service alone and never served: its mark, which nobody
// but a controller writes, and our record both say so, and neither the Service nor a floating address tells of a time when it
// served. What was kept from a Service before has that one's mark, or an address.
func (l *loadBalancers) renewable(ctx context.Context, service *v1.Service, lb *balancer, r role) (bool, error) {
	fresh := len(service.Status.LoadBalancer.Ingress) == 0 && service.Annotations[annotationAddress] == ""
	made := service.Annotations[annotationMade] == lb.ID && slices.Contains(lb.Tags, r.serviceMark)
	if !fresh || !made || !r.owner || !madeByController(lb, service) || shared(lb, r) {
		return false, nil
	}
	f, err := l.attached(ctx, lb, inventory.Query{MaxUnlistedAge: newMaxAge})
	return err == nil && f == nil, err
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

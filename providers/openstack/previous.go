package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// previousMaxAge is how old the knowledge of a load balancer may be that a Service had before; it is read again right before
// anything is done about it.
const previousMaxAge = 10 * time.Minute

// leavePrevious removes the load balancer that was made for a Service which an annotation has moved to another one, with its
// address. One that is not both marked and recorded stays, and the Service is told so.
func (l *loadBalancers) leavePrevious(ctx context.Context, cluster string, service *v1.Service, s settings, now *balancer) error {
	recorded := service.Annotations[annotationMade]
	if recorded == now.ID || now.Name == balancerName(cluster, service) || now.Name == legacyName(service) {
		return nil
	}
	lb, err := l.previous(ctx, cluster, service, recorded)
	if err != nil {
		return err
	}
	if lb == nil || lb.ID == now.ID || lb.leaving() {
		return l.record(ctx, service, map[string]any{annotationMade: nil})
	}
	before := recordedAs(service, lb.ID)
	r, d, err := l.roleOf(ctx, cluster, before, lb)
	if err != nil {
		return err
	}
	if !r.owner || d.Verdict == ownership.Refused {
		return l.record(ctx, service, map[string]any{annotationMade: nil})
	}
	if recorded != lb.ID || !r.marked(lb) || guard.Keeps(service) {
		return l.tellRetained(ctx, service, lb, now)
	}
	if err := l.leave(ctx, cluster, before, s, lb, r); err != nil {
		return fmt.Errorf("removing load balancer %s, which the Service had before: %w", lb.ID, err)
	}
	return l.record(ctx, service, map[string]any{annotationMade: nil})
}

// marked reports whether a load balancer carries a mark of the Service or its cluster.
func (r role) marked(lb *balancer) bool {
	return slices.ContainsFunc(lb.Tags, func(t string) bool { return t != "" && (t == r.serviceMark || t == r.mark) })
}

// tellRetained names what stays of a load balancer that the Service had before.
func (l *loadBalancers) tellRetained(ctx context.Context, service *v1.Service, lb, now *balancer) error {
	addresses, err := l.addressesOf(ctx, lb)
	if err == nil && l.events != nil {
		l.events.Event(service, v1.EventTypeNormal, guard.EventLoadBalancerRetained, fmt.Sprintf("load balancer %s, which was made for this Service, stays in the cloud with %s, "+
			"though the Service has load balancer %s now; delete it there if it is not needed", lb.ID, strings.Join(addresses, " and "), now.ID))
	}
	return err
}

// addressesOf are the addresses that a Service of a load balancer may show.
func (l *loadBalancers) addressesOf(ctx context.Context, lb *balancer) ([]string, error) {
	addresses := append([]string{lb.VIPAddress}, furtherAddresses(lb)...)
	f, err := l.attached(ctx, lb, inventory.Query{MaxAge: previousMaxAge, MaxMissAge: previousMaxAge, MaxUnlistedAge: previousMaxAge})
	if f != nil {
		addresses = append(addresses, f.Address)
	}
	return addresses, err
}

// previous returns the load balancer that was made for a Service: the recorded one, else the one with its name; nil if there is
// none.
func (l *loadBalancers) previous(ctx context.Context, cluster string, service *v1.Service, recorded string) (*balancer, error) {
	q := inventory.Query{MaxAge: previousMaxAge, MaxMissAge: previousMaxAge, MaxUnlistedAge: previousMaxAge}
	if identifier.MatchString(recorded) {
		lb, err := l.balancers.Get(ctx, recorded, q)
		if !errors.Is(err, cloudapi.ErrNotFound) {
			return lb, err
		}
	}
	return l.findByName(ctx, cluster, service, q)
}

// recordedAs returns a Service as it was when it had a load balancer.
func recordedAs(service *v1.Service, id string) *v1.Service {
	return recorded(service, map[string]string{annotationID: id})
}

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
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// previousMaxAge is for a Service's previous load balancer; it is read again before any change.
const previousMaxAge = 10 * time.Minute

// leavePrevious deletes the Service's previous load balancer after an annotation has moved it to another. One not both marked and recorded
// stays, which is reported.
func (l *loadBalancers) leavePrevious(ctx context.Context, r *services.Request, s settings, now *loadBalancer) error {
	service, made := r.Service, r.Service.Annotations[annotationMade]
	if made == now.ID || now.Name == loadBalancerName(r.Cluster, service) || now.Name == legacyName(service) {
		return nil
	}
	lb, err := l.findPrevious(ctx, r.Cluster, service, made)
	if err != nil {
		return err
	}
	if lb == nil || lb.ID == now.ID || lb.isLeaving() {
		return l.record(ctx, r, map[string]string{annotationMade: ""})
	}
	before := withAnnotations(service, map[string]string{annotationID: lb.ID})
	as, d, err := l.roleOf(ctx, r.Cluster, before, lb)
	if err != nil {
		return err
	}
	if !as.owner || d.Verdict == ownership.Refused {
		return l.record(ctx, r, map[string]string{annotationMade: ""})
	}
	if made != lb.ID || !as.isMarked(lb) || contract.Keeps(service) {
		return l.reportRetained(ctx, r, lb, now)
	}
	r.Service = before
	err = l.leaveLoadBalancer(ctx, r, s, lb, as)
	if r.Service = service; err != nil {
		return fmt.Errorf("removing load balancer %s, which the Service had before: %w", lb.ID, err)
	}
	return l.record(ctx, r, map[string]string{annotationMade: ""})
}

func (r role) isMarked(lb *loadBalancer) bool {
	return slices.ContainsFunc(lb.Tags, func(t string) bool { return t != "" && (t == r.serviceMark || t == r.mark) })
}

// reportRetained reports that a previous load balancer stays.
func (l *loadBalancers) reportRetained(ctx context.Context, r *services.Request, lb, now *loadBalancer) error {
	addresses, err := l.addressesOf(ctx, lb)
	if err != nil {
		return err
	}
	r.Report(services.Notice(contract.EventLoadBalancerRetained, "load balancer %s, which was made for this Service, stays in the cloud with %s, "+
		"though the Service has load balancer %s now; delete it there if it is not needed", lb.ID, strings.Join(addresses, " and "), now.ID))
	return nil
}

// addressesOf returns the addresses of a load balancer that a Service's status may show.
func (l *loadBalancers) addressesOf(ctx context.Context, lb *loadBalancer) ([]string, error) {
	addresses := append([]string{lb.VIPAddress}, furtherAddresses(lb)...)
	f, err := l.floatingIPOf(ctx, lb, inventory.Query{MaxAge: previousMaxAge, MaxMissAge: previousMaxAge, MaxUnlistedAge: previousMaxAge})
	if f != nil {
		addresses = append(addresses, f.Address)
	}
	return addresses, err
}

// findPrevious returns the load balancer created for a Service: the recorded one, otherwise the one with its name, or nil.
func (l *loadBalancers) findPrevious(ctx context.Context, cluster string, service *v1.Service, recorded string) (*loadBalancer, error) {
	q := inventory.Query{MaxAge: previousMaxAge, MaxMissAge: previousMaxAge, MaxUnlistedAge: previousMaxAge}
	if identifier.MatchString(recorded) {
		lb, err := l.observed.Get(ctx, recorded, q)
		if !errors.Is(err, cloudapi.ErrNotFound) {
			return lb, err
		}
	}
	return l.findByName(ctx, cluster, service, q)
}

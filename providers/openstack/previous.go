package openstack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// previousMaxAge is for a Service's previous load balancer; it is read again before any change.
const previousMaxAge = 10 * time.Minute

// leavePrevious deletes the Service's previous load balancer after an annotation has moved it to another. One not both marked and recorded
// stays, which is reported.
func (r *reconciler) leavePrevious(ctx context.Context, req *services.Request, o observed) error {
	service, current, made := req.Service, o.lb, req.Service.Annotations[annotationMade]
	if made == current.ID || current.Name == loadBalancerName(req.Cluster, service) || current.Name == legacyName(service) {
		return nil
	}
	lb, err := r.finder.findPrevious(ctx, req.Cluster, service, made)
	if err != nil {
		return err
	}
	if lb == nil || lb.ID == current.ID || lb.isBeingDeleted() {
		return r.record(ctx, req, map[string]string{annotationMade: ""})
	}
	before := withAnnotations(service, map[string]string{annotationID: lb.ID})
	previousRole, d, err := r.finder.decideRole(ctx, req.Cluster, before, lb)
	if err != nil {
		return err
	}
	if !previousRole.owner || d.Verdict == ownership.Refused {
		return r.record(ctx, req, map[string]string{annotationMade: ""})
	}
	if made != lb.ID || !previousRole.isMarked(lb) || contract.Keeps(service) {
		addresses, err := r.floatingIPs.listAddresses(ctx, lb, withinAge(previousMaxAge))
		if err != nil {
			return err
		}
		req.Report(services.Notice(contract.EventLoadBalancerRetained, "load balancer %s, which was made for this Service, stays in the cloud with %s, "+
			"though the Service has load balancer %s now; delete it there if it is not needed", lb.ID, strings.Join(addresses, " and "), current.ID))
		return nil
	}
	req.Service = before
	o.lb, o.role = lb, previousRole
	err = r.leaveLoadBalancer(ctx, req, o)
	if req.Service = service; err != nil {
		return fmt.Errorf("removing load balancer %s, which the Service had before: %w", lb.ID, err)
	}
	return r.record(ctx, req, map[string]string{annotationMade: ""})
}

func (r role) isMarked(lb *loadBalancer) bool {
	return slices.ContainsFunc(lb.Tags, func(t string) bool { return t != "" && (t == r.serviceMark || t == r.mark) })
}

package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// maxDuplicates bounds how many concurrently created load balancers of a Service one call deletes.
const maxDuplicates = 3

// Deletions implements services.Reconciler. Node ports are closed first.
func (r *reconciler) Deletions(ctx context.Context, req services.Request, o observed) ([]change, []services.Finding, error) {
	if err := problemsAbout(o.settingsErr, annotationKeepFloatingIP); err != nil {
		return nil, nil, err // when in doubt nothing is deleted
	}
	groups, err := r.securityGroups.findFor(ctx, req.Service, ensureMaxAge)
	if err != nil {
		return nil, nil, err
	}
	changes := services.EachTried(r.securityGroups.deletions(groups))
	if o.lb != nil {
		return append(changes, change{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: titleOf(o.lb), Detail: "or the ports of the Service, where others use it"},
			Replan:  true,
			Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
				err := r.leaveAll(ctx, req, o)
				o.lb = nil
				return o, err
			},
		}), nil, nil
	}
	left, err := r.floatingIPs.findUnattached(ctx, req.Cluster, req.Service, withinAge(ensureMaxAge))
	if err != nil || o.settings.keepFloatingIP {
		return changes, nil, err
	}
	for _, f := range left {
		changes = append(changes, deletionOf("floating address "+f.Address, func(ctx context.Context) error { return r.floatingIPs.releaseUnattached(ctx, f) }))
	}
	return changes, nil, nil
}

// deletionOf returns the deletion of an object left after its load balancer.
func deletionOf(object string, do func(context.Context) error) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: object},
		Make:    func(ctx context.Context, _ *services.Request, o observed) (observed, error) { return o, do(ctx) },
	}
}

// leaveAll removes a Service from its load balancer and from duplicates created at the same time.
func (r *reconciler) leaveAll(ctx context.Context, req *services.Request, o observed) error {
	for range maxDuplicates {
		if err := r.leaveLoadBalancer(ctx, req, o); err != nil {
			return err
		}
		if !o.role.owner || o.lb.Name != o.role.name {
			return nil // the Service was moved by an annotation; leavePrevious handles the former one
		}
		req.Service = withAnnotations(req.Service, map[string]string{annotationID: "", annotationMade: ""})
		duplicate, err := r.finder.findByName(ctx, req.Cluster, req.Service, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
		if err != nil || duplicate == nil || duplicate.ID == o.lb.ID || !slices.Contains(duplicate.Tags, o.role.serviceMark) {
			return err
		}
		var ours bool
		if o.role, ours, err = r.finder.findRole(ctx, req.Cluster, req.Service, duplicate); err != nil || !ours {
			return err
		}
		o.lb = duplicate
	}
	return nil
}

// leaveLoadBalancer removes a Service from its load balancer, and deletes it if nobody else uses it.
func (r *reconciler) leaveLoadBalancer(ctx context.Context, req *services.Request, o observed) error {
	id := o.lb.ID
	unlock, err := r.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if o.lb.isPending() {
		if lb, err := r.writer.waitUntilIdle(ctx, id, o.lb.Status); err != nil || lb == nil {
			return err
		}
	}
	// Somebody may have just begun to share it.
	if o.lb, err = r.loadBalancers.Get(ctx, id, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
		r.finder.noteLoss(id)
		return nil
	} else if err != nil {
		return err
	}
	if o.features.minor, err = r.api.octaviaMinor(ctx); err != nil {
		return err
	}
	isUsed := o.features.hasTags() && isUsedByOthers(o.lb, o.role) || !isMadeByController(o.lb, req.Service)
	if !isUsed {
		if isUsed, err = r.finder.isOwnedByAnother(ctx, req.Cluster, o.lb, o.role); err != nil {
			return err
		}
	}
	if isUsed {
		return r.leaveShared(ctx, req, o)
	}
	return r.destroy(ctx, req, o)
}

// destroy deletes a load balancer with its floating address, and waits for the end.
func (r *reconciler) destroy(ctx context.Context, req *services.Request, o observed) error {
	if err := r.floatingIPs.release(ctx, o, false); err != nil {
		return err
	}
	lb := o.lb
	if !r.config.LoadBalancer.CascadeDelete && lb.Status == statusActive {
		whole := role{name: o.role.name, mark: o.role.mark, serviceMark: o.role.serviceMark, owner: true}
		var err error
		lb, err = r.writer.applySteps(ctx, req, lb, func(_ *loadBalancer, d *details) []step { return removals(d, whole, nil) })
		if err != nil || lb == nil {
			return err
		}
	}
	klog.InfoS("Deleting load balancer", "service", klog.KObj(req.Service), "loadBalancer", lb.ID)
	// In ERROR, Octavia refuses to change parts, so that they cannot be deleted first.
	return r.writer.remove(ctx, lb, r.config.LoadBalancer.CascadeDelete || lb.Status == statusError)
}

// leaveShared removes the Service's parts from a load balancer that others use.
func (r *reconciler) leaveShared(ctx context.Context, req *services.Request, o observed) error {
	if o.lb.Status != statusActive {
		return fmt.Errorf("load balancer %s has the provisioning status %s, in which the ports of the Service cannot be removed from it; "+
			"others use it, so it is not deleted", o.lb.ID, o.lb.Status)
	}
	_, err := r.writer.applySteps(ctx, req, o.lb, func(lb *loadBalancer, d *details) []step { return planLeave(lb, d, o.role) })
	return err
}

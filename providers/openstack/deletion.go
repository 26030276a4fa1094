package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// maxTwins bounds how many concurrently created load balancers of a Service one call deletes.
const maxTwins = 3

// Deletions implements services.Reconciler. Nodes are closed first. Objects of other users stay.
func (l *loadBalancers) Deletions(ctx context.Context, r services.Request, o observation) ([]change, []services.Finding, error) {
	s, _ := l.settings(r.Service, o.lb) // settings that affect deletion were checked before
	groups, err := l.securityGroups(ctx, r.Service, ensureMaxAge)
	if err != nil {
		return nil, nil, err
	}
	changes := services.EachTried(l.groupDeletions(groups))
	if o.lb != nil {
		return append(changes, change{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: titleOf(o.lb), Detail: "or the ports of the Service, where others use it"},
			Replan:  true,
			Make: func(ctx context.Context, r *services.Request, o observation) (observation, error) {
				return observation{}, l.leaveAll(ctx, r, s, o.lb, o.role)
			},
		}), nil, nil
	}
	left, err := l.unattachedIPs(ctx, r.Cluster, r.Service, releaseQuery())
	if err != nil {
		return nil, nil, err
	}
	for _, f := range left {
		if !s.keepFloatingIP {
			changes = append(changes, deletionOf("floating address "+f.Address, func(ctx context.Context) error { return l.releaseFormer(ctx, f) }))
		}
	}
	return changes, nil, nil
}

// deletionOf returns the deletion of an object left after its load balancer.
func deletionOf(object string, do func(context.Context) error) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: object},
		Make:    func(ctx context.Context, _ *services.Request, o observation) (observation, error) { return o, do(ctx) },
	}
}

// leaveAll removes a Service from its load balancer and from duplicates created at the same time.
func (l *loadBalancers) leaveAll(ctx context.Context, r *services.Request, s settings, lb *loadBalancer, as role) error {
	for range maxTwins {
		if err := l.leaveLoadBalancer(ctx, r, s, lb, as); err != nil {
			return err
		}
		if !as.owner || lb.Name != as.name {
			return nil // the Service was moved by an annotation; leavePrevious handles the former one
		}
		r.Service = withAnnotations(r.Service, map[string]string{annotationID: "", annotationMade: ""})
		twin, err := l.findByName(ctx, r.Cluster, r.Service, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
		if err != nil || twin == nil || twin.ID == lb.ID || !slices.Contains(twin.Tags, as.serviceMark) {
			return err
		}
		var ours bool
		if as, ours, err = l.roleIn(ctx, r.Cluster, r.Service, twin); err != nil || !ours {
			return err
		}
		lb = twin
	}
	return nil
}

// leaveLoadBalancer removes a Service from its load balancer, and deletes it if nobody else uses it.
func (l *loadBalancers) leaveLoadBalancer(ctx context.Context, r *services.Request, s settings, lb *loadBalancer, as role) error {
	unlock, err := l.Lock(ctx, lb.ID)
	if err != nil {
		return err
	}
	defer unlock()
	id := lb.ID
	if lb.isPending() {
		if lb, err = l.waitUntilIdle(ctx, id, lb.Status); err != nil || lb == nil {
			return err
		}
	}
	// Somebody may have just begun to share it.
	if lb, err = l.observed.Get(ctx, id, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
		l.forget(id)
		return nil
	} else if err != nil {
		return err
	}
	if f, err := l.api.octavia(ctx); err != nil {
		return err
	} else if f.hasTags() && isShared(lb, as) || !isMadeByController(lb, r.Service) {
		return l.leaveShared(ctx, r, lb, as)
	}
	if owned, err := l.ownedByAnother(ctx, r.Cluster, lb, as); err != nil {
		return err
	} else if owned {
		return l.leaveShared(ctx, r, lb, as)
	}
	return l.destroy(ctx, r, s, lb, as)
}

// ownedByAnother reports whether a shared load balancer has an existing owner, or one in another cluster, although its tag is missing. A
// controller without tags may have created it, or the tags were overwritten.
func (l *loadBalancers) ownedByAnother(ctx context.Context, cluster string, lb *loadBalancer, r role) (bool, error) {
	if r.owner {
		return false, nil
	}
	if ownership.Foreign(r.mark, lb.Tags) {
		return true, nil
	}
	owner, _, _, err := l.ownerOf(ctx, cluster, lb, r.mark)
	if err != nil || owner == nil {
		return false, err
	}
	id := owner.Annotations[annotationID]
	return ownership.MayHave(owner) && loadBalancerName(cluster, owner) != r.name && (id == "" || id == lb.ID), nil
}

// destroy deletes a load balancer with its floating address, and waits for the end.
func (l *loadBalancers) destroy(ctx context.Context, r *services.Request, s settings, lb *loadBalancer, as role) error {
	if err := l.releaseFloatingIP(ctx, as, lb, s, false); err != nil {
		return err
	}
	if !l.config.LoadBalancer.CascadeDelete && lb.Status == statusActive {
		id, whole := lb.ID, role{name: as.name, mark: as.mark, serviceMark: as.serviceMark, owner: true}
		var err error
		lb, err = l.applySteps(ctx, r, lb, func(lb *loadBalancer, d *details) ([]step, error) { return plan(lb, d, wantedState{}, whole) })
		switch {
		case err != nil:
			return err
		case lb == nil:
			l.forget(id)
			return nil
		}
	}
	klog.InfoS("Deleting load balancer", "service", klog.KObj(r.Service), "loadBalancer", lb.ID)
	// In ERROR, Octavia refuses to change parts, so that they cannot be deleted first.
	return l.remove(ctx, lb, l.config.LoadBalancer.CascadeDelete || lb.Status == statusError)
}

func (l *loadBalancers) forget(id string) {
	l.observed.Forget(id)
	l.parts.Forget(id)
	l.looked.Delete(id)
	l.singly.Delete(id)
	l.proved.Delete(id)
}

// leaveShared removes the Service's parts from a load balancer that others use.
func (l *loadBalancers) leaveShared(ctx context.Context, r *services.Request, lb *loadBalancer, as role) error {
	if lb.Status != statusActive {
		return fmt.Errorf("load balancer %s has the provisioning status %s, in which the ports of the Service cannot be removed from it; "+
			"others use it, so it is not deleted", lb.ID, lb.Status)
	}
	_, err := l.applySteps(ctx, r, lb, func(lb *loadBalancer, d *details) ([]step, error) { return planLeave(lb, d, as), nil })
	return err
}

// remove deletes a load balancer and waits for the end.
func (l *loadBalancers) remove(ctx context.Context, lb *loadBalancer, cascade bool) error {
	for range maxRounds {
		err := l.api.deleteLoadBalancer(ctx, lb.ID, cascade)
		if errors.Is(err, cloudapi.ErrNotFound) {
			l.forget(lb.ID)
			return nil
		}
		l.observed.Invalidate(lb.ID)
		if err != nil && !errors.Is(err, cloudapi.ErrConflict) {
			return err
		}
		if err == nil {
			going := *lb
			going.Status = statusPendingDelete
			l.observed.PutPartial(&going)
		}
		now, err := l.waitUntilIdle(ctx, lb.ID, "its deletion")
		switch {
		case err != nil || now == nil:
			return err
		case now.Status == statusError:
			return fmt.Errorf("load balancer %s is in ERROR after its deletion; it is tried again", lb.ID)
		}
		lb = now // it was busy, and no longer is
	}
	return fmt.Errorf("load balancer %s is still there after several deletions", lb.ID)
}

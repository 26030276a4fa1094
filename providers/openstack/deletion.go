package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. What is ours goes, and what others use stays.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_delete", began, failed(err)) }(time.Now())
	s, _, err := parseSettings(service, l.config)
	if err := concerning(err, annotationKeepFloatingIP); err != nil {
		return err // in doubt nothing is deleted
	}
	if err := l.leaveAll(ctx, cluster, service, s); err != nil {
		return err
	}
	if err := l.releaseLeft(ctx, cluster, service, s); err != nil {
		return err
	}
	return l.removeSecurityGroup(ctx, service, ensureMaxAge)
}

// leaveAll takes a Service off its load balancer, and off others that were made for it at the same time.
func (l *loadBalancers) leaveAll(ctx context.Context, cluster string, service *v1.Service, s settings) error {
	left := ""
	for range mostBirths {
		lb, r, err := l.findOurs(ctx, cluster, service)
		if err != nil || lb == nil || !l.served(lb, r) || lb.ID == left {
			return err
		}
		if err := l.leave(ctx, cluster, service, s, lb, r); err != nil {
			return err
		}
		left = lb.ID
		if !r.owner || lb.Name != r.name {
			return nil // an annotation has moved the Service, and what it had before is told of
		}
		service = recorded(service, map[string]string{annotationID: "", annotationMade: ""})
		if twin, err := l.findByName(ctx, cluster, service, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge}); err != nil || twin == nil ||
			!slices.Contains(twin.Tags, r.serviceMark) {
			return err
		}
	}
	return nil
}

// leave takes a Service off its load balancer, and deletes that where nobody else uses it. nil means that it is done.
func (l *loadBalancers) leave(ctx context.Context, cluster string, service *v1.Service, s settings, lb *balancer, r role) error {
	unlock, err := l.locks.Lock(ctx, lb.ID)
	if err != nil {
		return fmt.Errorf("waiting for another Service of load balancer %s: %w", lb.ID, err)
	}
	defer unlock()
	id := lb.ID
	if lb.pending() {
		if lb, err = l.idle(ctx, id, lb.Status); err != nil || lb == nil {
			return err
		}
	}
	// Somebody may have begun to share it a moment ago.
	if lb, err = l.balancers.Get(ctx, id, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
		l.forget(id)
		return nil
	} else if err != nil {
		return err
	}
	if f, err := l.api.octavia(ctx); err != nil {
		return err
	} else if f.tags() && shared(lb, r) || !madeByController(lb, service) {
		return l.leaveShared(ctx, service, lb, r)
	}
	if owned, err := l.ownedByAnother(ctx, cluster, lb, r); err != nil {
		return err
	} else if owned {
		return l.leaveShared(ctx, service, lb, r)
	}
	return l.destroy(ctx, service, s, lb, r)
}

// ownedByAnother reports whether a load balancer that a Service only shares has an owner that lives, or one in another cluster, though
// its tag is missing: a controller of before tags made it, or somebody wrote the tags anew.
func (l *loadBalancers) ownedByAnother(ctx context.Context, cluster string, lb *balancer, r role) (bool, error) {
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
	waits := owner.Spec.Type == v1.ServiceTypeLoadBalancer || len(owner.Finalizers) > 0
	id := owner.Annotations[annotationID]
	return waits && balancerName(cluster, owner) != r.name && (id == "" || id == lb.ID), nil
}

// destroy deletes a load balancer and what belongs to it, and waits until it has gone.
func (l *loadBalancers) destroy(ctx context.Context, service *v1.Service, s settings, lb *balancer, r role) error {
	if err := l.releaseFloatingIP(ctx, r.name, lb, s, false); err != nil {
		return err
	}
	if !l.config.LoadBalancer.CascadeDelete && lb.Status == statusActive {
		id, whole := lb.ID, role{name: r.name, mark: r.mark, serviceMark: r.serviceMark, owner: true}
		var err error
		lb, err = l.work(ctx, service, lb, func(lb *balancer, d *details) ([]step, error) { return plan(lb, d, desired{}, whole) })
		switch {
		case err != nil:
			return err
		case lb == nil:
			l.forget(id)
			return nil
		}
	}
	klog.InfoS("Deleting load balancer", "service", klog.KObj(service), "loadBalancer", lb.ID)
	// Octavia changes no part of one in ERROR, so that the parts cannot go first.
	return l.remove(ctx, lb, l.config.LoadBalancer.CascadeDelete || lb.Status == statusError)
}

func (l *loadBalancers) forget(id string) {
	l.balancers.Forget(id)
	l.parts.Forget(id)
	l.looked.Delete(id)
	l.proved.Delete(id)
}

// leaveShared removes what belongs to the Service from a load balancer that stays.
func (l *loadBalancers) leaveShared(ctx context.Context, service *v1.Service, lb *balancer, r role) error {
	if lb.Status != statusActive {
		return fmt.Errorf("load balancer %s has the provisioning status %s, in which the ports of the Service cannot be removed from it; others use it, so it is not deleted", lb.ID, lb.Status)
	}
	_, err := l.work(ctx, service, lb, func(lb *balancer, d *details) ([]step, error) { return planLeave(lb, d, r), nil })
	return err
}

// remove deletes a load balancer, and waits until it has gone.
func (l *loadBalancers) remove(ctx context.Context, lb *balancer, cascade bool) error {
	for range mostRounds {
		err := l.api.deleteBalancer(ctx, lb.ID, cascade)
		if errors.Is(err, cloudapi.ErrNotFound) {
			l.forget(lb.ID)
			return nil
		}
		l.balancers.Invalidate(lb.ID)
		if err != nil && !errors.Is(err, cloudapi.ErrConflict) {
			return err
		}
		if err == nil {
			going := *lb
			going.Status = statusPendingDelete
			l.balancers.PutPartial(&going)
		}
		now, err := l.idle(ctx, lb.ID, "its deletion")
		switch {
		case err != nil || now == nil:
			return err
		case now.Status == statusError:
			return fmt.Errorf("load balancer %s is in ERROR after its deletion; it is tried again", lb.ID)
		}
		lb = now // it was busy, and is no longer
	}
	return fmt.Errorf("load balancer %s is still there after several deletions", lb.ID)
}

package openstack

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. What is ours goes, and what others use stays.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) (err error) {
	defer func(began time.Time) { countReconcile("loadbalancer_delete", began, failed(err)) }(time.Now())
	s, _, err := parseSettings(service, l.config)
	if err := concerning(err, annotationKeepFloatingIP); err != nil {
		return err // in doubt nothing is deleted
	}
	lb, r, err := l.findOurs(ctx, cluster, service)
	if err != nil {
		return err
	}
	if lb != nil && l.served(lb, r) {
		if err := l.leave(ctx, service, s, lb, r); err != nil {
			return err
		}
	}
	if err := l.releaseLeft(ctx, cluster, service, s); err != nil {
		return err
	}
	return l.removeSecurityGroup(ctx, service, ensureMaxAge)
}

// leave takes a Service off its load balancer, and deletes that where nobody else uses it. nil means that it is done.
func (l *loadBalancers) leave(ctx context.Context, service *v1.Service, s settings, lb *balancer, r role) error {
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
	return l.destroy(ctx, service, s, lb, r)
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
	return l.remove(ctx, lb, l.config.LoadBalancer.CascadeDelete)
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
			l.balancers.Amend(&going)
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

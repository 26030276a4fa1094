package openstack

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// Key implements services.Asynchronous. A deletion may concern several load balancers, so it takes each lock itself.
func (l *loadBalancers) Key(r services.Request, o observation) string {
	if o.lb == nil || r.Purpose == services.Delete {
		return ""
	}
	return o.lb.ID
}

// Settle implements services.Asynchronous.
func (l *loadBalancers) Settle(ctx context.Context, r *services.Request, o observation) (observation, error) {
	if o.lb == nil || r.Purpose == services.Delete {
		return o, nil
	}
	if r.Purpose == services.Ensure {
		if err := l.record(ctx, r, map[string]string{annotationID: o.lb.ID}); err != nil {
			return o, err
		}
	}
	if o.settled {
		return o, nil
	}
	// Another Service may have changed it during the wait; our own writes are in memory.
	lb, err := l.observed.Get(ctx, o.lb.ID, inventory.Query{MaxAge: o.settleMaxAge(r.Purpose)})
	if errors.Is(err, cloudapi.ErrNotFound) {
		l.forget(o.lb.ID)
		return l.handleLoss(r)
	}
	if err == nil {
		lb, err = l.waitForRest(ctx, *r, lb, o.role)
	}
	switch {
	case err != nil:
		return o, err
	case lb == nil:
		return l.handleLoss(r)
	}
	o.lb, o.settled = lb, true
	if d, known := l.parts.Peek(lb.ID); known {
		o.again = d.asOf == ours
	}
	switch {
	case lb.Status != statusActive:
	case r.Purpose == services.Ensure && !o.changed:
		o.parts, err = l.partsForEnsure(ctx, r, o)
	case o.changed:
		o.parts, err = l.observe(ctx, lb)
	default:
		o.parts, o.changed, err = l.partsForUpdate(ctx, lb)
	}
	return o, err
}

// settleMaxAge is for the load balancer. After a start one listing serves all Services; later changes by others should be corrected at
// once.
func (o observation) settleMaxAge(purpose services.Purpose) time.Duration {
	if o.seen && purpose == services.Ensure {
		return newMaxAge
	}
	return ensureMaxAge
}

// handleLoss handles a vanished load balancer: it is created again, unless only nodes have changed.
func (l *loadBalancers) handleLoss(r *services.Request) (observation, error) {
	if r.Purpose != services.Ensure {
		return observation{}, nil
	}
	r.Service = withAnnotations(r.Service, map[string]string{annotationID: "", annotationMade: ""})
	return observation{}, services.ErrGone
}

// waitForRest waits until Octavia is idle; nil means that the load balancer is gone.
func (l *loadBalancers) waitForRest(ctx context.Context, r services.Request, lb *loadBalancer, as role) (_ *loadBalancer, err error) {
	id := lb.ID
	switch {
	case lb.Status == statusPendingCreate && r.Purpose == services.Ensure:
		lb, err = l.waitUntilBuilt(ctx, r.Service, lb, as)
	case lb.isPending():
		lb, err = l.waitUntilIdle(ctx, lb.ID, lb.Status)
	}
	if err != nil || lb == nil || lb.Status != statusError {
		return lb, err
	}
	lb, err = l.observed.Get(ctx, lb.ID, inventory.Query{}) // ERROR may be outdated
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		l.forget(id)
		return nil, nil //nolint:nilnil // absence is an answer here
	case err == nil && lb.isPending():
		return l.waitUntilIdle(ctx, lb.ID, lb.Status)
	}
	return lb, err
}

// waitUntilIdle waits until Octavia is idle; nil means that the load balancer is gone.
func (l *loadBalancers) waitUntilIdle(ctx context.Context, id, doing string, with ...waiting.Option) (*loadBalancer, error) {
	lb, err := l.room.Until(ctx, id, fmt.Sprintf("load balancer %s: %s", id, doing), func(b *loadBalancer) bool { return !b.isPending() }, with...)
	if errors.Is(err, cloudapi.ErrNotFound) || (err == nil && lb.Status == statusDeleted) {
		l.forget(id)
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return lb, err
}

// buildLooks is the number of polls skipped while Octavia starts machines, which takes at least a few seconds.
const buildLooks = 4

// waitUntilBuilt waits for a new load balancer, and meanwhile reads objects that the next steps need.
func (l *loadBalancers) waitUntilBuilt(ctx context.Context, service *v1.Service, lb *loadBalancer, r role) (*loadBalancer, error) {
	var with []waiting.Option
	if lb.providerOr(l.config.LoadBalancer.Provider) != providerOVN { // ovn starts no machines
		with = append(with, waiting.SkipLooks(buildLooks))
	}
	after := lb
	err := waiting.Together(
		func() (err error) { after, err = l.waitUntilIdle(ctx, lb.ID, lb.Status, with...); return err },
		func() error {
			if l.config.LoadBalancer.ManageSecurityGroups {
				return nil // they are read immediately before their change
			}
			_, err := l.securityGroups(ctx, service, networksMaxAge)
			return ignoreError(err)
		},
	)
	if err != nil || after == nil || after.Status != statusActive || !r.owner {
		return after, err
	}
	return after, waiting.Together(
		func() error { _, err := l.observe(ctx, after); return err },
		func() error { _, err := l.floatingIPOf(ctx, after, attachmentQuery()); return ignoreError(err) },
	)
}

// ignoreError is for early reads: a later read reports the failure.
func ignoreError(error) error { return nil }

// partsForUpdate returns the parts for a change of members. After our own changes they are read once more, because somebody else may have
// changed them right afterwards.
func (l *loadBalancers) partsForUpdate(ctx context.Context, lb *loadBalancer) (d *details, changed bool, err error) {
	if d, err = l.parts.Get(ctx, lb.ID, inventory.Query{MaxAge: updatePartsMaxAge}); err != nil {
		return nil, false, cloudapi.NotAbsence(err)
	}
	if d.asOf == ours {
		d, err = l.partsAfterChange(ctx, lb, d)
		return d, true, err
	}
	return d, false, nil
}

package openstack

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// Key implements services.Asynchronous. A deletion may concern several load balancers, so it takes each lock itself.
func (r *reconciler) Key(req services.Request, o observed) string {
	if o.lb == nil || req.Purpose == services.Delete {
		return ""
	}
	return o.lb.ID
}

func (r *reconciler) Settle(ctx context.Context, req *services.Request, o observed) (observed, error) {
	if o.lb == nil || req.Purpose == services.Delete {
		return o, nil
	}
	if req.Purpose == services.Ensure {
		if err := r.record(ctx, req, map[string]string{annotationID: o.lb.ID}); err != nil {
			return o, err
		}
	}
	if o.settled {
		return o, nil
	}
	// Another Service may have changed it during the wait; our own writes are in memory.
	lb, err := r.loadBalancers.Get(ctx, o.lb.ID, inventory.Query{MaxAge: o.settleMaxAge(req.Purpose)})
	if errors.Is(err, cloudapi.ErrNotFound) {
		r.finder.noteLoss(o.lb.ID)
		return handleLoss(req)
	}
	if err == nil {
		lb, err = r.waitForOctavia(ctx, *req, lb, o)
	}
	switch {
	case err != nil:
		return o, err
	case lb == nil:
		return handleLoss(req)
	}
	o.lb, o.settled = lb, true
	if d, known := r.parts.details.Peek(lb.ID); known {
		o.changedByUs = d.asOf == asOfOwnChange
	}
	switch {
	case lb.Status != statusActive:
	case req.Purpose == services.Ensure && !o.changed:
		o.parts, err = r.readForEnsure(ctx, *req, o)
	case o.changed:
		o.parts, err = r.parts.readCurrent(ctx, lb)
	default:
		o.parts, o.changed, err = r.parts.readForUpdate(ctx, lb)
	}
	return o, err
}

// settleMaxAge is for the load balancer. After a start one listing serves all Services; later changes by others should be corrected at
// once.
func (o observed) settleMaxAge(purpose services.Purpose) time.Duration {
	if o.readBefore && purpose == services.Ensure {
		return newMaxAge
	}
	return ensureMaxAge
}

// handleLoss handles a vanished load balancer: it is created again, unless only nodes have changed.
func handleLoss(req *services.Request) (observed, error) {
	if req.Purpose != services.Ensure {
		return observed{}, nil
	}
	req.Service = withAnnotations(req.Service, map[string]string{annotationID: "", annotationMade: ""})
	return observed{}, services.ErrGone
}

// waitForOctavia waits until Octavia is idle; nil means that the load balancer is gone.
func (r *reconciler) waitForOctavia(ctx context.Context, req services.Request, lb *loadBalancer, o observed) (_ *loadBalancer, err error) {
	id := lb.ID
	switch {
	case lb.Status == statusPendingCreate && req.Purpose == services.Ensure:
		lb, err = r.waitUntilBuilt(ctx, req.Service, lb, o)
	case lb.isPending():
		lb, err = r.writer.waitUntilIdle(ctx, lb.ID, lb.Status)
	}
	if err != nil || lb == nil || lb.Status != statusError {
		return lb, err
	}
	lb, err = r.loadBalancers.Get(ctx, lb.ID, inventory.Query{}) // ERROR may be outdated
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		r.finder.noteLoss(id)
		return nil, nil //nolint:nilnil // absence is an answer here
	case err == nil && lb.isPending():
		return r.writer.waitUntilIdle(ctx, lb.ID, lb.Status)
	}
	return lb, err
}

// buildLooks is the number of polls skipped while Octavia starts machines, which takes at least a few seconds.
const buildLooks = 4

// waitUntilBuilt waits for a new load balancer, and meanwhile reads objects that the next steps need.
func (r *reconciler) waitUntilBuilt(ctx context.Context, service *v1.Service, lb *loadBalancer, o observed) (*loadBalancer, error) {
	var with []waiting.Option
	if !o.features.isOVN() { // ovn starts no machines
		with = append(with, waiting.SkipLooks(buildLooks))
	}
	after := lb
	err := waiting.Together(
		func() (err error) { after, err = r.writer.waitUntilIdle(ctx, lb.ID, lb.Status, with...); return err },
		func() error {
			if r.config.LoadBalancer.ManageSecurityGroups {
				return nil // they are read immediately before their change
			}
			_, err := r.securityGroups.findFor(ctx, service, networksMaxAge)
			return ignoreError(err)
		},
	)
	if err != nil || after == nil || after.Status != statusActive || !o.role.owner {
		return after, err
	}
	return after, waiting.Together(
		func() error { _, err := r.parts.readCurrent(ctx, after); return err },
		func() error { _, err := r.floatingIPs.findAt(ctx, after, attachmentQuery()); return ignoreError(err) },
	)
}

// readForEnsure returns the parts of an idle load balancer. If listed parts show a change or do not suffice, they are read individually.
func (r *reconciler) readForEnsure(ctx context.Context, req services.Request, o observed) (*details, error) {
	var err error
	if o.parts, err = r.parts.readListed(ctx, o.lb); err != nil || !o.parts.listed {
		return o.parts, err
	}
	if o.settingsErr == nil {
		if d, _, err := r.desireExisting(ctx, req, o); err == nil && len(d.steps) == 0 {
			return o.parts, nil
		}
	}
	return r.parts.readCurrent(ctx, o.lb)
}

package xcloud

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.OrphanFinder = (*cloud)(nil)

// Orphans implements contract.OrphanFinder: load balancers with this cluster's mark and without a Service.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]contract.Orphan, error) {
	mark, err := c.reconciler.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.reconciler.known.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	orphans := []contract.Orphan{}
	for _, lb := range all {
		if slices.Contains(lb.Tags, mark) && !c.reconciler.isHeld(lb, list) {
			orphans = append(orphans, contract.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
		}
	}
	return orphans, nil
}

// DeleteOrphan implements contract.OrphanFinder. It checks the orphan again with the present Services.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	if err := c.reconciler.cluster.StillOrphan(ctx, o, c.Orphans); err != nil {
		return err
	}
	return c.reconciler.remove(ctx, o.ID)
}

package xcloud

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var _ guard.OrphanFinder = (*cloud)(nil)

// Orphans implements guard.OrphanFinder: load balancers with the mark of this cluster that no Service has.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]guard.Orphan, error) {
	mark, err := c.reconciler.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.reconciler.known.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	orphans := []guard.Orphan{}
	for _, lb := range all {
		if slices.Contains(lb.Tags, mark) && !c.reconciler.held(lb, list) {
			orphans = append(orphans, guard.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
		}
	}
	return orphans, nil
}

// DeleteOrphan implements guard.OrphanFinder. Time has passed since it was found: it is looked at again, with the Services of now.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	list, err := c.reconciler.cluster.Living(ctx)
	if err != nil {
		return err
	}
	found, err := c.Orphans(ctx, list)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, func(other guard.Orphan) bool { return other.ID == o.ID }) {
		return fmt.Errorf("load balancer %s is no orphan any more", o.ID)
	}
	return c.reconciler.remove(ctx, o.ID)
}

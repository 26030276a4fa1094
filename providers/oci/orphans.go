package oci

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var _ guard.OrphanFinder = (*cloud)(nil)

// Orphans implements guard.OrphanFinder: load balancers with the mark of the cluster and names as its Services' have, of which no Service is
// left. What Oracle's own controller made has no mark, and cannot be told from another cluster's.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]guard.Orphan, error) {
	r := c.reconciler
	mark, err := r.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.known.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	orphans := []guard.Orphan{}
	for _, lb := range all {
		if lb.Tags[tagCluster] != mark || !r.made.MatchString(lb.Name) || lb.State == stateDeleting ||
			slices.ContainsFunc(list, func(s *v1.Service) bool { return ownership.Holds(s, objectOf(lb), r.rules()) }) {
			continue
		}
		orphans = append(orphans, guard.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
	}
	more, err := c.network.orphans(ctx, mark, func(lb *networkBalancer) bool {
		return slices.ContainsFunc(list, func(s *v1.Service) bool { return ownership.Holds(s, networkObject(lb), c.network.rules()) })
	})
	return append(orphans, more...), c.loadBalancers.unlessUnserved(ctx, c.loadBalancers.nlb, err)
}

// DeleteOrphan implements guard.OrphanFinder. Time has passed since it was found: it is looked at again, with the Services of now.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	if err := c.reconciler.cluster.StillOrphan(ctx, o, c.Orphans); err != nil {
		return err
	}
	if o.Kind == kindNetwork {
		lb := &networkBalancer{}
		lb.ID, lb.Name = o.ID, o.Name
		return c.network.remove(ctx, &services.Request{}, lb)
	}
	return c.reconciler.remove(ctx, &services.Request{}, &loadBalancer{ID: o.ID, Name: o.Name})
}

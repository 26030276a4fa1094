package ibm

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var _ guard.OrphanFinder = (*cloud)(nil)

// Orphans implements guard.OrphanFinder: load balancers in the VPC of the cluster whose names are exactly those that the cluster's Services
// have, of which no Service is left. A name that was cut, or that only begins like ours, is none.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]guard.Orphan, error) {
	r := c.reconciler
	all, err := r.known.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	orphans := []guard.Orphan{}
	for _, lb := range all {
		if !r.made.MatchString(lb.Name) || lb.Provisioning == stateDeleting ||
			slices.ContainsFunc(list, func(s *v1.Service) bool { return r.holds(s, lb) }) {
			continue
		}
		ours, err := r.inVPC(ctx, lb)
		if err != nil {
			return nil, err
		}
		if ours {
			orphans = append(orphans, guard.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
		}
	}
	return orphans, nil
}

// holds reports whether a Service has a load balancer, or may: whatever its annotations say, the name of one holds its UID.
func (r *reconciler) holds(s *v1.Service, lb *loadBalancer) bool {
	return lb.Name == ownName(r.config.Cluster, s) || ownership.Holds(s, objectOf(lb), r.rules())
}

// DeleteOrphan implements guard.OrphanFinder. Time has passed since it was found: it is looked at again, with the Services of now.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	if err := c.reconciler.cluster.StillOrphan(ctx, o, c.Orphans); err != nil {
		return err
	}
	return c.reconciler.remove(ctx, &loadBalancer{ID: o.ID, Name: o.Name})
}

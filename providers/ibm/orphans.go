package ibm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.OrphanFinder = (*cloud)(nil)

// Orphans implements contract.OrphanFinder: load balancers in the cluster's VPC whose name holds the whole UID of a missing Service. A
// truncated name proves nothing.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]contract.Orphan, error) {
	r := c.reconciler
	all, err := r.loadBalancers.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	orphans := []contract.Orphan{}
	for _, lb := range all {
		if !r.finder.ownForm.MatchString(lb.Name) || lb.Provisioning == stateDeleting ||
			slices.ContainsFunc(list, func(s *v1.Service) bool { return r.finder.holds(s, lb) }) {
			continue
		}
		ours, err := r.instances.inVPC(ctx, lb)
		if err != nil {
			return nil, err
		}
		if ours {
			orphans = append(orphans, contract.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
		}
	}
	return r.orphanGroups(ctx, list, orphans)
}

const groupKind = "security group"

// orphanGroups adds unused security groups of missing Services. If their names do not hold the cluster's whole ID, they may be another
// cluster's.
func (r *reconciler) orphanGroups(ctx context.Context, list []*v1.Service, orphans []contract.Orphan) ([]contract.Orphan, error) {
	if len(r.api.config.Cluster) > maxClusterInGroup() {
		return orphans, nil
	}
	all, err := r.groups.All(ctx, inventory.Query{})
	if errors.Is(err, cloudapi.ErrUnauthorized) {
		return orphans, nil // a credential that may not read groups has created none
	}
	for _, g := range all {
		if r.finder.ownForm.MatchString(g.Name) && len(g.Targets) == 0 &&
			!slices.ContainsFunc(all, func(o securityGroup) bool { return o.refersTo(g.ID) }) &&
			!slices.ContainsFunc(list, func(s *v1.Service) bool { return g.Name == groupName(r.api.config.Cluster, s) }) {
			orphans = append(orphans, contract.Orphan{Kind: groupKind, ID: g.ID, Name: g.Name})
		}
	}
	return orphans, err
}

// DeleteOrphan implements contract.OrphanFinder. It checks again, because the list may be outdated.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	if err := c.reconciler.finder.cluster.StillOrphan(ctx, o, c.Orphans); err != nil {
		return err
	}
	if o.Kind == groupKind {
		used, err := c.reconciler.security.remove(ctx, o.ID, o.Name)
		if err == nil && used != "" {
			err = fmt.Errorf("security group %s is in use by %s", o.Name, used)
		}
		return err
	}
	return c.reconciler.remove(ctx, &loadBalancer{ID: o.ID, Name: o.Name})
}

package oci

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.OrphanFinder = (*cloud)(nil)

// Orphans implements contract.OrphanFinder, for load balancers with the cluster's mark and a name like its Services'. Those of Oracle's own
// controller have no mark, and cannot be told from another cluster's.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]contract.Orphan, error) {
	k := c.loadBalancers
	mark, err := k.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	orphans, used, err := k.lb.orphans(ctx, list, mark)
	if err != nil {
		return nil, err
	}
	more, usedToo, err := k.nlb.orphans(ctx, list, mark)
	if err := k.ignoreForbiddenKind(ctx, k.nlb, err); err != nil {
		return nil, err
	}
	return k.groups.addOrphans(ctx, list, mark, append(orphans, more...), append(used, usedToo...))
}

// orphans returns those of one kind, and the security groups of load balancers that Services have.
func (r *reconciler) orphans(ctx context.Context, list []*v1.Service, mark string) (orphans []contract.Orphan, used []string, err error) {
	all, err := r.known.All(ctx, inventory.Query{})
	if err != nil {
		return nil, nil, err
	}
	orphans = []contract.Orphan{}
	for _, lb := range all {
		if slices.ContainsFunc(list, func(s *v1.Service) bool { return ownership.Holds(s, r.objectOf(lb), r.rules()) }) {
			used = append(used, lb.Groups...)
		} else if lb.Tags[tagCluster] == mark && r.kind.made.MatchString(lb.Name) && lb.State != stateDeleting {
			orphans = append(orphans, contract.Orphan{Kind: r.kind.title, ID: lb.ID, Name: lb.Name})
		}
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return slices.Compare([]string{a.Name, a.ID}, []string{b.Name, b.ID}) })
	return orphans, used, nil
}

const (
	kindGroup = "network security group"
	// uidLength is the length of a Service's UID, which ends the names of load balancers of both kinds.
	uidLength = 36
)

// addOrphans adds network security groups of Services that are gone, unless they are used.
func (g *securityGroups) addOrphans(
	ctx context.Context, list []*v1.Service, mark string, orphans []contract.Orphan, used []string,
) ([]contract.Orphan, error) {
	groups, err := g.known.All(ctx, inventory.Query{})
	if isUnreachable(err) {
		return orphans, nil // a user who may not see them has created none
	}
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if g.Tags[tagCluster] == mark && g.Tags[tagCreatedBy] == createdBy && !slices.Contains(used, g.ID) &&
			!slices.ContainsFunc(list, func(s *v1.Service) bool { return string(s.UID) == g.Tags[tagService] && ownership.MayHave(s) }) {
			orphans = append(orphans, contract.Orphan{Kind: kindGroup, ID: g.ID, Name: g.Name})
		}
	}
	return orphans, nil
}

// DeleteOrphan implements contract.OrphanFinder. Rules are removed before the object that they were created for, by which the remaining
// ones can be found.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	if err := c.loadBalancers.cluster.StillOrphan(ctx, o, c.Orphans); err != nil {
		return err
	}
	r, req := c.loadBalancers.lb, &services.Request{}
	if o.Kind == titleNLB {
		r = c.loadBalancers.nlb
	}
	var all []change
	var last func() error
	if o.Kind == kindGroup {
		g, err := r.groups.known.Get(ctx, o.ID, inventory.Query{})
		if err != nil {
			return err
		}
		gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: types.UID(g.Tags[tagService])}}
		edits, _, err := r.groups.planRemovals(ctx, gone, g, nil)
		if err != nil {
			return err
		}
		all = r.groups.closings(edits)
		last = func() error { return r.groups.remove(ctx, g) }
	} else {
		lb, err := r.known.Get(ctx, o.ID, inventory.Query{})
		if err == nil {
			err = r.checkProtection(ctx, o.ID)
		}
		if err != nil {
			return err
		}
		gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: types.UID(lb.Name[len(lb.Name)-uidLength:])}}
		everyone := access{sources: []string{everybody, everybodyIPv6}}
		plans, _, err := r.lists.plan(ctx, r.lists.requestRemoval(gone, everyone, settings{mode: modeAll, ipv6: true}, lb))
		if err != nil {
			return err
		}
		all = r.lists.changes(gone, plans)
		last = func() error { return r.remove(ctx, req, lb) }
	}
	var failed []error
	for _, c := range all {
		_, err := c.Make(ctx, req, observed{})
		failed = append(failed, err)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return last()
}

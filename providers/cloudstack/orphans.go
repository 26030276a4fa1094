package cloudstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.OrphanFinder = (*cloud)(nil)

// orphans returns rules with this cluster's mark that no Service uses, by load balancer name.
func (r *reconciler) orphans(ctx context.Context, list []*v1.Service) (map[string][]rule, error) {
	mark, err := r.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.rules.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	byName := map[string][]rule{}
	for _, found := range all {
		if found.owner() != "" {
			byName[found.owner()] = append(byName[found.owner()], found)
		}
	}
	maps.DeleteFunc(byName, func(name string, rules []rule) bool {
		marked := slices.ContainsFunc(rules, func(found rule) bool { return slices.Contains(found.marks(), mark) })
		held := slices.ContainsFunc(list, func(s *v1.Service) bool { return ownership.Holds(s, objectOf(name, rules), r.ownership()) })
		return !marked || held
	})
	return byName, nil
}

// byPort orders rules for changes.
func byPort(a, b rule) int {
	return cmp.Or(cmp.Compare(a.port(), b.port()), strings.Compare(a.Name+a.ID, b.Name+b.ID))
}

// Orphans implements contract.OrphanFinder.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]contract.Orphan, error) {
	found, err := c.reconciler.orphans(ctx, list)
	if err != nil {
		return nil, err
	}
	orphans := []contract.Orphan{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		orphans = append(orphans, contract.Orphan{Kind: "load balancer", ID: name, Name: name})
	}
	return orphans, nil
}

// DeleteOrphan implements contract.OrphanFinder, and releases an address that the rules mark as acquired. Rules and Services are read
// again, because the list may be outdated.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	r := c.reconciler
	list, err := r.cluster.Living(ctx)
	if err != nil {
		return err
	}
	found, err := r.orphans(ctx, list)
	if err != nil {
		return err
	}
	rules, orphaned := found[o.ID]
	if !orphaned {
		return fmt.Errorf("load balancer %s is no orphan any more", o.ID)
	}
	req := services.Request{Purpose: services.Delete, Service: &v1.Service{}}
	lb := newObserved(o.ID)
	slices.SortFunc(rules, byPort)
	lb.rules = rules
	if err := r.readDetails(ctx, req, lb); err != nil {
		return err
	}
	changes, _, err := r.Deletions(ctx, req, lb)
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range changes {
		if len(failed) > 0 && c.Phase == services.PhaseOpen { // the rules stay to find what is open
			break
		}
		if lb, err = c.Make(ctx, &req, lb); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

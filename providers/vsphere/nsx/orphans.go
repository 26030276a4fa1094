package nsx

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const kindLoadBalancer = "NSX load balancer"

// group holds the objects of one Service.
type group struct {
	holder
	objects observed
}

// readGroups returns all objects with the tags of a Service and our owner's, in the order of clusters and Services.
func (r *reconciler) readGroups(ctx context.Context, age time.Duration) (list []group, err error) {
	all, err := r.readAll(ctx, inventory.Query{MaxAge: age})
	if err != nil {
		return nil, err
	}
	found := map[holder]bool{}
	for _, x := range all.objects() {
		if h := holderOf(x); h.owner == r.config.owner() && h.cluster != "" && h.service != "" {
			found[h] = true
		}
	}
	for h := range found {
		list = append(list, group{h, all.filter(func(x object) bool { return holderOf(x) == h }).sortByID()})
	}
	slices.SortFunc(list, func(a, b group) int { return strings.Compare(a.key(), b.key()) })
	return list, nil
}

// findOrphans returns the objects with the mark of this cluster and tags of no existing Service, at no address that one shows. An unmarked
// object is never an orphan: the cluster name in a tag may be another cluster's as well.
func (r *reconciler) findOrphans(ctx context.Context, living []*v1.Service, age time.Duration) (found []group, err error) {
	mark, err := r.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.readGroups(ctx, age)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, s := range living {
		if ownership.MayHave(s) {
			taken[serviceKey(s)] = true
		}
	}
	for _, g := range all {
		marked := func(x object) bool { return slices.Contains(marksOf(x), mark) }
		held := taken[g.service] || ownership.IsShown(living, g.objects.addresses()...)
		if o := g.objects; !held && slices.ContainsFunc(o.objects(), marked) {
			found = append(found, group{g.holder, o.filter(func(x object) bool { return !o.isForeign(x, mark) })})
		}
	}
	return found, nil
}

// readAll holds all load balancer objects of NSX.
func (r *reconciler) readAll(ctx context.Context, q inventory.Query) (o observed, err error) {
	if o.servers, err = r.views.servers.All(ctx, q); err != nil {
		return o, err
	}
	if o.pools, err = r.views.pools.All(ctx, q); err != nil {
		return o, err
	}
	if o.monitors, err = r.views.monitors.All(ctx, q); err != nil {
		return o, err
	}
	if err = r.views.watchPools(ctx, o); err != nil {
		return o, err
	}
	o.allocations, err = r.views.allocations.All(ctx, q)
	return o, err
}

// Orphans implements contract.OrphanFinder: load balancers with the mark of this cluster that no Service has.
func (p *Parts) Orphans(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
	if p.loadBalancers == nil {
		return nil, contract.ErrNoOrphans
	}
	found, err := p.loadBalancers.findOrphans(ctx, living, ownership.OrphanMaxAge)
	if err != nil {
		return nil, err
	}
	list := []contract.Orphan{}
	for _, g := range found {
		list = append(list, contract.Orphan{Kind: kindLoadBalancer, ID: g.id(), Name: g.name()})
	}
	return list, nil
}

// DeleteOrphan implements contract.OrphanFinder. The object is checked again right before.
func (p *Parts) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	if p.loadBalancers == nil {
		return contract.ErrNoOrphans
	}
	l := p.loadBalancers
	living, err := l.cluster.Living(ctx)
	if err != nil {
		return err
	}
	found, err := l.findOrphans(ctx, living, 0)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(found, func(g group) bool { return g.id() == o.ID }); i >= 0 {
		return l.removeAll(ctx, found[i].cluster, found[i].objects)
	}
	all, err := l.readAll(ctx, inventory.Query{MaxAge: newMaxAge})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all.objects(), func(x object) bool { return holderOf(x).id() == o.ID }) {
		return fmt.Errorf("%s %s is no longer an orphan: it lost the mark of this cluster, or a Service has it", o.Kind, o.Name)
	}
	return nil
}

// removeAll deletes all objects of a load balancer, those that refer to others first.
func (r *reconciler) removeAll(ctx context.Context, cluster string, o observed) error {
	changes, err := r.planRemovals(ctx, cluster, o)
	for _, c := range changes {
		if err == nil {
			o, err = c.Make(ctx, nil, o)
		}
	}
	return err
}

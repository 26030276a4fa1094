package vsphere

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const kindLoadBalancer = "NSX load balancer"

// findOrphans returns the objects with the mark of this cluster and tags of no existing Service. An unmarked object is never an orphan: the
// cluster name in a tag may be another cluster's as well.
func (r *reconciler) findOrphans(ctx context.Context, living []*v1.Service, age time.Duration) (map[string]observed, error) {
	mark, err := r.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.readAll(ctx, inventory.Query{MaxAge: age})
	if err != nil {
		return nil, err
	}
	found, taken := map[string]observed{}, map[string]bool{}
	for _, s := range living {
		if ownership.MayHave(s) {
			taken[serviceKey(s)] = true
		}
	}
	for _, x := range all.objects() {
		key := x.common().tag(scopeService)
		if !slices.Contains(marksOf(x), mark) || key == "" || taken[key] || x.common().tag(scopeOwner) != r.config.owner() {
			continue
		}
		group := tagIndex(r.config.owner(), x.common().tag(scopeCluster), key)
		if _, known := found[group]; !known {
			o := all.filter(func(x object) bool { return slices.Contains(tagKeys(x.common()), group) })
			found[group] = o.filter(func(x object) bool { return !o.isForeign(x, mark) }).sortByID()
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
func (p *nsxParts) Orphans(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
	if p.loadBalancers == nil {
		return nil, contract.ErrNoOrphans
	}
	found, err := p.loadBalancers.findOrphans(ctx, living, ownership.OrphanMaxAge)
	if err != nil {
		return nil, err
	}
	list := []contract.Orphan{}
	for _, group := range slices.Sorted(maps.Keys(found)) {
		cluster, key := groupOf(group)
		list = append(list, contract.Orphan{Kind: kindLoadBalancer, ID: cluster + "/" + key, Name: "cluster:" + cluster + ":" + key})
	}
	return list, nil
}

func groupOf(group string) (cluster, service string) {
	parts := strings.Split(group, "\x00")
	return parts[1], parts[2]
}

// DeleteOrphan implements contract.OrphanFinder. The object is checked again right before.
func (p *nsxParts) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
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
	for group, objects := range found {
		if cluster, key := groupOf(group); cluster+"/"+key == o.ID {
			return l.removeAll(ctx, cluster, objects)
		}
	}
	all, err := l.readAll(ctx, inventory.Query{MaxAge: newMaxAge})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all.objects(), func(x object) bool {
		return x.common().tag(scopeCluster)+"/"+x.common().tag(scopeService) == o.ID
	}) {
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

package gce

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// members are the instances of the nodes that exist, in the region of the load balancer.
func (b *reconciler) members(ctx context.Context, nodes []*v1.Node, o observation, at place) (list []instance, err error) {
	q := inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge, Expected: len(nodes)}
	for _, n := range nodes {
		id, err := b.config.parseProviderID(n.Spec.ProviderID)
		named := n.Spec.ProviderID != ""
		if named && (err != nil || regionOf(id.zone) != at.region) {
			continue // it is none of this cloud's region
		}
		i, err := b.instances.Find(ctx, n, q)
		known := true
		if named && errors.Is(err, cloudapi.ErrTransient) {
			i, known, err = b.inDoubt(ctx, id, o)
		}
		switch {
		case errors.Is(err, cloudapi.ErrNotFound), !named && errors.Is(err, cloudapi.ErrConflict):
			continue // the cloud would refuse it, or several have its name
		case err != nil:
			return nil, err
		}
		if known {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(x, y instance) int { return compareText(x.id.path(), y.id.path()) })
	return list, nil
}

// inDoubt is an instance while the listing fails, as where one zone of several cannot be reached: as it was known, or by itself. One of
// which nothing can be told stays where it is, and nowhere else.
func (b *reconciler) inDoubt(ctx context.Context, id instanceID, o observation) (i instance, known bool, err error) {
	if i, known = b.instances.all.Peek(id); known {
		return i, true, nil
	}
	i, err = b.instances.all.Get(evidence.With(ctx, evidence.Demand{Single: true}), id, inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge})
	if !errors.Is(err, cloudapi.ErrTransient) {
		return i, true, err
	}
	return instance{id: id}, b.isMember(id, o), nil
}

// isMember reports whether an instance is behind the load balancer.
func (b *reconciler) isMember(id instanceID, o observation) bool {
	if o.pool != nil && slices.ContainsFunc(o.pool.Instances, func(l string) bool { return resource(l) == id.path() }) {
		return true
	}
	g, known := b.api.stores.groups.Peek(groupID{id.zone, groupName(o.cluster)})
	return o.backend != nil && (!known || slices.Contains(g.members, id.path()))
}

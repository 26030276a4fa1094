package gce

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// members are the instances of the nodes that exist, in the region of the load balancer.
func (b *reconciler) members(ctx context.Context, nodes []*v1.Node, at place) (list []instance, err error) {
	q := inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge, Expected: len(nodes)}
	for _, n := range nodes {
		id, err := b.config.parseProviderID(n.Spec.ProviderID)
		named := n.Spec.ProviderID != ""
		if named && (err != nil || regionOf(id.zone) != at.region) {
			continue // it is none of this cloud's region
		}
		i, err := b.instances.Find(ctx, n, q)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound), !named && errors.Is(err, cloudapi.ErrConflict):
			continue // the cloud would refuse it, or several have its name
		case err != nil:
			return nil, err
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(x, y instance) int { return compareText(x.id.path(), y.id.path()) })
	return list, nil
}

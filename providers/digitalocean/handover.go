package digitalocean

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/internal/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var _ guard.Handover = (*cloud)(nil)

// Foreign implements guard.Handover.
func (c *cloud) Foreign(ctx context.Context, services []*v1.Service) ([]guard.Foreign, error) {
	mark, err := c.loadBalancers.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	if mark == "" {
		return nil, errNoMark
	}
	all, err := c.loadBalancers.observed.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, compareAge)
	foreign := []guard.Foreign{}
	for _, lb := range all {
		// One whose handover broke off carries both marks.
		other, _ := ownership.Marked(slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool { return tag == mark }))
		if other == "" {
			continue
		}
		for _, s := range services {
			if has(s, lb) {
				foreign = append(foreign, guard.Foreign{Service: s.Namespace + "/" + s.Name, Kind: "load balancer", ID: lb.ID, Name: lb.Name, Cluster: other})
			}
		}
	}
	return foreign, nil
}

// HandOver implements guard.Handover. The new marks come first: with both it is nobody's, and one that broke off is found
// and done again.
func (c *cloud) HandOver(ctx context.Context, f guard.Foreign, service *v1.Service) error {
	l := c.loadBalancers
	lb, err := l.observed.Get(ctx, f.ID, inventory.Query{})
	if err != nil {
		return err
	}
	if !slices.Contains(lb.Tags, ownership.ClusterMark(f.Cluster)) {
		return fmt.Errorf("load balancer %s no longer carries the mark of the cluster %s; list what is there again", f.ID, f.Cluster)
	}
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	switch mark {
	case "":
		return errNoMark
	case ownership.ClusterMark(f.Cluster):
		return fmt.Errorf("load balancer %s is this cluster's already", f.ID)
	}
	defer l.observed.Invalidate(f.ID)
	wanted := []string{ownership.ServiceMark(service.UID), mark}
	for _, tag := range wanted {
		if slices.Contains(lb.Tags, tag) {
			continue
		}
		if err := l.api.tag(ctx, tag, []string{f.ID}); err != nil {
			return err
		}
	}
	// The mark of the other cluster goes last: by it this is found again.
	old := slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool {
		return !ownership.IsMark(tag) || slices.Contains(wanted, tag) || tag == ownership.ClusterMark(f.Cluster)
	})
	for _, tag := range append(old, ownership.ClusterMark(f.Cluster)) {
		if err := l.api.untagLoadBalancer(ctx, tag, f.ID); err != nil {
			return err
		}
	}
	return nil
}

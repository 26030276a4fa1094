package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.LoadBalancerHandover = (*cloud)(nil)

// MarkedLoadBalancers implements contract.LoadBalancerHandover.
func (c *cloud) MarkedLoadBalancers(ctx context.Context, services []*v1.Service) ([]contract.MarkedLoadBalancer, error) {
	mark, err := c.loadBalancers.owners.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.loadBalancers.balancers.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *godo.LoadBalancer) int { return strings.Compare(a.ID, b.ID) })
	objects := make([]ownership.Object, len(all))
	for i, lb := range all {
		objects[i] = objectOf(lb)
	}
	return ownership.ListMarked(objects, mark, recordedID, services), nil
}

// RemarkLoadBalancer implements contract.LoadBalancerHandover. New marks come first, so that an interrupted handover can be repeated.
func (c *cloud) RemarkLoadBalancer(ctx context.Context, m contract.MarkedLoadBalancer, service types.UID) error {
	r := c.loadBalancers
	lb, err := r.balancers.Get(ctx, m.ID, inventory.Query{})
	if err != nil {
		return err
	}
	mark, err := r.owners.cluster.KnownMark(ctx)
	if err != nil {
		return err
	}
	if cluster, uid := ownership.MarkedBefore(lb.Tags, mark); cluster != m.Cluster || uid != m.ServiceUID {
		return fmt.Errorf("load balancer %s carries other marks by now; list them again", m.ID)
	}
	defer r.balancers.Invalidate(m.ID)
	marks := []string{mark, ownership.ServiceMark(service)}
	for _, tag := range marks {
		if !slices.Contains(lb.Tags, tag) {
			if err := r.api.tag(ctx, tag, []string{m.ID}); err != nil {
				return err
			}
		}
	}
	for _, tag := range lb.Tags {
		if ownership.IsMark(tag) && !slices.Contains(marks, tag) {
			if err := r.api.untagLoadBalancer(ctx, tag, m.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

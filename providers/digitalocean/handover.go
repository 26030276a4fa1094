package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	marked := []contract.MarkedLoadBalancer{}
	for _, lb := range all {
		cluster, uid := ownership.MarkedBefore(lb.Tags, mark)
		if cluster == "" && uid == "" {
			continue
		}
		m := contract.MarkedLoadBalancer{ID: lb.ID, Name: lb.Name, Cluster: cluster, ServiceUID: uid}
		for _, s := range services {
			if recordedID(s) == lb.ID && s.Spec.Type == v1.ServiceTypeLoadBalancer {
				m.Claims = append(m.Claims, s.Namespace+"/"+s.Name)
			}
		}
		marked = append(marked, m)
	}
	slices.SortFunc(marked, func(a, b contract.MarkedLoadBalancer) int { return strings.Compare(a.ID, b.ID) })
	return marked, nil
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
	wanted := []string{mark, ownership.ServiceMark(service)}
	for _, tag := range wanted {
		if slices.Contains(lb.Tags, tag) {
			continue
		}
		if err := r.api.tag(ctx, tag, []string{m.ID}); err != nil {
			return err
		}
	}
	for _, tag := range lb.Tags {
		if ownership.IsMark(tag) && !slices.Contains(wanted, tag) {
			if err := r.api.untagLoadBalancer(ctx, tag, m.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Orphans implements contract.OrphanFinder: load balancers with this cluster's mark that no Service uses.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	owners := c.loadBalancers.owners
	mark, err := owners.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := owners.balancers.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	orphans := []contract.Orphan{}
	for _, lb := range all {
		if owners.isOrphan(lb, mark, services) {
			orphans = append(orphans, contract.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name, Created: lb.Created})
		}
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return orphans, nil
}

// isOrphan reports whether a load balancer has this cluster's mark and no Service uses it. Any trace from an existing Service counts as
// use.
func (o *owners) isOrphan(lb *godo.LoadBalancer, mark string, services []*v1.Service) bool {
	rules, object := o.rules(), objectOf(lb)
	return slices.Contains(lb.Tags, mark) && !slices.ContainsFunc(services, func(s *v1.Service) bool {
		return ownership.Holds(s, object, rules) || isServed(s, lb)
	})
}

// isServed reports whether a Service would find a load balancer. This includes Services of another type that still wait for their
// clean-up.
func isServed(s *v1.Service, lb *godo.LoadBalancer) bool {
	if s.Spec.Type != v1.ServiceTypeLoadBalancer && len(s.Finalizers) == 0 {
		return false
	}
	return recordedID(s) == lb.ID || lb.Name == defaultName(s) || slices.Contains(lb.Tags, ownership.ServiceMark(s.UID)) ||
		(s.Annotations[annotationName] != "" && s.Annotations[annotationName] == lb.Name)
}

// DeleteOrphan implements contract.OrphanFinder. The load balancer is read again, because the list may be outdated.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	owners := c.loadBalancers.owners
	lb, err := owners.balancers.Get(ctx, o.ID, inventory.Query{})
	if err != nil {
		return cloudapi.IgnoreNotFound(err)
	}
	mark, err := owners.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	services, err := owners.cluster.Living(ctx)
	if err != nil {
		return err
	}
	if mark == "" || !owners.isOrphan(lb, mark, services) {
		return fmt.Errorf("load balancer %s is no longer an orphan: it lost the mark of this cluster, or a Service has it", o.ID)
	}
	err = c.api.deleteLoadBalancer(ctx, o.ID)
	owners.balancers.Invalidate(o.ID)
	return cloudapi.IgnoreNotFound(err)
}

package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Orphans implements contract.OrphanFinder: load balancers with this cluster's mark that neither a Service nor another cluster uses.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	r := c.reconciler
	mark, err := r.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.loadBalancers.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for _, lb := range all {
		listed[lb.ID] = true
	}
	orphans := []contract.Orphan{}
	for _, lb := range all {
		if !slices.Contains(lb.Tags, mark) || lb.isBeingDeleted() || isUsedByOthers(lb, role{name: lb.Name}) {
			continue
		}
		addresses, err := r.floatingIPs.listAddresses(ctx, lb, withinAge(previousMaxAge))
		if err != nil {
			return nil, err
		}
		used := slices.ContainsFunc(services, func(s *v1.Service) bool {
			hasOther := listed[s.Annotations[annotationID]] && s.Annotations[annotationID] != lb.ID
			return recordsOrShows(s, addresses) || (mayUse(s, lb) && (!hasOther || !showsOther(s, addresses)))
		})
		if !used {
			orphans = append(orphans, contract.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
		}
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return orphans, nil
}

// mayUse reports whether a Service uses a load balancer or would find it, by record, name, description, tag or mark. This includes
// Services of another type that still wait for their clean-up.
func mayUse(s *v1.Service, lb *loadBalancer) bool {
	if s.Spec.Type != v1.ServiceTypeLoadBalancer && len(s.Finalizers) == 0 {
		return false
	}
	suffix := "_" + s.Namespace + "_" + s.Name
	return s.Annotations[annotationID] == lb.ID || s.Annotations[annotationMade] == lb.ID || strings.HasSuffix(lb.Name, suffix) ||
		lb.Name == legacyName(s) || slices.Contains(lb.Tags, ownership.ServiceMark(s.UID)) ||
		strings.HasPrefix(lb.Description, loadBalancerDescription("", s)) ||
		slices.ContainsFunc(lb.Tags, func(t string) bool { return strings.HasSuffix(t, suffix) })
}

// recordsOrShows reports whether the Service's status or record contains one of the addresses.
func recordsOrShows(s *v1.Service, addresses []string) bool {
	return slices.ContainsFunc(
		addresses, func(a string) bool { return a != "" && (a == s.Annotations[annotationAddress] || showsAddress(s, a)) },
	)
}

// showsOther reports whether the Service's status contains only other addresses. A host name proves nothing.
func showsOther(s *v1.Service, addresses []string) bool {
	shown := s.Status.LoadBalancer.Ingress
	return len(shown) > 0 && !slices.ContainsFunc(shown, func(in v1.LoadBalancerIngress) bool {
		return in.Hostname != "" || slices.Contains(addresses, in.IP)
	})
}

// DeleteOrphan implements contract.OrphanFinder, with a floating address made by a controller. Load balancer and Services are read again,
// because the list may be outdated.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	r := c.reconciler
	unlock, err := r.Lock(ctx, o.ID)
	if err != nil {
		return fmt.Errorf("waiting for a Service of load balancer %s: %w", o.ID, err)
	}
	defer unlock()
	lb, err := r.loadBalancers.Get(ctx, o.ID, inventory.Query{})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.finder.checkOrphan(ctx, o, lb); err != nil {
		return err
	}
	// The security group goes first: if the deletion fails, the load balancer is listed again, but no list shows its group.
	_, uid := ownership.Marked(lb.Tags)
	if err := r.securityGroups.dropByUID(ctx, uid); err != nil {
		return err
	}
	if err := r.floatingIPs.release(ctx, observed{lb: lb}, false); err != nil {
		return err
	}
	err = c.api.deleteLoadBalancer(ctx, o.ID, true)
	r.loadBalancers.Invalidate(o.ID)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	return nil
}

// checkOrphan returns an error for a load balancer that is no longer an orphan.
func (f *finder) checkOrphan(ctx context.Context, o contract.Orphan, lb *loadBalancer) error {
	mark, err := f.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	if mark == "" || !slices.Contains(lb.Tags, mark) || lb.Name != o.Name || isUsedByOthers(lb, role{name: lb.Name}) ||
		ownership.Check(titleOf(lb), mark, lb.Tags) != nil {
		return fmt.Errorf("load balancer %s is no longer an orphan of this cluster; it stays", o.ID)
	}
	addresses, err := f.floatingIPs.listAddresses(ctx, lb, inventory.Query{})
	if err != nil {
		return err
	}
	services, err := f.cluster.Living(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		if mayUse(s, lb) || recordsOrShows(s, addresses) {
			return fmt.Errorf("load balancer %s is not an orphan: Service %s/%s exists, and has it by its record, status, name or mark; it stays", o.ID, s.Namespace, s.Name)
		}
	}
	return nil
}

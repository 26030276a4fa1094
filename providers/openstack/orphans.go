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

// Orphans implements contract.OrphanFinder: load balancers with the mark of this cluster that no Service has, and that no
// other cluster shares.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	l := c.loadBalancers
	mark, err := l.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := l.observed.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for _, lb := range all {
		listed[lb.ID] = true
	}
	orphans := []contract.Orphan{}
	for _, lb := range all {
		if !slices.Contains(lb.Tags, mark) || lb.leaving() || shared(lb, role{name: lb.Name}) {
			continue
		}
		addresses, err := l.addressesOf(ctx, lb)
		if err != nil {
			return nil, err
		}
		used := slices.ContainsFunc(services, func(s *v1.Service) bool {
			elsewhere := listed[s.Annotations[annotationID]] && s.Annotations[annotationID] != lb.ID
			return shows(s, addresses) || (isServed(s, lb) && (!elsewhere || !showsOther(s, addresses)))
		})
		if !used {
			orphans = append(orphans, contract.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
		}
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return orphans, nil
}

// isServed reports whether a Service has a load balancer, or would find it: by its record, a name or a description that a controller
// gave, a tag or a mark. One that was a load balancer and waits for its clean-up still has it.
func isServed(s *v1.Service, lb *loadBalancer) bool {
	if s.Spec.Type != v1.ServiceTypeLoadBalancer && len(s.Finalizers) == 0 {
		return false
	}
	suffix := "_" + s.Namespace + "_" + s.Name
	return s.Annotations[annotationID] == lb.ID || s.Annotations[annotationMade] == lb.ID || strings.HasSuffix(lb.Name, suffix) ||
		lb.Name == legacyName(s) || slices.Contains(lb.Tags, ownership.ServiceMark(s.UID)) ||
		strings.HasPrefix(lb.Description, loadBalancerDescription("", s)) ||
		slices.ContainsFunc(lb.Tags, func(t string) bool { return strings.HasSuffix(t, suffix) })
}

// shows reports whether a Service is served by one of the addresses, as its status or the record beside it tells.
func shows(s *v1.Service, addresses []string) bool {
	return slices.ContainsFunc(
		addresses, func(a string) bool { return a != "" && (a == s.Annotations[annotationAddress] || showsAddress(s, a)) },
	)
}

// showsOther reports whether a Service is served by something that has none of the addresses. A host name tells nothing.
func showsOther(s *v1.Service, addresses []string) bool {
	shown := s.Status.LoadBalancer.Ingress
	return len(shown) > 0 && !slices.ContainsFunc(shown, func(in v1.LoadBalancerIngress) bool {
		return in.Hostname != "" || slices.Contains(addresses, in.IP)
	})
}

// DeleteOrphan implements contract.OrphanFinder. A floating address that a controller made goes with its load balancer. Time has
// passed since it was listed: the load balancer and the Services are read again right before, and every trace of a living
// Service wins, also of one that moved to another load balancer since and could come back.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	l := c.loadBalancers
	unlock, err := l.Lock(ctx, o.ID)
	if err != nil {
		return fmt.Errorf("waiting for a Service of load balancer %s: %w", o.ID, err)
	}
	defer unlock()
	lb, err := l.observed.Get(ctx, o.ID, inventory.Query{})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.checkOrphan(ctx, o, lb); err != nil {
		return err
	}
	// What opens the nodes goes first: a load balancer that could not be deleted is listed again, and nothing lists its security group.
	_, uid := ownership.Marked(lb.Tags)
	if err := l.dropGroupsOf(ctx, uid); err != nil {
		return err
	}
	if err := l.releaseFloatingIP(ctx, role{}, lb, settings{}, false); err != nil {
		return err
	}
	err = c.api.deleteLoadBalancer(ctx, o.ID, true)
	l.observed.Invalidate(o.ID)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	return nil
}

// checkOrphan refuses what was an orphan when it was listed, and is none by now.
func (l *loadBalancers) checkOrphan(ctx context.Context, o contract.Orphan, lb *loadBalancer) error {
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	if mark == "" || !slices.Contains(lb.Tags, mark) || lb.Name != o.Name || shared(lb, role{name: lb.Name}) ||
		ownership.Check(titleOf(lb), mark, lb.Tags) != nil {
		return fmt.Errorf("load balancer %s is no longer an orphan of this cluster; it stays", o.ID)
	}
	addresses := append([]string{lb.VIPAddress}, furtherAddresses(lb)...)
	f, err := l.attached(ctx, lb, inventory.Query{})
	if err != nil {
		return err
	}
	if f != nil {
		addresses = append(addresses, f.Address)
	}
	services, err := l.cluster.Living(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		if isServed(s, lb) || shows(s, addresses) {
			return fmt.Errorf("load balancer %s is not an orphan: Service %s/%s exists, and has it by its record, status, name or mark; it stays", o.ID, s.Namespace, s.Name)
		}
	}
	return nil
}

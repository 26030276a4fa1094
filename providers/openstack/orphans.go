package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// orphanMaxAge is how old the listing may be in which orphans are looked for; nothing is deleted on it.
const orphanMaxAge = 10 * time.Minute

// errNoMark: without the identity of the cluster nothing can be said to be its own.
var errNoMark = errors.New("the identity of the cluster is unknown: grant get on the namespace kube-system")

// Orphans implements guard.OrphanFinder: load balancers with the mark of this cluster that no Service has, and that no
// other cluster shares.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]guard.Orphan, error) {
	l := c.loadBalancers
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	if mark == "" {
		return nil, errNoMark
	}
	all, err := l.balancers.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	orphans := []guard.Orphan{}
	for _, lb := range all {
		used := slices.ContainsFunc(services, func(s *v1.Service) bool {
			alive := s.Spec.Type == v1.ServiceTypeLoadBalancer || len(s.Finalizers) > 0
			suffix := "_" + s.Namespace + "_" + s.Name
			return alive && (s.Annotations[annotationID] == lb.ID || strings.HasSuffix(lb.Name, suffix) || slices.ContainsFunc(lb.Tags, func(t string) bool { return strings.HasSuffix(t, suffix) }))
		})
		if slices.Contains(lb.Tags, mark) && !lb.leaving() && !used && !shared(lb, role{name: lb.Name}) {
			orphans = append(orphans, guard.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name})
		}
	}
	slices.SortFunc(orphans, func(a, b guard.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return orphans, nil
}

// DeleteOrphan implements guard.OrphanFinder. A floating address that a controller made goes with its load balancer.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	l := c.loadBalancers
	lb, err := l.balancers.Get(ctx, o.ID, inventory.Query{})
	mark, markErr := l.cluster.Mark(ctx)
	if markErr != nil {
		return markErr
	}
	if err == nil && (mark == "" || !slices.Contains(lb.Tags, mark) || lb.Name != o.Name || shared(lb, role{name: lb.Name})) {
		return fmt.Errorf("load balancer %s is no orphan of this cluster any more; it stays", o.ID)
	}
	if err == nil {
		err = l.releaseFloatingIP(ctx, nil, lb, settings{}, false)
	}
	if err == nil {
		err = c.api.deleteBalancer(ctx, o.ID, true)
		l.balancers.Invalidate(o.ID)
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

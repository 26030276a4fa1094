package digitalocean

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// orphanMaxAge is how old the listing may be in which orphans are looked for; nothing is deleted on it.
const orphanMaxAge = 10 * time.Minute

// errNoMark: without the identity of the cluster nothing can be said to be its own.
var errNoMark = errors.New("the identity of the cluster is unknown: grant get on the namespace kube-system")

// Orphans implements guard.OrphanFinder: load balancers with the mark of this cluster that no Service has.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]guard.Orphan, error) {
	mark, err := c.loadBalancers.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	if mark == "" {
		return nil, errNoMark
	}
	all, err := c.loadBalancers.observed.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	orphans := []guard.Orphan{}
	for _, lb := range all {
		if slices.Contains(lb.Tags, mark) && !slices.ContainsFunc(services, func(s *v1.Service) bool { return has(s, lb) }) {
			orphans = append(orphans, guard.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name, Created: lb.Created})
		}
	}
	slices.SortFunc(orphans, func(a, b guard.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return orphans, nil
}

// has reports whether a Service has a load balancer, or would find it. A Service that was a load balancer and waits for
// its clean-up still has it.
func has(s *v1.Service, lb *godo.LoadBalancer) bool {
	waits := len(s.Finalizers) > 0
	if s.Spec.Type != v1.ServiceTypeLoadBalancer && !waits {
		return false
	}
	return s.Annotations[annotationID] == lb.ID || lb.Name == defaultName(s) || (s.Annotations[annotationName] != "" && s.Annotations[annotationName] == lb.Name)
}

// DeleteOrphan implements guard.OrphanFinder.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	err := c.api.deleteLoadBalancer(ctx, o.ID)
	c.loadBalancers.observed.Invalidate(o.ID)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

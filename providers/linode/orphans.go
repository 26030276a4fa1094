package linode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

const (
	// orphanMaxAge is how old the listing may be in which orphans are looked for; nothing is deleted on it.
	orphanMaxAge = 10 * time.Minute

	kindNodeBalancer = "NodeBalancer"
	kindFirewall     = "firewall"
)

// errNoMark: without the identity of the cluster nothing can be said to be its own.
var errNoMark = errors.New("the identity of the cluster is unknown: grant get on the namespace kube-system")

// Orphans implements guard.OrphanFinder: NodeBalancers and firewalls with the mark of this cluster that no Service has.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]guard.Orphan, error) {
	l := c.loadBalancers
	mark := l.cluster.Mark(ctx)
	if mark == "" {
		return nil, errNoMark
	}
	balancers, err := l.observed.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	firewalls, err := l.firewalls.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	orphans := []guard.Orphan{}
	for _, nb := range balancers {
		if slices.Contains(nb.Tags, mark) && !slices.ContainsFunc(services, func(s *v1.Service) bool { return l.has(s, nb) }) {
			orphans = append(orphans, guard.Orphan{Kind: kindNodeBalancer, ID: strconv.Itoa(nb.ID), Name: nb.Label, Created: nb.Created})
		}
	}
	for _, f := range firewalls {
		named := func(s *v1.Service) bool { return alive(s) && label(l.config.Prefix, s) == f.Label }
		if slices.Contains(f.Tags, mark) && len(f.Entities) == 0 && !slices.ContainsFunc(services, named) {
			orphans = append(orphans, guard.Orphan{Kind: kindFirewall, ID: strconv.Itoa(f.ID), Name: f.Label})
		}
	}
	slices.SortFunc(orphans, func(a, b guard.Orphan) int { return strings.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return orphans, nil
}

// alive: a Service that was a load balancer and waits for its clean-up still has it.
func alive(s *v1.Service) bool {
	return s.Spec.Type == v1.ServiceTypeLoadBalancer || len(s.Finalizers) > 0
}

// has reports whether a Service has a NodeBalancer, or would find it.
func (l *loadBalancers) has(s *v1.Service, nb *nodeBalancer) bool {
	id := strconv.Itoa(nb.ID)
	return alive(s) && (s.Annotations[annotationRecord] == id || s.Annotations[annotationID] == id || label(l.config.Prefix, s) == nb.Label)
}

// DeleteOrphan implements guard.OrphanFinder.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	id, err := strconv.Atoi(o.ID)
	if err != nil {
		return fmt.Errorf("deleting %s %s: %w", o.Kind, o.ID, err)
	}
	if o.Kind == kindFirewall {
		return c.loadBalancers.deleteFirewall(ctx, &v1.Service{}, id)
	}
	err = c.api.deleteNodeBalancer(ctx, id)
	c.loadBalancers.observed.Invalidate(id)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

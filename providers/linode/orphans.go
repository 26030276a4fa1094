package linode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	kindNodeBalancer = "NodeBalancer"
	kindFirewall     = "firewall"
)

// Orphans implements contract.OrphanFinder: NodeBalancers and firewalls with the mark of this cluster that no Service has.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	l := c.loadBalancers
	mark, err := l.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	balancers, err := l.observed.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	firewalls, err := l.firewalls.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	orphans := []contract.Orphan{}
	for _, nb := range balancers {
		if l.orphanedNodeBalancer(nb, mark, services) {
			orphans = append(orphans, contract.Orphan{Kind: kindNodeBalancer, ID: strconv.Itoa(nb.ID), Name: nb.Label, Created: nb.Created})
		}
	}
	for _, f := range firewalls {
		if l.orphanedFirewall(f, mark, services) {
			orphans = append(orphans, contract.Orphan{Kind: kindFirewall, ID: strconv.Itoa(f.ID), Name: f.Label})
		}
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return strings.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return orphans, nil
}

func (l *loadBalancers) orphanedNodeBalancer(nb *nodeBalancer, mark string, services []*v1.Service) bool {
	return slices.Contains(nb.Tags, mark) && !slices.ContainsFunc(services, func(s *v1.Service) bool { return l.isServed(s, nb) })
}

func (l *loadBalancers) orphanedFirewall(f *linodego.Firewall, mark string, services []*v1.Service) bool {
	held := func(s *v1.Service) bool {
		return label(l.config.Prefix, s) == f.Label || slices.Contains(f.Tags, ownership.ServiceMark(s.UID)) ||
			s.Annotations[annotationFirewallID] == strconv.Itoa(f.ID)
	}
	return slices.Contains(f.Tags, mark) && len(f.Entities) == 0 && !slices.ContainsFunc(services, held)
}

// isServed reports whether a Service has a NodeBalancer, or would find it. Any link from a living Service is enough.
func (l *loadBalancers) isServed(s *v1.Service, nb *nodeBalancer) bool {
	id := strconv.Itoa(nb.ID)
	return ownership.Holds(s, objectOf(nb), l.rules()) || s.Annotations[annotationRecord] == id || s.Annotations[annotationID] == id
}

// DeleteOrphan implements contract.OrphanFinder. The object is read again right before, and deleted only if it is unchanged: of this
// cluster, with the same label, and without a Service created since.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	l := c.loadBalancers
	id, err := strconv.Atoi(o.ID)
	if err != nil {
		return fmt.Errorf("deleting %s %s: %w", o.Kind, o.ID, err)
	}
	mark, err := l.cluster.KnownMark(ctx)
	if err != nil {
		return err
	}
	services, err := l.cluster.Living(ctx)
	if err != nil {
		return err
	}
	changed := fmt.Errorf("%s %d: %w", o.Kind, id, errChanged)
	switch o.Kind {
	case kindFirewall:
		f, err := l.firewalls.Get(ctx, id, inventory.Query{})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			return nil
		case err != nil:
			return err
		case f.Label != o.Name || !l.orphanedFirewall(f, mark, services):
			return changed
		}
		return l.deleteFirewall(ctx, id)
	case kindNodeBalancer:
		return l.deleteOrphanedNodeBalancer(ctx, o, id, mark, services)
	}
	return fmt.Errorf("deleting %s %s: there is no such kind", o.Kind, o.ID)
}

func (l *loadBalancers) deleteOrphanedNodeBalancer(
	ctx context.Context, o contract.Orphan, id int, mark string, services []*v1.Service,
) error {
	nb, err := l.observed.Get(ctx, id, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil
	case err != nil:
		return err
	case nb.Label != o.Name || !l.orphanedNodeBalancer(nb, mark, services):
		return fmt.Errorf("%s %d: %w", o.Kind, id, errChanged)
	}
	err = l.api.deleteNodeBalancer(ctx, id)
	l.observed.Invalidate(id)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	return l.deleteFirewallsOf(ctx, nb, mark, services)
}

// deleteFirewallsOf deletes the firewalls that were created for a deleted NodeBalancer, if nothing else uses them.
func (l *loadBalancers) deleteFirewallsOf(ctx context.Context, nb *nodeBalancer, mark string, services []*v1.Service) error {
	attached, err := l.firewalls.Find(ctx, indexNodeBalancer, strconv.Itoa(nb.ID), inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return err
	}
	for _, known := range attached {
		f, err := l.firewalls.Get(ctx, known.ID, inventory.Query{})
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue
		}
		if err == nil && l.orphanedFirewall(f, mark, services) {
			err = l.deleteFirewall(ctx, f.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errChanged: the listed orphan has changed.
var errChanged = errors.New("it is not the orphan any more that was listed, and is left alone; list again")

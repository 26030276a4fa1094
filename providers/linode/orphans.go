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
	r := c.loadBalancers
	mark, err := r.owners.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	balancers, err := r.balancers.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	firewalls, err := r.firewalls.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	orphans := []contract.Orphan{}
	for _, nb := range balancers {
		if r.owners.isOrphan(nb, mark, services) {
			orphans = append(orphans, contract.Orphan{Kind: kindNodeBalancer, ID: strconv.Itoa(nb.ID), Name: nb.Label, Created: nb.Created})
		}
	}
	for _, f := range firewalls {
		if r.firewalls.isOrphan(f, mark, services) {
			orphans = append(orphans, contract.Orphan{Kind: kindFirewall, ID: strconv.Itoa(f.ID), Name: f.Label})
		}
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return strings.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return orphans, nil
}

// isOrphan reports whether a NodeBalancer has the mark of the cluster, and no Service has or would find it. Any link from a living Service
// is enough.
func (o *owners) isOrphan(nb *nodeBalancer, mark string, services []*v1.Service) bool {
	id := strconv.Itoa(nb.ID)
	return slices.Contains(nb.Tags, mark) && !slices.ContainsFunc(services, func(s *v1.Service) bool {
		return ownership.Holds(s, objectOf(nb), o.rules()) || s.Annotations[annotationRecord] == id || s.Annotations[annotationID] == id
	})
}

// isOrphan reports whether a firewall has the mark of the cluster, protects nothing, and no Service has or would find it.
func (fs *firewalls) isOrphan(f *linodego.Firewall, mark string, services []*v1.Service) bool {
	return slices.Contains(f.Tags, mark) && len(f.Entities) == 0 && !slices.ContainsFunc(services, func(s *v1.Service) bool {
		return label(fs.prefix, s) == f.Label || slices.Contains(f.Tags, ownership.ServiceMark(s.UID)) ||
			s.Annotations[annotationFirewallID] == strconv.Itoa(f.ID)
	})
}

// DeleteOrphan implements contract.OrphanFinder. The object is read again right before, and deleted only if it is unchanged: of this
// cluster, with the same label, and without a Service created since.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	r := c.loadBalancers
	id, err := strconv.Atoi(o.ID)
	if err != nil {
		return fmt.Errorf("deleting %s %s: %w", o.Kind, o.ID, err)
	}
	mark, err := r.owners.cluster.KnownMark(ctx)
	if err != nil {
		return err
	}
	services, err := r.owners.cluster.Living(ctx)
	if err != nil {
		return err
	}
	switch o.Kind {
	case kindFirewall:
		return r.firewalls.deleteOrphan(ctx, id, o.Name, mark, services)
	case kindNodeBalancer:
		return r.deleteOrphan(ctx, id, o.Name, mark, services)
	}
	return fmt.Errorf("deleting %s %s: there is no such kind", o.Kind, o.ID)
}

// deleteOrphan deletes a NodeBalancer, and then the firewalls that were created for it, if nothing else uses them.
func (r *reconciler) deleteOrphan(ctx context.Context, id int, name, mark string, services []*v1.Service) error {
	nb, err := r.balancers.Get(ctx, id, inventory.Query{})
	switch {
	case err != nil:
		return cloudapi.IgnoreNotFound(err)
	case nb.Label != name || !r.owners.isOrphan(nb, mark, services):
		return fmt.Errorf("%s %d: %w", kindNodeBalancer, id, errChanged)
	}
	err = r.api.deleteNodeBalancer(ctx, id)
	r.balancers.Invalidate(id)
	if cloudapi.IgnoreNotFound(err) != nil {
		return err
	}
	attached, err := r.firewalls.Find(ctx, indexNodeBalancer, strconv.Itoa(id), inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return err
	}
	for _, f := range attached {
		err := r.firewalls.deleteOrphan(ctx, f.ID, f.Label, mark, services)
		if err != nil && !errors.Is(err, errChanged) {
			return err
		}
	}
	return nil
}

func (fs *firewalls) deleteOrphan(ctx context.Context, id int, name, mark string, services []*v1.Service) error {
	f, err := fs.Get(ctx, id, inventory.Query{})
	switch {
	case err != nil:
		return cloudapi.IgnoreNotFound(err)
	case f.Label != name || !fs.isOrphan(f, mark, services):
		return fmt.Errorf("%s %d: %w", kindFirewall, id, errChanged)
	}
	return fs.delete(ctx, id)
}

// errChanged: the listed orphan has changed.
var errChanged = errors.New("it is not the orphan any more that was listed, and is left alone; list again")

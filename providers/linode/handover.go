package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.LoadBalancerHandover = (*cloud)(nil)

// MarkedLoadBalancers implements contract.LoadBalancerHandover. Firewalls are not listed: they are handed over with their NodeBalancers.
func (c *cloud) MarkedLoadBalancers(ctx context.Context, services []*v1.Service) ([]contract.MarkedLoadBalancer, error) {
	r := c.loadBalancers
	mark, err := r.owners.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.balancers.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *nodeBalancer) int { return cmp.Compare(a.ID, b.ID) })
	objects := make([]ownership.Object, len(all))
	for i, nb := range all {
		objects[i] = objectOf(nb)
	}
	return ownership.ListMarked(objects, mark, r.owners.rules().Record, services), nil
}

// RemarkLoadBalancer implements contract.LoadBalancerHandover. The firewalls come first: the marks of the NodeBalancer lead to them, so
// that an interrupted handover can be repeated.
func (c *cloud) RemarkLoadBalancer(ctx context.Context, m contract.MarkedLoadBalancer, service types.UID) error {
	r := c.loadBalancers
	id := idOf(m.ID)
	if id == 0 {
		return fmt.Errorf("%q is not the ID of a NodeBalancer", m.ID)
	}
	mark, err := r.owners.cluster.KnownMark(ctx)
	if err != nil {
		return err
	}
	nb, err := r.balancers.Get(ctx, id, inventory.Query{})
	if err != nil {
		return err
	}
	if cluster, uid := ownership.MarkedBefore(nb.Tags, mark); cluster != m.Cluster || uid != m.ServiceUID {
		return fmt.Errorf("NodeBalancer %d carries other marks by now; list them again", id)
	}
	marks := []string{mark, ownership.ServiceMark(service)}
	if err := r.firewalls.handOver(ctx, nb, m, mark, marks); err != nil {
		return err
	}
	tags := replaceMarks(nb.Tags, marks)
	if services.SameSet(tags, nb.Tags) {
		return nil
	}
	klog.InfoS("Handing over NodeBalancer", "nodeBalancer", id, "from", m.Cluster, "service", service)
	_, err = r.writeTags(ctx, nb, tags)
	return err
}

// handOver replaces the marks of the firewalls that were created for the marked Service. Otherwise they would belong to nobody, and never
// change.
func (fs *firewalls) handOver(
	ctx context.Context, nb *nodeBalancer, m contract.MarkedLoadBalancer, mark string, marks []string,
) error {
	attached, err := fs.Find(ctx, indexNodeBalancer, m.ID, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
	if err != nil {
		return err
	}
	for _, seen := range attached {
		if !isMadeWith(seen, nb, m, mark) {
			continue
		}
		f, err := fs.Get(ctx, seen.ID, inventory.Query{})
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		tags := replaceMarks(f.Tags, marks)
		if !isMadeWith(f, nb, m, mark) || services.SameSet(tags, f.Tags) {
			continue
		}
		klog.InfoS("Handing over firewall", "firewall", f.ID, "nodeBalancer", nb.ID, "from", m.Cluster)
		err = fs.write(ctx, f.ID, fmt.Sprintf("marking firewall %d", f.ID), func(ctx context.Context) error {
			_, err := fs.api.sdk.UpdateFirewall(ctx, f.ID, linodego.FirewallUpdateOptions{Tags: &tags})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isMadeWith reports whether a firewall was created for the Service of a NodeBalancer, by its marks, or, if these name only the cluster, by
// the label that both got from the Service.
func isMadeWith(f *linodego.Firewall, nb *nodeBalancer, m contract.MarkedLoadBalancer, mark string) bool {
	cluster, uid := ownership.MarkedBefore(f.Tags, mark)
	if cluster != m.Cluster {
		return false
	}
	if uid == "" {
		return cluster != "" && f.Label == nb.Label
	}
	return uid == m.ServiceUID
}

// replaceMarks replaces the marks among tags. Tags about firewalls stay.
func replaceMarks(tags, marks []string) []string {
	return slices.Concat(slices.DeleteFunc(slices.Clone(tags), func(t string) bool {
		return ownership.IsMark(t) && len(notedFirewalls([]string{t})) == 0
	}), marks)
}

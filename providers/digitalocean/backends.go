package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// backends finds the droplets behind nodes.
type backends struct {
	instances *instances
	// shared holds the results for the nodes that most Services have.
	shared nodes.Shared[loadBalancerKind, backendSet]
}

// loadBalancerKind decides which droplets can be backends.
type loadBalancerKind struct{ lbType, network string }

// find returns the backends for this type and network.
func (b *backends) find(ctx context.Context, nodes []*v1.Node, lbType, network string) (backendSet, error) {
	return b.shared.Of(ctx, nodes, loadBalancerKind{lbType, network}, func() (found backendSet, err error) {
		all, err := b.listDroplets(ctx, nodes)
		if err != nil {
			return found, err
		}
		found.list, found.emptyBecause = eligibleBackends(all, lbType, network)
		found.ids = dropletIDs(found.list)
		return found, nil
	})
}

// listDroplets returns the droplets behind the nodes, without nodes of other clouds and uninitialized nodes: the framework updates the
// Service when a node gets its provider ID. A failed read is an error, so that it never removes a backend.
func (b *backends) listDroplets(ctx context.Context, nodes []*v1.Node) ([]backend, error) {
	list := make([]backend, 0, len(nodes))
	for _, node := range nodes {
		found := backend{node: node.Name}
		if strings.HasPrefix(node.Spec.ProviderID, providerIDPrefix) {
			id, err := parseProviderID(node.Spec.ProviderID)
			if err != nil {
				klog.ErrorS(err, "Leaving a node out of load balancers", "node", node.Name)
				continue
			}
			found.dropletID = id
		} else if node.Spec.ProviderID != "" || contract.Uninitialized(node) {
			continue
		}
		d, err := b.dropletOf(ctx, node, found.dropletID)
		if errors.Is(err, cloudapi.ErrNotFound) {
			// The Node may outlive its droplet, and the API refuses missing droplets.
			klog.V(2).InfoS("Leaving a node without a droplet out of load balancers", "node", node.Name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("finding the droplet of node %s: %w", node.Name, err)
		}
		found.dropletID = d.id
		if !found.classify(node.Status.Addresses) {
			// A node joins before its addresses are written, and addresses cause no update of the Service.
			found.classify(d.addresses())
		}
		list = append(list, found)
	}
	return list, nil
}

func (b *backends) dropletOf(ctx context.Context, node *v1.Node, id int) (droplet, error) {
	q := inventory.Query{MaxAge: backendMaxAge, MaxMissAge: backendMaxAge, Expected: b.instances.nodes.Counts().All}
	if id != 0 {
		return b.instances.droplets.Get(ctx, id, q)
	}
	return b.instances.Find(ctx, node, q)
}

// classify records the kinds of addresses and reports whether any was useful.
func (b *backend) classify(addresses []v1.NodeAddress) bool {
	known := false
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue
		}
		switch {
		case a.Type == v1.NodeExternalIP && ip.Is4():
			b.publicV4, known = true, true
		case a.Type == v1.NodeExternalIP:
			b.publicV6, known = true, true
		case a.Type == v1.NodeInternalIP && ip.Is4() && ip.IsPrivate():
			b.private, known = true, true
		case a.Type == v1.NodeInternalIP:
			known = true
		}
	}
	return known
}

// dropletIDs returns the IDs in order. A droplet registered under a new name has two Nodes for a while.
func dropletIDs(backends []backend) []int {
	ids := make([]int, len(backends))
	for i, b := range backends {
		ids[i] = b.dropletID
	}
	return slices.Compact(ids)
}

// findVanished returns unwanted droplets that no longer exist. The cloud removes destroyed droplets itself, and refuses calls that name
// them.
func (r *reconciler) findVanished(ctx context.Context, lb *godo.LoadBalancer, want []int) []int {
	if lb == nil {
		return nil
	}
	var vanished []int
	for _, id := range subtract(lb.DropletIDs, want) {
		_, err := r.instances.droplets.Get(ctx, id, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: backendMaxAge})
		if errors.Is(err, cloudapi.ErrNotFound) {
			vanished = append(vanished, id)
		}
	}
	if len(vanished) > 0 {
		r.balancers.PutPartial(withoutDroplets(lb, vanished))
	}
	return vanished
}

// keepDroplets sorts a load balancer's droplets and shares equal lists in memory.
func keepDroplets(lists *inventory.Lists[int]) func(*godo.LoadBalancer) *godo.LoadBalancer {
	return func(lb *godo.LoadBalancer) *godo.LoadBalancer {
		kept := *lb
		kept.DropletIDs = lists.Same(sortIDs(kept.DropletIDs))
		return &kept
	}
}

func withoutDroplets(lb *godo.LoadBalancer, droplets []int) *godo.LoadBalancer {
	if lb == nil || len(droplets) == 0 {
		return lb
	}
	after := *lb
	after.DropletIDs = subtract(lb.DropletIDs, droplets)
	return &after
}

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
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// reach is how a load balancer reaches droplets. It decides which of them can be backends.
type reach int

const (
	// byBalancer is for regional load balancers, which use the VPC or the public address.
	byBalancer reach = iota
	// byNetwork is for network load balancers, which use the public address.
	byNetwork
	// byVPC is for internal load balancers.
	byVPC
)

func reachOf(lbType, network string) reach {
	switch {
	case network == godo.LoadBalancerNetworkTypeInternal:
		return byVPC
	case lbType == godo.LoadBalancerTypeRegional:
		return byBalancer
	}
	return byNetwork
}

// backends holds the usable backends of a load balancer. Services share it, so it is immutable.
type backends struct {
	// list is sorted by droplet ID; ids holds these IDs.
	list []backend
	ids  []int
	// none is the reason for an empty list.
	none error
}

// backends returns the backends for this type and network.
func (l *loadBalancers) backends(ctx context.Context, given []*v1.Node, lbType, network string) (backends, error) {
	return l.behind.Of(ctx, given, reachOf(lbType, network), func() (b backends, err error) {
		all, err := l.droplets(ctx, given)
		if err != nil {
			return b, err
		}
		b.list, b.none = eligibleBackends(all, lbType, network)
		b.ids = dropletIDs(b.list)
		return b, nil
	})
}

// droplets returns the droplets behind the nodes, without nodes of other clouds and uninitialized nodes: the framework updates the Service
// when a node gets its provider ID. A failed read is an error, so that it never removes a backend.
func (l *loadBalancers) droplets(ctx context.Context, nodes []*v1.Node) ([]backend, error) {
	list := make([]backend, 0, len(nodes))
	for _, node := range nodes {
		b := backend{node: node.Name}
		if strings.HasPrefix(node.Spec.ProviderID, providerIDPrefix) {
			id, err := parseProviderID(node.Spec.ProviderID)
			if err != nil {
				klog.ErrorS(err, "Leaving a node out of load balancers", "node", node.Name)
				continue
			}
			b.dropletID = id
		} else if node.Spec.ProviderID != "" || contract.Uninitialized(node) {
			continue
		}
		d, err := l.dropletOf(ctx, node, b.dropletID)
		if errors.Is(err, cloudapi.ErrNotFound) {
			// The Node may outlive its droplet, and the API refuses missing droplets.
			klog.V(2).InfoS("Leaving a node without a droplet out of load balancers", "node", node.Name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("finding the droplet of node %s: %w", node.Name, err)
		}
		b.dropletID = d.id
		if !b.classify(node.Status.Addresses) {
			// A node joins before its addresses are written, and addresses cause no update of the Service.
			b.classify(d.addresses())
		}
		list = append(list, b)
	}
	return list, nil
}

func (l *loadBalancers) dropletOf(ctx context.Context, node *v1.Node, id int) (droplet, error) {
	q := inventory.Query{MaxAge: backendMaxAge, MaxMissAge: backendMaxAge, Expected: l.instances.nodes.Counts().All}
	if id != 0 {
		return l.instances.droplets.Get(ctx, id, q)
	}
	return l.instances.Find(ctx, node, q)
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
func (l *loadBalancers) findVanished(ctx context.Context, observed *godo.LoadBalancer, want []int) []int {
	if observed == nil {
		return nil
	}
	var vanished []int
	for _, id := range subtract(observed.DropletIDs, want) {
		_, err := l.instances.droplets.Get(ctx, id, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: backendMaxAge})
		if errors.Is(err, cloudapi.ErrNotFound) {
			vanished = append(vanished, id)
		}
	}
	if len(vanished) > 0 {
		l.observed.PutPartial(withoutDroplets(observed, vanished))
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

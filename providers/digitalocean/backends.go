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

// reach is how a load balancer reaches droplets, which decides which of them can be its backends.
type reach int

const (
	// byBalancer: a regional one, by the VPC or the public address.
	byBalancer reach = iota
	// byNetwork: a network load balancer, by the public address.
	byNetwork
	// byVPC: an internal one.
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

// backends are those that a load balancer can use of the nodes. Services share them, so nobody changes them.
type backends struct {
	// list is sorted by droplet ID, and ids are these.
	list []backend
	ids  []int
	// none says why there is none.
	none error
}

// backends returns those that a load balancer of this type and network can use.
func (l *loadBalancers) backends(ctx context.Context, given []*v1.Node, lbType, network string) (backends, error) {
	return l.behind.Of(ctx, given, reachOf(lbType, network), func() (b backends, err error) {
		all, err := l.droplets(ctx, given)
		if err != nil {
			return b, err
		}
		b.list, b.none = eligible(all, lbType, network)
		b.ids = dropletIDs(b.list)
		return b, nil
	})
}

// droplets returns the droplets behind the nodes. Nodes of other clouds, and nodes that are not initialised yet, are
// left out; the framework comes back when a node gets its provider ID. Doubt about a droplet is an error: a backend is
// never dropped because a read failed.
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
			// Its Node may be kept for a while; the API refuses a load balancer that names a droplet which is gone.
			klog.V(2).InfoS("Leaving a node without a droplet out of load balancers", "node", node.Name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("finding the droplet of node %s: %w", node.Name, err)
		}
		b.dropletID = d.id
		if !b.classify(node.Status.Addresses) {
			// A node joins before its addresses are written, and the framework does not come back for addresses.
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

// classify takes over addresses and reports whether there were any that matter.
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

// dropletIDs are those of backends, which are in their order. A droplet that registered under another name has two Nodes for a while.
func dropletIDs(backends []backend) []int {
	ids := make([]int, len(backends))
	for i, b := range backends {
		ids[i] = b.dropletID
	}
	return slices.Compact(ids)
}

// vanished are the droplets of a load balancer that are not wanted and do not exist any more: the cloud takes a destroyed
// droplet out of its load balancers by itself, and refuses to be asked for it.
func (l *loadBalancers) vanished(ctx context.Context, observed *godo.LoadBalancer, want []int) []int {
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

// keepDroplets returns a load balancer whose droplets, in order, are those of all others that have the same ones.
func keepDroplets(lists *inventory.Lists[int]) func(*godo.LoadBalancer) *godo.LoadBalancer {
	return func(lb *godo.LoadBalancer) *godo.LoadBalancer {
		kept := *lb
		kept.DropletIDs = lists.Same(sorted(kept.DropletIDs))
		return &kept
	}
}

// withoutDroplets returns a load balancer without some of its droplets.
func withoutDroplets(lb *godo.LoadBalancer, droplets []int) *godo.LoadBalancer {
	if lb == nil || len(droplets) == 0 {
		return lb
	}
	after := *lb
	after.DropletIDs = subtract(lb.DropletIDs, droplets)
	return &after
}

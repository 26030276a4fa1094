package linode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

// network is the way in which NodeBalancers reach nodes: a subnet, IPv6, or private addresses.
type network struct {
	subnetID int
	ipv6     bool
}

// backends finds the addresses at which NodeBalancers reach nodes.
type backends struct {
	vpcs      *vpcs
	instances *instances
	// shared are the nodes of NodeBalancers, by network.
	shared nodes.Shared[network, wantedNodes]
}

// find returns the nodes' addresses for NodeBalancers, computed once for Services with the same network.
func (b *backends) find(ctx context.Context, s settings, nodes []*v1.Node) (wantedNodes, error) {
	subnetID, err := b.vpcs.backendSubnet(ctx, s)
	if err != nil {
		return wantedNodes{}, err
	}
	return b.shared.Of(ctx, nodes, network{subnetID, s.IPv6Backends}, func() (wantedNodes, error) {
		list, err := b.listReachable(ctx, s, nodes, subnetID)
		if err != nil {
			return wantedNodes{}, err
		}
		w := newWantedNodes(list)
		if subnetID != 0 {
			w.streams.subnets, err = b.vpcs.resolve(ctx, networkMaxAge)
			w.datagrams.subnets = w.streams.subnets
		}
		return w, err
	})
}

// listReachable returns the nodes with a usable address. A node without one delays no others; a failed read is an error, so that it drops
// no backend.
func (b *backends) listReachable(ctx context.Context, s settings, nodes []*v1.Node, subnetID int) ([]backend, error) {
	var list []backend
	for _, node := range nodes {
		address, err := b.selectAddress(ctx, s, node, subnetID)
		if err != nil {
			return nil, err
		}
		if !address.IsValid() {
			klog.V(2).InfoS("Leaving a node without a usable address out of NodeBalancers", "node", node.Name)
			continue
		}
		one := backend{node: node.Name, address: address}
		if !s.IPv6Backends {
			one.subnetID = subnetID
		}
		list = append(list, one)
	}
	return list, nil
}

// selectAddress selects an address of a node like Linode's own controller, among those that its Linode has: anybody who controls a kubelet
// can write others on the Node.
func (b *backends) selectAddress(ctx context.Context, s settings, node *v1.Node, subnetID int) (netip.Addr, error) {
	i, err := b.instances.Find(
		ctx, node, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: backendMaxAge, Expected: b.instances.nodes.Counts().All},
	)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return netip.Addr{}, nil // its Node may be kept for a while, but nothing answers there
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("finding the Linode of node %s: %w", node.Name, err)
	}
	reported := nodeAddress(s, subnetID, node.Status.Addresses, node.Annotations[annotationPrivateIP], node.Annotations[annotationPublicIPv6])
	if reported.IsValid() && slices.Contains(i.ips(), reported) {
		return reported, nil
	}
	own, err := b.vpcs.resolve(ctx, networkMaxAge)
	if err != nil {
		return netip.Addr{}, err
	}
	if subnetID != 0 && !slices.ContainsFunc(own, func(s subnet) bool { return s.id == subnetID }) {
		return reported, nil // addresses of Linodes are known in the cluster's subnets only
	}
	if reported.IsValid() {
		klog.V(2).InfoS("Leaving out an address that a Node tells and its Linode does not have", "node", node.Name, "address", reported.String(), "linode", i.id)
	}
	return nodeAddress(s, subnetID, i.addresses(b.instances.external), i.privateIPv4(), i.ipv6), nil
}

// nodeAddress follows the rule of Linode's own controller.
func nodeAddress(s settings, subnetID int, addresses []v1.NodeAddress, privateIPv4, publicIPv6 string) netip.Addr {
	if s.IPv6Backends {
		prefix, err := netip.ParsePrefix(publicIPv6)
		if err != nil || !prefix.Addr().Is6() {
			return netip.Addr{}
		}
		return prefix.Addr()
	}
	if subnetID == 0 {
		if a, err := netip.ParseAddr(privateIPv4); err == nil {
			return a
		}
	}
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == v1.NodeInternalIP && ip.Is4() {
			return ip
		}
	}
	return netip.Addr{}
}

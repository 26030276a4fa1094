package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

// backend is a node with the address at which a load balancer reaches it.
type backend struct {
	name, address string
	// serverID is empty for a node of another cloud.
	serverID string
}

// backends returns the nodes selected as members, sorted by name. Nodes without an address are skipped. A failed read is an error, so that
// it never removes a member.
func (l *loadBalancers) backends(ctx context.Context, service *v1.Service, nodes []*v1.Node, s settings) ([]backend, error) {
	var list []backend
	for _, n := range nodes {
		if !isSelected(n, s) {
			continue
		}
		asked := cmp.Or(s.MemberSubnetID, s.serviceClass.MemberSubnetID, l.config.LoadBalancer.MemberSubnetID)
		address, err := l.addressAt(ctx, n, familyOf(service), asked)
		if err != nil {
			return nil, err
		}
		if address == "" {
			klog.V(2).InfoS("Leaving a node without a usable address out of load balancers", "node", n.Name)
			continue
		}
		id, _ := l.config.parseProviderID(n.Spec.ProviderID) // nodes of another cloud may be members, too
		list = append(list, backend{n.Name, address, id})
	}
	return distinctBackends(list), nil
}

// distinctBackends keeps one backend for each address, because Octavia refuses a batch with duplicates. Nodes with a server in this cloud
// are preferred.
func distinctBackends(list []backend) []backend {
	slices.SortFunc(list, func(a, b backend) int {
		if (a.serverID == "") != (b.serverID == "") {
			return cmp.Compare(a.serverID, b.serverID) * -1
		}
		return strings.Compare(a.name, b.name)
	})
	taken := map[string]string{}
	list = slices.DeleteFunc(list, func(b backend) bool {
		other, twice := taken[b.address]
		if twice {
			klog.InfoS("Leaving a node out of load balancers whose address another one has", "node", b.name, "address", b.address, "other", other)
			return true
		}
		taken[b.address] = b.name
		return false
	})
	slices.SortFunc(list, func(a, b backend) int { return strings.Compare(a.name, b.name) })
	return list
}

// addressAt returns the node's address on the given subnet. Without a subnet, or an address there, it is that of addressOf.
func (l *loadBalancers) addressAt(ctx context.Context, node *v1.Node, family v1.IPFamily, subnetID string) (string, error) {
	chosen, err := l.addressOf(ctx, node, family)
	id, idErr := l.config.parseProviderID(node.Spec.ProviderID)
	if err != nil || subnetID == "" || idErr != nil {
		return chosen, err
	}
	ports, err := l.instances.portsOf(
		ctx, id, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: missMaxAge, Expected: l.instances.nodes.Counts().All},
	)
	if err != nil {
		return "", fmt.Errorf("finding the address of node %s: %w", node.Name, cloudapi.NotAbsence(err))
	}
	there := ""
	for _, p := range ports {
		for _, f := range p.FixedIPs {
			if f.SubnetID == subnetID && f.Address == chosen {
				return chosen, nil
			}
			if f.SubnetID == subnetID && there == "" && (family == "" || isIPv6(f.Address) == (family == v1.IPv6Protocol)) {
				there = f.Address
			}
		}
	}
	return cmp.Or(there, chosen), nil
}

// addressOf chooses an address of the Node's status. It counts only if the server has it, because a kubelet can report any address. If the
// Node reports none yet, the server's addresses are used.
func (l *loadBalancers) addressOf(ctx context.Context, node *v1.Node, family v1.IPFamily) (string, error) {
	told := nodeAddressFor(node.Status.Addresses, family)
	id, err := l.config.parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return told, nil //nolint:nilerr // nothing can be verified for a node of another cloud
	}
	all := l.instances.nodes.Counts().All
	if told != "" {
		ports, err := l.instances.portsOf(ctx, id, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: missMaxAge, Expected: all})
		if err != nil {
			return "", fmt.Errorf("finding the address of node %s: %w", node.Name, cloudapi.NotAbsence(err))
		}
		if slices.ContainsFunc(ports, func(p *port) bool { return p.hasAddress(told) }) {
			return told, nil
		}
	}
	m, err := l.instances.Describe(ctx, node, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: missMaxAge, Expected: all})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", nil // the Node may outlive its server
	case err != nil:
		return "", fmt.Errorf("finding the address of node %s: %w", node.Name, err)
	}
	chosen := nodeAddressFor(nodes.Vouched(node.Status.Addresses, m.NodeAddresses), family)
	if told != "" && told != chosen {
		klog.V(2).InfoS("Leaving out an address that a Node tells and its server does not have", "node", node.Name, "address", told, "server", id)
	}
	return chosen, nil
}

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

// backend is a node as a load balancer reaches it.
type backend struct {
	name, address string
	// serverID is empty for a node of another cloud.
	serverID string
}

// backends returns the nodes that a Service's members are, sorted by name. A node without an address is left out and holds
// nobody else up; doubt about one is an error: a member is never dropped because a read failed.
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

// distinctBackends returns backends by name, and one of those that have the same address: Octavia refuses a list with two such members, and
// with it everybody else's change. A node that has its server here comes before one that only says what it has.
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

// addressAt is the address of a node on a subnet, where one is asked for and its server has one there; else that of addressOf.
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

// addressOf chooses among the addresses of a node by what the Node tells; but whoever controls a kubelet may write there what he
// likes, so that only what its server has counts. Where the Node tells nothing yet the server is asked: the framework does not
// come back for addresses.
func (l *loadBalancers) addressOf(ctx context.Context, node *v1.Node, family v1.IPFamily) (string, error) {
	told := nodeAddressFor(node.Status.Addresses, family)
	id, err := l.config.parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return told, nil //nolint:nilerr // another cloud's node, about which nobody can be asked here
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
		return "", nil // its Node may be kept for a while; nothing answers there
	case err != nil:
		return "", fmt.Errorf("finding the address of node %s: %w", node.Name, err)
	}
	chosen := nodeAddressFor(nodes.Vouched(node.Status.Addresses, m.NodeAddresses), family)
	if told != "" && told != chosen {
		klog.V(2).InfoS("Leaving out an address that a Node tells and its server does not have", "node", node.Name, "address", told, "server", id)
	}
	return chosen, nil
}

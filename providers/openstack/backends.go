package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// backend is a node with the address at which a load balancer reaches it.
type backend struct {
	name, address string
	// serverID is empty for a node of another cloud.
	serverID string
}

// backends returns the nodes selected as members, sorted by name. Nodes without an address are skipped; a failed read removes no member.
func (i *instances) backends(ctx context.Context, service *v1.Service, nodes []*v1.Node, s settings) ([]backend, error) {
	var list []backend
	for _, n := range nodes {
		if !isSelected(n, s) {
			continue
		}
		asked := cmp.Or(s.MemberSubnetID, s.serviceClass.MemberSubnetID, i.config.LoadBalancer.MemberSubnetID)
		address, err := i.chooseAddressOn(ctx, n, familyOf(service), asked)
		if err != nil {
			return nil, err
		}
		if address == "" {
			klog.V(2).InfoS("Leaving a node without a usable address out of load balancers", "node", n.Name)
			continue
		}
		id, _ := i.config.parseProviderID(n.Spec.ProviderID) // nodes of another cloud may be members, too
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

// chooseAddressOn returns the node's address on the given subnet. Without a subnet, or an address there, it is that of chooseAddress.
func (i *instances) chooseAddressOn(ctx context.Context, node *v1.Node, family v1.IPFamily, subnetID string) (string, error) {
	chosen, err := i.chooseAddress(ctx, node, family)
	id, idErr := i.config.parseProviderID(node.Spec.ProviderID)
	if err != nil || subnetID == "" || idErr != nil {
		return chosen, err
	}
	ports, err := i.nodePorts(ctx, id, backendMaxAge)
	if err != nil {
		return "", fmt.Errorf("finding the address of node %s: %w", node.Name, cloudapi.NotAbsence(err))
	}
	onSubnet := ""
	for _, p := range ports {
		for _, f := range p.FixedIPs {
			if f.SubnetID == subnetID && f.Address == chosen {
				return chosen, nil
			}
			if f.SubnetID == subnetID && onSubnet == "" && (family == "" || isIPv6(f.Address) == (family == v1.IPv6Protocol)) {
				onSubnet = f.Address
			}
		}
	}
	return cmp.Or(onSubnet, chosen), nil
}

// chooseAddress returns the address that the Node reports, if the server has it: a kubelet can report any. If the Node reports none yet, an
// address of the server is used.
func (i *instances) chooseAddress(ctx context.Context, node *v1.Node, family v1.IPFamily) (string, error) {
	reported := nodeAddressFor(node.Status.Addresses, family)
	id, err := i.config.parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return reported, nil //nolint:nilerr // nothing can be verified for a node of another cloud
	}
	if reported != "" {
		ports, err := i.nodePorts(ctx, id, backendMaxAge)
		if err != nil {
			return "", fmt.Errorf("finding the address of node %s: %w", node.Name, cloudapi.NotAbsence(err))
		}
		if slices.ContainsFunc(ports, func(p *port) bool { return p.hasAddress(reported) }) {
			return reported, nil
		}
	}
	m, err := i.Describe(ctx, node, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: missMaxAge, Expected: i.nodes.Counts().All})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", nil // the Node may outlive its server
	case err != nil:
		return "", fmt.Errorf("finding the address of node %s: %w", node.Name, err)
	}
	chosen := nodeAddressFor(nodes.Vouched(node.Status.Addresses, m.NodeAddresses), family)
	if reported != "" && reported != chosen {
		klog.V(2).InfoS("Leaving out an address that a Node tells and its server does not have", "node", node.Name, "address", reported, "server", id)
	}
	return chosen, nil
}

// nodePorts returns the ports of a node's server.
func (i *instances) nodePorts(ctx context.Context, serverID string, age time.Duration) ([]*port, error) {
	return i.portsOf(ctx, serverID, inventory.Query{MaxAge: age, MaxMissAge: missMaxAge, Expected: i.nodes.Counts().All})
}

// subnetOf returns the subnet of the first member with a known port.
func (i *instances) subnetOf(ctx context.Context, members []backend) (string, error) {
	for _, m := range members {
		if m.serverID == "" {
			continue
		}
		ports, err := i.nodePorts(ctx, m.serverID, updateMaxAge)
		if err != nil {
			return "", err
		}
		for _, p := range ports {
			if subnetID := p.subnetOf(m.address); subnetID != "" {
				return subnetID, nil
			}
		}
	}
	return "", &schema.Problem{Place: "Service", Reason: "needs a subnet for the address of its load balancer, and no node's port in OpenStack has the node's address; set " + annotationSubnetID + " or the option subnet-id"}
}

// isOnOtherNetwork reports whether a member has a node's address but on another network with the same range. A member's subnet may also be
// that of the load balancer.
func (i *instances) isOnOtherNetwork(ctx context.Context, node *v1.Node, m member) (bool, error) {
	id, err := i.config.parseProviderID(node.Spec.ProviderID)
	if err != nil || m.SubnetID == "" {
		return false, nil //nolint:nilerr // the network of another cloud's node is unknown
	}
	ports, err := i.nodePorts(ctx, id, backendMaxAge)
	if err != nil {
		return false, cloudapi.NotAbsence(err)
	}
	own := false
	for _, p := range ports {
		switch p.subnetOf(m.Address) {
		case m.SubnetID:
			return false, nil
		case "":
		default:
			own = true
		}
	}
	if !own {
		return false, nil
	}
	at, err := i.networks.subnet(ctx, m.SubnetID)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	address, addressErr := netip.ParseAddr(m.Address)
	span, err := netip.ParsePrefix(at.CIDR)
	return addressErr == nil && err == nil && span.Contains(address), nil
}

// nodeAddressFor returns the address at which a load balancer reaches a node: the first internal one of the family, otherwise the first
// external one. Without a family, any internal address will do.
func nodeAddressFor(addresses []v1.NodeAddress, family v1.IPFamily) string {
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range addresses {
			if a.Type != kind || !isIP(a.Address) {
				continue
			}
			if family == "" && kind == v1.NodeInternalIP || family == v1.IPv6Protocol && isIPv6(a.Address) ||
				family == v1.IPv4Protocol && !isIPv6(a.Address) {
				return a.Address
			}
		}
	}
	return ""
}

// familyOf returns the first IP family of a Service.
func familyOf(service *v1.Service) v1.IPFamily {
	if len(service.Spec.IPFamilies) == 0 {
		return ""
	}
	return service.Spec.IPFamilies[0]
}

// isSelected reports whether a node may be a member. A node without a provider ID is considered again when it has one.
func isSelected(n *v1.Node, s settings) bool {
	return n.Spec.ProviderID != "" && !slices.ContainsFunc(s.nodeSelector, func(r requirement) bool { return !r.matches(n.Labels) })
}

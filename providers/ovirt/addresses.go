package ovirt

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

// isUsable reports whether a node can be reached at an address from other machines.
func isUsable(ip netip.Addr) bool {
	return ip.IsValid() && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast()
}

func anyContains(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// ips returns the addresses that a virtual machine's guest reports for the interfaces from the engine. Bridges for pods and virtual
// addresses have other MAC addresses, or their networks are excluded.
func (c Config) ips(v vm, familyFirst string) []netip.Addr {
	var all []netip.Addr
	nics := slices.SortedFunc(slices.Values(v.NICs.NIC), func(a, b nic) int { // the engine promises no order; nic2 is before nic10
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.MAC.Address, b.MAC.Address))
	})
	for _, n := range nics {
		var ofNIC []netip.Addr
		for _, d := range n.Devices.Device {
			if d.Type != "network" || !strings.EqualFold(d.MAC.Address, n.MAC.Address) || (c.interfaces != nil && !c.interfaces.MatchString(d.Name)) {
				continue
			}
			for _, text := range d.IPs.IP {
				ip, err := netip.ParseAddr(strings.TrimSpace(text.Address))
				ip = ip.WithZone("").Unmap()
				if err == nil && isUsable(ip) && (len(c.include) == 0 || anyContains(c.include, ip)) && !anyContains(c.exclude, ip) {
					ofNIC = append(ofNIC, ip)
				}
			}
		}
		slices.SortFunc(ofNIC, func(a, b netip.Addr) int { return compareAddresses(a, b, familyFirst) })
		all = append(all, ofNIC...)
	}
	seen := map[netip.Addr]bool{}
	return slices.DeleteFunc(all, func(ip netip.Addr) bool {
		twice := seen[ip]
		seen[ip] = true
		return twice
	})
}

// compareAddresses orders the addresses of an interface: first by family, then by address.
func compareAddresses(a, b netip.Addr, first string) int {
	if a.Is4() != b.Is4() {
		if a.Is4() == (first == familyIPv4) {
			return -1
		}
		return 1
	}
	return a.Compare(b)
}

// addresses returns the addresses of a node, or a message about missing ones.
func (c Config) addresses(v vm, node *v1.Node) (list []v1.NodeAddress, missing string) {
	wanted := nodes.Given(node)
	first := c.IPFamily
	if len(wanted) > 0 {
		if first = familyIPv6; wanted[0].Is4() {
			first = familyIPv4
		}
	}
	ips := c.ips(v, first)
	if len(ips) == 0 {
		return nil, fmt.Sprintf("the guest agent of virtual machine %s (status %s) reports no address of its network interfaces; install and start "+
			"qemu-guest-agent in it", v, v.Status)
	}
	ordered, lacks := nodes.GivenFirst(node, ips)
	if lacks.IsValid() {
		return nil, fmt.Sprintf("kubelet was started with --node-ip=%s, which the guest agent of virtual machine %s does not report; it reports %s",
			lacks, v, ips)
	}
	list = []v1.NodeAddress{{Type: v1.NodeHostName, Address: node.Name}}
	for _, ip := range ordered {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	for i, ip := range ordered {
		if anyContains(c.externalAddresses, ip) || c.ExternalLike == likeExtension || (c.ExternalLike == likeInTree && i == 0) {
			list = append(list, v1.NodeAddress{Type: v1.NodeExternalIP, Address: ip.String()})
		}
	}
	if v.FQDN != "" && !strings.EqualFold(v.FQDN, node.Name) {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalDNS, Address: strings.ToLower(v.FQDN)})
	}
	return list, ""
}

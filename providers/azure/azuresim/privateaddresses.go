package azuresim

import (
	"net/netip"
	"slices"
	"strings"
)

func (s *Sim) subnet(id string) object {
	vnet := s.resources[strings.ToLower(ownerOf(id))]
	if vnet == nil {
		return nil
	}
	return findByName(items(vnet.doc, "properties", "subnets"), lastOf(id))
}

// checkPrivate gives an internal frontend an address of its subnet.
func (s *Sim) checkPrivate(r *resource, f object, subnet string) *failure {
	found := s.subnet(subnet)
	if found == nil {
		return invalid("InvalidResourceReference", "Resource %s referenced by resource %s was not found.", subnet, r.id)
	}
	props := propertiesOf(f)
	props["subnet"] = object{"id": subnet} // all that answers show of it
	six := text(props, "privateIPAddressVersion") == "IPv6"
	if !six {
		props["privateIPAddressVersion"] = "IPv4"
	}
	asked, method := text(props, "privateIPAddress"), text(props, "privateIPAllocationMethod")
	var prefix netip.Prefix
	for _, p := range append(strs(found, "properties", "addressPrefixes"), text(found, "properties", "addressPrefix")) {
		if parsed, err := netip.ParsePrefix(p); err == nil && parsed.Addr().Is6() == six {
			prefix = parsed
		}
	}
	if !prefix.IsValid() {
		return invalid("SubnetHasNoPrefixOfVersion", "The subnet %s has no prefix of the address version.", subnet)
	}
	if method == "Static" {
		address, err := netip.ParseAddr(asked)
		switch {
		case err != nil || !prefix.Contains(address):
			return invalid("PrivateIPAddressNotInSubnet", "Private static IP address %s does not belong to the range of subnet prefix %s.", asked, prefix)
		case s.privateTaken(asked, r.id):
			return invalid("PrivateIPAddressInUse", "Private IP address %s is in use.", asked)
		}
		return nil
	}
	if method != "Dynamic" {
		return invalid("InvalidRequestFormat", "privateIPAllocationMethod %q is none of Dynamic and Static.", method)
	}
	if before := findByName(items(r.doc, "properties", "frontendIPConfigurations"), text(f, "name")); before != nil &&
		strings.EqualFold(text(before, "properties", "subnet", "id"), subnet) {
		props["privateIPAddress"] = text(before, "properties", "privateIPAddress")
		return nil
	}
	return s.allocatePrivate(props, subnet, prefix)
}

// allocatePrivate gives a frontend the next free address of its subnet, behind those of machines where the subnet is large.
func (s *Sim) allocatePrivate(props object, subnet string, prefix netip.Prefix) *failure {
	taken := func(ip string) bool {
		return s.privateTaken(ip, "") || slices.ContainsFunc(s.all(kindInterface), func(nic *resource) bool { return hasAddress(nic.doc, ip) })
	}
	ip, free := prefix.Masked().Addr(), prefix.Addr().BitLen()-prefix.Bits()
	for range 4 { // of the network
		ip = ip.Next()
	}
	if free > 8 {
		bytes := ip.AsSlice()
		bytes[len(bytes)-2] |= byte(1<<min(free-8, 8)-1) & 0xf0
		ip, _ = netip.AddrFromSlice(bytes)
	}
	for ; prefix.Contains(ip.Next()); ip = ip.Next() { // the last one is for broadcasts
		if !taken(ip.String()) && !s.given[ip.String()] {
			props["privateIPAddress"], s.given[ip.String()] = ip.String(), true
			return nil
		}
	}
	return invalid("SubnetIsFull", "Subnet %s with address prefix %s does not have enough capacity for 1 IP addresses.", subnet, prefix)
}

// privateTaken reports whether another load balancer has an address. In the same one a frontend may take it over from another.
func (s *Sim) privateTaken(address, lb string) bool {
	for _, other := range s.all(kindLoadBalancer) {
		for _, f := range items(other.doc, "properties", "frontendIPConfigurations") {
			if text(f, "properties", "privateIPAddress") == address && !strings.EqualFold(other.id, lb) {
				return true
			}
		}
	}
	return false
}

package azure

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// shownAddresses are the addresses of a Service's load balancer according to its status. Additional addresses, from an annotation or a
// rule's description, do not count. If several of a family remain, none counts: one may come from an annotation that was removed.
func shownAddresses(service *v1.Service, rules []*securityRule, mark string) (list []string) {
	further := additionalAddresses(service)
	for _, rule := range rules {
		further = append(further, additionalIn(rule, mark)...)
	}
	for _, i := range service.Status.LoadBalancer.Ingress {
		if i.IP != "" && !hasIP(further, i.IP) {
			list = append(list, i.IP)
		}
	}
	if len(list) > len(families(service)) {
		return nil
	}
	return list
}

// canonicalIP is an address as Azure shows it, and any other text as it is.
func canonicalIP(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.String()
	}
	return text
}

// hasIP reports whether an address, or another text, is in a list, however it is written.
func hasIP(list []string, ip string) bool {
	ip = canonicalIP(ip)
	return slices.ContainsFunc(list, func(text string) bool { return canonicalIP(text) == ip })
}

// sameIP compares addresses, however they are written.
func sameIP(a, b string) bool {
	one, errA := netip.ParseAddr(a)
	other, errB := netip.ParseAddr(b)
	return errA == nil && errB == nil && one == other
}

func internalIP(n *v1.Node, ipv6 bool) string {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); a.Type == v1.NodeInternalIP && err == nil && ip.Is6() == ipv6 {
			return a.Address
		}
	}
	return ""
}

// nodeIPs are the addresses of nodes.
func nodeIPs(list []*v1.Node) []string {
	found := map[string]bool{}
	for _, node := range list {
		for _, ipv6 := range []bool{false, true} {
			if ip := internalIP(node, ipv6); ip != "" {
				found[ip] = true
			}
		}
	}
	return sortedKeys(found)
}

// additionalAddresses returns the additional public addresses that a Service names.
func additionalAddresses(s *v1.Service) (list []string) {
	for _, ip := range splitList(s.Annotations[annotationAdditional]) {
		list = append(list, canonicalIP(ip))
	}
	return list
}

func familyName(ipv6 bool) string {
	if ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

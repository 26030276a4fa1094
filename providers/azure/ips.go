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

// hasIP reports whether an address, or another text, is in a list, whatever way it is written.
func hasIP(list []string, ip string) bool {
	ip = canonicalIP(ip)
	return slices.ContainsFunc(list, func(text string) bool { return canonicalIP(text) == ip })
}

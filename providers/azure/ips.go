package azure

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// shownAddresses are the addresses of a Service's load balancer that its status shows: it has had them, whatever has become of the load
// balancer since. Further ones are none, which an annotation names, or of which a rule says so. Where more than one of a family is left,
// nobody knows which of them an annotation had added that is no longer there.
func shownAddresses(service *v1.Service, rules []doc, mark string) (list []string) {
	further := additionalAddresses(service)
	for _, rule := range rules {
		further = append(further, additionalIn(rule, mark)...)
	}
	for _, i := range service.Status.LoadBalancer.Ingress {
		if i.IP != "" && !hasIP(further, i.IP) {
			list = append(list, i.IP)
		}
	}
	if served, _ := families(service); len(list) > len(served) {
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

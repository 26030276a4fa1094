package azure

import (
	"net/netip"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// traces are the addresses that this process saw at the frontends of Services, by the names of these. They tell what a Service leaves when
// it changes, and are forgotten with it. A Service that was not looked at has none.
type traces struct {
	mu   sync.Mutex
	seen map[string][]string
}

// addressesOf are the addresses that a Service has, which are proven, and those that it had, as far as rules of the security group still
// name them. At the first look those of the status count: what an annotation added there does not.
func (t *traces) addressesOf(service *v1.Service, proven []string, rules []doc) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	base := baseName(service)
	seen, known := t.seen[base]
	if !known {
		seen = shownAddresses(service)
	}
	list := append(deleteUnnamed(seen, rules), proven...)
	slices.Sort(list)
	list = slices.Compact(list)
	if t.seen == nil {
		t.seen = map[string][]string{}
	}
	t.seen[base] = list
	return slices.Clone(list)
}

// forgetUnnamed forgets the addresses of a Service that no rule names any more: from now on they may be somebody else's.
func (t *traces) forgetUnnamed(service *v1.Service, rules []doc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seen, known := t.seen[baseName(service)]; known {
		t.seen[baseName(service)] = deleteUnnamed(seen, rules)
	}
}

// deleteUnnamed returns the addresses that rules of this program, or of Azure's own controller, name.
func deleteUnnamed(addresses []string, rules []doc) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(ip string) bool {
		return !slices.ContainsFunc(rules, func(rule doc) bool { return managed(rule) && hasIP(destinationsOf(rule), ip) })
	})
}

// shownAddresses are the addresses of a status without the further ones. More than one of a family were added by an annotation that is no
// longer there: which, nobody knows.
func shownAddresses(service *v1.Service) []string {
	list, further := []string{}, additional(service)
	for _, i := range service.Status.LoadBalancer.Ingress {
		if i.IP != "" && !hasIP(further, i.IP) {
			list = append(list, i.IP)
		}
	}
	if served, _ := families(service); len(list) > len(served) {
		return []string{}
	}
	return list
}

// forgetOthers forgets Services that are gone, or that want no load balancer. The one that is asked about may be going.
func (t *traces) forgetOthers(known []*v1.Service, asked *v1.Service) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := map[string][]string{}
	for _, s := range append(slices.Clone(known), asked) {
		if s.Spec.Type != v1.ServiceTypeLoadBalancer && s.UID != asked.UID {
			continue
		}
		if seen, was := t.seen[baseName(s)]; was {
			left[baseName(s)] = seen
		}
	}
	t.seen = left
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

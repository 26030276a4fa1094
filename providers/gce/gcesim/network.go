package gcesim

import (
	"net/netip"
	"slices"
	"strings"
)

// completeFirewall checks a firewall rule, and adds what the API adds.
func completeFirewall(_ *Sim, at location, d document) *refusal {
	allowed, denied := d["allowed"] != nil, d["denied"] != nil
	if allowed == denied {
		return invalid("Invalid value for field 'resource.allowed'. Exactly one of allowed and denied is needed.")
	}
	entries, _ := d["allowed"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if protocol := lower(entry, "IPProtocol"); len(strs(entry["ports"])) > 0 && !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
			return invalid("Invalid value for field 'resource.allowed[0].ports'. Ports are for tcp, udp and sctp.")
		}
	}
	four, six := false, false
	for _, key := range []string{"sourceRanges", "destinationRanges"} {
		for _, r := range strs(d[key]) {
			p, err := prefixOf(r)
			if err != nil || p != p.Masked() {
				return invalid("Invalid value for field 'resource.%s': '%s'. Must be a valid CIDR.", key, r)
			}
			four, six = four || p.Addr().Is4(), six || p.Addr().Is6()
		}
	}
	if four && six {
		return invalid("Invalid value for field 'resource.sourceRanges'. IPv4 and IPv6 ranges cannot be mixed.")
	}
	if text(d, "network") == "" {
		d["network"] = "global/networks/default"
	}
	d["network"] = linkTo(at.resource(text(d, "network")))
	d["direction"] = orText(d["direction"], "INGRESS")
	if _, ok := d["priority"]; !ok {
		d["priority"] = 1000
	}
	if _, ok := d["disabled"]; !ok {
		d["disabled"] = false
	}
	d["description"] = orText(d["description"], "")
	d["logConfig"] = map[string]any{"enable": false}
	return nil
}

func prefixOf(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		return netip.PrefixFrom(a, a.BitLen()), err //nolint:wrapcheck // shown as an answer of the API
	}
	return netip.ParsePrefix(text) //nolint:wrapcheck // shown as an answer of the API
}

// completeRoute checks a route, and adds what the API adds.
func completeRoute(s *Sim, at location, d document) *refusal {
	if p, err := netip.ParsePrefix(text(d, "destRange")); err != nil || p != p.Masked() {
		return invalid("Invalid value for field 'resource.destRange': '%s'.", text(d, "destRange"))
	}
	if text(d, "nextHopInstance") == "" {
		return invalid("Invalid value for field 'resource.nextHopInstance'. A next hop is needed.")
	}
	hop := at.resource(text(d, "nextHopInstance"))
	if _, ok := s.objects[hop]; !ok {
		return missing(hop)
	}
	d["nextHopInstance"] = linkTo(hop)
	d["network"] = linkTo(at.resource(text(d, "network")))
	if _, ok := d["priority"]; !ok {
		d["priority"] = 1000
	}
	d["description"] = orText(d["description"], "")
	return nil
}

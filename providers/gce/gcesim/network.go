package gcesim

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// checkFirewallTexts refuses invalid ports, tags and priorities of a firewall.
func checkFirewallTexts(d document) *refusal {
	entries, _ := d["allowed"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if protocol := lower(entry, "IPProtocol"); len(textsOf(entry["ports"])) > 0 && !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
			return invalid("Invalid value for field 'resource.allowed[0].ports'. Ports are for tcp, udp and sctp.")
		}
		for _, ports := range textsOf(entry["ports"]) {
			if !portRange(ports) {
				return invalid("Invalid value for field 'resource.allowed[0].ports[0]': '%s'. Ports should be in the range 0-65535.", ports)
			}
		}
	}
	for _, tag := range textsOf(d["targetTags"]) {
		if !nameForm.MatchString(tag) {
			return invalid("Invalid value for field 'resource.targetTags[0]': '%s'. Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'", tag)
		}
	}
	if n, ok := d["priority"].(float64); ok && (n < 0 || n > 65535) {
		return invalid("Invalid value for field 'resource.priority': '%v'. Must be between 0 and 65535.", n)
	}
	return nil
}

func completeFirewall(_ *Sim, at location, d document) *refusal {
	allowed, denied := d["allowed"] != nil, d["denied"] != nil
	if allowed == denied {
		return invalid("Invalid value for field 'resource.allowed'. Exactly one of allowed and denied is needed.")
	}
	if err := checkFirewallTexts(d); err != nil {
		return err
	}
	four, six := false, false
	for _, key := range []string{"sourceRanges", "destinationRanges"} {
		for _, r := range textsOf(d[key]) {
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
	d["direction"] = textOr(d["direction"], "INGRESS")
	if _, ok := d["priority"]; !ok {
		d["priority"] = 1000
	}
	if _, ok := d["disabled"]; !ok {
		d["disabled"] = false
	}
	d["description"] = textOr(d["description"], "")
	d["logConfig"] = map[string]any{"enable": false}
	return nil
}

func portRange(text string) bool {
	from, to, both := strings.Cut(text, "-")
	if !both {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	return errA == nil && errB == nil && a <= b
}

func prefixOf(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		return netip.PrefixFrom(a, a.BitLen()), err //nolint:wrapcheck // shown as an answer of the API
	}
	return netip.ParsePrefix(text) //nolint:wrapcheck // shown as an answer of the API
}

// completeRoute checks a route, and adds the API's fields. Routes are immutable.
func completeRoute(s *Sim, at location, d document) *refusal {
	p, err := netip.ParsePrefix(text(d, "destRange"))
	if err != nil || p != p.Masked() {
		return invalid("Invalid value for field 'resource.destRange': '%s'.", text(d, "destRange"))
	}
	if text(d, "network") == "" {
		return &refusal{http.StatusBadRequest, "required", "Required field 'resource.network' not specified"}
	}
	network := at.resource(text(d, "network"))
	hops := []string{"nextHopInstance", "nextHopIp", "nextHopGateway", "nextHopIlb", "nextHopVpnTunnel"}
	if hops = slices.DeleteFunc(hops, func(key string) bool { return d[key] == nil }); len(hops) != 1 {
		return invalid("Invalid value for field 'resource.nextHop'. Exactly one next hop must be specified.")
	}
	for path, subnet := range s.objects {
		within, err := netip.ParsePrefix(text(subnet, "ipCidrRange"))
		if parsePath(path).collection == "subnetworks" && at.resource(text(subnet, "network")) == network && err == nil &&
			within.Bits() <= p.Bits() && within.Contains(p.Addr()) {
			return invalid("Invalid value for field 'resource.destRange': '%s'. The destination range is within the subnetwork '%s'.", p, path)
		}
	}
	if text(d, "nextHopInstance") != "" {
		hop := at.resource(text(d, "nextHopInstance")) // the default project is the route's own
		instance, ok := s.objects[hop]
		if !ok {
			return notFound(hop)
		}
		if !onNetwork(instance, network) {
			return invalid("Invalid value for field 'resource.nextHopInstance': '%s'. The instance has no interface on the network '%s'.", hop, network)
		}
		d["nextHopInstance"] = linkTo(hop)
	}
	d["destRange"], d["network"] = p.String(), linkTo(network)
	if _, ok := d["priority"]; !ok {
		d["priority"] = 1000
	}
	if text(d, "description") == "" {
		delete(d, "description")
	}
	return nil
}

func onNetwork(instance document, network string) bool {
	interfaces, _ := instance["networkInterfaces"].([]any)
	return slices.ContainsFunc(interfaces, func(v any) bool {
		n, _ := v.(map[string]any)
		return location{}.resource(text(n, "network")) == network
	})
}

// routeWarnings returns the warnings for a route whose next hop is gone: the route itself stays.
func (s *Sim) routeWarnings(d document) []any {
	hop := location{}.resource(text(d, "nextHopInstance"))
	instance, ok := s.objects[hop]
	if ok && instance["canIpForward"] == false {
		return []any{map[string]any{
			"code": "NEXT_HOP_CANNOT_IP_FORWARD", "message": "The next hop instance '" + hop + "' cannot forward packets",
			"data": []any{map[string]any{"key": "instance", "value": linkTo(hop)}},
		}}
	}
	if hop == "" || ok {
		return nil
	}
	return []any{map[string]any{
		"code": "NEXT_HOP_INSTANCE_NOT_FOUND", "message": "The next hop instance '" + hop + "' was not found",
		"data": []any{map[string]any{"key": "instance", "value": linkTo(hop)}},
	}}
}

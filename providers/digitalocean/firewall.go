package digitalocean

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file computes the rules of the public access firewall, without calls.

func allNetworks() []string { return []string{everywhereV4, everywhereV6} }

const everywhereV4, everywhereV6 = "0.0.0.0/0", "::/0"

// opening is a port of the nodes, and who may reach it: networks, or load balancers by their IDs.
type opening struct {
	protocol, ports          string
	addresses, loadBalancers []string
}

// serviceOpenings returns what a Service with a load balancer needs open, and its faults for an event. Valid parts still count, and a
// fault never closes the ports of other Services.
func serviceOpenings(service *v1.Service, lb godo.LoadBalancer, loadBalancerID string) (needs []opening, faults []error) {
	if text := service.Annotations[annotationFirewallManaged]; text != "" {
		managed, err := strconv.ParseBool(text)
		if err == nil && !managed {
			return nil, nil
		}
		if err != nil {
			faults = append(faults, &schema.Problem{Place: "annotation " + annotationFirewallManaged, Value: text, Reason: `is not a boolean; use "true" or "false"; "true" is used instead`})
		}
	}
	sources := allNetworks()
	port := func(p v1.ServicePort) int32 { return p.NodePort }
	switch {
	case service.Spec.Type == v1.ServiceTypeNodePort:
	case service.Spec.Type == v1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil &&
		lb.Type == godo.LoadBalancerTypeRegionalNetwork && lb.Network != godo.LoadBalancerNetworkTypeInternal:
		// Network load balancers keep the source and the port of packets.
		port = func(p v1.ServicePort) int32 { return p.Port }
		sources = allowedSources(service, lb)
		if loadBalancerID != "" {
			check := opening{protocol: protocolTCP, ports: strconv.Itoa(checkedPort(service)), loadBalancers: []string{loadBalancerID}}
			needs = append(needs, check)
		}
	default:
		return nil, faults
	}
	for _, p := range service.Spec.Ports {
		protocol := strings.ToLower(string(p.Protocol))
		switch {
		case protocol != protocolTCP && protocol != protocolUDP:
			faults = append(faults, fmt.Errorf("port %d: a firewall of DigitalOcean knows no protocol %s; the port stays closed", p.Port, p.Protocol))
		case port(p) == 0: // not allocated yet
		default:
			needs = append(needs, opening{protocol: protocol, ports: strconv.Itoa(int(port(p))), addresses: sources})
		}
	}
	return needs, faults
}

// keepOpenings reduces the needs to what the firewall already opens.
func keepOpenings(needs []opening, have *godo.Firewall) (left []opening) {
	for _, rule := range ptr.Deref(have, godo.Firewall{}).InboundRules {
		from := ptr.Deref(rule.Sources, godo.Sources{})
		for _, n := range needs {
			if n.protocol != rule.Protocol || !hasPort(rule.PortRange, n.ports) {
				continue
			}
			isIn := func(id string) bool { return slices.Contains(from.LoadBalancerUIDs, id) }
			if len(n.addresses) > 0 {
				n.addresses = narrowAddresses(from.Addresses, n.addresses)
			} else if !slices.ContainsFunc(n.loadBalancers, isIn) {
				continue
			}
			left = append(left, n)
		}
	}
	return left
}

// narrowAddresses reduces the open networks to allowed ones. Each keeps its notation.
func narrowAddresses(have, allowed []string) (after []string) {
	texts := map[netip.Prefix]string{}
	parse := func(list []string) (networks []netip.Prefix) {
		for _, text := range list {
			kind := "cidr:"
			if !strings.Contains(text, "/") {
				kind = "ip:"
			}
			if p, is := networkOf(kind + text); is {
				networks, texts[p] = append(networks, p), text
			}
		}
		return networks
	}
	clients := sources.New(parse(allowed), false)
	networks, _ := clients.Narrow(parse(have), false)
	for _, p := range networks {
		after = append(after, texts[p])
	}
	return after
}

// hasPort reports whether a rule's port or range contains a port.
func hasPort(ports, port string) bool {
	first, last, isRange := strings.Cut(ports, "-")
	from, _ := strconv.Atoi(first)
	to, _ := strconv.Atoi(last)
	p, _ := strconv.Atoi(port)
	return ports == port || isRange && from <= p && p <= to
}

// checkedPort returns the node port that the load balancer checks.
func checkedPort(service *v1.Service) int {
	s, _, err := parseSettings(service.Annotations, godo.LoadBalancerTypeRegionalNetwork, godo.LoadBalancerTypeRegionalNetwork)
	if err != nil {
		s = settings{} // the load balancer stays unchanged, probably with the usual check
	}
	if check, err := healthCheck(service, s); err == nil && check.Port != 0 {
		return check.Port
	}
	return kubeProxyHealthPort
}

// allowedSources returns the networks that may reach a Service of type LoadBalancer: its source ranges, otherwise its allow rules,
// otherwise all. If some of these are unreadable, only those remain that its load balancer already admits.
func allowedSources(service *v1.Service, lb godo.LoadBalancer) []string {
	allowed, rules := clientsOf(service), strings.Split(service.Annotations[annotationAllowRules], ",")
	switch {
	case allowed.Partial() && lb.ID == "":
		return []string{}
	case allowed.Partial():
		rules = narrow(ptr.Deref(lb.Firewall, godo.LBFirewall{}), service).Allow
		if len(rules) == 0 {
			return allNetworks()
		}
	case allowed.Everybody() || len(service.Spec.LoadBalancerSourceRanges) > 0:
		return allowed.Texts(allNetworks()...)
	}
	list := []string{}
	for _, rule := range rules {
		p, is := networkOf(rule)
		switch {
		case !is || rule == nobody:
		case strings.HasPrefix(strings.TrimSpace(rule), "ip:"):
			list = append(list, p.Addr().String())
		default:
			list = append(list, p.String())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// fitSources limits the sources at each port, which share a rule: those that are open stay, and then the first claims' come in. It returns
// the faults of Services that lack some.
func fitSources(claims []claim, have *godo.Firewall) map[types.UID][]error {
	wanted := map[firewallPort][]string{}
	for _, c := range claims {
		for _, n := range c.needs {
			wanted[n.port()] = append(wanted[n.port()], n.addresses...)
		}
	}
	most := digitaloceanlimits.RuleSources.Max
	excess, fits := map[firewallPort]error{}, map[firewallPort]map[string]bool{}
	for at, addresses := range wanted {
		excess[at] = digitaloceanlimits.RuleSources.CheckNumber(len(joinSources(slices.Clone(addresses))))
		if excess[at] == nil {
			continue
		}
		fits[at] = map[string]bool{}
		for _, open := range []bool{true, false} {
			for _, a := range addresses {
				if len(fits[at]) < most && isOpen(have, at, a) == open {
					fits[at][a] = true
				}
			}
		}
	}
	faults := map[types.UID][]error{}
	for _, c := range claims {
		for i, n := range c.needs {
			at := n.port()
			left := slices.DeleteFunc(slices.Clone(n.addresses), func(a string) bool { return excess[at] != nil && !fits[at][a] })
			if len(left) < len(n.addresses) {
				c.needs[i].addresses = left
				faults[c.service] = append(faults[c.service], fmt.Errorf("port %s: %w", n.ports, excess[at]))
			}
		}
	}
	return faults
}

type firewallPort struct{ protocol, number string }

func (o opening) port() firewallPort { return firewallPort{o.protocol, o.ports} }

// isOpen reports whether a source may reach a port.
func isOpen(have *godo.Firewall, port firewallPort, source string) bool {
	return slices.ContainsFunc(ptr.Deref(have, godo.Firewall{}).InboundRules, func(r godo.InboundRule) bool {
		return r.Protocol == port.protocol && hasPort(r.PortRange, port.number) &&
			slices.Contains(ptr.Deref(r.Sources, godo.Sources{}).Addresses, source)
	})
}

// mergeOpenings merges the needs of all Services. Like DigitalOcean's own controller, it makes one rule for each port and protocol, and one
// for each load balancer's check. If these exceed the limit, the dense form merges checks of one port, and neighbouring ports with equal
// sources.
func mergeOpenings(needs []opening, dense bool) []opening {
	type key struct {
		firewallPort

		loadBalancers string
	}
	merged := map[key]*opening{}
	for _, n := range needs {
		if len(n.addresses)+len(n.loadBalancers) == 0 {
			continue // nobody is allowed
		}
		k := key{n.port(), strings.Join(n.loadBalancers, ",")}
		if dense && k.loadBalancers != "" {
			k.loadBalancers = "all"
		}
		if merged[k] == nil {
			merged[k] = &opening{protocol: n.protocol, ports: n.ports}
		}
		o := merged[k]
		o.addresses, o.loadBalancers = append(o.addresses, n.addresses...), append(o.loadBalancers, n.loadBalancers...)
	}
	list := make([]opening, 0, len(merged))
	for _, o := range merged {
		list = append(list, opening{o.protocol, o.ports, joinSources(o.addresses), joinSources(o.loadBalancers)})
	}
	if dense {
		return joinConsecutivePorts(list)
	}
	slices.SortFunc(list, compareOpenings)
	return list
}

func compareOpenings(a, b opening) int {
	return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.ports, b.ports),
		slices.Compare(a.loadBalancers, b.loadBalancers), slices.Compare(a.addresses, b.addresses))
}

// joinSources sorts sources and removes duplicates; everywhere replaces all others.
func joinSources(all []string) []string {
	if slices.Contains(all, everywhereV4) && slices.Contains(all, everywhereV6) {
		return allNetworks()
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// joinConsecutivePorts joins rules that differ only in consecutive ports.
func joinConsecutivePorts(list []opening) []opening {
	first := func(o opening) int {
		n, _ := strconv.Atoi(o.ports) // written by this file
		return n
	}
	slices.SortFunc(list, func(a, b opening) int {
		return cmp.Or(
			cmp.Compare(a.protocol, b.protocol), slices.Compare(a.addresses, b.addresses), slices.Compare(a.loadBalancers, b.loadBalancers),
			first(a)-first(b),
		)
	})
	var joined []opening
	last := 0
	for _, o := range list {
		if n := len(joined) - 1; n >= 0 {
			before := &joined[n]
			if before.protocol == o.protocol && first(o) == last+1 && slices.Equal(before.addresses, o.addresses) &&
				slices.Equal(before.loadBalancers, o.loadBalancers) {
				from, _, _ := strings.Cut(before.ports, "-")
				before.ports, last = from+"-"+o.ports, first(o)
				continue
			}
		}
		joined, last = append(joined, o), first(o)
	}
	slices.SortFunc(joined, compareOpenings)
	return joined
}

// claim holds the needs of one Service.
type claim struct {
	service types.UID
	needs   []opening
}

// fitClaims returns rules for as many claims as the limit allows, earlier claims first, and the Services left out.
func fitClaims(claims []claim, limit int) (rules []opening, leftOut []types.UID) {
	var all []opening
	for _, c := range claims {
		all = append(all, c.needs...)
	}
	for _, dense := range []bool{false, true} {
		if rules = mergeOpenings(all, dense); len(rules) <= limit {
			return rules, nil
		}
	}
	all = nil
	for _, c := range claims {
		with := slices.Concat(all, c.needs)
		if len(c.needs) > 0 && len(mergeOpenings(with, true)) > limit {
			leftOut = append(leftOut, c.service)
			continue
		}
		all = with
	}
	return mergeOpenings(all, true), leftOut
}

// outboundRules allows all outgoing traffic, as without a firewall.
func outboundRules() []godo.OutboundRule {
	return []godo.OutboundRule{
		{Protocol: "icmp", PortRange: "0", Destinations: &godo.Destinations{Addresses: allNetworks()}},
		{Protocol: protocolTCP, PortRange: "all", Destinations: &godo.Destinations{Addresses: allNetworks()}},
		{Protocol: protocolUDP, PortRange: "all", Destinations: &godo.Destinations{Addresses: allNetworks()}},
	}
}

// desiredFirewall returns the whole firewall, and the Services for which it has no room.
func desiredFirewall(name string, tags []string, claims []claim) (*godo.FirewallRequest, []types.UID) {
	out := outboundRules()
	rules, leftOut := fitClaims(claims, digitaloceanlimits.FirewallRules.Max-len(out))
	r := &godo.FirewallRequest{Name: name, Tags: tags, OutboundRules: out, InboundRules: []godo.InboundRule{}}
	for _, o := range rules {
		r.InboundRules = append(r.InboundRules, godo.InboundRule{
			Protocol: o.protocol, PortRange: o.ports, Sources: &godo.Sources{Addresses: o.addresses, LoadBalancerUIDs: o.loadBalancers},
		})
	}
	return r, leftOut
}

// firewallDifferences names the fields that differ from the request. The order of rules, sources and tags does not matter, nor do kinds of
// sources that the request never contains.
func firewallDifferences(f *godo.Firewall, r *godo.FirewallRequest) []string {
	var fields []string
	if f.Name != r.Name {
		fields = append(fields, "name")
	}
	if !services.SameSet(f.Tags, r.Tags) {
		fields = append(fields, "tags")
	}
	if !services.SameSet(inboundTexts(f.InboundRules), inboundTexts(r.InboundRules)) {
		fields = append(fields, "inbound_rules")
	}
	if !services.SameSet(outboundTexts(f.OutboundRules), outboundTexts(r.OutboundRules)) {
		fields = append(fields, "outbound_rules")
	}
	return fields
}

func inboundTexts(rules []godo.InboundRule) []string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		s := ptr.Deref(r.Sources, godo.Sources{})
		texts[i] = ruleText(r.Protocol, r.PortRange, r.Action, s.Addresses, s.LoadBalancerUIDs)
	}
	return texts
}

func outboundTexts(rules []godo.OutboundRule) []string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		d := ptr.Deref(r.Destinations, godo.Destinations{})
		texts[i] = ruleText(r.Protocol, r.PortRange, r.Action, d.Addresses, d.LoadBalancerUIDs)
	}
	return texts
}

// ruleText is equal for equivalent rules: the API answers "0" for all ports and for no ports.
func ruleText(protocol, ports string, action godo.FirewallRuleAction, addresses, loadBalancers []string) string {
	if ports == "" || ports == "all" {
		ports = "0"
	}
	if action == "" {
		action = godo.FirewallRuleActionAllow
	}
	return fmt.Sprint(
		action, " ", protocol, " ", ports, " ", slices.Sorted(slices.Values(addresses)), " ", slices.Sorted(slices.Values(loadBalancers)),
	)
}

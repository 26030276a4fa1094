package linode

import (
	"cmp"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
)

// This file shuts out clients whom a Service no longer allows, before other changes.

var _ services.Narrower[observed] = (*reconciler)(nil)

// clients are the networks that a Service allows or, if deny is set, denies.
type clients struct {
	sources.Set

	deny bool
}

// clientsOf returns the clients as far as they can be read: of the annotation, otherwise of the source ranges.
func clientsOf(service *v1.Service) clients {
	text := service.Annotations[annotationFirewallACL]
	if text == "" {
		set, _ := sources.Parse(sources.Field, service.Spec.LoadBalancerSourceRanges)
		return clients{Set: set}
	}
	a := &acl{}
	if err := json.Unmarshal([]byte(text), a); err != nil || (a.Allow == nil) == (a.Deny == nil) {
		return clients{Set: sources.New(nil, true)}
	}
	list := cmp.Or(a.Allow, a.Deny)
	set, _ := sources.Parse(annotationFirewallACL, slices.Concat(list.IPv4, list.IPv6))
	return clients{set, a.Deny != nil}
}

// restrict reports whether anybody is shut out, as far as the setting can be read.
func (c clients) restrict() bool {
	texts := c.Texts()
	return len(texts) > 0 && (c.deny || !slices.Contains(texts, anyIPv4) || !slices.Contains(texts, anyIPv6))
}

// Narrowing implements services.Narrower. It changes only the Service's own firewall, which is created if the NodeBalancer has none.
// Nothing is done where another firewall decides: one that somebody else attached, or that the Service names. As long as the named one is
// not attached, the Service's own is narrowed, or, if there is none, the named one attached. Faults of other annotations do not matter.
func (r *reconciler) Narrowing(ctx context.Context, req services.Request, o observed) ([]services.Change[observed], error) {
	asked := clientsOf(req.Service)
	if o.nb == nil || o.settings.FirewallID == 0 && !asked.restrict() {
		return nil, nil
	}
	want, attached, err := r.firewalls.findAttached(ctx, req.Service, o.settings, o.nb)
	if err != nil || slices.ContainsFunc(attached, func(f *linodego.Firewall) bool { return !want.owns(f) }) {
		return nil, err // somebody else's firewall decides
	}
	list := o.settings.ACL
	if want.attach != 0 && len(attached) > 0 {
		if slices.ContainsFunc(attached, func(f *linodego.Firewall) bool { return f.ID == want.attach }) || !asked.restrict() {
			return nil, nil // nobody knows whether that one admits fewer clients
		}
		want.attach, list = 0, nil // until the named one is attached, the Service's own decides
	}
	var labelled *linodego.Firewall
	if want.attach == 0 && len(attached) == 0 {
		if req.Service.Annotations[annotationFirewallID] != "" {
			return nil, nil // the ID of the named firewall cannot be read
		}
		if labelled, _, err = r.firewalls.findByLabel(ctx, want.firewallOwner); err != nil {
			return nil, err
		}
	}
	if want.attach == 0 {
		if want.rules = asked.rules(req, list, attached, o.details, want.label); want.rules == nil {
			return nil, nil
		}
	}
	d := &desired{tags: tagsOf(req.Cluster, r.config, o.settings)}
	d.firewalls = planFirewalls(want, attached[:min(len(attached), 1)], labelled)
	d.marks, err = r.owners.marks(ctx, req.Service)
	return r.firewallChanges(o.nb, d), err
}

// rules returns the rules that shut out clients whom the Service does not allow, or nil if there are none. A valid Service whose ports
// have not changed gets all rules of its access list at once.
func (c clients) rules(
	req services.Request, list *acl, attached []*linodego.Firewall, d *details, name string,
) *linodego.FirewallRuleSet {
	have := linodego.FirewallRuleSet{InboundPolicy: actionAccept, OutboundPolicy: actionAccept, Outbound: []linodego.FirewallRule{}}
	ports := d.ports(req.Service)
	if len(attached) > 0 {
		have = attached[0].Rules
		ports = portsOfRules(have.Inbound, req.Service)
	}
	rules, narrower := c.narrow(have, ports, req.Service, name)
	if !narrower {
		return nil
	}
	if req.Purpose != services.Narrow && list != nil && slices.Equal(ports, servicePorts(req.Service)) {
		if whole, err := firewallRules(list, req.Service, name); err == nil {
			return &whole
		}
	}
	return &rules
}

// narrow returns a firewall's rules without clients whom the Service does not allow, and whether that shuts anybody out. It admits nobody
// new. If rules do not fit, those that admit are left out.
func (c clients) narrow(
	have linodego.FirewallRuleSet, ports []string, service *v1.Service, name string,
) (after linodego.FirewallRuleSet, narrower bool) {
	var allowing, denying []linodego.FirewallRule
	for _, rule := range have.Inbound {
		if rule.Action == actionAccept {
			allowing = append(allowing, rule)
		} else {
			denying = append(denying, rule)
		}
	}
	after = linodego.FirewallRuleSet{InboundPolicy: have.InboundPolicy, OutboundPolicy: have.OutboundPolicy, Outbound: have.Outbound}
	switch {
	case c.deny:
		var more []linodego.FirewallRule
		for some := range slices.Chunk(ports, linodelimits.RulePorts.Max) {
			more = append(more, rulesOn(strings.Join(some, ","), actionDrop, listOf(c.Networks()), service, name)...)
		}
		narrower = !contains(denying, more)
		denying = slices.Concat(more, slices.DeleteFunc(denying, func(r linodego.FirewallRule) bool {
			return contains(more, []linodego.FirewallRule{r})
		}))
	case have.InboundPolicy == actionDrop:
		var kept []linodego.FirewallRule
		for _, rule := range allowing {
			networks, closes := c.Narrow(networksOf(rule), false)
			if narrower = narrower || closes; closes {
				for _, inner := range rulesOn(rule.Ports, actionAccept, listOf(networks), service, name) {
					inner.Protocol = rule.Protocol
					kept = append(kept, inner)
				}
			} else {
				kept = append(kept, rule)
			}
		}
		allowing = kept
	default:
		after.InboundPolicy, narrower, allowing = actionDrop, true, nil
		for some := range slices.Chunk(ports, linodelimits.RulePorts.Max) {
			allowing = append(allowing, rulesOn(strings.Join(some, ","), actionAccept, listOf(c.Networks()), service, name)...)
		}
	}
	after.Inbound = slices.Concat([]linodego.FirewallRule{}, denying, allowing)
	after.Inbound = after.Inbound[:min(len(after.Inbound), linodelimits.FirewallRules.Max)]
	return after, narrower
}

// allPorts stands for the ports of a NodeBalancer that were not read. It opens nothing that the NodeBalancer does not serve.
const allPorts = "1-65535"

// ports returns the ports of a Service, and those that its NodeBalancer still serves.
func (d *details) ports(service *v1.Service) []string {
	if d == nil {
		return []string{allPorts}
	}
	ports := servicePorts(service)
	for _, c := range d.configs {
		ports = union(ports, strconv.Itoa(c.Port))
	}
	return ports
}

// portsOfRules returns the ports of a Service, and those in rules, which may still be served.
func portsOfRules(rules []linodego.FirewallRule, service *v1.Service) []string {
	ports := servicePorts(service)
	for _, rule := range rules {
		for port := range strings.SplitSeq(rule.Ports, ",") {
			if port = strings.TrimSpace(port); port != "" {
				ports = union(ports, port)
			}
		}
	}
	if slices.Contains(ports, allPorts) {
		return []string{allPorts}
	}
	return ports
}

// contains reports whether rules cover all that others cover.
func contains(rules, others []linodego.FirewallRule) bool {
	have := ruleTexts(linodego.FirewallRuleSet{Inbound: rules})
	return !slices.ContainsFunc(ruleTexts(linodego.FirewallRuleSet{Inbound: others}), func(text string) bool {
		return !slices.Contains(have, text)
	})
}

// networksOf returns the networks of a rule that can be read.
func networksOf(r linodego.FirewallRule) (networks []netip.Prefix) {
	for _, text := range addressesOf(r) {
		if p, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, p.Masked())
		}
	}
	return networks
}

// listOf splits networks by their families.
func listOf(networks []netip.Prefix) (list addressList) {
	for _, p := range networks {
		if p.Addr().Is4() {
			list.IPv4 = append(list.IPv4, p.String())
		} else {
			list.IPv6 = append(list.IPv6, p.String())
		}
	}
	return list
}

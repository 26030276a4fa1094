package azure

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// This file closes what a Service no longer asks for, before anything else of it is changed.

var _ services.Narrower[*observed] = (*reconciler)(nil)

// Sources of rules that are no networks.
const (
	sourceInternet = "Internet"
	sourceAny      = "*"
)

// clients are the sources that may connect: networks, and service tags.
type clients struct {
	networks sources.Set
	tags     []string
	// whole is set where nothing else is wrong with the Service, so that all of them may connect from now on.
	whole bool
}

// narrow returns which sources of a rule stay, and which requested ones to add, when others are to be removed.
func (c clients) narrow(have []string, ipv6 bool) (after []string, narrower bool) {
	everybody := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if ipv6 {
		everybody = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	var networks []netip.Prefix
	all := c.whole // whether all service tags are let in
	for _, source := range have {
		p, err := netip.ParsePrefix(source)
		switch {
		case err == nil:
			networks = append(networks, p)
		case slices.Contains(c.tags, source): // it may be that of the internet
			after = append(after, source)
		case source == sourceInternet || source == sourceAny:
			networks, all = append(networks, everybody), true
		default:
			narrower = true
		}
	}
	asked := c.networks.Families(!ipv6, ipv6)
	left, closes := asked.Narrow(networks, c.whole)
	if narrower = narrower || closes; !narrower {
		return have, false
	}
	if !closes && c.whole && !asked.Partial() {
		left = asked.Networks()
	}
	for _, p := range left {
		after = append(after, p.String())
	}
	if all {
		after = append(after, c.tags...)
	}
	return slices.Compact(slices.Sorted(slices.Values(after))), true
}

// Narrowing takes the addresses of a Service out of rules with sources that it no longer lets in.
func (r *reconciler) Narrowing(_ context.Context, q services.Request, o *observed) ([]change, error) {
	s := &o.settings
	good, bad := s.ranges(q.Service)
	restricted := len(s.ServiceTags)+len(good) > 0
	if o.group == nil || s.NoSecurity || !restricted {
		return nil, nil
	}
	asked := clients{sources.New(good, len(bad) > 0), s.ServiceTags, q.Purpose != services.Narrow}
	d := newDesired(q.Service, s)
	k := r.claimOf(q, o, nil)
	var denied []access
	if d.denies() {
		denied = accesses(*d, o.servedAddresses(d.Base))
	}
	return r.groupChange(o, func(group *securityGroup, now clusterState) error {
		return keepUnless(k.sparingOthers(q, o, now).narrow(group, asked, denied))
	})
}

// servedAddresses are the addresses of a Service's own frontends.
func (o *observed) servedAddresses(base string) (list []string) {
	for _, f := range frontsOf(o.lbs...) {
		if ip := o.ipOf(f); ip != "" && ownedBy(base, f.Name) {
			list = append(list, ip)
		}
	}
	return list
}

// narrow takes a Service out of rules with sources other than the requested ones. Requested sources get a rule of their own if there is
// room, as many as fit. denied are the rules of a Service that denies all others.
func (c claim) narrow(group *securityGroup, asked clients, denied []access) (changed bool, err error) {
	kept := []*securityRule{}
	var split, inside []access
	for _, rule := range group.Properties.Rules {
		before := accessOf(rule)
		sources, narrower := asked.narrow(before.sources, before.ipv6)
		if !isManaged(rule) || !narrower || !strings.EqualFold(rule.Properties.Access, "Allow") {
			kept = append(kept, rule)
			continue
		}
		stays, parts, touched := withdrawFromRule(rule, c, nil)
		split, changed = append(split, parts...), changed || touched
		if stays {
			before.destinations = slices.DeleteFunc(before.destinations, func(d string) bool { return slices.Contains(rule.destinations(), d) })
			kept = append(kept, rule)
		}
		inside = append(inside, before.withSources(asked.splitForRules(sources), parts)...)
	}
	if slices.ContainsFunc(denied, func(a access) bool { return a.deny && !a.isIn(kept) }) {
		inside, changed = append(inside, denied...), true
	}
	if !changed {
		return false, nil
	}
	if kept, err = grantAll(kept, split); err != nil { // other Services need them
		return false, err
	}
	group.Properties.Rules = kept
	grantAsManyAsFit(group, inside)
	return true, nil
}

// grantAsManyAsFit puts rules into a security group, with as many sources as there is room for.
func grantAsManyAsFit(group *securityGroup, list []access) {
	if grantIfRoom(group, list) {
		return
	}
	for _, a := range mergeDestinations(list) {
		room := azurelimits.Sources.Max - countSources(group.Properties.Rules)
		if !a.deny && !grantIfRoom(group, []access{a}) {
			a.sources = a.sources[:max(0, min(len(a.sources), room))]
		}
		if a.deny || len(a.sources) > 0 {
			grantIfRoom(group, []access{a})
		}
	}
}

// grantIfRoom puts rules into a security group if there is room for all of them.
func grantIfRoom(group *securityGroup, list []access) bool {
	all, err := grantAll(clone(group).Properties.Rules, list)
	if err != nil || checkSize(all) != nil {
		return false
	}
	group.Properties.Rules = all
	return true
}

// mergeDestinations makes accesses that differ in their destinations one, whose sources count once.
func mergeDestinations(list []access) (merged []access) {
	for _, a := range list {
		at := slices.IndexFunc(merged, func(m access) bool { return m.name() == a.name() })
		if at < 0 {
			a.destinations = slices.Clone(a.destinations)
			merged = append(merged, a)
			continue
		}
		merged[at].destinations = append(merged[at].destinations, a.destinations...)
	}
	return merged
}

// splitForRules returns sources as rules have them: each service tag has one, and all networks have one.
func (c clients) splitForRules(list []string) (all [][]string) {
	var networks []string
	for _, source := range list {
		if slices.Contains(c.tags, source) {
			all = append(all, []string{source})
		} else {
			networks = append(networks, source)
		}
	}
	if len(networks) > 0 {
		all = append(all, networks)
	}
	return all
}

// withSources returns the rules for what was taken out of one, with other sources; parts are what other Services still need of it.
func (a access) withSources(sources [][]string, parts []access) (all []access) {
	for _, d := range a.destinations {
		own := a
		own.destinations = []string{d}
		own.ports = slices.DeleteFunc(slices.Clone(a.ports), func(p string) bool {
			return slices.ContainsFunc(parts, func(o access) bool { return slices.Contains(o.destinations, d) && slices.Contains(o.ports, p) })
		})
		for _, s := range sources {
			own.sources = s
			all = append(all, own)
		}
	}
	return all
}

// isIn reports whether the rule of an access has all of its destinations.
func (a access) isIn(rules []*securityRule) bool {
	rule := findByName(rules, a.name())
	return rule != nil && !slices.ContainsFunc(a.destinations, func(d string) bool { return !slices.Contains(rule.destinations(), d) })
}

func grantAll(rules []*securityRule, list []access) (after []*securityRule, err error) {
	for _, a := range list {
		if rules, _, err = grantAccess(rules, a); err != nil {
			return rules, err
		}
	}
	return rules, nil
}

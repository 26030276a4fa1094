package ibm

import (
	"context"
	"net/netip"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	kitsources "github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// This file shuts out clients that a Service no longer allows, before other changes.

var _ services.Narrower[observed] = (*reconciler)(nil)

// Narrowing implements services.Narrower, in the Service's own security group. It creates that group unless the
// user names or named others.
func (r *reconciler) Narrowing(ctx context.Context, req services.Request, o observed) ([]change, error) {
	asked, _ := kitsources.Parse(kitsources.Field, req.Service.Spec.LoadBalancerSourceRanges)
	if !asked.Restricts() || !o.lb.filtersByOwnGroup(groupName(r.api.config.Cluster, req.Service), o.settings) {
		return nil, nil
	}
	return r.security.narrow(ctx, req, o, asked.Families(true, false))
}

// narrow returns the changes after which a load balancer admits only clients that are allowed and were admitted before.
func (sg *securityGroups) narrow(ctx context.Context, req services.Request, o observed, asked kitsources.Set) ([]change, error) {
	s, name := o.settings, groupName(sg.api.config.Cluster, req.Service)
	query := inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge}
	have, err := sg.findOwn(ctx, req.Service, s, o.lb, query)
	if err != nil || have == nil && s.Groups != "" {
		return nil, err
	}
	a := access{name: name, own: have, wanted: []reference{{Name: name}}}
	if have != nil {
		a.wanted[0].ID = have.ID
	}
	if a.attached, err = sg.groupsOf(ctx, o.lb, a.wanted); err != nil {
		return nil, err
	}
	if s.Groups != "" {
		a.wanted = a.attached // until the requested groups are attached
	}
	before, err := sg.rulesOf(ctx, a.attached, have, query)
	if err != nil {
		return nil, err
	}
	own := len(a.attached) == 1 && have != nil
	ports := s.ports(req.Service, o.lb.isNetwork())
	served := ports
	if !own {
		served = sg.addServedPorts(ctx, ports, o.lb, before)
	}
	rules, narrower := narrowRules(before, served, asked, own)
	if !narrower {
		return nil, nil
	}
	a.rules = rules
	if req.Purpose != services.Narrow {
		a.rules = wholeRules(req, ports, a.rules)
	}
	if have == nil {
		if a.vpc, err = sg.instances.vpc(ctx); err != nil {
			return nil, err
		}
	}
	return sg.narrowing(a), nil
}

// wholeRules returns the rules of the whole Service, or the narrowed ones if these cannot be computed, are too many, or if former ports are
// still served.
func wholeRules(req services.Request, ports []port, narrowed []rule) []rule {
	networks, err := sources(req.Service)
	former := slices.ContainsFunc(narrowed, func(r rule) bool {
		return r.Direction == inbound && !slices.ContainsFunc(ports, func(p port) bool {
			return p.protocol == r.Protocol && p.port <= r.PortMin && r.PortMax <= p.max
		})
	})
	if whole := rulesFor(ports, networks); err == nil && !former && len(whole) <= ibmlimits.Rules.Max {
		return whole
	}
	return narrowed
}

// filtersByOwnGroup reports whether the Service's own security group can decide who connects. It is unknown what groups that the user named
// before admit.
func (lb *loadBalancer) filtersByOwnGroup(name string, s settings) bool {
	return lb != nil && lb.takesGroups() == nil && (lb.hasGroup(name) || s.Groups == "" && !s.isRecorded(annotationGroups))
}

// rulesOf returns the rules of attached groups.
func (sg *securityGroups) rulesOf(ctx context.Context, has []reference, own *securityGroup, q inventory.Query) (list []rule, err error) {
	for _, n := range has {
		if own != nil && own.ID == n.ID {
			list = append(list, own.Rules...)
			continue
		}
		g, err := sg.groups.Get(ctx, n.ID, q)
		if err != nil {
			return nil, err
		}
		list = append(list, g.Rules...)
	}
	return list, nil
}

// addServedPorts adds ports that a load balancer still serves; if they cannot be read, the ports of rules.
func (sg *securityGroups) addServedPorts(ctx context.Context, ports []port, lb *loadBalancer, rules []rule) []port {
	var served []portKey
	if _, parts, err := sg.partsOf(ctx, lb); err == nil {
		for _, l := range parts.listeners {
			served = append(served, l.key())
		}
	} else {
		for _, one := range rules {
			served = append(served, portKey{protocolTCP, one.PortMin, one.PortMax}, portKey{protocolUDP, one.PortMin, one.PortMax})
		}
	}
	for _, k := range served {
		if !slices.ContainsFunc(ports, func(p port) bool { return p.key() == k }) {
			ports = append(ports, port{protocol: k.protocol, port: k.port, max: k.max})
		}
	}
	return ports
}

// narrowRules returns rules for the Service's own group that admit no new client, and whether they shut anybody out. Replacing other groups
// counts as that.
func narrowRules(before []rule, ports []port, asked kitsources.Set, own bool) (after []rule, narrower bool) {
	if !own {
		for _, p := range ports {
			var networks []netip.Prefix
			for _, r := range before {
				if network, is := r.network(); is && r.admits(p) {
					networks = append(networks, network)
				}
			}
			networks, _ = asked.Narrow(networks, false)
			after = append(after, rulesOn([]port{p}, networks)...)
		}
		return slices.Concat(outboundRules(), after[:min(len(after), ibmlimits.Rules.Max-len(outboundRules()))]), true
	}
	type kind struct {
		protocol string
		min, max int
	}
	from := map[kind][]netip.Prefix{}
	var kinds []kind
	for _, r := range before {
		network, is := r.network()
		k := kind{r.Protocol, r.PortMin, r.PortMax}
		switch {
		case r.Direction == outbound:
			after = append(after, r)
		case !is: // created by somebody else
			narrower = true
		default:
			if from[k] == nil {
				kinds = append(kinds, k)
			}
			from[k] = append(from[k], network)
		}
	}
	for _, k := range kinds {
		networks, closes := asked.Narrow(from[k], false)
		narrower = narrower || closes
		after = append(after, rulesOn([]port{{protocol: k.protocol, port: k.min, max: k.max}}, networks)...)
	}
	return after[:min(len(after), ibmlimits.Rules.Max)], narrower
}

// network returns the network that an inbound rule admits; false for other rules.
func (r rule) network() (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(r.normalize().Remote.CIDR)
	return p.Masked(), err == nil && r.Direction == inbound
}

// rulesOn returns rules that let networks reach ports.
func rulesOn(ports []port, networks []netip.Prefix) (list []rule) {
	var texts []string
	for _, n := range networks {
		texts = append(texts, n.String())
	}
	slices.Sort(texts)
	return clientRules(ports, slices.Compact(texts))
}

// narrowing returns the changes after which a load balancer has only a group of its own with these rules.
func (sg *securityGroups) narrowing(a access) []change {
	d := desired{access: a}
	list := sg.ownGroupChanges(d)
	if a.own != nil {
		if bindings := sg.bindings(d); len(bindings) > 0 {
			list = append(list, bindings...)
			return []change{sequence(list[0], list[1:])} // without its rules the group would admit nobody
		}
		return list
	}
	creation := list[0]
	create := creation.Make
	creation.Replan = false
	creation.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		o, err := create(ctx, req, o)
		if err != nil {
			return o, err
		}
		made, err := sg.findListed(ctx, req.Service, inventory.Query{MaxAge: observedMaxAge})
		if err != nil || made == nil {
			return o, err
		}
		own := a
		own.own, own.wanted = made, []reference{{ID: made.ID, Name: made.Name}}
		bindings := sg.bindings(desired{access: own})
		return sequence(bindings[0], bindings[1:]).Make(ctx, req, o)
	}
	return []change{creation}
}

// sequence combines changes into one that stops at the first error.
func sequence(first change, others []change) change {
	begin := first.Make
	first.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		o, err := begin(ctx, req, o)
		for _, c := range others {
			if err == nil {
				o, err = c.Make(ctx, req, o)
			}
		}
		return o, err
	}
	return first
}

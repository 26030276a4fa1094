package aws

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	kitsources "github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// This file closes what a Service no longer asks for, before anything else of it is changed.

var (
	_ services.Narrower[observed] = (*networkReconciler)(nil)
	_ services.Narrower[observed] = (*classicReconciler)(nil)
)

// mayBeSubnet reports whether a subnet of a VPC can be as large as a network.
func mayBeSubnet(p netip.Prefix) bool {
	return p.Bits() >= 16 && (p.Addr().Is4() || p.Bits() >= 44)
}

// Narrowing implements services.Narrower: in the group of the load balancer itself, and in those of the nodes.
func (c *networkReconciler) Narrowing(ctx context.Context, r services.Request, o observed) (changes []change, err error) {
	asked, _ := kitsources.ForService(r.Service, annotationSourceRanges)
	if !asked.Restricts() || o.network == nil || o.groups == nil {
		return nil, nil
	}
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	changes = c.narrowOwnGroup(id, r, o, managedGroupName(r.Cluster, r.Service), asked)
	if c.config.NoNodeGroupRules {
		return changes, nil
	}
	n, err := c.narrowNodes(ctx, r.Service, id, o, asked, r.Purpose != services.Narrow)
	rules := nodeRules{decide: n.change}
	for _, g := range groupsByID(o.groups) {
		change := n.change(g)
		rules.due = append(rules.due, change)
		for _, f := range change.doubtFindings() {
			if r.Purpose == services.Narrow { // nothing else reports what stays
				err = errors.Join(err, errors.New(f.Message))
			}
		}
	}
	changes = append(changes, c.groups.nodeRuleChanges(rules, opening)...)
	return append(changes, c.groups.nodeRuleChanges(rules, closing)...), err
}

// Narrowing implements services.Narrower, in the group of the load balancer itself: nodes let that in, and no clients.
func (c *classicReconciler) Narrowing(ctx context.Context, r services.Request, o observed) (changes []change, err error) {
	asked, _ := kitsources.ForService(r.Service, annotationSourceRanges)
	if !asked.Restricts() || o.classic == nil {
		return nil, nil
	}
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.narrowOwnGroup(id, r, o, classicGroupName(loadBalancerName(r.Service)), asked), nil
}

// narrowOwnGroup narrows the group that was made for a load balancer.
func (c *shared) narrowOwnGroup(id *identity, r services.Request, o observed, groupName string, asked kitsources.Set) (changes []change) {
	mine := ownFrontRule(descriptionFront + loadBalancerName(r.Service))
	rules := nodeRules{decide: func(g securityGroup) ruleChange {
		return narrowFrontRules(g, mine, asked, r.Purpose != services.Narrow)
	}}
	for _, g := range groupsByID(o.groups) {
		if g.name == groupName && id.isOwned(g.tags) {
			rules.due = append(rules.due, rules.decide(g))
		}
	}
	return append(c.groups.nodeRuleChanges(rules, opening), c.groups.nodeRuleChanges(rules, closing)...)
}

// narrowFrontRules decides about the rules for clients of one group, each port and family by itself.
func narrowFrontRules(g securityGroup, mine func(rule) bool, asked kitsources.Set, whole bool) ruleChange {
	front := func(r rule) bool { _, err := netip.ParsePrefix(r.source.cidr); return err == nil && mine(r) }
	have := map[rule][]netip.Prefix{} // by what else their rules say
	for _, r := range g.rules {
		if front(r) {
			have[r.forFamily()] = append(have[r.forFamily()], netip.MustParsePrefix(r.source.cidr))
		}
	}
	kinds := slices.SortedFunc(maps.Keys(have), func(a, b rule) int { // EC2 lists them in any order
		return cmp.Or(
			strings.Compare(b.protocol, a.protocol), int(a.from-b.from),
			strings.Compare(a.source.cidr, b.source.cidr), strings.Compare(a.description, b.description),
		)
	})
	var want []rule
	for _, kind := range kinds {
		after, narrower := asked.Families(!kind.v6(), kind.v6()).Narrow(have[kind], whole)
		if !narrower {
			delete(have, kind)
			continue
		}
		for _, p := range after {
			want = append(want, kind.forNetwork(p.String()))
		}
	}
	c := exactChange(g, want, func(r rule) bool { return front(r) && have[r.forFamily()] != nil })
	c.partly = true
	return c
}

// nodeNarrowing holds the rules that a network load balancer still needs in the groups of nodes.
type nodeNarrowing struct {
	name     string
	rules    []rule
	optional ruleKeys
	// former are the ports that the Service does not ask for any more, and checks those of health checks.
	former map[rule]desiredListener
	checks []int32
	// complete is set where the load balancer's subnets are known, and whole where all that is needed may be opened.
	complete, whole bool
	others          otherRules
}

// narrowNodes finds out what a network load balancer needs. With an error its subnets are not known.
func (c *networkReconciler) narrowNodes(
	ctx context.Context, service *v1.Service, id *identity, o observed, asked kitsources.Set, whole bool,
) (n nodeNarrowing, err error) {
	s := o.settings
	s.ranges = asked.Networks()
	v6 := targetFamily(service) == addressIPv6
	listeners := networkListeners(id.clusterID, service, s, c.config)
	former := formerListeners(loadBalancerName(service), o.groups, listeners)
	for _, port := range slices.SortedFunc(maps.Keys(former), compareRules) {
		listeners = append(listeners, former[port])
	}
	subnets, complete, err := c.vpc.cidrsOf(ctx, subnetsOf(o.network), v6)
	n = nodeNarrowing{
		name: loadBalancerName(service), former: former, checks: checkPorts(listeners), complete: complete && err == nil,
		whole: whole && !asked.Partial(), others: c.nodeRules().otherLoadBalancers(ctx, id, loadBalancerName(service)),
	}
	if len(asked.Families(!v6, v6).Networks()) > 0 {
		n.rules, n.optional = c.nodeRules().rulesFor(service, s, o.network, listeners, subnets)
	}
	return n, err
}

// portOf is the port of a rule, whoever may connect.
func portOf(r rule) rule { return rule{protocol: r.protocol, from: r.from, to: r.to} }

// nodePorts are the ports of nodes to which listeners lead.
func nodePorts(listeners []desiredListener) ruleKeys {
	ports := ruleKeys{}
	for _, l := range listeners {
		for _, protocol := range l.transports() {
			ports[rule{protocol: protocol, from: l.group.port, to: l.group.port}] = true
		}
	}
	return ports
}

// compareRules is the order of ports.
func compareRules(a, b rule) int {
	return cmp.Or(int(a.from-b.from), strings.Compare(a.protocol, b.protocol))
}

// formerListeners stand for the ports that nodes still open to clients, and that the Service does not ask for any more: the load balancer
// may still lead there.
func formerListeners(name string, groups map[string]securityGroup, listeners []desiredListener) map[rule]desiredListener {
	former, asked := map[rule]desiredListener{}, nodePorts(listeners)
	for _, g := range groups {
		for _, r := range g.rules {
			if of, health := ruleOf(r); of == name && !health && !asked[portOf(r)] {
				group := desiredTargetGroup{protocol: strings.ToUpper(r.protocol), port: r.from}
				former[portOf(r)] = desiredListener{port: r.from, protocol: group.protocol, group: group}
			}
		}
	}
	return former
}

// change decides about one group. Former ports are closed when the load balancer has left them, and open to nobody who was not let in.
func (n nodeNarrowing) change(g securityGroup) ruleChange {
	c := ruleChange{group: g, partly: true}
	have, wanted := keysOf(g.rules), keysOf(n.rules)
	for _, r := range g.rules {
		name, health := ruleOf(r)
		if name == n.name && !health && !wanted[r.key()] && !n.optional[r] && n.mayClose(r) {
			c.remove = append(c.remove, r)
		}
	}
	if c = n.others.withoutNeeded(c); len(c.remove) == 0 {
		return c
	}
	for _, w := range n.rules {
		_, former := n.former[portOf(w)]
		opens := func(r rule) bool {
			return r.protocol == w.protocol && r.from == w.from && (n.whole && !former || r.contains(w))
		}
		if slices.ContainsFunc(c.remove, opens) && have.addIfNew(w) {
			c.add = append(c.add, w)
		}
	}
	m := mtuChange(c.result())
	c.add, c.remove = append(c.add, m.add...), append(c.remove, m.remove...)
	return c
}

// mayClose reports whether a rule for clients may go because no requested rule contains it. If the load balancer's subnets are unknown,
// rules that could be for a subnet or for health checks stay.
func (n nodeNarrowing) mayClose(r rule) bool {
	p, err := netip.ParsePrefix(r.source.cidr)
	if err != nil || !n.complete && (mayBeSubnet(p) || slices.Contains(n.checks, r.from)) {
		return false
	}
	return !slices.ContainsFunc(n.rules, func(w rule) bool { return w.protocol == r.protocol && w.from == r.from && w.contains(r) })
}

// contains reports whether the network of a rule contains that of another one.
func (r rule) contains(o rule) bool {
	outer, err := netip.ParsePrefix(r.source.cidr)
	inner, other := netip.ParsePrefix(o.source.cidr)
	return cmp.Or(err, other) == nil && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// forNetwork is a rule alike for another network.
func (r rule) forNetwork(cidr string) rule {
	r.source.cidr = cidr
	return r
}

// forFamily is a rule alike for the whole family of its network.
func (r rule) forFamily() rule {
	if r.v6() {
		return r.forNetwork("::/0")
	}
	return r.forNetwork("0.0.0.0/0")
}

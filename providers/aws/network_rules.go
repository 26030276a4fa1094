package aws

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// This file decides about the rules of nodes' security groups for network load balancers, and calls nobody.

// desiredNodeRules holds the rules that a network load balancer needs in the security groups of nodes.
type desiredNodeRules struct {
	name  string
	rules []rule
	// optional are rules that are not made, and stay where they are.
	optional ruleKeys
	// sharedPort is the port of a health check that several load balancers share; 0 if there is none.
	sharedPort int32
	// partial is set where not all that is needed is known, so that nothing is removed.
	partial bool
	// deleting is set where the load balancer is being deleted.
	deleting bool
}

// networkNodeRules are the rules of the nodes for clients and health checks. subnets are the networks of the load balancer. optional are
// checks of ports that are open anyway; AWS's own controller makes some, so existing ones stay. hidden: clients arrive with addresses of
// the load balancer.
func networkNodeRules(
	name string, listeners []desiredListener, ranges, subnets []netip.Prefix, hidden bool,
) (rules []rule, optional ruleKeys) {
	var clients, checks []rule
	taken := ruleKeys{}
	optional = ruleKeys{}
	add := func(list *[]rule, r rule) {
		if taken.addIfNew(r) {
			*list = append(*list, r)
		}
	}
	everyone := len(ranges) == 1 && ranges[0].Bits() == 0
	open := map[int32]bool{} // TCP ports that everybody gets in to
	for _, l := range listeners {
		from := ranges
		if hidden && !everyone {
			from = slices.Concat(ranges, subnets)
		}
		for _, protocol := range l.transports() {
			open[l.group.port] = open[l.group.port] || everyone && protocol == protocolTCP
			for _, p := range from {
				add(&clients, rule{protocol, l.group.port, l.group.port, ruleSource{cidr: p.String()}, descriptionClient + name})
			}
		}
	}
	for _, port := range checkPorts(listeners) {
		for _, p := range subnets {
			check := rule{protocolTCP, port, port, ruleSource{cidr: p.String()}, descriptionHealth + name}
			if open[port] {
				optional[check.key()] = true
			} else {
				add(&checks, check)
			}
		}
	}
	return slices.Concat(clients, checks), optional
}

// checkPorts are the ports on nodes that health checks use.
func checkPorts(listeners []desiredListener) []int32 {
	var ports []int32
	for _, l := range listeners {
		port := l.group.port
		if n, err := strconv.ParseInt(l.group.check.port, 10, 32); err == nil {
			port = int32(n)
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// otherRules holds the rules of other network load balancers in the security groups of nodes.
type otherRules struct {
	// names are those of the cluster's other network load balancers.
	names []string
	// needs returns the rules for some ports that they cannot do without. An equal rule is there once, with the name of whoever came
	// first.
	needs func(ports map[int32]bool) neededRules
	// gone reports whether no load balancer has a name any more.
	gone func(name string) bool
}

// neededRules are the rules that network load balancers of Services need, and the optional ones that they leave alone.
type neededRules struct {
	rules, optional ruleKeys
	doubts          []doubt
}

// doubt is about a Service whose settings or subnets cannot be read, so that the needs of its load balancer are unknown.
type doubt struct {
	service string
	// ports are its own ones on nodes.
	ports ruleKeys
	// checks are the ports that it has checked from the subnets, whoever else they belong to; nil where they are unknown.
	checks  []int32
	subnets []netip.Prefix
	// hidden is set where not all subnets are known.
	hidden bool
}

// mayNeed reports whether the Service may depend on a rule.
func (d doubt) mayNeed(r rule) bool {
	p, err := netip.ParsePrefix(r.source.cidr)
	checked := r.protocol == protocolTCP && (d.checks == nil || slices.Contains(d.checks, r.from))
	return d.ports[portOf(r)] || checked && err == nil && (slices.Contains(d.subnets, p) || d.hidden && mayBeSubnet(p))
}

// isGone reports whether a rule is left of a load balancer that is gone.
func (o otherRules) isGone(name string) bool { return o.gone != nil && o.gone(name) }

// withoutNeeded leaves out of a change the removal of rules that another load balancer needs, or may need.
func (o otherRules) withoutNeeded(c ruleChange) ruleChange {
	if len(c.remove) == 0 || len(o.names) == 0 {
		return c
	}
	ports := map[int32]bool{}
	for _, r := range c.remove {
		ports[r.from] = true
	}
	needed := o.needs(ports)
	c.remove = slices.DeleteFunc(c.remove, func(r rule) bool {
		at := slices.IndexFunc(needed.doubts, func(d doubt) bool { return d.mayNeed(r) })
		if at < 0 || needed.rules[r.key()] {
			return needed.rules[r.key()]
		}
		c.doubted, c.doubtOf = append(c.doubted, r), needed.doubts[at].service
		return true
	})
	return c
}

// isOwn reports whether a rule was made for the load balancer, and may go where it is not wanted any more. others are the names
// of the cluster's other network load balancers.
func (w desiredNodeRules) isOwn(r rule, others []string) bool {
	name, health := ruleOf(r)
	switch {
	case w.isIgnored(r) || name == "":
		return false
	case health && r.from == w.sharedPort && w.sharedPort != 0:
		return len(others) == 0 // it serves whoever is left, and is removed with the last
	}
	return name == w.name
}

// isIgnored reports whether a rule is left alone.
func (w desiredNodeRules) isIgnored(r rule) bool {
	return w.partial || w.optional[r.key()] || w.optional[r]
}

// networkNodeChange decides about one security group of nodes.
func networkNodeChange(g securityGroup, want desiredNodeRules, others otherRules) ruleChange {
	mine := func(r rule) bool { return want.isOwn(r, others.names) }
	c := exactChange(g, want.rules, mine)
	if len(c.remove) > 0 || want.deleting {
		// What the load balancer used of one that went before is looked at as well.
		c = exactChange(g, want.rules, func(r rule) bool {
			name, _ := ruleOf(r)
			former := name != "" && name != want.name && r.from != want.sharedPort && !want.isIgnored(r)
			return mine(r) || (former && others.isGone(name))
		})
		c = others.withoutNeeded(c)
	}
	if c.isEmpty() {
		return c
	}
	m := mtuChange(c.result())
	c.add, c.remove = append(c.add, m.add...), append(c.remove, m.remove...)
	return c
}

// mtuChange returns the missing and the surplus rules of a group for path MTU discovery, one for each network of clients.
func mtuChange(g securityGroup) ruleChange {
	taken := ruleKeys{}
	var mtu []rule
	for _, r := range g.rules {
		one := rule{protocolICMP, fragmentationType, fragmentationCode, ruleSource{cidr: r.source.cidr}, descriptionMTU}
		if strings.HasPrefix(r.description, descriptionClient) && r.source.cidr != "" && !r.v6() && taken.addIfNew(one) {
			mtu = append(mtu, one)
		}
	}
	return exactChange(g, mtu, func(r rule) bool { return r.description == descriptionMTU })
}

// ruleOf is the name of the network load balancer that a rule was made for; "" if it was made for none. health is set where it
// lets health checks in.
func ruleOf(r rule) (name string, health bool) {
	if name, client := strings.CutPrefix(r.description, descriptionClient); client {
		return name, false
	}
	if name, health = strings.CutPrefix(r.description, descriptionHealth); !health {
		return "", false
	}
	return name, health
}

// belongsToLoadBalancer reports whether a rule was made for a network load balancer.
func belongsToLoadBalancer(r rule, name string) bool {
	of, _ := ruleOf(r)
	return of == name
}

// hasRuleOf reports whether a group has a rule that was made for a network load balancer.
func hasRuleOf(g securityGroup, name string) bool {
	return slices.ContainsFunc(g.rules, func(r rule) bool { return belongsToLoadBalancer(r, name) })
}

// noNodeRules returns the needs of a load balancer that is being deleted: none.
func noNodeRules(name string, c Config) desiredNodeRules {
	d := desiredNodeRules{name: name, deleting: true}
	if c.HealthProbeMode == probeShared {
		d.sharedPort = int32(c.SharedProbePort) //nolint:gosec // the table bounds it
	}
	return d
}

// transports are the protocols of a listener as security groups know them, to which TLS is TCP.
func (l desiredListener) transports() []string {
	switch l.group.protocol {
	case "UDP":
		return []string{protocolUDP}
	case protocolBoth:
		return []string{protocolTCP, protocolUDP}
	}
	return []string{protocolTCP}
}

// networkFrontRules returns the ingress rules of a network load balancer. TLS is TCP to a security group.
func networkFrontRules(d desiredNetwork, s settings) []rule {
	var ports []frontPort
	for _, l := range d.listeners {
		for _, protocol := range l.transports() {
			ports = append(ports, frontPort{protocol, l.port})
		}
	}
	return frontRules(ports, rangesOf(s, d.addressType == addressDualStack), descriptionFront+d.name)
}

package openstack

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

var _ services.Narrower[observation] = (*loadBalancers)(nil)

// narrowing is who may connect from now on. Where it is whole, all of them may, and otherwise none who could not before.
type narrowing struct {
	sources.Set

	whole bool
}

// Narrowing implements services.Narrower: in listeners, and with ovn, which keeps the client's address, in the security group.
func (l *loadBalancers) Narrowing(ctx context.Context, r services.Request, o observation) ([]change, error) {
	asked, _ := sources.ForService(r.Service, annotationSourceRanges)
	if o.lb == nil || !asked.Restricts() {
		return nil, nil
	}
	n := narrowing{asked, r.Purpose != services.Narrow}
	inGroups := l.config.LoadBalancer.Provider == providerOVN && l.config.LoadBalancer.ManageSecurityGroups
	inListeners := o.features.acl(o.lb.providerOr(l.config.LoadBalancer.Provider)) && o.lb.Status != statusError // which Octavia never changes
	if !inGroups && !inListeners {
		return nil, nil
	}
	parts, err := o.parts, error(nil)
	if parts == nil {
		parts, err = l.glance(ctx, o.lb)
	}
	var changes []change
	if inGroups {
		var groupErr error
		changes, groupErr = l.narrowGroups(ctx, r.Service, o, parts, n)
		err = errors.Join(err, groupErr)
	}
	if parts == nil || !inListeners {
		return changes, err
	}
	n.Set, _ = ofFamilies(n.Set, r.Service, o.lb)
	var steps []step
	for _, have := range parts.listeners {
		if st, due := n.listenerStep(o.lb, have); due && o.role.mine(have) {
			steps = append(steps, st)
		}
	}
	listeners := l.stepChanges(o.lb, parts, steps)
	for i, st := range steps {
		listeners[i].Make = func(ctx context.Context, r *services.Request, o observation) (observation, error) {
			return l.narrowListener(ctx, r, o, st.id, n)
		}
	}
	return append(changes, listeners...), err
}

// listenerStep takes networks out of the list of a listener. An empty list would let everybody in: where none is left, it gets one that
// no connection comes from.
func (n narrowing) listenerStep(lb *loadBalancer, l listener) (st step, due bool) {
	v6, both := isIPv6(lb.VIPAddress), len(lb.AdditionalVIPs) > 0
	have := l.AllowedCIDRs
	if len(have) == 0 {
		have = []string{everybody(v6)}
		if both {
			have = []string{everybody(false), everybody(true)}
		}
	}
	after, narrower := n.NarrowTexts(have, n.whole)
	if narrower && len(after) == 0 {
		after = []string{nobody(v6)}
	}
	if !narrower || services.SameSet(after, have) {
		return step{}, false
	}
	return step{kind: updateListener, id: l.ID, body: listenerUpdate{AllowedCIDRs: &after}, reason: "allowed_cidrs"}, true
}

// nobody is a network of a family that no connection comes from.
func nobody(v6 bool) string {
	if v6 {
		return "::/128"
	}
	return "0.0.0.0/32"
}

// narrowListener narrows one listener as it is when Octavia can change it.
func (l *loadBalancers) narrowListener(
	ctx context.Context, r *services.Request, o observation, id string, n narrowing,
) (_ observation, err error) {
	for {
		if o.lb.pending() {
			lb, err := l.idle(ctx, o.lb.ID, o.lb.Status)
			if err != nil || lb == nil {
				return o, cmp.Or(err, errWentAway)
			}
			o.lb, o.parts = lb, nil
		}
		if o.parts == nil || o.parts.listed {
			if o.parts, err = l.observe(ctx, o.lb); err != nil {
				return o, err
			}
		}
		at := slices.IndexFunc(o.parts.listeners, func(have listener) bool { return have.ID == id })
		if at < 0 {
			return o, nil
		}
		st, due := n.listenerStep(o.lb, o.parts.listeners[at])
		if !due {
			return o, nil
		}
		if o, err = l.makeStep(ctx, r, o, st, 0); err != nil || o.parts != nil {
			o.settled = err == nil
			return o, err
		}
	}
}

// clientRule is what rules for clients that differ in their networks alone have in common.
type clientRule struct {
	protocol, etherType string
	port                int
}

func (c clientRule) compare(o clientRule) int {
	return cmp.Or(c.port-o.port, strings.Compare(c.protocol, o.protocol), strings.Compare(c.etherType, o.etherType))
}

// clientPorts are the node ports that clients reach: those of the Service, and those that its pools lead to.
func clientPorts(service *v1.Service, d *details, r role) map[clientRule]bool {
	ports := map[clientRule]bool{}
	add := func(protocol string, port int) {
		for _, family := range []string{etherTypeV4, etherTypeV6} {
			ports[clientRule{strings.ToLower(protocol), family, port}] = true
		}
	}
	for _, p := range service.Spec.Ports {
		add(string(p.Protocol), int(p.NodePort))
	}
	if d == nil {
		return ports
	}
	for _, have := range d.listeners {
		if p := d.poolOf(have); p != nil && r.mine(have) {
			for _, m := range p.members.list() {
				add(transportOf(have.Protocol), m.Port)
			}
		}
	}
	return ports
}

// narrowGroups narrows the rules for clients in the security groups of a Service. Each rule is a change: all that opens is tried before
// what closes, and holds it up no more than other rules do.
func (l *loadBalancers) narrowGroups(
	ctx context.Context, service *v1.Service, o observation, d *details, n narrowing,
) (opens []change, err error) {
	groups, err := l.securityGroups(ctx, service, newMaxAge)
	var closes []change
	for _, g := range groups {
		ports := clientPorts(service, d, o.role)
		delete(ports, clientRule{"tcp", etherTypeV4, int(service.Spec.HealthCheckNodePort)}) // health checks come from elsewhere
		delete(ports, clientRule{"tcp", etherTypeV6, int(service.Spec.HealthCheckNodePort)})
		add, remove := n.rules(g, ports)
		for _, rule := range add {
			opens = append(opens, l.ruleOpening(g, rule))
		}
		for _, rule := range remove {
			closes = append(closes, l.ruleClosing(g, rule))
		}
	}
	return append(opens, closes...), err
}

// rules decides about the rules for clients of a group.
func (n narrowing) rules(g securityGroup, ports map[clientRule]bool) (add, remove []securityRule) {
	have := map[clientRule][]netip.Prefix{}
	for _, r := range g.Rules {
		if kind := r.kind(); r.Direction == "ingress" && r.Min == r.Max && ports[kind] {
			have[kind] = append(have[kind], r.network())
		}
	}
	for kind := range have {
		v6 := kind.etherType == etherTypeV6
		after, narrower := n.Families(!v6, v6).Narrow(have[kind], n.whole)
		if !narrower {
			continue
		}
		for _, r := range g.Rules {
			if r.Direction == "ingress" && r.Min == r.Max && r.kind() == kind && !slices.Contains(after, r.network()) {
				remove = append(remove, r)
			}
		}
		for _, p := range after {
			if !slices.Contains(have[kind], p) {
				add = append(add, securityRule{
					Direction: "ingress", EtherType: kind.etherType, Protocol: kind.protocol, Min: kind.port, Max: kind.port, Prefix: p.String(),
				})
			}
		}
	}
	for _, list := range [][]securityRule{add, remove} {
		slices.SortFunc(list, func(a, b securityRule) int {
			return cmp.Or(a.kind().compare(b.kind()), strings.Compare(a.Prefix, b.Prefix))
		})
	}
	return add, remove
}

func (r securityRule) kind() clientRule {
	return clientRule{strings.ToLower(r.Protocol), r.EtherType, r.Min}
}

// network is where a rule lets somebody in from; without any it is everywhere.
func (r securityRule) network() netip.Prefix {
	p, err := netip.ParsePrefix(cmp.Or(r.Prefix, everybody(r.EtherType == etherTypeV6)))
	if err != nil {
		return netip.Prefix{}
	}
	return p.Masked()
}

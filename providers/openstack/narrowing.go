package openstack

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// narrowing holds the clients that may connect during a change: if whole, all desired ones, otherwise only those that could before.
type narrowing struct {
	sources.Set

	whole bool
}

// Narrowing implements services.Narrower: in listeners, and with ovn, which keeps the client's address, in the security group.
func (r *reconciler) Narrowing(ctx context.Context, req services.Request, o observed) ([]change, error) {
	if o.lb == nil || !o.settings.sources.Restricts() {
		return nil, nil
	}
	n := narrowing{o.settings.sources, req.Purpose != services.Narrow}
	inGroups := o.features.isOVN() && r.config.LoadBalancer.ManageSecurityGroups
	inListeners := o.features.hasACL() && o.lb.Status != statusError // Octavia does not change listeners in ERROR
	if !inGroups && !inListeners {
		return nil, nil
	}
	parts, err := o.parts, error(nil)
	if parts == nil {
		parts, err = r.parts.readListed(ctx, o.lb)
	}
	var changes []change
	if inGroups {
		var groupErr error
		changes, groupErr = r.securityGroups.planNarrowing(ctx, req.Service, o, parts, n)
		err = errors.Join(err, groupErr)
	}
	if parts == nil || !inListeners {
		return changes, err
	}
	n.Set, _ = rangesOfFamilies(n.Set, req.Service, o.lb)
	var steps []step
	for _, have := range parts.listeners {
		if st, due := n.listenerStep(o.lb, have); due && o.role.ownsListener(have) {
			steps = append(steps, st)
		}
	}
	listeners := r.writer.stepChanges(o.lb, parts, steps, 0)
	for i, st := range steps {
		listeners[i].Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			return r.writer.narrowListener(ctx, req, o, st.id, n)
		}
	}
	return append(changes, listeners...), err
}

// listenerStep removes networks from a listener's list. An empty list would admit everybody, so it is replaced by an unused network.
func (n narrowing) listenerStep(lb *loadBalancer, l listener) (st step, due bool) {
	v6, both := isIPv6(lb.VIPAddress), len(lb.AdditionalVIPs) > 0
	have := l.AllowedCIDRs
	if len(have) == 0 {
		have = []string{allAddresses(v6)}
		if both {
			have = []string{allAddresses(false), allAddresses(true)}
		}
	}
	after, narrower := n.NarrowTexts(have, n.whole)
	if narrower && len(after) == 0 {
		after = []string{noAddress(v6)}
	}
	if !narrower || services.SameSet(after, have) {
		return step{}, false
	}
	return step{kind: updateListener, id: l.ID, body: listenerUpdate{AllowedCIDRs: &after}, reason: "allowed_cidrs"}, true
}

// noAddress returns a network from which no connection comes.
func noAddress(v6 bool) string {
	if v6 {
		return "::/128"
	}
	return "0.0.0.0/32"
}

// narrowListener narrows one listener as soon as Octavia can change it.
func (w *writer) narrowListener(
	ctx context.Context, req *services.Request, o observed, id string, n narrowing,
) (_ observed, err error) {
	for {
		if o.lb.isPending() {
			lb, err := w.waitUntilIdle(ctx, o.lb.ID, o.lb.Status)
			if err != nil || lb == nil {
				return o, cmp.Or(err, errWentAway)
			}
			o.lb, o.parts = lb, nil
		}
		if o.parts == nil || o.parts.listed {
			if o.parts, err = w.parts.readCurrent(ctx, o.lb); err != nil {
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
		if o, err = w.makeStep(ctx, req, o, st, 0); err != nil || o.parts != nil {
			o.settled = err == nil
			return o, err
		}
	}
}

// clientRule holds the fields shared by security group rules that differ only in their client networks.
type clientRule struct {
	protocol, etherType string
	port                int
}

func (c clientRule) compare(o clientRule) int {
	return cmp.Or(c.port-o.port, strings.Compare(c.protocol, o.protocol), strings.Compare(c.etherType, o.etherType))
}

// clientPorts returns the node ports that clients reach: those of the Service, and those of its pools' members.
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
		if p := d.poolOf(have); p != nil && r.ownsListener(have) {
			for _, m := range p.members.list() {
				add(transportOf(have.Protocol), m.Port)
			}
		}
	}
	return ports
}

// planNarrowing narrows the client rules of a Service's security groups, with one change for each port.
func (sg *securityGroups) planNarrowing(
	ctx context.Context, service *v1.Service, o observed, d *details, n narrowing,
) (changes []change, err error) {
	groups, err := sg.findFor(ctx, service, newMaxAge)
	for _, g := range groups {
		for _, rules := range n.rules(g, service, d, o.role) {
			changes = append(changes, sg.narrowing(g, rules))
		}
	}
	return changes, err
}

// ruleChanges holds the changes to the client rules of one port.
type ruleChanges struct{ add, remove []securityRule }

// rules returns the changes to a group's client rules. Health checks come from other addresses, so their port is excluded.
func (n narrowing) rules(g securityGroup, service *v1.Service, d *details, role role) (list []ruleChanges) {
	ports := clientPorts(service, d, role)
	delete(ports, clientRule{"tcp", etherTypeV4, int(service.Spec.HealthCheckNodePort)})
	delete(ports, clientRule{"tcp", etherTypeV6, int(service.Spec.HealthCheckNodePort)})
	have := map[clientRule][]netip.Prefix{}
	for _, r := range g.Rules {
		if kind := r.kind(); r.Direction == "ingress" && r.Min == r.Max && ports[kind] {
			have[kind] = append(have[kind], r.network())
		}
	}
	for _, kind := range slices.SortedFunc(maps.Keys(have), clientRule.compare) {
		v6 := kind.etherType == etherTypeV6
		after, narrower := n.Families(!v6, v6).Narrow(have[kind], n.whole)
		if !narrower {
			continue
		}
		var c ruleChanges
		for _, r := range g.Rules {
			if r.Direction == "ingress" && r.Min == r.Max && r.kind() == kind && !slices.Contains(after, r.network()) {
				c.remove = append(c.remove, r)
			}
		}
		for _, p := range after {
			if !slices.Contains(have[kind], p) {
				c.add = append(c.add, securityRule{
					Direction: "ingress", EtherType: kind.etherType, Protocol: kind.protocol, Min: kind.port, Max: kind.port, Prefix: p.String(),
				})
			}
		}
		list = append(list, c)
	}
	return list
}

// narrowing returns the change that narrows the clients of a port.
func (sg *securityGroups) narrowing(g securityGroup, c ruleChanges) change {
	return changeOf(g, "narrow who reaches a port", map[string]any{"rules": texts(c.remove)}, map[string]any{"rules": texts(c.add)},
		func(ctx context.Context) error { return sg.narrowRules(ctx, g.ID, c) })
}

// narrowRules first admits the clients that may connect, unless the quota is exhausted, then shuts out the others. A rule stays while a
// temporary failure prevents opening a part of it.
func (sg *securityGroups) narrowRules(ctx context.Context, groupID string, c ruleChanges) error {
	var failed []error
	var later, crowded []securityRule
	for _, r := range c.add {
		err := sg.openRuleAgain(ctx, groupID, r)
		switch {
		case errors.Is(err, cloudapi.ErrQuota):
			crowded = append(crowded, r)
			continue
		case cloudapi.Retryable(err):
			later = append(later, r)
		}
		failed = append(failed, err)
	}
	for _, r := range c.remove {
		covers := func(o securityRule) bool {
			return r.network().Bits() <= o.network().Bits() && r.network().Contains(o.network().Addr())
		}
		if !slices.ContainsFunc(later, covers) {
			failed = append(failed, sg.closeRule(ctx, groupID, r))
		}
	}
	for _, r := range crowded {
		failed = append(failed, sg.openRule(ctx, groupID, r))
	}
	return errors.Join(failed...)
}

// openTries is how often a rule is tried before the rule that it replaces stays.
const openTries = 3

// openRuleAgain adds a rule and retries temporary failures. A call whose response was lost may have succeeded.
func (sg *securityGroups) openRuleAgain(ctx context.Context, groupID string, rule securityRule) (err error) {
	for range openTries {
		if err = sg.openRule(ctx, groupID, rule); err == nil || !cloudapi.Retryable(err) {
			return err
		}
		g, lookErr := sg.Get(ctx, groupID, inventory.Query{})
		if lookErr != nil {
			return errors.Join(err, lookErr)
		}
		if slices.ContainsFunc(g.Rules, rule.equals) {
			return nil
		}
	}
	return err
}

func texts(rules []securityRule) (list []string) {
	for _, r := range rules {
		list = append(list, r.text())
	}
	return list
}

func (r securityRule) kind() clientRule {
	return clientRule{strings.ToLower(r.Protocol), r.EtherType, r.Min}
}

// network returns the addresses that a rule admits; without a prefix all.
func (r securityRule) network() netip.Prefix {
	p, err := netip.ParsePrefix(cmp.Or(r.Prefix, allAddresses(r.EtherType == etherTypeV6)))
	if err != nil {
		return netip.Prefix{}
	}
	return p.Masked()
}

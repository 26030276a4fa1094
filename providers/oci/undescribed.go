package oci

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file is about rules of security lists without a description. Oracle's own controller makes them, and so do people: they go only
// where the cloud shows that a load balancer which that controller made had them, and nobody else who has their port.

// includes reports whether an opening lets in all whom another one lets in.
func (o opening) includes(other opening) bool {
	wide, err := netip.ParsePrefix(o.network)
	narrow, bad := netip.ParsePrefix(other.network)
	o.network = other.network
	return err == nil && bad == nil && o == other && wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
}

// withFormer adds the openings of a list that source ranges narrow: each includes one that is asked for and is not there. For source ranges
// that Oracle's own controller has seen, all are there, so that a takeover closes nothing.
func (c claim) withFormer(list document) claim {
	if c.mark == "" || len(c.served) == 0 {
		return c
	}
	there := openings{}
	for _, v := range listOf(list[ingressField]) {
		rule, _ := v.(document)
		if o, single := openingOf(rule, false); single {
			there[o] = true
		}
	}
	c.former = maps.Clone(c.former)
	for asked := range c.served {
		for o := range there {
			if !there[asked] && o.includes(asked) {
				c.former[o] = true
			}
		}
	}
	return c
}

// serve has claims know what is asked for at the ports that a load balancer has now.
func (r ruleRequest) serve(all map[string]*claim, front, back []place) {
	for _, p := range front {
		maps.Copy(all[p.list].served, r.former.frontOpenings(nil))
	}
	for _, p := range back {
		maps.Copy(all[p.list].served, r.former.backOpenings(nil))
	}
}

// listeners are the ports at which clients come in, or did.
func (r ruleRequest) listeners() map[rulePort]bool {
	all := map[rulePort]bool{}
	for _, p := range slices.Concat(r.access.ports, r.former.ports) {
		all[rulePort{protocol: p.protocol, port: p.port}] = true
	}
	return all
}

// findUndescribed returns the rules without a description that a claim removes from a list.
func (c claim) findUndescribed(list document) []opening {
	_, _, all := c.apply(list)
	c.unmarked = false
	_, _, described := c.apply(list)
	return subtractOpenings(all, described)
}

// subtractOpenings returns a list of openings without those of another one, each as often as it is there.
func subtractOpenings(all, some []opening) []opening {
	for _, o := range some {
		if at := slices.Index(all, o); at >= 0 {
			all = slices.Delete(all, at, at+1)
		}
	}
	return all
}

// seeStrangers has a claim leave the rules without a description whose port others are seen to have, which it returns. Where nobody may
// look, all of them stay.
func (b *ruleBook) seeStrangers(ctx context.Context, c *claim, l securityList) (left []opening, err error) {
	if c.mark == "" || c.strangers != nil {
		return nil, nil
	}
	if left = c.findUndescribed(l.doc); len(left) == 0 {
		return nil, nil
	}
	switch c.strangers, err = b.strangersIn(ctx, *c, l.ID); {
	case unreachable(err):
		c.unmarked = false
		return left, nil
	case err != nil:
		return nil, err
	}
	return slices.DeleteFunc(left, func(o opening) bool { return !c.strangers[rulePort{protocol: o.protocol, port: o.port}] }), nil
}

// strangersIn are the ports that others than the cluster's Services have where a security list counts: load balancers whose rules this
// cluster does not manage, and instances that are no nodes, which may have any port at which clients come in.
func (b *ruleBook) strangersIn(ctx context.Context, c claim, list string) (map[rulePort]bool, error) {
	ours, err := b.cluster.Services(ctx)
	if err != nil {
		return nil, err
	}
	ours = slices.DeleteFunc(slices.Clone(ours), func(service *v1.Service) bool {
		s, _, _ := parseByType(service, b.api.config.SecurityListMode)
		return !s.managesLists()
	})
	beside, err := b.otherBalancers(ctx, append(ours, c.service))
	if err != nil {
		return nil, err
	}
	all := map[rulePort]bool{}
	for _, lb := range beside {
		here, err := b.haveList(ctx, lb.Subnets, list)
		if err != nil {
			return nil, err
		}
		for _, p := range accessThere(lb, nil).ports {
			all[rulePort{protocol: p.protocol, port: p.node}] = true
			if here {
				all[rulePort{protocol: p.protocol, port: p.port}] = true
			}
		}
	}
	hosts, err := b.hostSubnets(ctx)
	if err != nil {
		return nil, err
	}
	here, err := b.haveList(ctx, hosts, list)
	if here {
		maps.Copy(all, c.listeners)
	}
	return all, err
}

// hostSubnets are the subnets of instances that are no nodes.
func (b *ruleBook) hostSubnets(ctx context.Context) (subnets []string, err error) {
	all, _, err := inCompartments[attachment](ctx, b.api, "attached network interfaces", "/vnicAttachments")
	nodes := map[string]bool{}
	for _, n := range b.instances.nodes.Nodes() {
		nodes[instanceKey(n.Spec.ProviderID)] = true
	}
	for _, a := range all {
		if a.State == stateAttached && !nodes[a.Instance] {
			subnets = append(subnets, a.Subnet)
		}
	}
	return subnets, err
}

// haveList reports whether one of some subnets has a security list. One that may not be read may have it.
func (b *ruleBook) haveList(ctx context.Context, subnets []string, list string) (bool, error) {
	for _, id := range subnets {
		s, err := b.subnetOf(ctx, id)
		if unreachable(err) || slices.Contains(s.Lists, list) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// unproved tells of rules that let others in than a Service asks for, that nothing shows to be anybody's, and that no plan removes.
func (b *ruleBook) unproved(ctx context.Context, r ruleRequest, plans []listPlan) (findings []services.Finding, err error) {
	asked, some := clientsOf(services.Request{Service: r.service})
	if !some {
		return nil, nil
	}
	all, at, err := b.beginClaims(ctx, r)
	if err != nil {
		return nil, err
	}
	front, _, err := b.placesOf(ctx, r, r.balancers)
	if err != nil {
		return nil, err
	}
	// Nodes that see the addresses of clients let them in, too. Where it is not known which nodes there are, nothing is told of them.
	var back []place
	if r.access.preserve && !r.frontend {
		ids, _, _ := b.subnetsOf(ctx, r)
		back, _, _ = b.placesOf(ctx, r, ids)
	}
	for _, p := range slices.Concat(front, back) {
		if at(p.list).others, err = b.needsIn(ctx, at(p.list).neighbours, p.list); err != nil {
			return nil, err
		}
	}
	has := func(o opening) bool { return r.access.serves(o) || r.former.serves(o) }
	findings = b.unprovedIn(front, asked, all, plans, has)
	inside := r.access.backOpenings(networksOf(front, r.four, r.six))
	has = func(o opening) bool { return (r.access.servesBy(o) || r.former.servesBy(o)) && !inside[o] }
	return append(findings, b.unprovedIn(back, asked, all, plans, has)...), nil
}

// unprovedIn tells of rules in some places that have is true of, and that let in more than is asked for: those without a description, and
// ours of which nobody can tell whether another Service needs them.
func (b *ruleBook) unprovedIn(
	places []place, asked clients, claims map[string]*claim, plans []listPlan, has func(opening) bool,
) (findings []services.Finding) {
	for _, p := range places {
		l, _ := b.lists.Peek(p.list)
		c := claims[p.list]
		goes := func(o opening) bool {
			return slices.ContainsFunc(plans, func(plan listPlan) bool { return plan.id == p.list && slices.Contains(plan.removed, o) })
		}
		for _, v := range listOf(l.doc[ingressField]) {
			rule, _ := v.(document)
			o, single := openingOf(rule, false)
			if !single || !has(o) || goes(o) {
				continue
			}
			if _, more := asked.asked.NarrowTexts([]string{o.network}, false); !more {
				continue
			}
			said, _ := rule["description"].(string)
			switch {
			case said == "" && !c.others.need(o):
				findings = append(findings, services.Warning(services.EventRangesIgnored, "security list %s lets in %s by a rule without a description, "+
					"which nothing shows to be the Service's, so that it stays: remove it, or describe it if it is to stay", p.list, o.text()))
			case c.mark != "" && slices.Contains(c.marksIn(rule), c.mark) && c.others.doubt(o):
				findings = append(findings, services.Warning(services.EventRangesIgnored, "%v", c.doubtAbout(p.list, o)))
			}
		}
	}
	return findings
}

package oci

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
)

// This file removes the access of clients that a Service no longer allows, before anything else of it is changed.

// clients are the sources that may connect.
type clients struct {
	asked sources.Set
	// whole is set if the Service is valid, so that all of them may connect from now on.
	whole bool
}

// clientsOf returns a Service's clients. some is false if everybody may connect, or if the clients are unknown.
func clientsOf(req services.Request) (c clients, some bool) {
	c.asked, _ = sources.ForService(req.Service, v1.AnnotationLoadBalancerSourceRangesKey)
	c.whole = req.Purpose != services.Narrow
	if c.asked.Partial() {
		return c, len(c.asked.Networks()) > 0
	}
	return c, !slices.Equal(c.asked.Texts(everybody), []string{everybody}) // which alone stands for everybody of all families
}

// narrow returns the openings to add first, and those to remove then, by port and IP version.
func (c clients) narrow(have openings) (add, remove openings) {
	add, remove = openings{}, openings{}
	kindOf := func(o opening, p netip.Prefix) opening {
		o.network = everybody
		if p.Addr().Is6() {
			o.network = everybodyIPv6
		}
		return o
	}
	networks := map[opening][]netip.Prefix{}
	for o := range have {
		if p, err := netip.ParsePrefix(o.network); err == nil {
			kind := kindOf(o, p)
			networks[kind] = append(networks[kind], p.Masked())
		}
	}
	after := map[opening][]netip.Prefix{}
	for kind, some := range networks {
		six := kind.network == everybodyIPv6
		var narrower bool
		after[kind], narrower = c.asked.Families(!six, six).Narrow(some, c.whole)
		for _, p := range after[kind] {
			if narrower && !slices.Contains(some, p) {
				kind.network = p.String()
				add[kind] = true
			}
		}
	}
	for o := range have {
		if p, err := netip.ParsePrefix(o.network); err == nil && !slices.Contains(after[kindOf(o, p)], p.Masked()) {
			remove[o] = true
		}
	}
	return add, remove
}

// Narrowing implements services.Narrower, in the Service's network security group and in security lists.
func (r *reconciler) Narrowing(ctx context.Context, req services.Request, o observed) (all []change, err error) {
	if o.lb == nil || len(o.lb.Addresses) == 0 {
		return nil, nil
	}
	s := o.settings.inVersion(o.lb.Version)
	attached := o.group != nil && slices.Contains(o.lb.Groups, o.group.ID)
	byGroup := !s.managesLists() && !r.lists.hasRules(req.Service.UID) && (s.mode != modeGroups || attached)
	if byGroup && attached && req.Purpose == services.Narrow && s.mode == modeGroups {
		var left []listPlan // otherwise lists close once the group has its rules
		left, err = r.lists.sweep(ctx, req.Service, o.lb)
		all = r.lists.changes(req.Service, left)
	}
	lets, some := clientsOf(req)
	if !some {
		return all, err
	}
	if o.group != nil {
		more, failed := r.groups.narrow(ctx, req.Service, o.group, lets)
		all, err = append(all, more...), errors.Join(err, failed)
	}
	if byGroup {
		return all, err
	}
	nodes := req.Nodes
	if len(nodes) == 0 {
		nodes = r.instances.nodes.Nodes()
	}
	asked := access{ports: portsOf(req.Service), health: healthPort(req.Service), preserve: s.preserve}
	request := s.ruleRequest(req.Service, o.lb, asked, presentAccess(o.lb, lets.asked.Texts(everybody)), s.eligible(nodes))
	request.narrows = true
	plans, failed := r.lists.narrowings(ctx, request, lets)
	if req.Purpose == services.Narrow { // nothing else reports the rules that stay
		failed = errors.Join(failed, r.lists.unprovedError(ctx, request, plans))
	}
	return append(all, r.lists.narrowingChanges(req.Service, plans)...), errors.Join(err, failed)
}

// unprovedError returns the rules that stay open as an error.
func (b *securityLists) unprovedError(ctx context.Context, request ruleRequest, plans []listPlan) error {
	stays, err := b.findUnproved(ctx, request, plans)
	for _, f := range stays {
		err = errors.Join(err, errors.New(f.Message))
	}
	return err
}

// narrow removes access in the group of a load balancer, and in those of the nodes.
func (g *securityGroups) narrow(ctx context.Context, service *v1.Service, group *securityGroup, lets clients) ([]change, error) {
	front, err := g.rules.Get(ctx, group.ID, inventory.Query{MaxAge: observedMaxAge})
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	var opens, closes []change
	var failed []error
	for _, id := range append([]string{group.ID}, backsOf(front.Rules, service)...) {
		there, err := g.rules.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound): // its rules are gone with it
		case err != nil:
			failed = append(failed, err)
		default:
			e := groupEdit{id: id}
			e.add, e.remove = lets.narrowGroup(there.Rules, service)
			open, shut := g.openings([]groupEdit{e}), g.closings([]groupEdit{e})
			g.fillRoom(e, open, shut)
			opens, closes = append(opens, open...), append(closes, shut...)
		}
	}
	return append(opens, closes...), errors.Join(failed...)
}

// fillRoom retries additions that a full group refused, after closings have made room. As many as fit are added.
func (g *securityGroups) fillRoom(e groupEdit, opens, closes []change) {
	if len(closes) == 0 {
		return
	}
	var refused []document
	for i, c := range opens {
		opens[i].Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			after, err := c.Make(ctx, req, o)
			if errors.Is(err, cloudapi.ErrQuota) {
				refused = append(refused, e.add[i*ocilimits.RulesAtOnce.Max:min((i+1)*ocilimits.RulesAtOnce.Max, len(e.add))]...)
				return o, nil
			}
			return after, err
		}
	}
	last := &closes[len(closes)-1]
	shut := last.Make
	last.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		o, err := shut(ctx, req, o)
		for some := range slices.Chunk(refused, ocilimits.RulesAtOnce.Max) {
			_, full := services.AddWhatFits(some, func(some []document) error {
				_, err := g.planAddition(e.id, some).Make(ctx, req, o)
				return err
			})
			err = errors.Join(err, full)
		}
		return o, err
	}
}

// narrowGroup returns the rules to add to a group, and the IDs of those to remove.
func (c clients) narrowGroup(rules []document, service *v1.Service) (add []document, remove []string) {
	have, ids := openings{}, map[opening][]string{}
	for _, d := range rules {
		o, single := openingOf(d, false)
		if single && d["description"] == descriptionFor(service) && d["direction"] == "INGRESS" && d["sourceType"] == sideNetwork {
			have[o], ids[o] = true, append(ids[o], fieldOf[string](d, "id"))
		}
	}
	opens, closes := c.narrow(have)
	for _, o := range opens.sorted() {
		add = append(add, groupRule(service, false, sideNetwork, o.network, o.protocol, o.port))
	}
	for _, o := range closes.sorted() {
		remove = append(remove, ids[o]...)
	}
	return add, remove
}

// addPorts adds the ports of a request, and its node ports if nodes see the addresses of clients.
func (c claim) addPorts(r ruleRequest, networks []string, seen bool) {
	for _, a := range []access{r.access, r.former} {
		a.preserve = false
		maps.Copy(c.wanted, a.backOpenings(networks))
		for _, p := range a.ports {
			c.ports[rulePort{protocol: p.protocol, port: p.port}] = true
			if seen {
				c.ports[rulePort{protocol: p.protocol, port: p.node}] = true
			}
		}
	}
}

// narrowings plans the removal of rules for clients that a Service no longer allows. The plans are valid even if an error is returned too.
func (b *securityLists) narrowings(ctx context.Context, r ruleRequest, lets clients) (plans []listPlan, err error) {
	set, err := b.beginClaims(ctx, r)
	if err != nil {
		return nil, err
	}
	missed := set.missed
	// Nodes that see the addresses of clients admit them, too. The load balancer's own way to them is unknown if one of its subnets is.
	seen := (r.access.preserve || r.former.preserve) && !r.frontend && len(missed) == 0
	var back []subnetList
	if seen {
		if back, missed, err = b.nodeLists(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Concat(set.front, back) {
		set.at(p.list)
	}
	if r.unmarked {
		r.noteServed(set.byList, set.front, back)
	}
	b.copyHeld(r.service.UID, set)
	networks := cidrsOf(set.front, r.ipv4, r.ipv6)
	for _, id := range sortedKeys(set.byList) {
		l, err := b.known.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
		if err != nil {
			missed = append(missed, cloudapi.NotAbsence(err))
			continue
		}
		c := set.byList[id]
		c.narrowTo, c.ports = &lets, map[rulePort]bool{}
		c.addPorts(r, networks, seen)
		if c.others, err = b.needsIn(ctx, c.neighbours, id); err != nil {
			missed = append(missed, err)
			continue
		}
		if _, err := b.findStrangers(ctx, c, l); err != nil {
			missed, c.unmarked = append(missed, err), false
		}
		if p := (listPlan{id: id, claim: *c, before: l.rules()}); p.apply() {
			plans = append(plans, p)
		}
	}
	return plans, errors.Join(missed...)
}

// narrowed returns the claim with the openings of one list that it closes, and those that it adds for the clients that stay.
func (c claim) narrowed(list document) claim {
	have := openings{}
	for _, rule := range documentsIn(list, ingressField) {
		o, single := openingOf(rule, false)
		if single && c.ports[rulePort{protocol: o.protocol, port: o.port}] && c.drops(rule, o) {
			have[o] = true
		}
	}
	if c.wanted, c.closes = c.narrowTo.narrow(have); c.closesOnly {
		c.wanted = openings{}
	}
	return c
}

// addOnly returns a claim that adds openings, and nothing else.
func (c claim) addOnly(some []opening) claim {
	c.narrowTo, c.closes, c.closesNothing, c.wanted = nil, nil, true, openings{}
	for _, o := range some {
		c.wanted[o] = true
	}
	return c
}

// narrowingChanges returns the changes of narrowings. If the additions have no room, the rest closes all the same, and as many as fit are
// added.
func (b *securityLists) narrowingChanges(service *v1.Service, plans []listPlan) []change {
	all := b.changes(service, plans)
	for i, p := range plans {
		all[i].Make = func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			err := b.edit(ctx, p.id, p.claim)
			if err != nil && !services.MayPass(err) && len(p.added) > 0 {
				shut := p.claim
				shut.closesOnly = true
				closing := b.edit(ctx, p.id, shut)
				if closing == nil && errors.Is(err, cloudapi.ErrQuota) {
					_, err = services.AddWhatFits(p.added, func(some []opening) error { return b.edit(ctx, p.id, p.claim.addOnly(some)) })
				}
				return o, errors.Join(err, closing)
			}
			if err == nil {
				now := maps.Clone(p.claim.former)
				for _, a := range p.added {
					now[a] = true
				}
				b.noteHeld(service.UID, p.id, heldRules{now, p.claim.unmarked, p.claim.known})
			}
			return o, err
		}
	}
	return all
}

// findUnproved reports rules that admit others than the Service's clients, have no known owner, and are removed by no plan.
func (b *securityLists) findUnproved(ctx context.Context, r ruleRequest, plans []listPlan) (findings []services.Finding, err error) {
	asked, some := clientsOf(services.Request{Service: r.service})
	if !some {
		return nil, nil
	}
	set, err := b.beginClaims(ctx, r)
	if err != nil {
		return nil, err
	}
	// Nodes that see the addresses of clients admit them, too. If the nodes are unknown, nothing is reported for them.
	var back []subnetList
	if r.access.preserve && !r.frontend {
		back, _, _ = b.nodeLists(ctx, r)
	}
	for _, p := range slices.Concat(set.front, back) {
		if set.at(p.list).others, err = b.needsIn(ctx, set.first.neighbours, p.list); err != nil {
			return nil, err
		}
	}
	has := func(o opening) bool { return r.access.hasPort(o) || r.former.hasPort(o) }
	findings = b.findUnprovedIn(set.front, asked, set.byList, plans, has)
	inside := r.access.backOpenings(cidrsOf(set.front, r.ipv4, r.ipv6))
	has = func(o opening) bool { return (r.access.hasNodePort(o) || r.former.hasNodePort(o)) && !inside[o] }
	return append(findings, b.findUnprovedIn(back, asked, set.byList, plans, has)...), nil
}

// findUnprovedIn reports rules in some lists that has accepts and that admit too many: those without a description, and ours that another
// Service may need.
func (b *securityLists) findUnprovedIn(
	places []subnetList, asked clients, claims map[string]*claim, plans []listPlan, has func(opening) bool,
) (findings []services.Finding) {
	for _, p := range places {
		l, _ := b.known.Peek(p.list)
		c := claims[p.list]
		goes := func(o opening) bool {
			return slices.ContainsFunc(plans, func(plan listPlan) bool { return plan.id == p.list && slices.Contains(plan.removed, o) })
		}
		for _, rule := range documentsIn(l.doc, ingressField) {
			o, single := openingOf(rule, false)
			if !single || !has(o) || goes(o) {
				continue
			}
			if _, more := asked.asked.NarrowTexts([]string{o.network}, false); !more {
				continue
			}
			switch {
			case fieldOf[string](rule, "description") == "" && !c.others.needs(o):
				findings = append(findings, services.Warning(services.EventRangesIgnored, "security list %s lets in %s by a rule without a description, "+
					"which nothing shows to be the Service's, so that it stays: remove it, or describe it if it is to stay", p.list, o.text()))
			case c.mark != "" && slices.Contains(c.marksIn(rule), c.mark) && c.others.mayNeed(o):
				findings = append(findings, services.Warning(services.EventRangesIgnored, "%v", c.explainOpen(p.list, o)))
			}
		}
	}
	return findings
}

package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/shared"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

const (
	// attachedMaxAge is how old what is known of a subnet's security lists may be, and of when these were made.
	attachedMaxAge = time.Hour
	// refusalMaxAge is how long it is remembered that a subnet may not be read.
	refusalMaxAge = 15 * time.Minute
	// gatherEdits is how long the first change of a security list waits for others of the same moment, and listTimeout bounds a write.
	gatherEdits = 10 * time.Millisecond
	listTimeout = 2 * time.Minute
)

// securityList is one as the API has it. It is never changed in place.
type securityList struct {
	ID, Created, etag string
	doc               document
}

// securityLists changes security lists, which all Services, and people, share. Services that want a change of a list at the same time get
// it by one write.
type securityLists struct {
	api       *api
	subnets   *inventory.Inventory[string, subnet]
	known     *inventory.Inventory[string, securityList]
	instances *instances
	cluster   *ownership.Cluster
	// kinds has the load balancers of all Services, which share lists.
	kinds *kinds

	writer shared.Writer[securityList]
	mu     sync.Mutex
	// held records the rules of Services in lists, as far as this process knows.
	held map[types.UID]map[string]heldRules
	// swept are Services with a group of which this process knows that a process before it left nothing in lists.
	swept map[types.UID]bool
	// nodeSubnets are the subnets of instances by ID and address. They never change.
	nodeSubnets map[string]string
	// refused are subnets that may not be read.
	refused map[string]refusal
}

// heldRules are a Service's rules in a list; unmarked is set if rules without a description are its own, and known if these are all.
type heldRules struct {
	openings
	unmarked, known bool
}

func newSecurityLists(a *api, i *instances, c *ownership.Cluster) *securityLists {
	b := &securityLists{
		api: a, subnets: i.networks.subnets, instances: i, cluster: c,
		held: map[types.UID]map[string]heldRules{}, swept: map[types.UID]bool{}, nodeSubnets: map[string]string{}, refused: map[string]refusal{},
	}
	b.known = inventory.New(inventory.Source[string, securityList]{
		Kind: "security list", ID: func(l securityList) string { return l.ID }, Get: b.read,
	})
	return b
}

// read reads a security list.
func (b *securityLists) read(ctx context.Context, id string) (securityList, error) {
	var doc document
	what := "security list " + id
	header, err := b.api.call(ctx, "reading "+what, http.MethodGet, "/securityLists/"+url.PathEscape(id), nil, &doc, "")
	if err != nil {
		return securityList{}, err
	}
	return listFrom("reading "+what, id, header, doc)
}

func listFrom(what, id string, header http.Header, doc document) (securityList, error) {
	l := securityList{ID: id, etag: header.Get("Etag"), doc: doc}
	l.Created, _ = doc["timeCreated"].(string)
	_, in := doc[ingressField].([]any)
	_, out := doc[egressField].([]any)
	if doc["id"] != id || !in || !out || l.etag == "" {
		return l, cloudapi.Unclear(what, "the answer is about another one, or lacks its rules or its ETag")
	}
	return l, nil
}

// ruleRequest holds a load balancer's needs in security lists.
type ruleRequest struct {
	service *v1.Service
	access  access
	// former holds the load balancer's present access, if it differs.
	former access
	// frontend is set where the rules of the load balancer's own subnets alone are managed, and only for its clients.
	frontend bool
	// balancers are the subnets of the load balancer, nodes those behind it.
	balancers []string
	nodes     []*v1.Node
	// addresses are those of backends, where the Service goes and nodes may be gone.
	addresses []string
	// four and six say which addresses of nodes are reached.
	four, six bool
	// leaving is set where the Service goes: nothing is wanted any more, and what cannot be found holds up nothing.
	leaving bool
	// narrows is set where clients alone are to lose access: what cannot be found holds up nothing either.
	narrows bool
	// unmarked is set where the load balancer was made by Oracle's own controller, which describes no rule.
	unmarked bool
}

// listPlan is a change of one security list.
type listPlan struct {
	id             string
	claim          claim
	before, after  document
	added, removed []opening
}

// plan returns the changes of security lists for a load balancer. missed are errors of lists that could not be read while the Service is
// deleted.
func (b *securityLists) plan(ctx context.Context, r ruleRequest) (plans []listPlan, missed []error, err error) {
	claims, missed, err := b.claims(ctx, r)
	if err != nil {
		return nil, missed, err
	}
	for _, id := range sortedKeys(claims) {
		l, err := b.known.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
		switch {
		case r.leaving && unreachable(err):
			missed = append(missed, err)
			continue
		case err != nil:
			return nil, missed, cloudapi.NotAbsence(err)
		}
		c := claims[id]
		if c.others, err = b.needsIn(ctx, c.neighbours, id); err != nil {
			return nil, missed, err
		}
		left, err := b.seeStrangers(ctx, c, l)
		if err != nil {
			return nil, missed, err
		}
		if r.leaving && len(left) > 0 {
			missed = append(missed, fmt.Errorf("security list %s keeps rules without a description, whose port somebody else has: %s",
				id, summary("those for", left)))
		}
		if r.leaving {
			missed = append(missed, c.findDoubts(l)...)
		}
		if p, due := c.plan(l); due {
			plans = append(plans, p)
			continue
		}
		b.hold(r.service.UID, id, c.heldAfter())
	}
	return plans, missed, nil
}

// plan returns the change of a security list for a claim; due is false if there is none.
func (c claim) plan(l securityList) (p listPlan, due bool) {
	p = listPlan{id: l.ID, claim: c, before: document{ingressField: l.doc[ingressField], egressField: l.doc[egressField]}}
	p.after, p.added, p.removed = c.apply(p.before)
	return p, p.after != nil
}

// early are the changes of security lists that come before all others: what is needed is opened, and what is not is closed, but for the
// ports of nodes that the load balancer still uses.
func early(plans []listPlan, former []int) (all []listPlan) {
	for _, p := range plans {
		p.claim.keep = former
		if p.after, p.added, p.removed = p.claim.apply(p.before); p.after != nil {
			all = append(all, p)
		}
	}
	return all
}

// late are those that come after: what early has left open is closed.
func late(plans []listPlan, former []int) (all []listPlan) {
	if len(former) == 0 {
		return nil
	}
	for i, p := range plans {
		for _, first := range early(plans[i:i+1], former) {
			p.before = first.after
		}
		if p.after, p.added, p.removed = p.claim.apply(p.before); p.after != nil {
			all = append(all, p)
		}
	}
	return all
}

// unreachable reports whether something is not there, or not for us.
func unreachable(err error) bool {
	return errors.Is(err, cloudapi.ErrNotFound) || errors.Is(err, cloudapi.ErrUnauthorized)
}

// isLasting reports whether something is not there, or not for us, and not for want of a valid credential alone.
func isLasting(err error) bool {
	told, ok := errors.AsType[*cloudapi.Error](err)
	return unreachable(err) && (!ok || told.Status != http.StatusUnauthorized)
}

// hold notes what a Service has in a list.
func (b *securityLists) hold(uid types.UID, id string, all heldRules) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(all.openings) == 0 {
		delete(b.held[uid], id)
		if len(b.held[uid]) == 0 {
			delete(b.held, uid)
		}
		return
	}
	if b.swept[uid] = true; b.held[uid] == nil { // what it has is known from now on
		b.held[uid] = map[string]heldRules{}
	}
	b.held[uid][id] = all
}

// doubtHeld notes that a Service may have other rules in a list than this process knows of.
func (b *securityLists) doubtHeld(uid types.UID, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held, some := b.held[uid][id]; some {
		held.known = false
		b.held[uid][id] = held
	}
}

// heldAfter returns a Service's rules in a list after its claim: the former ones too, unless all of them were closed.
func (c claim) heldAfter() heldRules {
	all := maps.Clone(c.wanted)
	if c.closesNothing || len(c.keep) > 0 {
		maps.Copy(all, c.former)
	}
	return heldRules{all, c.unmarked, true}
}

// holds reports whether this process knows of rules of a Service.
func (b *securityLists) holds(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held[uid]) > 0
}

// hasSwept reports whether nothing is left of a process before this one.
func (b *securityLists) hasSwept(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.swept[uid]
}

// noteSweep notes whether that is so; a Service that goes needs no note.
func (b *securityLists) noteSweep(uid types.UID, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.swept, uid); done {
		b.swept[uid] = true
	}
}

// claims returns a load balancer's claim to each security list.
func (b *securityLists) claims(ctx context.Context, r ruleRequest) (all map[string]*claim, missed []error, err error) {
	all, at, err := b.beginClaims(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	front, missed, err := b.listsOf(ctx, r, r.balancers)
	if err != nil {
		return nil, missed, err
	}
	back, unseen, err := b.backs(ctx, r, at)
	if missed = append(missed, unseen...); err != nil {
		return nil, missed, err
	}
	balancers, nodes := networksOf(front, r.four, r.six), networksOf(back, r.four, r.six)
	for _, p := range front {
		maps.Copy(at(p.list).wanted, r.access.frontOpenings(nodes))
		maps.Copy(at(p.list).former, r.former.frontOpenings(nodes))
	}
	for _, p := range back {
		maps.Copy(at(p.list).wanted, r.access.backOpenings(balancers))
		maps.Copy(at(p.list).former, r.former.backOpenings(balancers))
	}
	b.copyHeld(r.service.UID, at)
	for _, c := range all {
		c.closesNothing = !r.leaving && len(missed) > 0
	}
	if r.unmarked {
		endPorts(all, front, back, r.ends())
		r.serve(all, front, back)
	}
	if r.leaving {
		for _, c := range all {
			maps.Copy(c.former, c.wanted)
			c.wanted = openings{}
		}
	}
	return all, missed, nil
}

// ends holds the ports that the load balancer has no longer afterwards: all of them where the Service goes.
func (r ruleRequest) ends() []access {
	if r.leaving {
		return []access{r.access, r.former}
	}
	return []access{r.former.subtractPorts(r.access)}
}

// endPorts has claims end all rules of exactly some ports of a load balancer that Oracle's own controller made, as that does.
func endPorts(all map[string]*claim, front, back []subnetList, ends []access) {
	for _, a := range ends {
		a.sources, a.preserve = []string{""}, true
		for _, p := range front {
			all[p.list].end(a.frontOpenings([]string{""}), a.health)
		}
		for _, p := range back {
			all[p.list].end(a.backOpenings(nil), a.health)
		}
	}
}

// end has a claim end openings of any network, but for the port of health checks, which all Services may have. Where nobody knows whose
// rules without a description are, they stay.
func (c *claim) end(all openings, health int) {
	maps.DeleteFunc(all, func(o opening, _ bool) bool { return o.port == health || c.mark == "" })
	if c.ended == nil {
		c.ended = openings{}
	}
	maps.Copy(c.ended, all)
}

// beginClaims returns no claims, and what begins one of a security list.
func (b *securityLists) beginClaims(ctx context.Context, r ruleRequest) (all map[string]*claim, at func(string) *claim, err error) {
	mark, err := b.cluster.Mark(ctx)
	if err != nil {
		return nil, nil, err
	}
	neighbours, err := b.findNeighbours(ctx, r.service)
	if err != nil {
		return nil, nil, err
	}
	all = map[string]*claim{}
	return all, func(id string) *claim {
		if all[id] == nil {
			all[id] = &claim{
				wanted: openings{}, former: openings{}, neighbours: neighbours, mark: mark, service: r.service, unmarked: r.unmarked || mark == "",
				served: openings{}, listeners: r.listeners(),
			}
		}
		return all[id]
	}, nil
}

// backs are the subnets of nodes whose rules are managed. When the Service goes, what this cluster has marked goes where it was managed
// before, too.
func (b *securityLists) backs(ctx context.Context, r ruleRequest, at func(string) *claim) (back []subnetList, missed []error, err error) {
	if r.frontend && !r.leaving {
		return nil, nil, nil
	}
	ids, missed, err := b.subnetsOf(ctx, r)
	if err != nil {
		return nil, missed, err
	}
	if r.leaving {
		more, unseen, err := b.leavingSubnets(ctx, r, at)
		if missed = append(missed, unseen...); err != nil {
			return nil, missed, err
		}
		ids = append(ids, more...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	back, unseen, err := b.listsOf(ctx, r, ids)
	if r.frontend {
		for _, p := range back {
			at(p.list)
		}
		return nil, nil, err
	}
	return back, append(missed, unseen...), err
}

// copyHeld adds what a Service is known to have.
func (b *securityLists) copyHeld(uid types.UID, at func(string) *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, held := range b.held[uid] {
		c := at(id)
		maps.Copy(c.former, held.openings)
		c.unmarked, c.known = c.unmarked || held.unmarked, held.known
	}
}

// leavingSubnets returns the subnets of the backends of a load balancer that goes: those whose network interfaces have their addresses or,
// where these may not be read, whose networks do. Where else instances are, what this cluster has marked, and nobody needs, goes as well.
func (b *securityLists) leavingSubnets(
	ctx context.Context, r ruleRequest, at func(string) *claim,
) (ids []string, missed []error, err error) {
	all, err := b.instances.networks.all.All(ctx, inventory.Query{MaxAge: attachedMaxAge})
	if err != nil {
		return nil, nil, cloudapi.NotAbsence(err)
	}
	subnets := map[string]bool{}
	elsewhere := slices.Clone(r.addresses)
	for _, n := range all {
		for _, v := range n.vnics {
			subnets[v.Subnet] = true
			if v.PrivateIP != "" && slices.Contains(r.addresses, v.PrivateIP) {
				ids = append(ids, v.Subnet)
				elsewhere = slices.DeleteFunc(elsewhere, func(a string) bool { return a == v.PrivateIP })
			}
		}
	}
	hidden := b.instances.networks.hiddenSubnets()
	for _, id := range hidden {
		subnets[id] = true
	}
	others, unseen, err := b.listsOf(ctx, r, sortedKeys(subnets))
	for _, p := range others {
		if vcn := b.api.config.VCN; vcn != "" && p.subnet.VCN != vcn {
			continue
		}
		at(p.list)
		if slices.Contains(hidden, p.subnet.ID) && slices.ContainsFunc(elsewhere, p.subnet.holds) {
			ids = append(ids, p.subnet.ID)
		}
	}
	if len(elsewhere) > 0 {
		missed = unseen // a backend may be there
	}
	return ids, missed, err
}

// subnetList is a subnet with the security list that counts.
type subnetList struct {
	subnet subnet
	list   string
}

func networksOf(places []subnetList, four, six bool) (all []string) {
	for _, p := range places {
		all = append(all, p.subnet.networks(four, six)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// listsOf are subnets with their security lists.
func (b *securityLists) listsOf(ctx context.Context, r ruleRequest, ids []string) (all []subnetList, missed []error, err error) {
	for _, id := range ids {
		s, err := b.subnets.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
		var list string
		if b.noteRefusal(id, err); err == nil {
			list, err = b.choose(ctx, s)
		}
		switch {
		case r.leaving && unreachable(err):
			missed = append(missed, err)
			continue
		case err != nil && r.narrows:
			b.subnets.Invalidate(id)
			missed = append(missed, cloudapi.NotAbsence(err))
			continue
		case err != nil:
			b.subnets.Invalidate(id)
			return nil, missed, cloudapi.NotAbsence(err)
		}
		all = append(all, subnetList{s, list})
	}
	return all, missed, nil
}

// choose returns the security list of a subnet that counts: the one of the cloud config, or else the oldest.
func (b *securityLists) choose(ctx context.Context, s subnet) (string, error) {
	configured := b.api.config.securityLists[s.ID]
	switch {
	case slices.Contains(s.Lists, configured):
		return configured, nil
	case len(s.Lists) == 1:
		return s.Lists[0], nil
	}
	var oldest securityList
	for _, id := range s.Lists {
		l, err := b.known.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
		if err != nil {
			return "", err
		}
		if oldest.ID == "" || l.Created < oldest.Created || l.Created == oldest.Created && l.ID < oldest.ID {
			oldest = l
		}
	}
	if oldest.ID == "" {
		return "", &cloudapi.Error{
			Class: cloudapi.ErrNotFound, Operation: "choosing the security list of subnet " + s.ID, Message: "it has none; attach one, or manage the rules by hand",
		}
	}
	return oldest.ID, nil
}

// subnetsOf are the subnets of nodes. A node whose instance is gone has none. missed are nodes of which nobody can tell: while the
// Service goes, or where the cloud shows the others.
func (b *securityLists) subnetsOf(ctx context.Context, r ruleRequest) (ids []string, missed []error, err error) {
	found := map[string]bool{}
	for _, n := range r.nodes {
		id, err := parseProviderID(n.Spec.ProviderID)
		if err != nil {
			continue
		}
		subnet, err := b.subnetOfNode(ctx, id, addressOf(n), len(r.nodes))
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
		case err != nil && ctx.Err() == nil && (r.leaving || aboutOne(err)):
			missed = append(missed, fmt.Errorf("finding the subnet of node %s: %w", n.Name, err))
		case err != nil && r.narrows: // of the others nobody can tell either
			return sortedKeys(found), append(missed, fmt.Errorf("finding the subnet of node %s: %w", n.Name, err)), nil
		case err != nil:
			return nil, missed, fmt.Errorf("finding the subnet of node %s: %w", n.Name, err)
		case subnet != "":
			found[subnet] = true
		}
	}
	return sortedKeys(found), missed, nil
}

// subnetOfNode returns the subnet in which an instance has an address, or else its primary one.
func (b *securityLists) subnetOfNode(ctx context.Context, id, address string, expected int) (string, error) {
	b.mu.Lock()
	known, ok := b.nodeSubnets[id+" "+address]
	b.mu.Unlock()
	if ok {
		return known, nil
	}
	q := inventory.Query{MaxAge: attachedMaxAge, MaxMissAge: observedMaxAge, Expected: expected}
	in, err := b.instances.inventory.Get(ctx, id, q)
	if err != nil {
		return "", err
	}
	net, err := b.instances.networks.shown(ctx, in, false, q)
	if err != nil {
		return "", err
	}
	for _, v := range net.vnics {
		if v.PrivateIP == address || known == "" && v.Primary {
			known = v.Subnet
		}
		if v.PrivateIP == address {
			break
		}
	}
	if known != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.nodeSubnets[id+" "+address] = known
	}
	return known, nil
}

// changes returns the changes that plans ask for.
func (b *securityLists) changes(service *v1.Service, plans []listPlan) (all []change) {
	for _, p := range plans {
		detail := summary("adding", p.added) + "; " + summary("removing", p.removed)
		all = append(all, change{
			Planned: contract.Planned{Action: contract.PlanChange, Object: "security list " + p.id, Detail: strings.Trim(detail, "; ")},
			Compare: func() (before, after any) { return p.before, p.after },
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				if err := b.edit(ctx, p.id, p.claim); err != nil {
					b.doubtHeld(service.UID, p.id) // the answer alone may be lost
					return o, err
				}
				b.hold(service.UID, p.id, p.claim.heldAfter())
				return o, nil
			},
		})
	}
	return all
}

func summary(word string, list []opening) string {
	if len(list) == 0 {
		return ""
	}
	texts := make([]string, len(list))
	for n, o := range list {
		texts[n] = o.text()
	}
	slices.Sort(texts)
	return word + " " + strings.Join(texts, ", ")
}

func (b *securityLists) target(id string) shared.Target[securityList] {
	return shared.Target[securityList]{
		ID: id, Name: "security list " + id, Timeout: listTimeout, Gather: func() time.Duration { return gatherEdits },
		Open: func() shared.Document[securityList] { return storedList{b, id} },
	}
}

// edit has a claim applied to a security list, together with those of other Services that wait.
func (b *securityLists) edit(ctx context.Context, id string, c claim) error {
	_, err := b.writer.Submit(ctx, b.target(id), func(ctx context.Context, l securityList) (securityList, error) {
		neighbours, err := b.findNeighbours(ctx, c.service) // those of now: what was claimed may be minutes old
		if err != nil {
			return l, err
		}
		c := c
		if c.others, err = b.needsIn(ctx, neighbours, id); err != nil {
			return l, err
		}
		if _, err := b.seeStrangers(ctx, &c, l); err != nil {
			return l, err
		}
		after, _, _ := c.apply(l.doc)
		if after == nil {
			return l, shared.ErrKeep
		}
		l.doc = after
		return l, nil
	})
	return err
}

// storedList is a security list as the cloud has it, which is written under its ETag.
type storedList struct {
	lists *securityLists
	id    string
}

func (s storedList) Read(ctx context.Context, _ bool) (securityList, error) {
	l, err := s.lists.known.Get(ctx, s.id, inventory.Query{})
	return l, cloudapi.NotAbsence(err)
}

// overListLimit returns an error where a security list would get more rules than the cloud takes. It is the cloud's own refusal, so that
// edits that were joined are tried alone.
func overListLimit(before, after document) error {
	grows := func(field string, limit limits.Limit) error {
		n := len(listOf(after[field]))
		if err := limit.CheckNumber(n); err != nil && n > len(listOf(before[field])) {
			return fmt.Errorf("%w: %w", cloudapi.ErrQuota, err)
		}
		return nil
	}
	return cmp.Or(grows(ingressField, ocilimits.IngressRules), grows(egressField, ocilimits.EgressRules))
}

func (s storedList) Write(ctx context.Context, before, after securityList) (securityList, error) {
	what := "changing security list " + s.id
	if err := overListLimit(before.doc, after.doc); err != nil {
		return before, fmt.Errorf("%s: %w", what, err)
	}
	body := document{ingressField: after.doc[ingressField], egressField: after.doc[egressField]}
	var now document
	header, err := s.lists.api.send(ctx, what, http.MethodPut, "/securityLists/"+url.PathEscape(s.id), body, &now, http.Header{ifMatch: {before.etag}})
	if err == nil {
		after, err = listFrom(what, s.id, header, now)
	}
	if err == nil {
		s.lists.known.Put(after)
		return after, nil
	}
	s.lists.known.Doubt(s.id)
	if errors.Is(err, cloudapi.ErrConflict) {
		return after, shared.Outdated(err)
	}
	return after, cloudapi.NotAbsence(err)
}

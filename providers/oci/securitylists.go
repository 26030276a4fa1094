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
	// attachedMaxAge is the maximum age of the answer which security lists a subnet has, and when these were created.
	attachedMaxAge = time.Hour
	// refusalMaxAge is how long a subnet that may not be read is not read again.
	refusalMaxAge = 15 * time.Minute
	// gatherEdits is how long the first change of a security list waits for others. listTimeout bounds a write.
	gatherEdits = 10 * time.Millisecond
	listTimeout = 2 * time.Minute
)

// securityList is never changed in place.
type securityList struct {
	ID, Created, etag string
	doc               document
}

// securityLists changes security lists, which all Services and people share. Changes of a list by several Services at the same time become
// one write.
type securityLists struct {
	api       *api
	subnets   *inventory.Inventory[string, subnet]
	known     *inventory.Inventory[string, securityList]
	instances *instances
	cluster   *ownership.Cluster
	// kinds has the load balancers of all Services.
	kinds *kinds

	writer shared.Writer[securityList]
	mu     sync.Mutex
	// held holds the known rules of Services in lists.
	held map[types.UID]map[string]heldRules
	// swept are Services with a group for which no rules of an earlier process are left in lists.
	swept map[types.UID]bool
	// nodeSubnets are the subnets of instances by ID and address. They never change.
	nodeSubnets map[string]string
	// refused are subnets that may not be read.
	refused map[string]refusal
}

// heldRules are a Service's rules in a list. unmarked is set if rules without a description may be its own, known if these are all.
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

func (b *securityLists) read(ctx context.Context, id string) (securityList, error) {
	var doc document
	what := "security list " + id
	header, err := b.api.call(ctx, "reading "+what, http.MethodGet, "/securityLists/"+url.PathEscape(id), nil, &doc, nil)
	if err != nil {
		return securityList{}, err
	}
	return listFrom("reading "+what, id, header, doc)
}

func listFrom(what, id string, header http.Header, doc document) (securityList, error) {
	l := securityList{ID: id, Created: fieldOf[string](doc, "timeCreated"), etag: header.Get("Etag"), doc: doc}
	_, in := doc[ingressField].([]any)
	_, out := doc[egressField].([]any)
	if doc["id"] != id || !in || !out || l.etag == "" {
		return l, cloudapi.Unclear(what, "the answer is about another one, or lacks its rules or its ETag")
	}
	return l, nil
}

// rules returns the part of the document that is written.
func (l securityList) rules() document {
	return document{ingressField: l.doc[ingressField], egressField: l.doc[egressField]}
}

// ruleRequest holds a load balancer's needs in security lists.
type ruleRequest struct {
	service *v1.Service
	access  access
	// former is the load balancer's present access, if it differs.
	former access
	// frontend is set if only rules for clients are managed, in the load balancer's subnets.
	frontend bool
	// balancers are the subnets of the load balancer, nodes those behind it.
	balancers []string
	nodes     []*v1.Node
	// addresses are those of the backends of a load balancer that is deleted, whose nodes may be gone.
	addresses []string
	// ipv4 and ipv6 say which addresses of nodes are reached.
	ipv4, ipv6 bool
	// leaving is set if the Service is deleted: it needs no rules, and whatever cannot be read is skipped.
	leaving bool
	// narrows is set if clients lose access, and nothing else changes. Whatever cannot be read is skipped.
	narrows bool
	// unmarked is set if the load balancer was created by Oracle's own controller, which describes no rule.
	unmarked bool
}

type listPlan struct {
	id             string
	claim          claim
	before, after  document
	added, removed []opening
}

// plan returns the changes of security lists for a load balancer. missed are errors of lists that cannot be read while the Service is
// deleted.
func (b *securityLists) plan(ctx context.Context, r ruleRequest) (plans []listPlan, missed []error, err error) {
	claims, missed, err := b.claims(ctx, r)
	if err != nil {
		return nil, missed, err
	}
	for _, id := range sortedKeys(claims) {
		l, err := b.known.Get(ctx, id, inventory.Query{MaxAge: observedMaxAge})
		switch {
		case r.leaving && isUnreachable(err):
			missed = append(missed, err)
			continue
		case err != nil:
			return nil, missed, cloudapi.NotAbsence(err)
		}
		c := claims[id]
		if c.others, err = b.needsIn(ctx, c.neighbours, id); err != nil {
			return nil, missed, err
		}
		left, err := b.findStrangers(ctx, c, l)
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
		if p := (listPlan{id: id, claim: *c, before: l.rules()}); p.apply() {
			plans = append(plans, p)
			continue
		}
		b.noteHeld(r.service.UID, id, c.heldAfter())
	}
	return plans, missed, nil
}

// apply computes the change, and reports whether there is any.
func (p *listPlan) apply() bool {
	p.after, p.added, p.removed = p.claim.apply(p.before)
	return p.after != nil
}

// splitPlans divides changes of security lists into two steps. The first opens and closes everything but the node ports that the load
// balancer still uses (former). The last closes these, after the load balancer has changed.
func splitPlans(plans []listPlan, former []int) (first, last []listPlan) {
	for _, p := range plans {
		whole := p.claim
		if p.claim.keep = former; p.apply() {
			first = append(first, p)
			p.before = p.after
		}
		if p.claim = whole; len(former) > 0 && p.apply() {
			last = append(last, p)
		}
	}
	return first, last
}

// isUnreachable reports whether an object does not exist, or is not shown to us.
func isUnreachable(err error) bool {
	return errors.Is(err, cloudapi.ErrNotFound) || errors.Is(err, cloudapi.ErrUnauthorized)
}

// isLastingRefusal is isUnreachable without refused credentials, which are another problem.
func isLastingRefusal(err error) bool {
	told, ok := errors.AsType[*cloudapi.Error](err)
	return isUnreachable(err) && (!ok || told.Status != http.StatusUnauthorized)
}

// noteHeld stores the rules that a Service has in a list.
func (b *securityLists) noteHeld(uid types.UID, id string, all heldRules) {
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

// forgetWhetherAll notes that a Service may have further rules in a list.
func (b *securityLists) forgetWhetherAll(uid types.UID, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held, some := b.held[uid][id]; some {
		held.known = false
		b.held[uid][id] = held
	}
}

// heldAfter returns a Service's rules in a list after its claim, with the former ones unless all of them were closed.
func (c claim) heldAfter() heldRules {
	all := maps.Clone(c.wanted)
	if c.closesNothing || len(c.keep) > 0 {
		maps.Copy(all, c.former)
	}
	return heldRules{all, c.unmarked, true}
}

// hasRules reports whether a Service has known rules.
func (b *securityLists) hasRules(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held[uid]) > 0
}

// hasSwept reports whether an earlier process has left nothing for a Service.
func (b *securityLists) hasSwept(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.swept[uid]
}

// noteSweep stores the same. A Service that is deleted needs no note.
func (b *securityLists) noteSweep(uid types.UID, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.swept, uid); done {
		b.swept[uid] = true
	}
}

// claimSet holds a Service's claims to security lists, by their IDs.
type claimSet struct {
	// first is copied for each claim.
	first  claim
	byList map[string]*claim
	// front are the load balancer's subnets; missed are the errors of those that were skipped.
	front  []subnetList
	missed []error
}

// at returns the claim to a list, and creates it if necessary.
func (s claimSet) at(list string) *claim {
	if s.byList[list] == nil {
		c := s.first
		c.wanted, c.former, c.served = openings{}, openings{}, openings{}
		s.byList[list] = &c
	}
	return s.byList[list]
}

func (b *securityLists) claims(ctx context.Context, r ruleRequest) (all map[string]*claim, missed []error, err error) {
	set, err := b.beginClaims(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	back, missed, err := b.nodeListsOf(ctx, r, set)
	if missed = append(set.missed, missed...); err != nil {
		return nil, missed, err
	}
	balancers, nodes := cidrsOf(set.front, r.ipv4, r.ipv6), cidrsOf(back, r.ipv4, r.ipv6)
	for _, p := range set.front {
		maps.Copy(set.at(p.list).wanted, r.access.frontOpenings(nodes))
		maps.Copy(set.at(p.list).former, r.former.frontOpenings(nodes))
	}
	for _, p := range back {
		maps.Copy(set.at(p.list).wanted, r.access.backOpenings(balancers))
		maps.Copy(set.at(p.list).former, r.former.backOpenings(balancers))
	}
	b.copyHeld(r.service.UID, set)
	all = set.byList
	for _, c := range all {
		c.closesNothing = !r.leaving && len(missed) > 0
	}
	if r.unmarked {
		endPorts(all, set.front, back, r.portsToEnd())
		r.noteServed(all, set.front, back)
	}
	if r.leaving {
		for _, c := range all {
			maps.Copy(c.former, c.wanted)
			c.wanted = openings{}
		}
	}
	return all, missed, nil
}

// portsToEnd returns the ports that the load balancer will no longer have.
func (r ruleRequest) portsToEnd() []access {
	if r.leaving {
		return []access{r.access, r.former}
	}
	return []access{r.former.subtractPorts(r.access)}
}

// endPorts makes claims end all rules for some ports of a load balancer of Oracle's own controller, as that one does.
func endPorts(all map[string]*claim, front, back []subnetList, ends []access) {
	for _, a := range ends {
		a.sources, a.preserve = []string{""}, true
		for _, p := range front {
			all[p.list].endRules(a.frontOpenings([]string{""}), a.health)
		}
		for _, p := range back {
			all[p.list].endRules(a.backOpenings(nil), a.health)
		}
	}
}

// endRules makes a claim end openings for any network, except at the port for health checks, which Services share. If the cluster's
// identity is unknown, rules without a description may be anybody's, and stay.
func (c *claim) endRules(all openings, health int) {
	maps.DeleteFunc(all, func(o opening, _ bool) bool { return o.port == health || c.mark == "" })
	if c.ended == nil {
		c.ended = openings{}
	}
	maps.Copy(c.ended, all)
}

// beginClaims returns a set without claims.
func (b *securityLists) beginClaims(ctx context.Context, r ruleRequest) (s claimSet, err error) {
	mark, err := b.cluster.Mark(ctx)
	if err != nil {
		return s, err
	}
	neighbours, err := b.findNeighbours(ctx, r.service)
	if err != nil {
		return s, err
	}
	s.first = claim{neighbours: neighbours, mark: mark, service: r.service, unmarked: r.unmarked || mark == "", listeners: r.listeners()}
	s.byList = map[string]*claim{}
	s.front, s.missed, err = b.listsOf(ctx, r, r.balancers)
	return s, err
}

// nodeListsOf returns the nodes' subnets whose rules are managed. If the Service is deleted, they include all subnets where they were
// managed before.
func (b *securityLists) nodeListsOf(ctx context.Context, r ruleRequest, s claimSet) (back []subnetList, missed []error, err error) {
	if r.frontend && !r.leaving {
		return nil, nil, nil
	}
	ids, missed, err := b.subnetsOf(ctx, r)
	if err != nil {
		return nil, missed, err
	}
	if r.leaving {
		more, unseen, err := b.leavingSubnets(ctx, r, s)
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
			s.at(p.list)
		}
		return nil, nil, err
	}
	return back, append(missed, unseen...), err
}

// copyHeld adds a Service's known rules.
func (b *securityLists) copyHeld(uid types.UID, s claimSet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, held := range b.held[uid] {
		c := s.at(id)
		maps.Copy(c.former, held.openings)
		c.unmarked, c.known = c.unmarked || held.unmarked, held.known
	}
}

// leavingSubnets returns the subnets of the backends of a deleted load balancer, found by the addresses of network interfaces, or by the
// subnets' ranges if addresses may not be read. Claims to the lists of all other instances' subnets remove rules with the cluster's mark.
func (b *securityLists) leavingSubnets(ctx context.Context, r ruleRequest, s claimSet) (ids []string, missed []error, err error) {
	all, err := b.instances.networks.vnics.All(ctx, inventory.Query{MaxAge: attachedMaxAge})
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
		s.at(p.list)
		if slices.Contains(hidden, p.subnet.ID) && slices.ContainsFunc(elsewhere, p.subnet.holds) {
			ids = append(ids, p.subnet.ID)
		}
	}
	if len(elsewhere) > 0 {
		missed = unseen // a backend may be there
	}
	return ids, missed, err
}

// subnetList is a subnet with its managed security list.
type subnetList struct {
	subnet subnet
	list   string
}

func cidrsOf(places []subnetList, four, six bool) (all []string) {
	for _, p := range places {
		all = append(all, p.subnet.cidrs(four, six)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// nodeLists returns the subnets of nodes, with their managed lists.
func (b *securityLists) nodeLists(ctx context.Context, r ruleRequest) (all []subnetList, missed []error, err error) {
	ids, missed, err := b.subnetsOf(ctx, r)
	if err != nil {
		return nil, missed, err
	}
	all, more, err := b.listsOf(ctx, r, ids)
	return all, append(missed, more...), err
}

// listsOf returns subnets with their managed lists.
func (b *securityLists) listsOf(ctx context.Context, r ruleRequest, ids []string) (all []subnetList, missed []error, err error) {
	for _, id := range ids {
		s, err := b.subnets.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge})
		var list string
		if b.noteRefusal(id, err); err == nil {
			list, err = b.chooseList(ctx, s)
		}
		switch {
		case r.leaving && isUnreachable(err):
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

// chooseList returns the managed security list of a subnet: the configured one, or else the oldest.
func (b *securityLists) chooseList(ctx context.Context, s subnet) (string, error) {
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

// subnetsOf returns the subnets of nodes, none for a node whose instance is gone. missed are the errors of nodes that it skips: those that
// the cloud does not show, and all while the Service is deleted.
func (b *securityLists) subnetsOf(ctx context.Context, r ruleRequest) (ids []string, missed []error, err error) {
	found := map[string]bool{}
	for _, n := range r.nodes {
		id, err := parseProviderID(n.Spec.ProviderID)
		if err != nil {
			continue
		}
		subnet, err := b.subnetOfNode(ctx, id, ipv4Of(n), len(r.nodes))
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
		case err != nil && ctx.Err() == nil && (r.leaving || isAboutOneObject(err)):
			missed = append(missed, fmt.Errorf("finding the subnet of node %s: %w", n.Name, err))
		case err != nil && r.narrows: // the other nodes cannot be read either
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
	net, err := b.instances.networks.vnicsWithAddress(ctx, in, false, q)
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

// changes returns the changes of plans.
func (b *securityLists) changes(service *v1.Service, plans []listPlan) (all []change) {
	for _, p := range plans {
		detail := summary("adding", p.added) + "; " + summary("removing", p.removed)
		all = append(all, change{
			Planned: contract.Planned{Action: contract.PlanChange, Object: "security list " + p.id, Detail: strings.Trim(detail, "; ")},
			Compare: func() (before, after any) { return p.before, p.after },
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				if err := b.edit(ctx, p.id, p.claim); err != nil {
					b.forgetWhetherAll(service.UID, p.id) // the answer alone may be lost
					return o, err
				}
				b.noteHeld(service.UID, p.id, p.claim.heldAfter())
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

// edit applies a claim to a security list, together with other Services' waiting claims.
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
		if _, err := b.findStrangers(ctx, &c, l); err != nil {
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

// storedList writes a security list under its ETag.
type storedList struct {
	lists *securityLists
	id    string
}

func (s storedList) Read(ctx context.Context, _ bool) (securityList, error) {
	l, err := s.lists.known.Get(ctx, s.id, inventory.Query{})
	return l, cloudapi.NotAbsence(err)
}

// overListLimit returns an error if a security list would get too many rules. The error is the cloud's own, so that joined edits are tried
// one by one.
func overListLimit(before, after document) error {
	grows := func(field string, limit limits.Limit) error {
		n := len(fieldOf[[]any](after, field))
		if err := limit.CheckNumber(n); err != nil && n > len(fieldOf[[]any](before, field)) {
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
	var now document
	path := "/securityLists/" + url.PathEscape(s.id)
	header, err := s.lists.api.call(ctx, what, http.MethodPut, path, after.rules(), &now, http.Header{ifMatch: {before.etag}})
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

package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

// Linode's documented limits on firewalls.
const (
	mostRules         = 25
	mostRuleAddresses = 255
	mostPortPieces    = 15
	mostRuleLabel     = 32
	mostDescription   = 100
)

const (
	actionAccept = "ACCEPT"
	actionDrop   = "DROP"

	deviceNodeBalancer = "nodebalancer"
	// madeMark begins the descriptions of rules that Linode's own controller and ours make.
	madeMark = "Created by linode-ccm"

	indexNodeBalancer = "nodebalancer"
)

// firewallRules computes the rules that an access list stands for.
func firewallRules(a *acl, service *v1.Service, firewallLabel string) (linodego.FirewallRuleSet, error) {
	list, action, policy := a.Allow, actionAccept, actionDrop
	if list == nil {
		list, action, policy = a.Deny, actionDrop, actionAccept
	}
	set := linodego.FirewallRuleSet{InboundPolicy: policy, OutboundPolicy: actionAccept, Outbound: []linodego.FirewallRule{}}
	ports := portList(service)
	if strings.Count(ports, ",")+1 > mostPortPieces {
		return set, fmt.Errorf("annotation %s: a firewall rule holds at most %d ports, and the Service has more", annotationFirewallACL, mostPortPieces)
	}
	rule := func(description string, v4, v6 []string) linodego.FirewallRule {
		r := linodego.FirewallRule{
			Action: action, Label: cut(action+"-"+service.Name, mostRuleLabel), Description: cutWithDots(description, mostDescription),
			Ports: ports, Protocol: linodego.TCP,
		}
		if len(v4) > 0 {
			r.Addresses.IPv4 = &v4
		}
		if len(v6) > 0 {
			r.Addresses.IPv6 = &v6
		}
		return r
	}
	text := fmt.Sprintf("%s: %s, for %s", madeMark, firewallLabel, service.Name)
	if len(list.IPv4)+len(list.IPv6) <= mostRuleAddresses {
		set.Inbound = []linodego.FirewallRule{rule(text, list.IPv4, list.IPv6)}
		return set, nil
	}
	for chunk := range slices.Chunk(list.IPv4, mostRuleAddresses) {
		set.Inbound = append(set.Inbound, rule(fmt.Sprintf("Rule %d, %s", len(set.Inbound), text), chunk, nil))
	}
	for chunk := range slices.Chunk(list.IPv6, mostRuleAddresses) {
		set.Inbound = append(set.Inbound, rule(fmt.Sprintf("Rule %d, %s", len(set.Inbound), text), nil, chunk))
	}
	if len(set.Inbound) > mostRules {
		return set, fmt.Errorf("annotation %s: too many networks: a firewall holds %d rules of %d networks", annotationFirewallACL, mostRules, mostRuleAddresses)
	}
	return set, nil
}

func portList(service *v1.Service) string {
	var ports []string
	for _, p := range service.Spec.Ports {
		if text := strconv.Itoa(int(p.Port)); !slices.Contains(ports, text) {
			ports = append(ports, text)
		}
	}
	return strings.Join(ports, ",")
}

func cut(text string, most int) string { return text[:min(len(text), most)] }

func cutWithDots(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most-3] + "..."
}

// sameRules compares what rules let through: how they are split and called does not matter.
func sameRules(a, b linodego.FirewallRuleSet) bool {
	return a.InboundPolicy == b.InboundPolicy && slices.Equal(ruleTexts(a), ruleTexts(b))
}

// ruleTexts is one text for each network and port, sorted.
func ruleTexts(set linodego.FirewallRuleSet) []string {
	var texts []string
	for _, r := range set.Inbound {
		var networks []string
		for _, list := range []*[]string{r.Addresses.IPv4, r.Addresses.IPv6} {
			if list != nil {
				networks = append(networks, *list...)
			}
		}
		for port := range strings.SplitSeq(r.Ports, ",") {
			for _, n := range networks {
				if p, err := netip.ParsePrefix(n); err == nil {
					n = p.Masked().String() // the API may spell it in another way
				}
				texts = append(texts, r.Action+" "+strings.TrimSpace(port)+" "+n)
			}
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func newFirewallInventory(a *api) *inventory.Inventory[int, *linodego.Firewall] {
	return inventory.New(inventory.Source[int, *linodego.Firewall]{
		Kind: "firewall", ID: func(f *linodego.Firewall) int { return f.ID },
		List: func(ctx context.Context) ([]*linodego.Firewall, int, error) {
			return listAll[*linodego.Firewall](ctx, a, "firewalls", "networking/firewalls", "")
		},
		Get: a.firewall,
		Indexes: map[string]func(*linodego.Firewall) []string{
			indexLabel: func(f *linodego.Firewall) []string { return []string{f.Label} },
			indexNodeBalancer: func(f *linodego.Firewall) []string {
				var ids []string
				for _, e := range f.Entities {
					if e.Type == deviceNodeBalancer {
						ids = append(ids, strconv.Itoa(e.ID))
					}
				}
				return ids
			},
		},
	})
}

func (a *api) firewall(ctx context.Context, id int) (*linodego.Firewall, error) {
	return read(ctx, fmt.Sprintf("reading firewall %d", id), func(f *linodego.Firewall) bool { return f.ID == id }, func(ctx context.Context) (*linodego.Firewall, error) {
		return a.sdk.GetFirewall(ctx, id)
	})
}

// firewallWish is what a Service wants of firewalls.
type firewallWish struct {
	// attach is the firewall that the Service names; 0 if it names none.
	attach int
	// noted are the firewalls of others which this program attached, as the tags of the NodeBalancer say. What the Service's
	// annotations say of that, anybody may have written.
	noted []int
	// rules are those of the Service's own firewall; nil if it wants none.
	rules *linodego.FirewallRuleSet
	// ours reports whether a controller made a firewall for this very Service.
	ours func(*linodego.Firewall) bool
}

// firewallStep is one change of firewalls.
type firewallStep struct {
	kind firewallStepKind
	// firewall is the one that is changed; nil where it is still to be made, or known by its ID alone.
	firewall *linodego.Firewall
	id       int
}

type firewallStepKind string

const (
	createFirewall firewallStepKind = "create firewall"
	changeRules    firewallStepKind = "change rules"
	attachFirewall firewallStepKind = "attach firewall"
	detachFirewall firewallStepKind = "detach firewall"
	// dropFirewall detaches it, and deletes it unless it protects something else too.
	dropFirewall firewallStepKind = "delete firewall"
)

// firewallPlan is what leads to the wish.
type firewallPlan struct {
	steps []firewallStep
	// attached are the firewalls that are attached before.
	attached []int
	// own is the Service's own firewall that exists, or 0.
	own int
	// stays is a firewall of somebody else that keeps the Service from getting its own, or the one that it names.
	stays *linodego.Firewall
}

// planFirewalls decides about the firewalls of a NodeBalancer. named is the firewall with the label of the Service's own,
// or nil. A firewall that is not ours is attached where the Service names it, detached if we attached it, and else left alone.
func planFirewalls(w firewallWish, nodeBalancer int, attached []*linodego.Firewall, named *linodego.Firewall) firewallPlan {
	var p firewallPlan
	for _, f := range attached {
		p.attached = append(p.attached, f.ID)
	}
	keep, wanted := w.attach, w.attach != 0 || w.rules != nil
	foreign := slices.IndexFunc(attached, func(f *linodego.Firewall) bool {
		return f.ID != w.attach && !slices.Contains(w.noted, f.ID) && !w.ours(f)
	})
	if wanted && foreign >= 0 {
		p.stays = attached[foreign]
		return p
	}
	if w.attach == 0 && w.rules != nil {
		keep = p.planOwn(w, attached, named)
	}
	if nodeBalancer == 0 {
		return p
	}
	isAttached := slices.ContainsFunc(attached, func(f *linodego.Firewall) bool { return f.ID == keep })
	if wanted && !isAttached {
		p.steps = append(p.steps, firewallStep{kind: attachFirewall, id: keep})
	}
	for _, f := range attached {
		switch {
		case f.ID == keep:
		case w.ours(f):
			p.steps = append(p.steps, firewallStep{kind: dropFirewall, firewall: f, id: f.ID})
		case slices.Contains(w.noted, f.ID):
			p.steps = append(p.steps, firewallStep{kind: detachFirewall, firewall: f, id: f.ID})
		}
	}
	return p
}

// planOwn decides about the Service's own firewall, and returns its ID, or 0 where it is still to be made.
func (p *firewallPlan) planOwn(w firewallWish, attached []*linodego.Firewall, named *linodego.Firewall) int {
	own := named
	if i := slices.IndexFunc(attached, w.ours); i >= 0 {
		own = attached[i]
	}
	if own == nil {
		p.steps = append(p.steps, firewallStep{kind: createFirewall})
		return 0
	}
	if !sameRules(own.Rules, *w.rules) {
		p.steps = append(p.steps, firewallStep{kind: changeRules, firewall: own, id: own.ID})
	}
	p.own = own.ID
	return own.ID
}

// madeFor reports whether a controller made a firewall for a Service: this one, which gives it the label of the Service, or
// Linode's own, whose firewall protects nothing but the Service's NodeBalancer. Labels are unique in an account.
func madeFor(f *linodego.Firewall, service *v1.Service, prefix, mark string, nodeBalancer int) bool {
	if ownership.Check("", mark, f.Tags) != nil {
		return false
	}
	if _, uid := ownership.Marked(f.Tags); uid != "" {
		again := mark != "" && slices.Contains(f.Tags, mark) && slices.Contains(f.Tags, ownership.NameMark(service.Namespace, service.Name))
		return uid == string(service.UID) || again
	}
	if f.Label == label(prefix, service) {
		return true
	}
	marked := slices.ContainsFunc(f.Tags, ownership.IsMark)
	alone := !slices.ContainsFunc(f.Entities, func(e linodego.FirewallDeviceEntity) bool {
		return e.Type != deviceNodeBalancer || e.ID != nodeBalancer
	})
	return !marked && alone && madeByController(prefix, f.Label) &&
		slices.ContainsFunc(f.Rules.Inbound, func(r linodego.FirewallRule) bool { return strings.Contains(r.Description, madeMark) })
}

// firewallPlan reads what exists and decides; nb is nil before it is made.
func (l *loadBalancers) firewallPlan(ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer) (firewallPlan, firewallWish, error) {
	mark, err := l.mark(ctx)
	if err != nil {
		return firewallPlan{}, firewallWish{}, err
	}
	id := 0
	var attached []*linodego.Firewall
	if nb != nil {
		id = nb.ID
		attached, err = l.firewalls.Find(ctx, indexNodeBalancer, strconv.Itoa(id), inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge})
		if err != nil {
			return firewallPlan{}, firewallWish{}, err
		}
	}
	w := firewallWish{attach: s.FirewallID, ours: func(f *linodego.Firewall) bool { return madeFor(f, service, l.config.Prefix, mark, id) }}
	if nb != nil {
		w.noted = notedFirewalls(nb.Tags)
	}
	if s.ACL == nil || s.FirewallID != 0 {
		return planFirewalls(w, id, attached, nil), w, nil
	}
	name := label(l.config.Prefix, service)
	rules, err := firewallRules(s.ACL, service, name)
	if err != nil {
		l.event(service, v1.EventTypeWarning, eventConfigError, err.Error())
		return firewallPlan{}, w, err
	}
	w.rules = &rules
	var named *linodego.Firewall
	if !slices.ContainsFunc(attached, w.ours) {
		found, err := l.firewalls.Find(ctx, indexLabel, name, inventory.Query{MaxAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge})
		if err != nil {
			return firewallPlan{}, w, err
		}
		if len(found) > 0 {
			named = found[0]
			if err := ownership.Check(fmt.Sprintf("firewall %d", named.ID), mark, named.Tags); err != nil {
				l.event(service, v1.EventTypeWarning, eventNotOurs, err.Error())
				return firewallPlan{}, w, err
			}
		}
	}
	return planFirewalls(w, id, attached, named), w, nil
}

// ensureFirewall makes the firewalls of a NodeBalancer what the Service says, and returns the one that it has, or 0, and what was
// planned. nb is nil before it is made.
func (l *loadBalancers) ensureFirewall(ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer, want *desired) (int, firewallPlan, error) {
	p, w, err := l.firewallPlan(ctx, service, s, nb)
	if err != nil {
		return 0, p, err
	}
	if p.stays != nil {
		l.reportForeignFirewall(service, nb, p.stays)
	}
	own := cmp.Or(s.FirewallID, p.own)
	for _, step := range p.steps {
		switch step.kind {
		case createFirewall:
			own, err = l.createFirewall(ctx, service, want.tags, *w.rules)
		case changeRules:
			klog.InfoS("Changing firewall", "service", klog.KObj(service), "firewall", step.id, "rules", len(w.rules.Inbound))
			err = l.firewallCall(ctx, step.id, fmt.Sprintf("changing the rules of firewall %d", step.id), func(ctx context.Context) error {
				_, err := l.api.sdk.UpdateFirewallRules(ctx, step.id, *w.rules)
				return err
			})
		case attachFirewall:
			klog.InfoS("Attaching firewall", "service", klog.KObj(service), "nodeBalancer", nb.ID, "firewall", own)
			err = l.firewallCall(ctx, own, fmt.Sprintf("attaching firewall %d to NodeBalancer %d", own, nb.ID), func(ctx context.Context) error {
				_, err := l.api.sdk.CreateFirewallDevice(ctx, own, linodego.FirewallDeviceCreateOptions{ID: nb.ID, Type: deviceNodeBalancer})
				return err
			})
		case detachFirewall:
			err = l.detach(ctx, service, nb, step.firewall)
		case dropFirewall:
			if err = l.detach(ctx, service, nb, step.firewall); err == nil {
				err = l.deleteUnusedFirewall(ctx, service, step.id, nb.ID)
			}
		}
		if err != nil {
			return 0, p, err
		}
	}
	return own, p, nil
}

// firewallMarkPrefix begins the tag by which a NodeBalancer notes a firewall of somebody else that this program attached.
const firewallMarkPrefix = "anyccm-firewall:"

func firewallMark(id int) string { return firewallMarkPrefix + strconv.Itoa(id) }

// notedFirewalls are the firewalls that tags note.
func notedFirewalls(tags []string) []int {
	var noted []int
	for _, t := range tags {
		if id := idOf(strings.TrimPrefix(t, firewallMarkPrefix)); id != 0 && t == firewallMark(id) {
			noted = append(noted, id)
		}
	}
	return noted
}

// notes are the tags of a NodeBalancer after a plan about its firewalls. A note of what is not attached any more goes: whoever
// attaches that firewall next may be somebody else.
func (p firewallPlan) notes(tags []string, attach int) []string {
	after := slices.DeleteFunc(slices.Clone(tags), func(t string) bool {
		noted := notedFirewalls([]string{t})
		return len(noted) > 0 && !slices.Contains(p.attached, noted[0])
	})
	for _, step := range p.steps {
		switch mark := firewallMark(step.id); {
		case step.kind == attachFirewall && step.id == attach && attach != 0 && !slices.Contains(after, mark):
			after = append(after, mark)
		case step.kind == detachFirewall:
			after = slices.DeleteFunc(after, func(t string) bool { return t == mark })
		}
	}
	return after
}

// noteFirewalls writes on the NodeBalancer which firewalls of others we attached.
func (l *loadBalancers) noteFirewalls(ctx context.Context, s settings, nb *nodeBalancer, p firewallPlan) (*nodeBalancer, error) {
	tags := p.notes(nb.Tags, s.FirewallID)
	if !l.config.OwnershipTag || sameSet(tags, nb.Tags) {
		return nb, nil
	}
	after, err := l.api.updateNodeBalancer(ctx, nb.ID, nodeBalancerUpdate{Label: nb.Label, Throttle: nb.Throttle, Tags: tags})
	if err != nil {
		l.observed.Invalidate(nb.ID)
		return nil, err
	}
	l.observed.Put(after)
	return after, nil
}

// reportForeignFirewall tells that a firewall which somebody attached keeps the Service from getting its own.
func (l *loadBalancers) reportForeignFirewall(service *v1.Service, nb *nodeBalancer, f *linodego.Firewall) {
	what, reason := "annotation "+annotationFirewallACL, eventIgnored
	switch {
	case service.Annotations[annotationFirewallID] != "":
		what = "annotation " + annotationFirewallID
	case service.Annotations[annotationFirewallACL] == "":
		what, reason = placeSourceRanges, eventRangesIgnored
	}
	l.event(service, v1.EventTypeWarning, reason, fmt.Sprintf(
		"%s has no effect: firewall %d (%s) of NodeBalancer %d, which no controller made or attached for this Service, stays; detach it to let the Service have its own", what, f.ID, f.Label, nb.ID))
}

// createFirewall makes the firewall of a Service. Like the NodeBalancer it has the same label at every try.
func (l *loadBalancers) createFirewall(ctx context.Context, service *v1.Service, tags []string, rules linodego.FirewallRuleSet) (int, error) {
	name := label(l.config.Prefix, service)
	tags, err := l.marked(ctx, service, tags)
	if err != nil {
		return 0, err
	}
	klog.InfoS("Creating firewall", "service", klog.KObj(service), "label", name, "rules", len(rules.Inbound))
	f, err := read(ctx, "creating firewall "+name, func(f *linodego.Firewall) bool { return f.ID != 0 }, func(ctx context.Context) (*linodego.Firewall, error) {
		return l.api.sdk.CreateFirewall(ctx, linodego.FirewallCreateOptions{Label: name, Rules: rules, Tags: tags})
	})
	if err != nil {
		l.firewalls.Invalidate(0)
		return 0, err
	}
	l.firewalls.Put(f)
	return f.ID, nil
}

// deleteUnusedFirewall deletes a firewall that was made for the Service, if it still is and protects nothing. It is read
// right before: what was read earlier may have been given another use.
func (l *loadBalancers) deleteUnusedFirewall(ctx context.Context, service *v1.Service, id, nodeBalancer int) error {
	mark, err := l.mark(ctx)
	if err != nil {
		return err
	}
	now, err := l.firewalls.Get(ctx, id, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(now.Entities) > 0 || !madeFor(now, service, l.config.Prefix, mark, nodeBalancer):
		return nil
	}
	klog.InfoS("Deleting firewall", "service", klog.KObj(service), "firewall", id)
	return l.deleteFirewall(ctx, id)
}

func (l *loadBalancers) detach(ctx context.Context, service *v1.Service, nb *nodeBalancer, f *linodego.Firewall) error {
	devices, _, err := listAll[linodego.FirewallDevice](ctx, l.api, fmt.Sprintf("devices of firewall %d", f.ID), fmt.Sprintf("networking/firewalls/%d/devices", f.ID), "")
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Entity.Type != deviceNodeBalancer || d.Entity.ID != nb.ID {
			continue
		}
		klog.InfoS("Detaching firewall", "service", klog.KObj(service), "nodeBalancer", nb.ID, "firewall", f.ID)
		err := l.firewallCall(ctx, f.ID, fmt.Sprintf("detaching firewall %d from NodeBalancer %d", f.ID, nb.ID), func(ctx context.Context) error {
			return l.api.sdk.DeleteFirewallDevice(ctx, f.ID, d.ID)
		})
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
	}
	return nil
}

func (l *loadBalancers) deleteFirewall(ctx context.Context, id int) error {
	err := l.firewallCall(ctx, id, fmt.Sprintf("deleting firewall %d", id), func(ctx context.Context) error { return l.api.sdk.DeleteFirewall(ctx, id) })
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	l.firewalls.Forget(id)
	return nil
}

// firewallCall makes a change whose effect on the firewall is read afterwards.
func (l *loadBalancers) firewallCall(ctx context.Context, id int, doing string, change func(context.Context) error) error {
	err := do(ctx, doing, change)
	l.firewalls.Invalidate(id)
	return err
}

// adoptFirewallForDeletion gives the firewall of a NodeBalancer that is about to go our label, if Linode's own controller
// made it under another one: once the NodeBalancer is gone, nothing else leads to it.
func (l *loadBalancers) adoptFirewallForDeletion(ctx context.Context, service *v1.Service, nb *nodeBalancer) error {
	mark, err := l.mark(ctx)
	if err != nil {
		return err
	}
	name := label(l.config.Prefix, service)
	attached, err := l.firewalls.Find(ctx, indexNodeBalancer, strconv.Itoa(nb.ID), inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
	if err != nil {
		return err
	}
	for _, f := range attached {
		if f.Label == name || !madeFor(f, service, l.config.Prefix, mark, nb.ID) {
			continue
		}
		err := l.firewallCall(ctx, f.ID, fmt.Sprintf("renaming firewall %d", f.ID), func(ctx context.Context) error {
			_, err := l.api.sdk.UpdateFirewall(ctx, f.ID, linodego.FirewallUpdateOptions{Label: name})
			return err
		})
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return err
		}
	}
	return nil
}

// deleteOwnFirewall deletes the firewall that was made for a Service, after its NodeBalancer.
func (l *loadBalancers) deleteOwnFirewall(ctx context.Context, service *v1.Service) error {
	left, err := l.leftFirewalls(ctx, service)
	if err != nil {
		return err
	}
	for _, f := range left {
		klog.InfoS("Deleting firewall", "service", klog.KObj(service), "firewall", f.ID)
		if err := l.deleteFirewall(ctx, f.ID); err != nil {
			return err
		}
	}
	return nil
}

// leftFirewalls are the firewalls that were made for a Service and protect nothing any more, as a read of right now shows.
func (l *loadBalancers) leftFirewalls(ctx context.Context, service *v1.Service) ([]*linodego.Firewall, error) {
	mark, err := l.mark(ctx)
	if err != nil {
		return nil, err
	}
	found, err := l.firewalls.Find(ctx, indexLabel, label(l.config.Prefix, service), inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	var left []*linodego.Firewall
	for _, f := range found {
		// What it protects is known since before the NodeBalancer went.
		now, err := l.firewalls.Get(ctx, f.ID, inventory.Query{})
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(now.Entities) == 0 && madeFor(now, service, l.config.Prefix, mark, 0) {
			left = append(left, now)
		}
	}
	return left, nil
}

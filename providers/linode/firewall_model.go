package linode

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
)

const (
	actionAccept = "ACCEPT"
	actionDrop   = "DROP"

	deviceNodeBalancer = "nodebalancer"
	// descriptionPrefix begins the descriptions of rules that Linode's own controller and this program make.
	descriptionPrefix = "Created by linode-ccm"

	indexNodeBalancer = "nodebalancer"
)

// This file computes the firewalls of NodeBalancers, their rules and the steps towards them, without calls.

// firewallRules computes the rules of an access list.
func firewallRules(a *acl, service *v1.Service, firewallLabel string) (linodego.FirewallRuleSet, error) {
	list, action, policy := a.Allow, actionAccept, actionDrop
	if list == nil {
		list, action, policy = a.Deny, actionDrop, actionAccept
	}
	set := linodego.FirewallRuleSet{InboundPolicy: policy, OutboundPolicy: actionAccept, Outbound: []linodego.FirewallRule{}}
	for ports := range slices.Chunk(servicePorts(service), linodelimits.RulePorts.Max) {
		set.Inbound = append(set.Inbound, rulesOn(strings.Join(ports, ","), action, *list, service, firewallLabel)...)
	}
	if len(set.Inbound) > linodelimits.FirewallRules.Max {
		return set, fmt.Errorf("%s: too many networks for so many ports: a firewall holds %d rules of %d networks and %d ports",
			placeOfACL(service), linodelimits.FirewallRules.Max, linodelimits.RuleAddresses.Max, linodelimits.RulePorts.Max)
	}
	return set, nil
}

// rulesOn returns as few rules as hold the networks, each for all of the ports.
func rulesOn(ports, action string, list addressList, service *v1.Service, firewallLabel string) (rules []linodego.FirewallRule) {
	rule := func(description string, v4, v6 []string) linodego.FirewallRule {
		r := linodego.FirewallRule{
			Action: action, Label: linodelimits.RuleLabel.Cut(action + "-" + service.Name),
			Description: cutWithDots(description, linodelimits.RuleDescription.Max), Ports: ports, Protocol: linodego.TCP,
		}
		if len(v4) > 0 {
			r.Addresses.IPv4 = &v4
		}
		if len(v6) > 0 {
			r.Addresses.IPv6 = &v6
		}
		return r
	}
	text := fmt.Sprintf("%s: %s, for %s", descriptionPrefix, firewallLabel, service.Name)
	switch n := len(list.IPv4) + len(list.IPv6); {
	case n == 0:
		return nil
	case n <= linodelimits.RuleAddresses.Max:
		return []linodego.FirewallRule{rule(text, list.IPv4, list.IPv6)}
	}
	for chunk := range slices.Chunk(list.IPv4, linodelimits.RuleAddresses.Max) {
		rules = append(rules, rule(fmt.Sprintf("Rule %d, %s", len(rules), text), chunk, nil))
	}
	for chunk := range slices.Chunk(list.IPv6, linodelimits.RuleAddresses.Max) {
		rules = append(rules, rule(fmt.Sprintf("Rule %d, %s", len(rules), text), nil, chunk))
	}
	return rules
}

func servicePorts(service *v1.Service) (ports []string) {
	for _, p := range service.Spec.Ports {
		ports = union(ports, strconv.Itoa(int(p.Port)))
	}
	return ports
}

func cutWithDots(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit-3] + "..."
}

// sameRules reports whether rules admit the same. Their names, and how networks and ports are split among them, do not matter.
func sameRules(a, b linodego.FirewallRuleSet) bool {
	return a.InboundPolicy == b.InboundPolicy && slices.Equal(ruleTexts(a), ruleTexts(b))
}

// ruleTexts returns one text for each network and port, sorted.
func ruleTexts(set linodego.FirewallRuleSet) []string {
	var texts []string
	for _, r := range set.Inbound {
		networks := addressesOf(r)
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

// addressesOf returns the networks of a rule, as they are written.
func addressesOf(r linodego.FirewallRule) (texts []string) {
	for _, list := range []*[]string{r.Addresses.IPv4, r.Addresses.IPv6} {
		if list != nil {
			texts = append(texts, *list...)
		}
	}
	return texts
}

// firewallOwner is a Service for which a controller may have made firewalls.
type firewallOwner struct {
	service *v1.Service
	// nodeBalancer is the ID of its NodeBalancer; 0 if it has none.
	nodeBalancer int
	// label is that of the Service's own firewall. prefix begins the labels of all that controllers make.
	label, prefix string
	// mark is that of the cluster.
	mark string
}

// desiredFirewalls holds a Service's firewall settings.
type desiredFirewalls struct {
	firewallOwner

	// attach is the firewall that the Service names; 0 if it names none.
	attach int
	// noted are the firewalls of others that this program attached, by the tags of the NodeBalancer. Annotations prove nothing.
	noted []int
	// rules of the Service's own firewall; nil if it needs none.
	rules *linodego.FirewallRuleSet
}

// firewallStep is one change of firewalls.
type firewallStep struct {
	kind firewallStepKind
	// firewall is the one to change; nil if it does not exist yet, or only its ID is known.
	firewall *linodego.Firewall
	id       int
}

type firewallStepKind string

const (
	createFirewall firewallStepKind = "create firewall"
	changeRules    firewallStepKind = "change rules"
	attachFirewall firewallStepKind = "attach firewall"
	detachFirewall firewallStepKind = "detach firewall"
	// dropFirewall deletes it, or detaches it if it protects something else too.
	dropFirewall firewallStepKind = "delete firewall"
)

// firewallPlan lists the steps that lead to the desired firewalls.
type firewallPlan struct {
	steps []firewallStep
	// attached are the present firewalls; attach is the one that the Service names, or 0.
	attached []int
	attach   int
	// own is the Service's existing firewall, or 0; name and rules are the desired ones.
	own   int
	name  string
	rules *linodego.FirewallRuleSet
	// foreign is somebody else's firewall, which prevents the Service's own or named one.
	foreign *linodego.Firewall
}

// planFirewalls decides about the firewalls of a NodeBalancer. labelled is the firewall with the label of the Service's own, or nil. A
// firewall of somebody else is attached if the Service names it, detached if this program attached it, and otherwise left alone.
func planFirewalls(w desiredFirewalls, attached []*linodego.Firewall, labelled *linodego.Firewall) firewallPlan {
	p := firewallPlan{name: w.label, rules: w.rules, attach: w.attach}
	for _, f := range attached {
		p.attached = append(p.attached, f.ID)
	}
	keep, wanted := w.attach, w.attach != 0 || w.rules != nil
	foreign := slices.IndexFunc(attached, func(f *linodego.Firewall) bool {
		return f.ID != w.attach && !slices.Contains(w.noted, f.ID) && !w.owns(f)
	})
	if wanted && foreign >= 0 {
		p.foreign = attached[foreign]
		return p
	}
	if w.attach == 0 && w.rules != nil {
		keep = p.planOwn(w, attached, labelled)
	}
	if w.nodeBalancer == 0 {
		return p
	}
	if wanted && !slices.Contains(p.attached, keep) {
		p.steps = append(p.steps, firewallStep{kind: attachFirewall, id: keep})
	}
	for _, f := range attached {
		switch {
		case f.ID == keep:
		case w.owns(f):
			p.steps = append(p.steps, firewallStep{kind: dropFirewall, firewall: f, id: f.ID})
		case slices.Contains(w.noted, f.ID):
			p.steps = append(p.steps, firewallStep{kind: detachFirewall, firewall: f, id: f.ID})
		}
	}
	return p
}

// planOwn decides about the Service's own firewall, and returns its ID, or 0 if it does not exist yet.
func (p *firewallPlan) planOwn(w desiredFirewalls, attached []*linodego.Firewall, labelled *linodego.Firewall) int {
	own := labelled
	if i := slices.IndexFunc(attached, w.owns); i >= 0 {
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

// owns reports whether a controller created a firewall for the Service: this program, which gives it the Service's label, or Linode's own
// controller, whose firewall protects only the Service's NodeBalancer. Labels are unique in an account.
func (o firewallOwner) owns(f *linodego.Firewall) bool {
	if ownership.Check("", o.mark, f.Tags) != nil {
		return false
	}
	if _, uid := ownership.Marked(f.Tags); uid != "" {
		nameMark := ownership.NameMark(o.service.Namespace, o.service.Name)
		isSuccessor := o.mark != "" && slices.Contains(f.Tags, o.mark) && slices.Contains(f.Tags, nameMark)
		return uid == string(o.service.UID) || isSuccessor
	}
	if f.Label == o.label {
		return true
	}
	marked := slices.ContainsFunc(f.Tags, ownership.IsMark)
	return !marked && protectsOnly(f, o.nodeBalancer) && isMadeByController(o.prefix, f.Label) &&
		slices.ContainsFunc(f.Rules.Inbound, func(r linodego.FirewallRule) bool { return strings.Contains(r.Description, descriptionPrefix) })
}

// protectsOnly reports whether a firewall protects at most the NodeBalancer.
func protectsOnly(f *linodego.Firewall, nodeBalancer int) bool {
	return !slices.ContainsFunc(f.Entities, func(e linodego.FirewallDeviceEntity) bool {
		return e.Type != deviceNodeBalancer || e.ID != nodeBalancer
	})
}

// firewallMarkPrefix begins the tag of a NodeBalancer about somebody else's firewall that this program attached.
const firewallMarkPrefix = "anyccm-firewall:"

func firewallMark(id int) string { return firewallMarkPrefix + strconv.Itoa(id) }

// notedFirewalls returns the firewalls in such tags.
func notedFirewalls(tags []string) []int {
	var noted []int
	for _, t := range tags {
		if id := idOf(strings.TrimPrefix(t, firewallMarkPrefix)); id != 0 && t == firewallMark(id) {
			noted = append(noted, id)
		}
	}
	return noted
}

// note returns the tags of a NodeBalancer after the plan, without notes of firewalls that are no longer attached: somebody else may attach
// them next.
func (p firewallPlan) note(tags []string) []string {
	after := slices.DeleteFunc(slices.Clone(tags), func(t string) bool {
		noted := notedFirewalls([]string{t})
		return len(noted) > 0 && !slices.Contains(p.attached, noted[0])
	})
	for _, step := range p.steps {
		switch mark := firewallMark(step.id); {
		case step.kind == attachFirewall && step.id == p.attach && p.attach != 0 && !slices.Contains(after, mark):
			after = append(after, mark)
		case step.kind == detachFirewall:
			after = slices.DeleteFunc(after, func(t string) bool { return t == mark })
		}
	}
	return after
}

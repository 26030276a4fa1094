package linode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/internal/ownership"
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

// oursFirewall reports whether a cloud controller manager made a firewall: this one, by the mark of the cluster, or
// Linode's own, by label and description.
func (l *loadBalancers) oursFirewall(ctx context.Context, f *linodego.Firewall) bool {
	mark := l.cluster.Mark(ctx)
	if mark != "" && slices.Contains(f.Tags, mark) {
		return true
	}
	return madeByController(l.config.Prefix, f.Label) && ownership.Check("", mark, f.Tags) == nil &&
		slices.ContainsFunc(f.Rules.Inbound, func(r linodego.FirewallRule) bool { return strings.Contains(r.Description, madeMark) })
}

// ensureFirewall makes the firewall of a NodeBalancer what the annotations say. A firewall that is not ours is attached
// and detached where the Service names another one, and else left alone.
func (l *loadBalancers) ensureFirewall(ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer, want *desired) error {
	attached, err := l.firewalls.Find(ctx, indexNodeBalancer, strconv.Itoa(nb.ID), inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge})
	if err != nil {
		return err
	}
	switch {
	case s.FirewallID != 0:
		return l.attachOnly(ctx, service, nb, attached, s.FirewallID)
	case s.ACL != nil:
		foreign := slices.IndexFunc(attached, func(f *linodego.Firewall) bool { return f.ID != s.FirewallRecord && !l.oursFirewall(ctx, f) })
		if foreign >= 0 {
			err := &ownership.NotOursError{Object: fmt.Sprintf("firewall %d of NodeBalancer %d", attached[foreign].ID, nb.ID), Owner: "somebody else"}
			l.event(service, v1.EventTypeWarning, eventNotOurs, err.Error())
			return err
		}
		ours := slices.DeleteFunc(slices.Clone(attached), func(f *linodego.Firewall) bool { return !l.oursFirewall(ctx, f) })
		id, err := l.ownFirewall(ctx, service, s, want, ours)
		if err != nil {
			return err
		}
		return l.attachOnly(ctx, service, nb, attached, id)
	}
	for _, f := range attached {
		var err error
		switch {
		case l.oursFirewall(ctx, f):
			err = l.dropFirewall(ctx, service, nb, f)
		case f.ID == s.FirewallRecord:
			err = l.detach(ctx, service, nb, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// firewallForCreation returns the firewall that a new NodeBalancer is made with, or 0.
func (l *loadBalancers) firewallForCreation(ctx context.Context, service *v1.Service, s settings, want *desired) (int, error) {
	if s.FirewallID != 0 || s.ACL == nil {
		return s.FirewallID, nil
	}
	return l.ownFirewall(ctx, service, s, want, nil)
}

// ownFirewall returns the firewall that is made from the access list of the Service, with the right rules. Like the
// NodeBalancer it has the same label at every try.
func (l *loadBalancers) ownFirewall(ctx context.Context, service *v1.Service, s settings, want *desired, attached []*linodego.Firewall) (int, error) {
	name := label(l.config.Prefix, service)
	rules, err := firewallRules(s.ACL, service, name)
	if err != nil {
		l.event(service, v1.EventTypeWarning, eventConfigError, err.Error())
		return 0, err
	}
	found := attached
	if len(found) == 0 {
		if found, err = l.firewalls.Find(ctx, indexLabel, name, inventory.Query{MaxAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge}); err != nil {
			return 0, err
		}
	}
	if len(found) > 0 {
		f := found[0]
		if err := ownership.Check(fmt.Sprintf("firewall %d", f.ID), l.cluster.Mark(ctx), f.Tags); err != nil {
			l.event(service, v1.EventTypeWarning, eventNotOurs, err.Error())
			return 0, err
		}
		if sameRules(f.Rules, rules) {
			return f.ID, nil
		}
		klog.InfoS("Changing firewall", "service", klog.KObj(service), "firewall", f.ID, "rules", len(rules.Inbound))
		return f.ID, l.firewallCall(ctx, f.ID, fmt.Sprintf("changing the rules of firewall %d", f.ID), func(ctx context.Context) error {
			_, err := l.api.sdk.UpdateFirewallRules(ctx, f.ID, rules)
			return err
		})
	}
	tags := slices.Clone(want.tags)
	if mark := l.cluster.Mark(ctx); mark != "" && l.config.OwnershipTag {
		tags = append(tags, mark)
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

// attachOnly makes one firewall the only one of a NodeBalancer.
func (l *loadBalancers) attachOnly(ctx context.Context, service *v1.Service, nb *nodeBalancer, attached []*linodego.Firewall, id int) error {
	if !slices.ContainsFunc(attached, func(f *linodego.Firewall) bool { return f.ID == id }) {
		klog.InfoS("Attaching firewall", "service", klog.KObj(service), "nodeBalancer", nb.ID, "firewall", id)
		err := l.firewallCall(ctx, id, fmt.Sprintf("attaching firewall %d to NodeBalancer %d", id, nb.ID), func(ctx context.Context) error {
			_, err := l.api.sdk.CreateFirewallDevice(ctx, id, linodego.FirewallDeviceCreateOptions{ID: nb.ID, Type: deviceNodeBalancer})
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, f := range attached {
		if f.ID == id {
			continue
		}
		drop := l.detach
		if l.oursFirewall(ctx, f) {
			drop = l.dropFirewall
		}
		if err := drop(ctx, service, nb, f); err != nil {
			return err
		}
	}
	return nil
}

// dropFirewall detaches a firewall of ours, and deletes it unless somebody uses it for something else too.
func (l *loadBalancers) dropFirewall(ctx context.Context, service *v1.Service, nb *nodeBalancer, f *linodego.Firewall) error {
	if err := l.detach(ctx, service, nb, f); err != nil {
		return err
	}
	others := slices.ContainsFunc(f.Entities, func(e linodego.FirewallDeviceEntity) bool { return e.Type != deviceNodeBalancer || e.ID != nb.ID })
	if others {
		return nil
	}
	return l.deleteFirewall(ctx, service, f.ID)
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

func (l *loadBalancers) deleteFirewall(ctx context.Context, service *v1.Service, id int) error {
	klog.InfoS("Deleting firewall", "service", klog.KObj(service), "firewall", id)
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
	name := label(l.config.Prefix, service)
	attached, err := l.firewalls.Find(ctx, indexNodeBalancer, strconv.Itoa(nb.ID), inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
	if err != nil {
		return err
	}
	for _, f := range attached {
		if !l.oursFirewall(ctx, f) || f.Label == name || len(f.Entities) > 1 {
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
		if err := l.deleteFirewall(ctx, service, f.ID); err != nil {
			return err
		}
	}
	return nil
}

// leftFirewalls are the firewalls that were made for a Service and protect nothing any more.
func (l *loadBalancers) leftFirewalls(ctx context.Context, service *v1.Service) ([]*linodego.Firewall, error) {
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
		if l.oursFirewall(ctx, now) && len(now.Entities) == 0 {
			left = append(left, now)
		}
	}
	return left, nil
}

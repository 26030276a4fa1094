package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

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
	return read(ctx, fmt.Sprintf(
		"reading firewall %d", id,
	), func(f *linodego.Firewall) bool { return f.ID == id }, func(ctx context.Context) (*linodego.Firewall, error) {
		return a.sdk.GetFirewall(ctx, id)
	})
}

// attachedFirewalls reads the firewalls of a NodeBalancer, nil before its creation, and returns the Service's settings other than its own
// rules.
func (l *loadBalancers) attachedFirewalls(
	ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer,
) (want desiredFirewalls, attached []*linodego.Firewall, err error) {
	mark, err := l.mark(ctx)
	if err != nil {
		return want, nil, err
	}
	id := 0
	want = desiredFirewalls{attach: s.FirewallID, mark: mark}
	if nb != nil {
		id, want.noted = nb.ID, notedFirewalls(nb.Tags)
		q := inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge}
		attached, err = l.firewalls.Find(ctx, indexNodeBalancer, strconv.Itoa(id), q)
	}
	want.ours = func(f *linodego.Firewall) bool { return isMadeFor(f, service, l.config.Prefix, mark, id) }
	return want, attached, err
}

// desireFirewalls reads the existing firewalls and decides; nb is nil before its creation.
func (l *loadBalancers) desireFirewalls(
	ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer,
) (p firewallPlan, findings []services.Finding, err error) {
	want, attached, err := l.attachedFirewalls(ctx, service, s, nb)
	if err != nil {
		return p, nil, err
	}
	var named *linodego.Firewall
	if s.ACL != nil && s.FirewallID == 0 {
		rules, err := firewallRules(s.ACL, service, label(l.config.Prefix, service))
		if err != nil {
			return p, configFinding(err), err
		}
		want.rules = &rules
		if !slices.ContainsFunc(attached, want.ours) {
			if named, findings, err = l.namedFirewall(ctx, service, want.mark); err != nil {
				return p, findings, err
			}
		}
	}
	id := 0
	if nb != nil {
		id = nb.ID
	}
	p = planFirewalls(want, id, attached, named)
	p.name = label(l.config.Prefix, service)
	if p.stays != nil {
		findings = append(findings, foreignFirewall(service, nb, p.stays))
	}
	return p, findings, nil
}

// namedFirewall returns the firewall with the label of the Service's own, or nil. Another cluster's is an error.
func (l *loadBalancers) namedFirewall(
	ctx context.Context, service *v1.Service, mark string,
) (*linodego.Firewall, []services.Finding, error) {
	q := inventory.Query{MaxAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge}
	found, err := l.firewalls.Find(ctx, indexLabel, label(l.config.Prefix, service), q)
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	if err := ownership.Check(fmt.Sprintf("firewall %d", found[0].ID), mark, found[0].Tags); err != nil {
		return nil, []services.Finding{services.Warning(ownership.EventNotOurs, "%s", err)}, err
	}
	return found[0], nil, nil
}

// foreignFirewall reports that a firewall attached by somebody else prevents the Service's own.
func foreignFirewall(service *v1.Service, nb *nodeBalancer, f *linodego.Firewall) services.Finding {
	what, reason := "annotation "+annotationFirewallACL, eventIgnored
	switch {
	case service.Annotations[annotationFirewallID] != "":
		what = "annotation " + annotationFirewallID
	case service.Annotations[annotationFirewallACL] == "":
		what, reason = placeSourceRanges, eventRangesIgnored
	}
	return services.Warning(reason,
		"%s has no effect: firewall %d (%s) of NodeBalancer %d, which no controller made or attached for this Service, stays; "+
			"detach it to let the Service have its own", what, f.ID, f.Label, nb.ID)
}

// notes returns the tags of a NodeBalancer with the desired firewalls.
func (l *loadBalancers) notes(nb *nodeBalancer, d *desiredState) []string {
	tags := d.firewalls.notes(nb.Tags, d.settings.FirewallID)
	if !l.config.OwnershipTag || services.SameSet(tags, nb.Tags) {
		return nb.Tags
	}
	return tags
}

// firewallChanges returns the changes of a NodeBalancer's firewalls; nb is nil before its creation. Its tags name the others' firewalls
// that we attached: from before the attachment, because its response may be lost, until after the detachment.
func (l *loadBalancers) firewallChanges(nb *nodeBalancer, d *desiredState) []services.Change[finding] {
	var changes []services.Change[finding]
	for _, st := range d.firewalls.steps {
		changes = append(changes, l.firewallChange(nb, d, st))
	}
	if nb == nil {
		return changes
	}
	tags := l.notes(nb, d)
	if services.SameSet(tags, nb.Tags) {
		return changes
	}
	if len(changes) == 0 {
		return []services.Change[finding]{{
			Planned: contract.Planned{Action: contract.PlanChange, Object: fmt.Sprintf("NodeBalancer %d", nb.ID), Detail: "note its firewalls in its tags"},
			Compare: func() (before, after any) { return services.Part(nb, "tags"), map[string]any{"tags": tags} },
			Make: func(ctx context.Context, _ *services.Request, f finding) (finding, error) {
				return l.writeTags(ctx, f, tags)
			},
		}}
	}
	early := slices.Concat(nb.Tags, slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return slices.Contains(nb.Tags, t) }))
	if !services.SameSet(early, nb.Tags) {
		first := &changes[0]
		change := first.Make
		first.Make = func(ctx context.Context, r *services.Request, f finding) (finding, error) {
			f, err := l.writeTags(ctx, f, early)
			if err != nil {
				return f, err
			}
			return change(ctx, r, f)
		}
	}
	if !services.SameSet(early, tags) {
		last := &changes[len(changes)-1]
		change := last.Make
		last.Make = func(ctx context.Context, r *services.Request, f finding) (finding, error) {
			f, err := change(ctx, r, f)
			if err != nil {
				return f, err
			}
			return l.writeTags(ctx, f, tags)
		}
	}
	return changes
}

// writeTags writes the tags of a NodeBalancer.
func (l *loadBalancers) writeTags(ctx context.Context, f finding, tags []string) (finding, error) {
	after, err := l.api.updateNodeBalancer(ctx, f.nb.ID, nodeBalancerUpdate{Label: f.nb.Label, Throttle: f.nb.Throttle, Tags: tags})
	if err != nil {
		l.observed.Invalidate(f.nb.ID)
		return f, err
	}
	l.observed.Put(after)
	f.nb = after
	return f, nil
}

// firewallChange returns the change of one step.
func (l *loadBalancers) firewallChange(nb *nodeBalancer, d *desiredState, st firewallStep) services.Change[finding] {
	title := fmt.Sprintf("firewall %d", st.id)
	if st.id == 0 {
		title = "firewall " + d.firewalls.name
	}
	change := services.Change[finding]{Planned: contract.Planned{Action: contract.PlanChange, Object: title, Detail: string(st.kind)}}
	switch rules := d.firewalls.rules; st.kind {
	case createFirewall:
		change.Action, change.Detail, change.Creates = contract.PlanCreate, textOf(rules), true
		change.Compare = func() (before, after any) { return nil, rules }
		change.Make = func(ctx context.Context, r *services.Request, f finding) (_ finding, err error) {
			f.firewall, err = l.createFirewall(ctx, d)
			noteHidden(r, err)
			return f, err
		}
	case changeRules:
		change.Detail += ": " + textOf(rules)
		change.Compare = func() (before, after any) { return services.Within(st.firewall.Rules, rules), rules }
		change.Make = func(ctx context.Context, _ *services.Request, f finding) (finding, error) {
			return f, l.firewallCall(ctx, st.id, fmt.Sprintf("changing the rules of firewall %d", st.id), func(ctx context.Context) error {
				_, err := l.api.sdk.UpdateFirewallRules(ctx, st.id, *rules)
				return err
			})
		}
	case attachFirewall:
		change.Object, change.Detail = fmt.Sprintf("NodeBalancer %d", nb.ID), fmt.Sprintf("%s: %s", st.kind, title)
		change.Compare = func() (before, after any) { return nil, map[string]any{"firewall": title} }
		change.Make = func(ctx context.Context, _ *services.Request, f finding) (finding, error) {
			id := cmp.Or(st.id, f.firewall)
			if id == 0 {
				return f, nil // its creation failed
			}
			return f, l.attach(ctx, nb, id)
		}
	case detachFirewall:
		change.Object, change.Detail = fmt.Sprintf("NodeBalancer %d", nb.ID), fmt.Sprintf("%s: %s", st.kind, title)
		change.Compare = func() (before, after any) { return map[string]any{"firewall": title}, nil }
		change.Make = func(ctx context.Context, _ *services.Request, f finding) (finding, error) {
			return f, l.detach(ctx, nb, st.firewall)
		}
	case dropFirewall:
		change.Action, change.Detail = contract.PlanDelete, "or detach, where it protects something else"
		change.Compare = func() (before, after any) { return services.Part(st.firewall, "label", "rules"), nil }
		change.Make = func(ctx context.Context, r *services.Request, f finding) (finding, error) {
			return f, l.dropFirewall(ctx, r.Service, st.firewall, nb)
		}
	}
	return change
}

func textOf(rules *linodego.FirewallRuleSet) string {
	return fmt.Sprintf("%d rules, otherwise %s", len(rules.Inbound), rules.InboundPolicy)
}

func (l *loadBalancers) attach(ctx context.Context, nb *nodeBalancer, firewall int) error {
	return l.firewallCall(ctx, firewall, fmt.Sprintf("attaching firewall %d to NodeBalancer %d", firewall, nb.ID), func(ctx context.Context) error {
		_, err := l.api.sdk.CreateFirewallDevice(ctx, firewall, linodego.FirewallDeviceCreateOptions{ID: nb.ID, Type: deviceNodeBalancer})
		return err
	})
}

// createFirewall creates the firewall of a Service. Its label is the same at every try, like the NodeBalancer's.
func (l *loadBalancers) createFirewall(ctx context.Context, d *desiredState) (int, error) {
	name, rules, tags := d.firewalls.name, *d.firewalls.rules, slices.Concat([]string{}, d.balancer.tags, d.marks)
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

// dropFirewall deletes the firewall of a NodeBalancer in one call, which also detaches it: between two calls it could be left without a
// NodeBalancer to find it by. It is only detached if it is no longer the Service's or protects something else, as a read right before
// shows.
func (l *loadBalancers) dropFirewall(ctx context.Context, service *v1.Service, f *linodego.Firewall, nb *nodeBalancer) error {
	mark, err := l.mark(ctx)
	if err != nil {
		return err
	}
	now, err := l.firewalls.Get(ctx, f.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !protectsOnly(now, nb.ID) || !isMadeFor(now, service, l.config.Prefix, mark, nb.ID):
		return l.detach(ctx, nb, f)
	}
	klog.InfoS("Deleting firewall", "service", klog.KObj(service), "firewall", f.ID)
	return l.deleteFirewall(ctx, f.ID)
}

func (l *loadBalancers) detach(ctx context.Context, nb *nodeBalancer, f *linodego.Firewall) error {
	devices, _, err := listAll[linodego.FirewallDevice](ctx, l.api, fmt.Sprintf("devices of firewall %d", f.ID), fmt.Sprintf("networking/firewalls/%d/devices", f.ID), "")
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Entity.Type != deviceNodeBalancer || d.Entity.ID != nb.ID {
			continue
		}
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

// firewallCall makes a change, after which the firewall is read again.
func (l *loadBalancers) firewallCall(ctx context.Context, id int, doing string, change func(context.Context) error) error {
	err := do(ctx, doing, change)
	if err != nil {
		l.firewalls.Doubt(id)
		return err
	}
	l.firewalls.Invalidate(id)
	return nil
}

// adoptFirewallForDeletion gives the firewall of a NodeBalancer to be deleted our label, if Linode's own controller created it under
// another one: afterwards it could not be found.
func (l *loadBalancers) adoptFirewallForDeletion(ctx context.Context, service *v1.Service, nb *nodeBalancer) error {
	mark, err := l.mark(ctx)
	if err != nil {
		return err
	}
	name := label(l.config.Prefix, service)
	attached, err := l.firewalls.Find(
		ctx, indexNodeBalancer, strconv.Itoa(nb.ID), inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge},
	)
	if err != nil {
		return err
	}
	for _, f := range attached {
		if f.Label == name || !isMadeFor(f, service, l.config.Prefix, mark, nb.ID) {
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

// unusedFirewalls returns the firewalls that were created for a Service and protect nothing any more, from a new read.
func (l *loadBalancers) unusedFirewalls(ctx context.Context, service *v1.Service) ([]*linodego.Firewall, error) {
	mark, err := l.mark(ctx)
	if err != nil {
		return nil, err
	}
	found, err := l.firewalls.Find(
		ctx, indexLabel, label(l.config.Prefix, service), inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge},
	)
	if err != nil {
		return nil, err
	}
	var left []*linodego.Firewall
	for _, f := range found {
		// The older listing shows its devices from before the deletion.
		now, err := l.firewalls.Get(ctx, f.ID, inventory.Query{})
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(now.Entities) == 0 && isMadeFor(now, service, l.config.Prefix, mark, 0) {
			left = append(left, now)
		}
	}
	return left, nil
}

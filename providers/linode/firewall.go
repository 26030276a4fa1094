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
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// firewalls manages the firewalls of NodeBalancers: a Service's own, and those that Services name.
type firewalls struct {
	*inventory.Inventory[int, *linodego.Firewall]
	api *api
	// prefix begins the labels of firewalls that a controller made.
	prefix  string
	cluster *ownership.Cluster
}

func newFirewalls(a *api, prefix string, cluster *ownership.Cluster) *firewalls {
	return &firewalls{api: a, prefix: prefix, cluster: cluster, Inventory: inventory.New(inventory.Source[int, *linodego.Firewall]{
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
	})}
}

func (a *api) firewall(ctx context.Context, id int) (*linodego.Firewall, error) {
	doing, isIt := fmt.Sprintf("reading firewall %d", id), func(f *linodego.Firewall) bool { return f.ID == id }
	return read(ctx, doing, isIt, func(ctx context.Context) (*linodego.Firewall, error) { return a.sdk.GetFirewall(ctx, id) })
}

// ownerOf returns the owner of the firewalls that a controller made for a Service. nb is nil if it has no NodeBalancer.
func (fs *firewalls) ownerOf(ctx context.Context, service *v1.Service, nb *nodeBalancer) (o firewallOwner, err error) {
	o = firewallOwner{service: service, label: label(fs.prefix, service), prefix: fs.prefix}
	if nb != nil {
		o.nodeBalancer = nb.ID
	}
	o.mark, err = fs.cluster.Mark(ctx)
	return o, err
}

// findAttached reads the firewalls of a NodeBalancer, nil before its creation, and returns the Service's settings other than its own rules.
func (fs *firewalls) findAttached(
	ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer,
) (want desiredFirewalls, attached []*linodego.Firewall, err error) {
	want.attach = s.FirewallID
	if want.firewallOwner, err = fs.ownerOf(ctx, service, nb); err != nil || nb == nil {
		return want, nil, err
	}
	want.noted = notedFirewalls(nb.Tags)
	q := inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge}
	attached, err = fs.Find(ctx, indexNodeBalancer, strconv.Itoa(nb.ID), q)
	return want, attached, err
}

// desire reads the existing firewalls and decides; nb is nil before its creation.
func (fs *firewalls) desire(
	ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer,
) (p firewallPlan, findings []services.Finding, err error) {
	want, attached, err := fs.findAttached(ctx, service, s, nb)
	if err != nil {
		return p, nil, err
	}
	var own *linodego.Firewall
	if s.ACL != nil && s.FirewallID == 0 {
		rules, err := firewallRules(s.ACL, service, want.label)
		if err != nil {
			return p, services.Judged(nil, err), err
		}
		want.rules = &rules
		if !slices.ContainsFunc(attached, want.owns) {
			if own, findings, err = fs.findByLabel(ctx, want.firewallOwner); err != nil {
				return p, findings, err
			}
		}
	}
	p = planFirewalls(want, attached, own)
	if p.foreign != nil {
		findings = append(findings, foreignFirewallWarning(service, nb, p.foreign))
	}
	return p, findings, nil
}

// findByLabel returns the firewall with the label of the Service's own, or nil. Another cluster's is an error.
func (fs *firewalls) findByLabel(ctx context.Context, o firewallOwner) (*linodego.Firewall, []services.Finding, error) {
	found, err := fs.Find(ctx, indexLabel, o.label, inventory.Query{MaxAge: updateMaxAge, MaxUnlistedAge: ensureMaxAge})
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	if err := ownership.Check(fmt.Sprintf("firewall %d", found[0].ID), o.mark, found[0].Tags); err != nil {
		return nil, []services.Finding{services.Warning(ownership.EventNotOurs, "%s", err)}, err
	}
	return found[0], nil, nil
}

// foreignFirewallWarning reports that a firewall attached by somebody else prevents the Service's own.
func foreignFirewallWarning(service *v1.Service, nb *nodeBalancer, f *linodego.Firewall) services.Finding {
	what, reason := "annotation "+annotationFirewallACL, eventIgnored
	switch {
	case service.Annotations[annotationFirewallID] != "":
		what = "annotation " + annotationFirewallID
	case service.Annotations[annotationFirewallACL] == "":
		what, reason = sources.Field, eventRangesIgnored
	}
	return services.Warning(reason,
		"%s has no effect: firewall %d (%s) of NodeBalancer %d, which no controller made or attached for this Service, stays; "+
			"detach it to let the Service have its own", what, f.ID, f.Label, nb.ID)
}

// noteFirewalls returns the tags of a NodeBalancer with the desired firewalls.
func (r *reconciler) noteFirewalls(nb *nodeBalancer, d *desired) []string {
	tags := d.firewalls.note(nb.Tags)
	if !r.config.OwnershipTag || services.SameSet(tags, nb.Tags) {
		return nb.Tags
	}
	return tags
}

// makeFunc makes a change.
type makeFunc = func(context.Context, *services.Request, observed) (observed, error)

// inTurn makes two changes, the second one if the first succeeded.
func inTurn(first, second makeFunc) makeFunc {
	return func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		o, err := first(ctx, req, o)
		if err != nil {
			return o, err
		}
		return second(ctx, req, o)
	}
}

// firewallChanges returns the changes of a NodeBalancer's firewalls; nb is nil before its creation. Its tags name the others' firewalls
// that we attached: from before the attachment, because its response may be lost, until after the detachment.
func (r *reconciler) firewallChanges(nb *nodeBalancer, d *desired) []services.Change[observed] {
	var changes []services.Change[observed]
	for _, st := range d.firewalls.steps {
		changes = append(changes, r.firewalls.change(nb, d, st))
	}
	if nb == nil {
		return changes
	}
	tags := r.noteFirewalls(nb, d)
	if services.SameSet(tags, nb.Tags) {
		return changes
	}
	write := func(tags []string) makeFunc {
		return func(ctx context.Context, _ *services.Request, o observed) (_ observed, err error) {
			o.nb, err = r.writeTags(ctx, o.nb, tags)
			return o, err
		}
	}
	if len(changes) == 0 {
		return []services.Change[observed]{{
			Planned: contract.Planned{Action: contract.PlanChange, Object: fmt.Sprintf("NodeBalancer %d", nb.ID), Detail: "note its firewalls in its tags"},
			Compare: func() (before, after any) { return services.Part(nb, "tags"), map[string]any{"tags": tags} },
			Make:    write(tags),
		}}
	}
	both := slices.Concat(nb.Tags, slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return slices.Contains(nb.Tags, t) }))
	first, last := &changes[0], &changes[len(changes)-1]
	if !services.SameSet(both, nb.Tags) {
		first.Make = inTurn(write(both), first.Make)
	}
	if !services.SameSet(both, tags) {
		last.Make = inTurn(last.Make, write(tags))
	}
	return changes
}

// writeTags writes the tags of a NodeBalancer, which it returns as it is then.
func (r *reconciler) writeTags(ctx context.Context, nb *nodeBalancer, tags []string) (*nodeBalancer, error) {
	after, err := r.api.updateNodeBalancer(ctx, nb.ID, nodeBalancerUpdate{Label: nb.Label, Throttle: nb.Throttle, Tags: tags})
	if err != nil {
		r.balancers.Invalidate(nb.ID)
		return nb, err
	}
	r.balancers.Put(after)
	return after, nil
}

// change returns the change of one step.
func (fs *firewalls) change(nb *nodeBalancer, d *desired, st firewallStep) services.Change[observed] {
	title := fmt.Sprintf("firewall %d", st.id)
	if st.id == 0 {
		title = "firewall " + d.firewalls.name
	}
	change := services.Change[observed]{Planned: contract.Planned{Action: contract.PlanChange, Object: title, Detail: string(st.kind)}}
	switch rules := d.firewalls.rules; st.kind {
	case createFirewall:
		change.Action, change.Detail, change.Creates = contract.PlanCreate, describeRules(rules), true
		change.Compare = func() (before, after any) { return nil, rules }
		change.Make = func(ctx context.Context, req *services.Request, o observed) (_ observed, err error) {
			o.firewall, err = fs.create(ctx, d)
			noteHidden(req, err)
			return o, err
		}
	case changeRules:
		change.Detail += ": " + describeRules(rules)
		change.Compare = func() (before, after any) { return services.Within(st.firewall.Rules, rules), rules }
		change.Make = func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			return o, fs.write(ctx, st.id, fmt.Sprintf("changing the rules of firewall %d", st.id), func(ctx context.Context) error {
				_, err := fs.api.sdk.UpdateFirewallRules(ctx, st.id, *rules)
				return err
			})
		}
	case attachFirewall:
		change.Object, change.Detail = fmt.Sprintf("NodeBalancer %d", nb.ID), fmt.Sprintf("%s: %s", st.kind, title)
		change.Compare = func() (before, after any) { return nil, map[string]any{"firewall": title} }
		change.Make = func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			id := cmp.Or(st.id, o.firewall)
			if id == 0 {
				return o, nil // its creation failed
			}
			return o, fs.attach(ctx, nb, id)
		}
	case detachFirewall:
		change.Object, change.Detail = fmt.Sprintf("NodeBalancer %d", nb.ID), fmt.Sprintf("%s: %s", st.kind, title)
		change.Compare = func() (before, after any) { return map[string]any{"firewall": title}, nil }
		change.Make = func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			return o, fs.detach(ctx, nb, st.firewall)
		}
	case dropFirewall:
		change.Action, change.Detail = contract.PlanDelete, "or detach, where it protects something else"
		change.Compare = func() (before, after any) { return services.Part(st.firewall, "label", "rules"), nil }
		change.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			return o, fs.drop(ctx, req.Service, st.firewall, nb)
		}
	}
	return change
}

func describeRules(rules *linodego.FirewallRuleSet) string {
	return fmt.Sprintf("%d rules, otherwise %s", len(rules.Inbound), rules.InboundPolicy)
}

func (fs *firewalls) attach(ctx context.Context, nb *nodeBalancer, firewall int) error {
	return fs.write(ctx, firewall, fmt.Sprintf("attaching firewall %d to NodeBalancer %d", firewall, nb.ID), func(ctx context.Context) error {
		_, err := fs.api.sdk.CreateFirewallDevice(ctx, firewall, linodego.FirewallDeviceCreateOptions{ID: nb.ID, Type: deviceNodeBalancer})
		return err
	})
}

// create creates the firewall of a Service, with the NodeBalancer's label.
func (fs *firewalls) create(ctx context.Context, d *desired) (int, error) {
	name, rules, tags := d.firewalls.name, *d.firewalls.rules, slices.Concat([]string{}, d.tags, d.marks)
	f, err := read(ctx, "creating firewall "+name, func(f *linodego.Firewall) bool { return f.ID != 0 }, func(ctx context.Context) (*linodego.Firewall, error) {
		return fs.api.sdk.CreateFirewall(ctx, linodego.FirewallCreateOptions{Label: name, Rules: rules, Tags: tags})
	})
	if err != nil {
		fs.Invalidate(0)
		return 0, err
	}
	fs.Put(f)
	return f.ID, nil
}

// drop deletes the firewall of a NodeBalancer in one call, which also detaches it: between two calls it could be left without a
// NodeBalancer to find it by. It is only detached if it is no longer the Service's or protects something else, as a read right before
// shows.
func (fs *firewalls) drop(ctx context.Context, service *v1.Service, f *linodego.Firewall, nb *nodeBalancer) error {
	owner, err := fs.ownerOf(ctx, service, nb)
	if err != nil {
		return err
	}
	now, err := fs.Get(ctx, f.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !protectsOnly(now, nb.ID) || !owner.owns(now):
		return fs.detach(ctx, nb, f)
	}
	klog.InfoS("Deleting firewall", "service", klog.KObj(service), "firewall", f.ID)
	return fs.delete(ctx, f.ID)
}

func (fs *firewalls) detach(ctx context.Context, nb *nodeBalancer, f *linodego.Firewall) error {
	devices, _, err := listAll[linodego.FirewallDevice](ctx, fs.api, fmt.Sprintf("devices of firewall %d", f.ID), fmt.Sprintf("networking/firewalls/%d/devices", f.ID), "")
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Entity.Type != deviceNodeBalancer || d.Entity.ID != nb.ID {
			continue
		}
		err := fs.write(ctx, f.ID, fmt.Sprintf("detaching firewall %d from NodeBalancer %d", f.ID, nb.ID), func(ctx context.Context) error {
			return fs.api.sdk.DeleteFirewallDevice(ctx, f.ID, d.ID)
		})
		if cloudapi.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (fs *firewalls) delete(ctx context.Context, id int) error {
	err := fs.write(ctx, id, fmt.Sprintf("deleting firewall %d", id), func(ctx context.Context) error { return fs.api.sdk.DeleteFirewall(ctx, id) })
	if cloudapi.IgnoreNotFound(err) != nil {
		return err
	}
	fs.Forget(id)
	return nil
}

// write makes a change, after which the firewall is read again.
func (fs *firewalls) write(ctx context.Context, id int, doing string, change func(context.Context) error) error {
	err := do(ctx, doing, change)
	if err != nil {
		fs.Doubt(id)
		return err
	}
	fs.Invalidate(id)
	return nil
}

// adoptForDeletion gives the firewall of a NodeBalancer to be deleted our label, if Linode's own controller created it under
// another one: afterwards it could not be found.
func (fs *firewalls) adoptForDeletion(ctx context.Context, service *v1.Service, nb *nodeBalancer) error {
	owner, err := fs.ownerOf(ctx, service, nb)
	if err != nil {
		return err
	}
	attached, err := fs.Find(
		ctx, indexNodeBalancer, strconv.Itoa(nb.ID), inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge},
	)
	if err != nil {
		return err
	}
	for _, f := range attached {
		if f.Label == owner.label || !owner.owns(f) {
			continue
		}
		err := fs.write(ctx, f.ID, fmt.Sprintf("renaming firewall %d", f.ID), func(ctx context.Context) error {
			_, err := fs.api.sdk.UpdateFirewall(ctx, f.ID, linodego.FirewallUpdateOptions{Label: owner.label})
			return err
		})
		if cloudapi.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// findUnused returns the firewalls that were created for a Service and protect nothing any more, from a new read.
func (fs *firewalls) findUnused(ctx context.Context, service *v1.Service) ([]*linodego.Firewall, error) {
	owner, err := fs.ownerOf(ctx, service, nil)
	if err != nil {
		return nil, err
	}
	found, err := fs.Find(ctx, indexLabel, owner.label, inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	var unused []*linodego.Firewall
	for _, f := range found {
		// The older listing shows its devices from before the deletion.
		now, err := fs.Get(ctx, f.ID, inventory.Query{})
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(now.Entities) == 0 && owner.owns(now) {
			unused = append(unused, now)
		}
	}
	return unused, nil
}

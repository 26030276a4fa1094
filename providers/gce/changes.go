package gce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// writer makes changes of load balancers. The types for each kind of object embed it.
type writer struct {
	api       *api
	instances *instances
	// locks has a lock for each load balancer, and for each object that several share.
	locks *services.LoadBalancer[observed, desired]
}

// writeFunc carries out one change.
type writeFunc func(ctx context.Context, req *services.Request, o *observed) error

// withLock carries out a change while no other one of the same object is made.
func (w *writer) withLock(key string, do writeFunc) writeFunc {
	return func(ctx context.Context, req *services.Request, o *observed) error {
		unlock, err := w.locks.Lock(ctx, key)
		if err != nil {
			return err
		}
		defer unlock()
		return do(ctx, req, o)
	}
}

// create, update and remove return changes after which the remaining ones are computed again. plan shows the object before and after.
func (w *writer) create(object, detail string, after any, do writeFunc) change {
	return w.change(contract.Planned{Action: contract.PlanCreate, Object: object, Detail: detail}, nil, after, do)
}

func (w *writer) update(object, detail string, before, after any, do writeFunc) change {
	return w.change(contract.Planned{Action: contract.PlanChange, Object: object, Detail: detail}, before, after, do)
}

func (w *writer) remove(object, detail string, before any, do writeFunc) change {
	return w.change(contract.Planned{Action: contract.PlanDelete, Object: object, Detail: detail}, before, nil, do)
}

func (w *writer) change(planned contract.Planned, before, after any, do writeFunc) change {
	c := change{Planned: planned, Replan: true, Creates: planned.Action == contract.PlanCreate}
	switch {
	case after != nil:
		c.Compare = func() (any, any) { return before, after }
	case before != nil:
		c.Compare = func() (any, any) { return withoutOutputs(before), nil }
	}
	c.Make = func(ctx context.Context, req *services.Request, o observed) (observed, error) {
		err := do(ctx, req, &o)
		if errors.Is(err, cloudapi.ErrNotFound) && strings.Contains(err.Error(), "/subnetworks/") {
			return o, cloudapi.NotAbsence(err) // a missing subnet does not mean that ours are gone
		}
		if errors.Is(err, cloudapi.ErrNotFound) {
			// Something that this change refers to is gone: an instance, or an object that another Service has just deleted.
			w.instances.all.InvalidateAll()
			w.api.stores.checks.InvalidateAll()
			w.api.stores.httpChecks.InvalidateAll()
			w.api.stores.groups.InvalidateAll()
			w.api.stores.forget(o.name)
			return o, fmt.Errorf("%w: %w", services.ErrGone, cloudapi.NotAbsence(err))
		}
		return o, err
	}
	return c
}

func field(name string, value any) map[string]any { return map[string]any{name: value} }

// withoutOutputs returns the fields of a deleted object for plan, without those that the API fills in.
func withoutOutputs(object any) any {
	fields := map[string]any{}
	text, _ := json.Marshal(object)   // it came from JSON
	_ = json.Unmarshal(text, &fields) // likewise
	for _, key := range []string{"creationTimestamp", "fingerprint", "id", "kind", "labelFingerprint", "region", "selfLink", "selfLinkWithId"} {
		delete(fields, key)
	}
	return fields
}

// Changes implements services.Reconciler.
func (r *reconciler) Changes(req services.Request, o observed, d desired) ([]change, error) {
	if err := d.checkReservable(o); err != nil {
		return nil, err
	}
	finalizer, otherDeletions := finalizerNetLB, r.internalDeletions
	if d.internal {
		finalizer, otherDeletions = finalizerILB, r.externalDeletions
	}
	list := r.finalizerChanges(req, finalizer, true)
	if deletions := otherDeletions(req, o); len(deletions) > 0 {
		return append(list, deletions...), nil // this kind is created after everything of the other one is deleted
	}
	checks := r.checks(d.internal)
	list = append(list, r.groups.changes(d.groups)...)
	list = append(list, checks.changes(o, d)...)
	why := d.replacementReason(o.rule)
	creates := o.rule == nil || why != ""
	if !creates {
		list = append(list, r.checkFirewallChanges(o, d)...) // target pool or backend service relies on the health check
	}
	list = append(list, r.addresses.changes(o, d, why != "")...)
	targets := r.poolChanges
	if d.internal {
		targets = r.backends.changes
	}
	targetChanges := targets(o, d)
	if why != "" && d.internal && lastPart(o.rule.BackendService) != d.backend {
		list, targetChanges = append(list, targetChanges...), nil // clients do not wait for another backend service
	}
	if why != "" {
		list = append(list, r.rules.deletion(d.name, "to be made again: "+why, o.rule))
	}
	list = append(list, targetChanges...)
	if creates {
		list = append(list, r.rules.creation(d))
		o.rule = d.expectedRule(o)
		list = append(list, r.checkFirewallChanges(o, d)...)
	}
	// A deny rule of a former address goes.
	if o.denyFirewall != nil && !equalRanges(o.denyFirewall.DestinationRanges, []string{o.rule.IPAddress}) {
		list = append(list, r.firewalls.deletion(denyFirewallName(o.name)))
	}
	list = append(list, r.firewalls.changes(o.firewall, d.trafficFirewall(o))...)
	list = append(list, r.addresses.release(o, d, why != "")...)
	if d.internal {
		list = append(list, r.backends.deletions(o, o.obsoleteBackends...)...)
	}
	list = append(list, checks.obsoleteDeletions(o, d)...)
	if creates {
		return list, nil
	}
	return r.rules.addMark(o, d, list), nil
}

// checks are the health checks of internal or of external load balancers.
func (r *reconciler) checks(internal bool) *healthChecks {
	if internal {
		return r.backendChecks
	}
	return r.poolChecks
}

// checkFirewallChanges let the health check reach the nodes.
func (r *reconciler) checkFirewallChanges(o observed, d desired) []change {
	want := d.checkFirewall(o.rule.IPAddress)
	return r.firewalls.changes(*o.firewallAt(want.Name), want)
}

// poolChanges update the target pool. Its affinity is immutable, so a second pool serves while the first is replaced.
func (r *reconciler) poolChanges(o observed, d desired) []change {
	next := nextPoolName(d.name)
	affinityMatches := o.pool != nil && o.pool.SessionAffinity == d.affinity
	onNext := o.rule != nil && lastPart(o.rule.Target) == next
	createPool := r.pools.creation(d, d.name, fmt.Sprint(len(d.members), " instances"))
	deletePool := r.pools.deletion(d.name, "to be made again with affinity "+d.affinity, o.pool)
	deleteNext := r.pools.deletion(next, "it is not needed any more", field("name", next))
	switch {
	case o.pool == nil && onNext:
		return []change{createPool, r.rules.targetChange(d.name, d.name), deleteNext}
	case o.pool == nil:
		return []change{createPool}
	case !affinityMatches && o.rule == nil:
		return []change{deletePool, createPool}
	case !affinityMatches:
		list := []change{
			r.pools.creation(d, next, "it serves while the pool is made again"), r.rules.targetChange(d.name, next), deletePool, createPool,
			r.rules.targetChange(d.name, d.name), deleteNext,
		}
		switch {
		case onNext:
			return list[2:]
		case o.nextPool != nil:
			return list[1:]
		}
		return list
	}
	list := r.pools.memberChanges(o.pool, d.members)
	list = append(list, r.pools.checkChanges(o.pool, d.checkName())...)
	if o.rule != nil && lastPart(o.rule.Target) != d.name {
		list = append(list, r.rules.targetChange(d.name, d.name))
	}
	if o.nextPool != nil && !onNext {
		list = append(list, deleteNext)
	}
	return list
}

// NodeChanges implements services.Reconciler.
func (r *reconciler) NodeChanges(ctx context.Context, req services.Request, o observed) ([]change, []services.Finding, error) {
	if o.pool == nil && o.backend == nil {
		return nil, nil, nil
	}
	if len(req.Nodes) == 0 {
		return nil, nil, errors.New("no node is ready for the load balancer; its instances stay as they are")
	}
	m, err := r.instances.members(ctx, req.Nodes, o.at)
	if err != nil {
		return nil, nil, err
	}
	if len(m.known) == 0 {
		return nil, nil, errNoInstance
	}
	var changes []change
	if o.backend != nil {
		groups, err := r.groups.desiredGroups(ctx, o, o.cluster, m)
		if err != nil {
			return nil, nil, err
		}
		changes = append(r.groups.changes(groups), r.backends.nodeChanges(o, backendZones(groups))...)
	}
	if o.pool != nil {
		changes = append(changes, r.pools.memberChanges(o.pool, r.instances.poolMembers(ctx, m, membersOf(o.pool)))...)
	}
	findings := r.instances.unknownZoneFindings(req, m)
	if len(r.config.NodeTags) > 0 {
		return changes, findings, nil
	}
	tags, _ := tagsOf(m.known)
	// Without the firewall rule of the health check, nodes with a new tag would count as unhealthy.
	for _, have := range []*compute.Firewall{
		o.firewall, o.poolChecks.ownFirewall, o.poolChecks.sharedFirewall, o.backendChecks.ownFirewall, o.backendChecks.sharedFirewall,
	} {
		if have == nil || len(tags) == 0 {
			continue
		}
		want := *have
		want.TargetTags = tags
		changes = append(r.firewalls.changes(have, &want), changes...)
	}
	return changes, findings, nil
}

// Deletions implements services.Reconciler.
func (r *reconciler) Deletions(_ context.Context, req services.Request, o observed) (list []change, _ []services.Finding, _ error) {
	if o.name == "" {
		return nil, nil, nil
	}
	if o.rule == nil && o.firewall != nil {
		list = append(list, r.firewalls.deletion(firewallName(o.name)))
	}
	if isOurAddress(o.address, &desired{name: o.name, service: fullName(req.Service)}) {
		list = append(list, r.addresses.deletion(o.name, "", nil))
	}
	list = append(list, r.externalDeletions(req, o)...)
	return append(list, r.internalDeletions(req, o)...), nil, nil
}

// externalDeletions delete everything that belongs to an external load balancer, and with the last one the shared objects.
func (r *reconciler) externalDeletions(req services.Request, o observed) (list []change) {
	if o.rule != nil && o.rule.LoadBalancingScheme != schemeInternal {
		if o.firewall != nil {
			list = append(list, r.firewalls.deletion(firewallName(o.name)))
		}
		list = append(list, r.rules.deletion(o.name, "", nil))
	}
	if o.nextPool != nil {
		list = append(list, r.pools.deletion(nextPoolName(o.name), "", nil))
	}
	if o.pool != nil {
		list = append(list, r.pools.deletion(o.name, "", nil))
	}
	list = append(list, r.poolChecks.ownDeletions(o)...)
	if o.denyFirewall != nil {
		list = append(list, r.firewalls.deletion(denyFirewallName(o.name)))
	}
	list = append(list, r.poolChecks.sharedDeletions(o)...)
	return append(list, r.finalizerChanges(req, finalizerNetLB, false)...)
}

// internalDeletions delete everything that belongs to an internal load balancer, and with the last one the shared objects.
func (r *reconciler) internalDeletions(req services.Request, o observed) (list []change) {
	if o.rule != nil && o.rule.LoadBalancingScheme == schemeInternal {
		if o.firewall != nil {
			list = append(list, r.firewalls.deletion(firewallName(o.name)))
		}
		list = append(list, r.rules.deletion(o.name, "", o.rule))
	}
	list = append(list, r.backends.deletions(o, append(o.obsoleteBackends, o.backend)...)...)
	list = append(list, r.backendChecks.ownDeletions(o)...)
	list = append(list, r.backendChecks.sharedDeletions(o)...)
	list = append(list, r.groups.deletions(o)...)
	return append(list, r.finalizerChanges(req, finalizerILB, false)...)
}

// namedLinks returns a field with the names of the linked objects, for plan.
func namedLinks(name string, links []string) map[string]any {
	return field(name, lastParts(links))
}

func links(paths []string) []string {
	all := make([]string, len(paths))
	for i, p := range paths {
		all[i] = "https://www.googleapis.com/compute/v1/" + p
	}
	return all
}

func references(paths []string) (list []*compute.InstanceReference) {
	for _, l := range links(paths) {
		list = append(list, &compute.InstanceReference{Instance: l})
	}
	return list
}

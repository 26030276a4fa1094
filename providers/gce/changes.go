package gce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

func (p place) regional(collection, name string) string {
	return "projects/" + p.project + "/regions/" + p.region + "/" + collection + "/" + name
}

func (p place) httpCheck(name string) string {
	return "projects/" + p.project + "/global/httpHealthChecks/" + name
}

func (p place) firewall(name string) string {
	return "projects/" + p.networkProject + "/global/firewalls/" + name
}

// writeFunc carries out one change.
type writeFunc func(ctx context.Context, r *services.Request, at place, o *observation) error

// step is a change after which the remaining changes are computed again.
func (b *reconciler) step(action, object, detail string, do writeFunc) change {
	return change{
		Planned: contract.Planned{Action: action, Object: object, Detail: detail}, Replan: true, Creates: action == contract.PlanCreate,
		Make: func(ctx context.Context, r *services.Request, o observation) (observation, error) {
			at, err := b.api.places.get(ctx)
			if err != nil {
				return o, err
			}
			err = do(ctx, r, at, &o)
			if errors.Is(err, cloudapi.ErrNotFound) && strings.Contains(err.Error(), "/subnetworks/") {
				return o, cloudapi.NotAbsence(err) // a missing subnet does not mean that ours are gone
			}
			if errors.Is(err, cloudapi.ErrNotFound) {
				// Something that this change refers to is gone: an instance, or an object that another Service has just deleted.
				b.instances.all.InvalidateAll()
				b.api.stores.checks.InvalidateAll()
				b.api.stores.nodeChecks.InvalidateAll()
				b.api.stores.groups.InvalidateAll()
				b.forget(o.name)
				return o, fmt.Errorf("%w: %w", services.ErrGone, cloudapi.NotAbsence(err))
			}
			return o, err
		},
	}
}

// withCompare adds the object before and after the change to the output of plan.
func withCompare(c change, before, after any) change {
	c.Compare = func() (any, any) { return before, after }
	return c
}

func field(name string, value any) map[string]any { return map[string]any{name: value} }

// planFields returns the fields of a deleted object for plan, without those that the API fills in.
func planFields(object any) any {
	fields := map[string]any{}
	text, _ := json.Marshal(object)   // it came from JSON
	_ = json.Unmarshal(text, &fields) // likewise
	for _, key := range []string{"creationTimestamp", "fingerprint", "id", "kind", "labelFingerprint", "region", "selfLink", "selfLinkWithId"} {
		delete(fields, key)
	}
	return fields
}

// namedLinks returns a field with the names of the linked objects, for plan.
func namedLinks(name string, links []string) map[string]any {
	return field(name, lastParts(links))
}

// ruleToCreate and poolToCreate return the objects to create, with names instead of links, for plan.
func (d spec) ruleToCreate() any {
	return map[string]any{
		"name": d.name, "IPProtocol": d.protocol, "portRange": d.portRange, "networkTier": d.tier, "IPAddress": d.ip, "target": d.name,
	}
}

func (d spec) poolToCreate(name string) any {
	made := namedLinks("instances", d.members)
	made["name"], made["sessionAffinity"], made["healthChecks"] = name, d.affinity, []string{d.checkName()}
	return made
}

// Changes implements services.Reconciler.
func (b *reconciler) Changes(r services.Request, o observation, d spec) ([]change, error) {
	if err := d.checkReservable(o); err != nil {
		return nil, err
	}
	if d.internal {
		return b.internalChanges(r, o, d), nil
	}
	list := b.finalizerChanges(r, finalizerNetLB, true)
	if gone := b.internalDeletions(r, o); len(gone) > 0 {
		return append(list, gone...), nil // the other kind is created after everything of this one is deleted
	}
	check := o.shared
	if d.local {
		check = o.local
	}
	list = append(list, b.checkChanges(check, d)...)
	replace := o.rule != nil && ruleChange(o.rule, d) != ""
	made := o.rule == nil || replace
	if !made {
		list = append(list, b.checkFirewallChanges(o, d)...) // a target pool relies on the health check
	}
	list = append(list, b.addressChanges(o, d, replace)...)
	if replace {
		again := b.step(contract.PlanDelete, "forwarding rule "+d.name, "to be made again: "+ruleChange(o.rule, d), b.deleteRule)
		list = append(list, withCompare(again, planFields(o.rule), nil))
	}
	list = append(list, b.poolChanges(o, d)...)
	if made {
		list = append(list, withCompare(
			b.step(contract.PlanCreate, "forwarding rule "+d.name, d.protocol+" "+d.portRange, b.createRule(d)), nil, d.ruleToCreate()))
		o.rule = d.expectedRule(o)
		list = append(list, b.checkFirewallChanges(o, d)...)
	}
	list = append(list, b.denyChanges(o)...)
	list = append(list, b.firewallChanges(o.firewall, d.trafficFirewall(o))...)
	list = append(append(list, b.addressRelease(o, d, replace)...), b.obsoleteChanges(o, d)...)
	if made {
		return list, nil
	}
	return b.addMarkChange(o, d, list), nil
}

// expectedRule returns the address of a forwarding rule that does not exist yet, for the changes that depend on it.
func (d *spec) expectedRule(o observation) *compute.ForwardingRule {
	ip := d.heldAddress(o.rule)
	if ip == "" && isOwn(o.address, d) {
		ip = o.address.Address
	}
	return &compute.ForwardingRule{IPAddress: ip}
}

// checkFirewallChanges let the health check reach the nodes.
func (b *reconciler) checkFirewallChanges(o observation, d spec) []change {
	if d.local {
		return b.firewallChanges(o.localFirewall, d.desiredCheckFirewall(o.rule.IPAddress))
	}
	return b.firewallChanges(o.sharedFirewall, d.desiredCheckFirewall(""))
}

// trafficFirewall lets clients in. It needs a higher priority than a deny rule, which wins at equal priority.
func (d *spec) trafficFirewall(o observation) *compute.Firewall {
	want := d.desiredFirewall(o.rule.IPAddress)
	if o.deny != nil {
		want.Priority = max(o.deny.Priority-1, 0)
	}
	return want
}

// denyChanges remove a deny rule for an address that the load balancer no longer has.
func (b *reconciler) denyChanges(o observation) []change {
	if o.deny == nil || sameRanges(o.deny.DestinationRanges, []string{o.rule.IPAddress}) {
		return nil
	}
	return []change{b.firewallDeletion(denyFirewallName(o.name))}
}

// ruleChange explains why a forwarding rule must be replaced, "" if not. Its target can be changed in place.
func ruleChange(rule *compute.ForwardingRule, d spec) string {
	switch {
	case d.ip != "" && rule.IPAddress != d.ip:
		return "address " + d.ip
	case rule.PortRange != d.portRange:
		return "ports " + d.portRange
	case rule.IPProtocol != d.protocol:
		return "protocol " + d.protocol
	case rule.NetworkTier != d.tier:
		return "network tier " + d.tier
	}
	return ""
}

// checkChanges create or change the health check before anything refers to it.
func (b *reconciler) checkChanges(have *compute.HttpHealthCheck, d spec) []change {
	want := d.desiredCheck(have)
	switch {
	case have == nil:
		return []change{withCompare(b.step(contract.PlanCreate, "health check "+want.Name, fmt.Sprint("port ", want.Port), b.putCheck(want, d)), nil, want)}
	case !sameCheck(have, want):
		return []change{withCompare(
			b.step(contract.PlanChange, "health check "+want.Name, fmt.Sprint("port ", want.Port), b.putCheck(want, d)), services.Within(have, want), want)}
	}
	return nil
}

// putCheck creates or replaces a health check. Another Service may have created the shared one meanwhile.
func (b *reconciler) putCheck(want *compute.HttpHealthCheck, d spec) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		unlock, err := b.lock(ctx, "health check "+want.Name)
		if err != nil {
			return err
		}
		defer unlock()
		have, err := find(ctx, b.api.stores.checks, want.Name, ensureQuery)
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		if have == nil || !sameCheck(have, d.desiredCheck(have)) {
			sdk, what := b.api.sdk.HttpHealthChecks, "making health check "+want.Name
			have, err = putOne(ctx, b.api, b.api.stores.checks, want, at.httpCheck(want.Name), what, func(id string) (*compute.Operation, error) {
				if have == nil {
					return sdk.Insert(at.project, want).RequestId(id).Context(ctx).Do()
				}
				return sdk.Update(at.project, want.Name, want).RequestId(id).Context(ctx).Do()
			})
		}
		if d.local {
			o.local = have
			return err
		}
		if o.shared = have; err != nil {
			return err
		}
		// Another Service that deleted the health check may also have deleted its firewall rule.
		o.sharedFirewall, err = find(ctx, b.api.stores.firewalls, sharedFirewallName(d.cluster), ensureQuery)
		return cloudapi.NotAbsence(err)
	}
}

func (b *reconciler) deleteRule(ctx context.Context, _ *services.Request, at place, o *observation) error {
	err := deleteOne(ctx, b.api, b.api.stores.rules, at.regional("forwardingRules", o.name), "deleting forwarding rule "+o.name,
		func(id string) (*compute.Operation, error) {
			return b.api.sdk.ForwardingRules.Delete(at.project, at.region, o.name).RequestId(id).Context(ctx).Do()
		})
	if err == nil && o.rule != nil {
		o.replacedIP, o.rule = o.rule.IPAddress, nil
	}
	return err
}

func (b *reconciler) createRule(d spec) writeFunc {
	return func(ctx context.Context, r *services.Request, at place, o *observation) (err error) {
		rule := &compute.ForwardingRule{
			Name: d.name, Description: serviceDescription(d.service), IPProtocol: d.protocol, PortRange: d.portRange, NetworkTier: d.tier,
			Target: at.regional("targetPools", d.name), IPAddress: d.ip,
		}
		if d.internal {
			b.internalRule(rule, at, d)
		}
		if rule.IPAddress == "" && isOwn(o.address, &d) {
			rule.IPAddress = o.address.Address
		}
		o.rule, err = putOne(ctx, b.api, b.api.stores.rules, rule, at.regional("forwardingRules", d.name), "creating forwarding rule "+d.name,
			func(id string) (*compute.Operation, error) {
				return b.api.sdk.ForwardingRules.Insert(at.project, at.region, rule).RequestId(id).Context(ctx).Do()
			})
		if err == nil && d.lacksMark(o.rule) {
			err = b.markRule(d)(ctx, r, at, o)
		}
		return err
	}
}

// poolChanges update the target pool. Its affinity is immutable, so a second pool serves while the first is replaced.
func (b *reconciler) poolChanges(o observation, d spec) []change {
	pool, next := "target pool "+d.name, "target pool "+nextPoolName(d.name)
	right := o.pool != nil && o.pool.SessionAffinity == d.affinity
	onNext := o.rule != nil && lastPart(o.rule.Target) == nextPoolName(d.name)
	creation := b.step(contract.PlanCreate, pool, fmt.Sprint(len(d.members), " instances"), b.createPool(d, d.name))
	create := withCompare(creation, nil, d.poolToCreate(d.name))
	again := func() change {
		return withCompare(b.step(contract.PlanDelete, pool, "to be made again with affinity "+d.affinity, b.deletePool(d.name)), planFields(o.pool), nil)
	}
	point := func(name string) change {
		return withCompare(b.step(contract.PlanChange, "forwarding rule "+d.name, "target pool "+name, b.setTarget(name)), nil, field("target", name))
	}
	unneeded := withCompare(b.step(contract.PlanDelete, next, "it is not needed any more", b.deletePool(nextPoolName(d.name))),
		field("name", nextPoolName(d.name)), nil)
	switch {
	case o.pool == nil && onNext:
		return []change{create, point(d.name), unneeded}
	case o.pool == nil:
		return []change{create}
	case !right && o.rule == nil:
		return []change{again(), create}
	case !right:
		list := []change{
			withCompare(b.step(contract.PlanCreate, next, "it serves while the pool is made again", b.createPool(d, nextPoolName(d.name))),
				nil, d.poolToCreate(nextPoolName(d.name))),
			point(nextPoolName(d.name)), again(), create, point(d.name), unneeded,
		}
		switch {
		case onNext:
			return list[2:]
		case o.nextPool != nil:
			return list[1:]
		}
		return list
	}
	list := b.memberChanges(o.pool, d.members)
	list = append(list, b.poolCheckChanges(o.pool, d.checkName())...)
	if o.rule != nil && lastPart(o.rule.Target) != d.name {
		list = append(list, point(d.name))
	}
	if o.nextPool != nil && !onNext {
		list = append(list, unneeded)
	}
	return list
}

func (b *reconciler) createPool(d spec, name string) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		first := d.members[:min(len(d.members), gcelimits.PoolCreation.Max)]
		pool := &compute.TargetPool{
			Name: name, Description: serviceDescription(d.service), SessionAffinity: d.affinity, Instances: links(first),
			HealthChecks: []string{at.httpCheck(d.checkName())},
		}
		have, err := putOne(ctx, b.api, b.api.stores.pools, pool, at.regional("targetPools", name), "creating target pool "+name,
			func(id string) (*compute.Operation, error) {
				return b.api.sdk.TargetPools.Insert(at.project, at.region, pool).RequestId(id).Context(ctx).Do()
			})
		for rest := d.members[len(first):]; err == nil && len(rest) > 0; {
			n := min(len(rest), gcelimits.PoolChange.Max)
			have, err = b.addMembers(ctx, at, have, rest[:n])
			rest = rest[n:]
		}
		if name == d.name {
			o.pool = have
		} else {
			o.nextPool = have
		}
		return err
	}
}

func (b *reconciler) deletePool(name string) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		err := deleteOne(ctx, b.api, b.api.stores.pools, at.regional("targetPools", name), "deleting target pool "+name, func(id string) (*compute.Operation, error) {
			return b.api.sdk.TargetPools.Delete(at.project, at.region, name).RequestId(id).Context(ctx).Do()
		})
		switch {
		case err != nil:
		case name == o.name:
			o.pool = nil
		default:
			o.nextPool = nil
		}
		return err
	}
}

func (b *reconciler) setTarget(pool string) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
		target := &compute.TargetReference{Target: at.regional("targetPools", pool)}
		o.rule, err = putOne(ctx, b.api, b.api.stores.rules, o.rule, at.regional("forwardingRules", o.name), "pointing forwarding rule "+o.name+" at "+pool,
			func(id string) (*compute.Operation, error) {
				return b.api.sdk.ForwardingRules.SetTarget(at.project, at.region, o.name, target).RequestId(id).Context(ctx).Do()
			})
		return err
	}
}

// memberChanges update the instances of a pool, 1,000 per call.
func (b *reconciler) memberChanges(pool *compute.TargetPool, members []string) (list []change) {
	add, remove := membersDiff(membersOf(pool), members)
	object := "target pool " + pool.Name
	for chunk := range slices.Chunk(add, gcelimits.PoolChange.Max) {
		list = append(list, withCompare(b.step(contract.PlanChange, object, fmt.Sprint("add ", len(chunk), " instances"),
			func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
				o.pool, err = b.addMembers(ctx, at, o.pool, chunk)
				return err
			}), nil, namedLinks("instances", chunk)))
	}
	for chunk := range slices.Chunk(remove, gcelimits.PoolChange.Max) {
		list = append(list, withCompare(b.step(contract.PlanChange, object, fmt.Sprint("remove ", len(chunk), " instances"),
			func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
				o.pool, err = b.removeMembers(ctx, at, o.pool, chunk)
				return err
			}), namedLinks("instances", chunk), nil))
	}
	return list
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

// addMembers adds instances to a pool, and returns the result without a read.
func (b *reconciler) addMembers(ctx context.Context, at place, pool *compute.TargetPool, paths []string) (*compute.TargetPool, error) {
	body := &compute.TargetPoolsAddInstanceRequest{Instances: references(paths)}
	after := *pool
	after.Instances = append(slices.Clone(pool.Instances), links(paths)...)
	return b.changedPool(ctx, at, &after, fmt.Sprintf("adding %d instances to target pool %s", len(paths), pool.Name), func(id string) (*compute.Operation, error) {
		return b.api.sdk.TargetPools.AddInstance(at.project, at.region, pool.Name, body).RequestId(id).Context(ctx).Do()
	})
}

func (b *reconciler) removeMembers(ctx context.Context, at place, pool *compute.TargetPool, paths []string) (*compute.TargetPool, error) {
	body := &compute.TargetPoolsRemoveInstanceRequest{Instances: references(paths)}
	after := *pool
	after.Instances = slices.DeleteFunc(slices.Clone(pool.Instances), func(l string) bool { return slices.Contains(paths, resource(l)) })
	return b.changedPool(ctx, at, &after, fmt.Sprintf("removing %d instances from target pool %s", len(paths), pool.Name), func(id string) (*compute.Operation, error) {
		return b.api.sdk.TargetPools.RemoveInstance(at.project, at.region, pool.Name, body).RequestId(id).Context(ctx).Do()
	})
}

// changedPool makes a change whose result is known, so that the pool need not be read.
func (b *reconciler) changedPool(
	ctx context.Context, at place, after *compute.TargetPool, what string, make func(string) (*compute.Operation, error),
) (*compute.TargetPool, error) {
	if err := b.api.change(ctx, at.regional("targetPools", after.Name), what, make); err != nil {
		b.api.stores.pools.Doubt(after.Name)
		return after, err
	}
	b.api.stores.pools.Put(after)
	return after, nil
}

// poolCheckChanges set the pool's health check. A pool takes one only, so the old one goes first; without any, all instances count as
// healthy.
func (b *reconciler) poolCheckChanges(pool *compute.TargetPool, name string) (list []change) {
	found := false
	for _, l := range pool.HealthChecks {
		if lastPart(l) == name {
			found = true
			continue
		}
		list = append(list, withCompare(b.step(contract.PlanChange, "target pool "+pool.Name, "health check instead of "+lastPart(l),
			func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
				body := &compute.TargetPoolsRemoveHealthCheckRequest{HealthChecks: []*compute.HealthCheckReference{{HealthCheck: l}}}
				after := *o.pool
				after.HealthChecks = slices.DeleteFunc(slices.Clone(after.HealthChecks), func(h string) bool { return h == l })
				o.pool, err = b.changedPool(ctx, at, &after, "taking a health check off target pool "+o.name, func(id string) (*compute.Operation, error) {
					return b.api.sdk.TargetPools.RemoveHealthCheck(at.project, at.region, o.name, body).RequestId(id).Context(ctx).Do()
				})
				return err
			}), namedLinks("healthChecks", []string{l}), nil))
	}
	if found {
		return list
	}
	return append(list, withCompare(b.step(contract.PlanChange, "target pool "+pool.Name, "health check "+name,
		func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
			link := at.httpCheck(name)
			body := &compute.TargetPoolsAddHealthCheckRequest{HealthChecks: []*compute.HealthCheckReference{{HealthCheck: link}}}
			after := *o.pool
			after.HealthChecks = append(slices.Clone(after.HealthChecks), links([]string{link})...)
			o.pool, err = b.changedPool(ctx, at, &after, "giving target pool "+o.name+" a health check", func(id string) (*compute.Operation, error) {
				return b.api.sdk.TargetPools.AddHealthCheck(at.project, at.region, o.name, body).RequestId(id).Context(ctx).Do()
			})
			return err
		}), nil, field("healthChecks", name)))
}

// obsoleteChanges delete the health check that another one replaces.
func (b *reconciler) obsoleteChanges(o observation, d spec) (list []change) {
	if !d.local {
		return b.localCheckDeletions(o)
	}
	if b.isSharedCheckUnused(o) {
		list = append(list, b.sharedDeletions(o)...)
	}
	return list
}

func (b *reconciler) localCheckDeletions(o observation) (list []change) {
	if o.local != nil {
		list = append(list, withCompare(b.step(contract.PlanDelete, "health check "+o.name, "", b.deleteCheck(o.name)), planFields(o.local), nil))
	}
	if o.localFirewall != nil {
		list = append(list, b.firewallDeletion(localFirewallName(o.name)))
	}
	return list
}

// isSharedCheckUnused reports whether no other known target pool uses the shared health check.
func (b *reconciler) isSharedCheckUnused(o observation) bool {
	if !o.identified || (o.shared == nil && o.sharedFirewall == nil) {
		return false
	}
	for _, p := range b.api.stores.pools.PeekIndex(indexCheck, sharedCheckName(o.cluster)) {
		if p.Name != o.name && p.Name != nextPoolName(o.name) {
			return false
		}
	}
	return true
}

// sharedDeletions delete the objects that a cluster's load balancers share. The cloud refuses that while one of them uses them.
func (b *reconciler) sharedDeletions(o observation) (list []change) {
	if o.shared != nil {
		unused := b.step(contract.PlanDelete, "health check "+sharedCheckName(o.cluster), "no load balancer uses it", b.deleteCheck(sharedCheckName(o.cluster)))
		list = append(list, withCompare(unused, planFields(o.shared), nil))
	}
	if o.sharedFirewall != nil {
		list = append(list, b.firewallDeletion(sharedFirewallName(o.cluster)))
	}
	return list
}

func (b *reconciler) deleteCheck(name string) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		unlock, err := b.lock(ctx, "health check "+name)
		if err != nil {
			return err
		}
		defer unlock()
		err = deleteOne(ctx, b.api, b.api.stores.checks, at.httpCheck(name), "deleting health check "+name, func(id string) (*compute.Operation, error) {
			return b.api.sdk.HttpHealthChecks.Delete(at.project, name).RequestId(id).Context(ctx).Do()
		})
		if inUse(err) && name != o.name {
			o.shared, o.sharedFirewall = nil, nil // a load balancer of another process uses it: both stay
			b.api.stores.pools.InvalidateAll()    // the next read shows its user
			return nil
		}
		if err != nil {
			return err
		}
		if name == o.name {
			o.local = nil
		} else {
			o.shared = nil
		}
		return nil
	}
}

// inUse reports whether the cloud refused a deletion because another object refers to it.
func inUse(err error) bool {
	said, ok := errors.AsType[*cloudapi.Error](err)
	return ok && errors.Is(err, cloudapi.ErrConflict) && strings.Contains(said.Message, "being used by")
}

// NodeChanges implements services.Reconciler.
func (b *reconciler) NodeChanges(ctx context.Context, r services.Request, o observation) ([]change, []services.Finding, error) {
	if o.pool == nil && o.backend == nil {
		return nil, nil, nil
	}
	if len(r.Nodes) == 0 {
		return nil, nil, errors.New("no node is ready for the load balancer; its instances stay as they are")
	}
	at, err := b.api.places.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	m, err := b.members(ctx, r.Nodes, at)
	if err != nil {
		return nil, nil, err
	}
	if len(m.known) == 0 {
		return nil, nil, errNoInstance
	}
	var changes []change
	if o.backend != nil {
		if changes, err = b.groupNodeChanges(ctx, o, at, m); err != nil {
			return nil, nil, err
		}
	}
	if o.pool != nil {
		changes = append(changes, b.memberChanges(o.pool, m.keep(m.paths(), membersOf(o.pool)))...)
	}
	findings := b.waitFindings(r, m)
	if len(b.config.NodeTags) > 0 {
		return changes, findings, nil
	}
	tags, _ := tagsOf(m.known)
	// Without the firewall rule of the health check, nodes with a new tag would count as unhealthy.
	for _, have := range []*compute.Firewall{o.firewall, o.localFirewall, o.sharedFirewall, o.ownCheckFirewall, o.nodeCheckFirewall} {
		if have == nil || len(tags) == 0 {
			continue
		}
		want := *have
		want.TargetTags = tags
		changes = append(b.firewallChanges(have, &want), changes...)
	}
	return changes, findings, nil
}

func (b *reconciler) Deletions(_ context.Context, r services.Request, o observation) (list []change, _ []services.Finding, _ error) {
	if o.name == "" {
		return nil, nil, nil
	}
	list = append(b.externalDeletions(r, o), b.internalDeletions(r, o)...)
	d := spec{name: o.name, service: fullName(r.Service)}
	if isOwn(o.address, &d) {
		list = append([]change{b.step(contract.PlanDelete, "address "+o.name, "", b.deleteAddress)}, list...)
	}
	if o.rule == nil && o.firewall != nil {
		list = append([]change{b.firewallDeletion(firewallName(o.name))}, list...)
	}
	return list, nil, nil
}

// externalDeletions delete everything that belongs to an external load balancer.
func (b *reconciler) externalDeletions(r services.Request, o observation) (list []change) {
	is := o.rule != nil && o.rule.LoadBalancingScheme != schemeInternal
	if is && o.firewall != nil {
		list = append(list, b.firewallDeletion(firewallName(o.name)))
	}
	if is {
		list = append(list, b.step(contract.PlanDelete, "forwarding rule "+o.name, "", b.deleteRule))
	}
	if o.nextPool != nil {
		list = append(list, b.step(contract.PlanDelete, "target pool "+nextPoolName(o.name), "", b.deletePool(nextPoolName(o.name))))
	}
	shared := b.isSharedCheckUnused(o)
	if o.pool != nil {
		list = append(list, b.step(contract.PlanDelete, "target pool "+o.name, "", b.deletePool(o.name)))
	}
	list = append(list, b.localCheckDeletions(o)...)
	if o.deny != nil {
		list = append(list, b.firewallDeletion(denyFirewallName(o.name)))
	}
	if shared {
		list = append(list, b.sharedDeletions(o)...)
	}
	return append(list, b.finalizerChanges(r, finalizerNetLB, false)...)
}

// objectService starts the object name of changes to the Service itself.
const objectService = "Service "

// finalizerChanges add or remove one of Google's finalizers. plan omits them, because they do not change the cloud.
func (b *reconciler) finalizerChanges(r services.Request, name string, on bool) []change {
	if slices.Contains(r.Service.Finalizers, name) == on || r.Purpose == services.Plan {
		return nil
	}
	detail := "finalizer " + name
	if !on {
		detail = "without " + detail
	}
	return []change{b.step(contract.PlanChange, objectService+fullName(r.Service), detail,
		func(ctx context.Context, r *services.Request, _ place, _ *observation) error {
			return b.setFinalizer(ctx, r, name, on)
		})}
}

// setFinalizer adds or removes the finalizer that tells Google's other controllers who serves the Service.
func (b *reconciler) setFinalizer(ctx context.Context, r *services.Request, name string, on bool) error {
	s := r.Service.DeepCopy()
	meta := map[string]any{"uid": s.UID, "$deleteFromPrimitiveList/finalizers": []string{name}}
	s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == name })
	if on {
		meta = map[string]any{"uid": s.UID, "finalizers": []string{name}}
		s.Finalizers = append(s.Finalizers, name)
	}
	if b.kube != nil {
		patch, err := json.Marshal(map[string]any{"metadata": meta})
		if err != nil {
			return fmt.Errorf("writing the finalizer: %w", err)
		}
		_, err = b.kube.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("writing the finalizer %s: grant patch on services/status to the ServiceAccount of this program: %w", name, err)
		}
		if err != nil && (on || !apierrors.IsNotFound(err)) {
			return fmt.Errorf("writing the finalizer %s: %w", name, err)
		}
	}
	r.Service = s
	return nil
}

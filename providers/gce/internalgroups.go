package gce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// groupNodeChanges are the changes that follow from the nodes alone.
func (b *reconciler) groupNodeChanges(ctx context.Context, o observation, at place, m membership) ([]change, error) {
	groups, err := b.desiredGroups(ctx, o, groupName(o.cluster), at, m)
	if err != nil {
		return nil, err
	}
	changes := b.groupChanges(groups)
	d := spec{name: o.name, backend: o.backendName, cluster: o.cluster, groups: groups}
	if _, same := backendsOf(o.backend, o.cluster, d.zones(), at); same {
		return changes, nil
	}
	return append(changes, b.step(contract.PlanChange, "backend service "+d.backend, fmt.Sprint(len(d.zones()), " instance groups"), b.patchGroups(d))), nil
}

// patchGroups updates the groups of a backend service.
func (b *reconciler) patchGroups(d spec) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
		unlock, err := b.lock(ctx, "backend service "+d.backend)
		if err != nil {
			return err
		}
		defer unlock()
		if now, ok := b.api.stores.backends.Peek(d.backend); ok {
			o.backend = now // another Service may have changed it
		}
		have := o.backend
		backends, same := backendsOf(have, d.cluster, d.zones(), at)
		if same {
			return nil
		}
		after := *have
		after.Backends = backends
		patch := &compute.BackendService{Fingerprint: have.Fingerprint, Backends: after.Backends}
		o.backend, err = putOne(ctx, b.api, b.api.stores.backends, &after, at.backend(d.backend), "changing the groups of backend service "+d.backend,
			func(id string) (*compute.Operation, error) {
				return b.api.sdk.RegionBackendServices.Patch(at.project, at.region, d.backend, patch).RequestId(id).Context(ctx).Do()
			})
		if err != nil {
			return err
		}
		return b.dropGroups(ctx, at, *o, have, d)
	}
}

// desiredGroup is the instance group of a zone: present and wanted members.
type desiredGroup struct {
	id   groupID
	have *group
	want []string
	// strangers: members that stay although they are not nodes. leftOut: the number of nodes beyond the group's maximum.
	strangers []string
	leftOut   int
	// zoneUnknown: the zone's instances are unknown, so the group is not changed. kept: the backend service keeps the group meanwhile.
	zoneUnknown, kept bool
}

// diff returns the instances that join and leave. Strangers do neither.
func (g desiredGroup) diff() (add, remove []string) {
	var have []string
	if g.have != nil {
		have = g.have.members
	}
	add, _ = membersDiff(have, g.want)
	_, remove = membersDiff(have, slices.Concat(g.want, g.strangers))
	return add, remove
}

// desiredGroups returns the instance groups of the zones with nodes. The instance determines the zone, not the node's labels. A zone is
// left unchanged if its group cannot be read or its instances are unknown.
func (b *reconciler) desiredGroups(
	ctx context.Context, o observation, name string, at place, m membership,
) (groups []desiredGroup, err error) {
	if err := b.recordNodes(ctx, m.known); err != nil {
		return nil, err
	}
	zones := map[string][]string{}
	for _, i := range m.known {
		zones[i.id.zone] = append(zones[i.id.zone], i.id.path())
	}
	var served []string
	for _, v := range append([]*compute.BackendService{o.backend, o.ruleBackend}, o.obsoleteBackends...) {
		served = append(served, zonesOf(v, name)...)
	}
	for _, zone := range served {
		if err := m.whyUnknown(instanceID{project: at.project, zone: zone}); err != nil && zones[zone] == nil && !m.isWaiting(zone) {
			m.unknownZones[zone] = err // without nodes, and the cloud does not say whether its instances still exist
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		g, err := b.desiredGroup(ctx, groupID{zone, name}, zones[zone])
		if b.isUnreachable(ctx, instanceID{project: at.project, zone: zone}, err) {
			m.unknownZones[zone] = err
			continue
		}
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		for _, zone := range slices.Sorted(maps.Keys(m.unknownZones)) {
			return nil, m.unknownZones[zone]
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(m.unknownZones)) {
		g := desiredGroup{id: groupID{zone, name}, zoneUnknown: true, kept: slices.Contains(served, zone)}
		groups = append(groups, g)
	}
	return groups, nil
}

// desiredGroup reads the group of a zone and sets its wanted members.
func (b *reconciler) desiredGroup(ctx context.Context, id groupID, want []string) (g desiredGroup, err error) {
	g = desiredGroup{id: id, want: want}
	g.have, err = b.api.stores.groups.Get(ctx, id, inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return g, err
	}
	if g.strangers, err = b.unknownMembers(ctx, g); err != nil {
		return g, err
	}
	g.limit()
	return g, nil
}

// zonesOf returns the zones whose group of this name the backend service has.
func zonesOf(backend *compute.BackendService, name string) (zones []string) {
	if backend == nil {
		return nil
	}
	for _, g := range backend.Backends {
		if parts := strings.Split(resource(g.Group), "/"); len(parts) == 6 && parts[5] == name { // projects/p/zones/z/instanceGroups/n
			zones = append(zones, parts[3])
		}
	}
	return zones
}

// groupChanges update the instance groups that all internal load balancers of the cluster share.
func (b *reconciler) groupChanges(groups []desiredGroup) (list []change) {
	for _, g := range groups {
		object := "instance group " + g.id.name + " in " + g.id.zone
		add, remove := g.diff()
		switch {
		case g.zoneUnknown:
		case g.have == nil:
			put := b.step(contract.PlanCreate, object, fmt.Sprint(len(g.want), " instances"), b.putGroup(g))
			list = append(list, withCompare(put, nil, namedLinks("instances", g.want)))
		case len(add)+len(remove) > 0:
			put := b.step(contract.PlanChange, object, fmt.Sprintf("add %d, remove %d instances", len(add), len(remove)), b.putGroup(g))
			list = append(list, withCompare(put, namedLinks("instances", g.have.members), namedLinks("instances", g.want)))
		}
	}
	return list
}

// putGroup updates a group, unless another Service just did.
func (b *reconciler) putGroup(g desiredGroup) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, _ *observation) error {
		unlock, err := b.lock(ctx, "instance group "+g.id.zone+"/"+g.id.name)
		if err != nil {
			return err
		}
		defer unlock()
		g.have, err = b.api.stores.groups.Get(ctx, g.id, inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge})
		if errors.Is(err, cloudapi.ErrNotFound) {
			g.have, err = nil, b.createGroup(ctx, at, g.id)
		}
		if err == nil {
			g.strangers, err = b.unknownMembers(ctx, g)
		}
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		g.limit()
		if err = b.fillGroup(ctx, at, g); err != nil {
			b.api.stores.groups.Doubt(g.id)
			if errors.Is(err, cloudapi.ErrInvalid) && strings.Contains(err.Error(), "member of") {
				return fmt.Errorf("%w: %w", services.ErrGone, err) // an instance is gone, or another process was faster: read again
			}
			return err
		}
		b.api.stores.groups.Put(&group{id: g.id, members: slices.Concat(g.want, g.strangers)})
		return nil
	}
}

func (b *reconciler) createGroup(ctx context.Context, at place, id groupID) error {
	err := b.api.change(ctx, at.group(id), "making instance group "+id.name+" in "+id.zone, func(request string) (*compute.Operation, error) {
		return b.api.sdk.InstanceGroups.Insert(at.project, id.zone, &compute.InstanceGroup{Name: id.name}).RequestId(request).Context(ctx).Do()
	})
	b.api.stores.groups.Put(&group{id: id})
	if err != nil {
		b.api.stores.groups.Doubt(id)
	}
	return err
}

func (b *reconciler) fillGroup(ctx context.Context, at place, g desiredGroup) error {
	sdk, path := b.api.sdk.InstanceGroups, at.group(g.id)
	add, remove := g.diff()
	if len(remove) > 0 {
		body := &compute.InstanceGroupsRemoveInstancesRequest{Instances: references(remove)}
		err := b.api.change(ctx, path, fmt.Sprintf("removing %d instances from instance group %s in %s", len(remove), g.id.name, g.id.zone),
			func(id string) (*compute.Operation, error) {
				return sdk.RemoveInstances(at.project, g.id.zone, g.id.name, body).RequestId(id).Context(ctx).Do()
			})
		if err != nil {
			return err
		}
	}
	if len(add) == 0 {
		return nil
	}
	body := &compute.InstanceGroupsAddInstancesRequest{Instances: references(add)}
	return b.api.change(ctx, path, fmt.Sprintf("adding %d instances to instance group %s in %s", len(add), g.id.name, g.id.zone),
		func(id string) (*compute.Operation, error) {
			return sdk.AddInstances(at.project, g.id.zone, g.id.name, body).RequestId(id).Context(ctx).Do()
		})
}

// dropGroups deletes the groups that a backend service no longer has, unless another one has them.
func (b *reconciler) dropGroups(ctx context.Context, at place, o observation, before *compute.BackendService, d spec) error {
	for _, g := range before.Backends {
		parts := strings.Split(resource(g.Group), "/") // projects/p/zones/z/instanceGroups/n
		if len(parts) != 6 || parts[5] != groupName(d.cluster) || slices.Contains(d.zones(), parts[3]) ||
			b.hasOtherUser(o, indexGroup, resource(g.Group)) {
			continue
		}
		if err := b.deleteGroup(ctx, at, groupID{parts[3], parts[5]}); err != nil {
			return err
		}
	}
	return nil
}

func (b *reconciler) deleteGroup(ctx context.Context, at place, id groupID) error {
	unlock, err := b.lock(ctx, "instance group "+id.zone+"/"+id.name)
	if err != nil {
		return err
	}
	defer unlock()
	err = b.api.change(ctx, at.group(id), "deleting instance group "+id.name+" in "+id.zone, func(request string) (*compute.Operation, error) {
		return b.api.sdk.InstanceGroups.Delete(at.project, id.zone, id.name).RequestId(request).Context(ctx).Do()
	})
	if err == nil || errors.Is(err, cloudapi.ErrNotFound) {
		b.api.stores.groups.Forget(id)
		return nil
	}
	b.api.stores.groups.Doubt(id)
	if inUse(err) {
		b.api.stores.backends.InvalidateAll()
		return nil // ingress-gce or another process uses it
	}
	return err
}

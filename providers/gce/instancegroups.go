package gce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// instanceGroups hold the instances of internal load balancers. Each zone has one for all of a cluster.
type instanceGroups struct {
	*writer

	// everNodes are the paths of all instances that were ever nodes: this program may remove them from instance groups.
	everNodes sync.Map
}

type groupID struct{ zone, name string }

func (g groupID) String() string { return g.name + " in " + g.zone }

// object names the group in plan, events and locks.
func (g groupID) object() string { return "instance group " + g.String() }

// group is an instance group with the paths of its members.
type group struct {
	id      groupID
	members []string
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
	add, _ = diffMembers(have, g.want)
	_, remove = diffMembers(have, slices.Concat(g.want, g.strangers))
	return add, remove
}

// limit truncates a group to its maximum, in the order of names, as Google's own controller does.
func (g *desiredGroup) limit() {
	room := max(gcelimits.GroupMembers.Max-len(g.strangers), 0)
	if len(g.want) > room {
		g.leftOut = len(g.want) - room
		g.want = g.want[:room]
	}
}

// desiredGroups returns the instance groups of the zones with nodes, by their instances and not their labels. A zone stays unchanged if its
// group cannot be read or its instances are unknown.
func (g *instanceGroups) desiredGroups(ctx context.Context, o observed, cluster string, m membership) (groups []desiredGroup, err error) {
	if err := g.recordNodes(ctx, m.known); err != nil {
		return nil, err
	}
	zones, name := map[string][]string{}, groupName(cluster)
	for _, i := range m.known {
		zones[i.id.zone] = append(zones[i.id.zone], i.id.path())
	}
	var served []string
	for _, v := range append([]*compute.BackendService{o.backend, o.ruleBackend}, o.obsoleteBackends...) {
		served = append(served, zonesOf(v, name)...)
	}
	for _, zone := range served {
		err := g.instances.explainMissing(ctx, instanceID{project: o.at.project, zone: zone})
		if err != nil && zones[zone] == nil && !m.isZoneUnknown(zone) {
			m.unknownZones[zone] = err // without nodes, and the cloud does not say whether its instances still exist
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		desired, err := g.read(ctx, desiredGroup{id: groupID{zone, name}, want: zones[zone]})
		if g.instances.isUnreachable(ctx, instanceID{project: o.at.project, zone: zone}, err) {
			m.unknownZones[zone] = err
			continue
		}
		if err != nil {
			return nil, err
		}
		groups = append(groups, desired)
	}
	unknown := slices.Sorted(maps.Keys(m.unknownZones))
	if len(groups) == 0 && len(unknown) > 0 {
		return nil, m.unknownZones[unknown[0]]
	}
	for _, zone := range unknown {
		groups = append(groups, desiredGroup{id: groupID{zone, name}, zoneUnknown: true, kept: slices.Contains(served, zone)})
	}
	return groups, nil
}

// read reads the present members of a group.
func (g *instanceGroups) read(ctx context.Context, d desiredGroup) (desiredGroup, error) {
	have, err := g.api.stores.groups.Get(ctx, d.id, inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return d, err
	}
	d.have = have
	if d.strangers, err = g.findStrangers(ctx, d); err != nil {
		return d, err
	}
	d.limit()
	return d, nil
}

// recordNodes records all nodes of the cluster, including those without load balancer traffic.
func (g *instanceGroups) recordNodes(ctx context.Context, list []instance) error {
	for _, i := range list {
		g.everNodes.Store(i.id.path(), true)
	}
	all, err := g.instances.nodes.KnownIn(ctx)
	if err != nil {
		return fmt.Errorf("finding out whose the members of instance groups are: %w", err)
	}
	for _, n := range all {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			g.everNodes.Store(id.path(), true)
		}
	}
	return nil
}

// findStrangers returns the existing members of a group that were never seen as nodes. They stay: a cluster restored from the same backup
// has the same ID and thus the same group names.
func (g *instanceGroups) findStrangers(ctx context.Context, d desiredGroup) (list []string, err error) {
	if d.have == nil {
		return nil, nil
	}
	for _, m := range d.have.members {
		if _, once := g.everNodes.Load(m); once || slices.Contains(d.want, m) {
			continue
		}
		mayExist, err := g.instances.mayExist(ctx, m)
		if err != nil {
			return nil, err
		}
		if mayExist { // else it leaves the group by itself
			list = append(list, m)
		}
	}
	return list, nil
}

// zonesOf returns the zones whose group of this name the backend service has.
func zonesOf(backend *compute.BackendService, name string) (zones []string) {
	if backend == nil {
		return nil
	}
	for _, b := range backend.Backends {
		if id, ok := groupAt(resource(b.Group)); ok && id.name == name {
			zones = append(zones, id.zone)
		}
	}
	return zones
}

// groupAt parses an instance group's path.
func groupAt(path string) (id groupID, ok bool) {
	parts := strings.Split(path, "/") // projects/p/zones/z/instanceGroups/n
	if len(parts) != 6 {
		return id, false
	}
	return groupID{parts[3], parts[5]}, true
}

// groupFindings report strangers and nodes left out of instance groups.
func groupFindings(groups []desiredGroup) (list []services.Finding) {
	for _, g := range groups {
		if len(g.strangers) > 0 {
			list = append(list, services.Warning(eventGroupShared,
				"%s has members that are no nodes of this cluster, and that stay: %s; if they are another cluster's, give that one another ID "+
					"(ConfigMap kube-system/%s), else remove them", g.id.object(), shortList(lastParts(g.strangers)), idConfigMap))
		}
		if g.leftOut > 0 {
			list = append(list, services.Warning(eventGroupFull,
				"%s holds no more than %d instances; the last %d nodes of the zone by name get no traffic from internal load balancers; "+
					"label nodes with node.kubernetes.io/exclude-from-external-load-balancers to choose", g.id.object(), gcelimits.GroupMembers.Max, g.leftOut))
		}
	}
	return list
}

func shortList(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// changes update the instance groups that all internal load balancers of the cluster share.
func (g *instanceGroups) changes(groups []desiredGroup) (list []change) {
	for _, d := range groups {
		add, remove := d.diff()
		put := g.withLock(d.id.object(), g.put(d))
		switch {
		case d.zoneUnknown:
		case d.have == nil:
			list = append(list, g.create(d.id.object(), fmt.Sprint(len(d.want), " instances"), namedLinks("instances", d.want), put))
		case len(add)+len(remove) > 0:
			list = append(list, g.update(d.id.object(), fmt.Sprintf("add %d, remove %d instances", len(add), len(remove)),
				namedLinks("instances", d.have.members), namedLinks("instances", d.want), put))
		}
	}
	return list
}

// put updates a group, unless another Service just did.
func (g *instanceGroups) put(d desiredGroup) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) (err error) {
		if d, err = g.read(ctx, d); err == nil && d.have == nil {
			err = g.insert(ctx, o.at, d.id)
		}
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		if err = g.fill(ctx, o.at, d); err != nil {
			g.api.stores.groups.Doubt(d.id)
			if errors.Is(err, cloudapi.ErrInvalid) && strings.Contains(err.Error(), "member of") {
				return fmt.Errorf("%w: %w", services.ErrGone, err) // an instance is gone, or another process was faster: read again
			}
			return err
		}
		g.api.stores.groups.Put(&group{id: d.id, members: slices.Concat(d.want, d.strangers)})
		return nil
	}
}

func (g *instanceGroups) insert(ctx context.Context, at location, id groupID) error {
	err := g.api.sendAndWait(ctx, at.group(id), "making "+id.object(),
		request(g.api.sdk.InstanceGroups.Insert(at.project, id.zone, &compute.InstanceGroup{Name: id.name})))
	g.api.stores.groups.Put(&group{id: id})
	if err != nil {
		g.api.stores.groups.Doubt(id)
	}
	return err
}

// fill adds and removes members of a group.
func (g *instanceGroups) fill(ctx context.Context, at location, d desiredGroup) error {
	sdk, path := g.api.sdk.InstanceGroups, at.group(d.id)
	add, remove := d.diff()
	if len(remove) > 0 {
		body := &compute.InstanceGroupsRemoveInstancesRequest{Instances: references(remove)}
		err := g.api.sendAndWait(ctx, path, fmt.Sprintf("removing %d instances from %s", len(remove), d.id.object()),
			request(sdk.RemoveInstances(at.project, d.id.zone, d.id.name, body)))
		if err != nil {
			return err
		}
	}
	if len(add) == 0 {
		return nil
	}
	body := &compute.InstanceGroupsAddInstancesRequest{Instances: references(add)}
	return g.api.sendAndWait(ctx, path, fmt.Sprintf("adding %d instances to %s", len(add), d.id.object()),
		request(sdk.AddInstances(at.project, d.id.zone, d.id.name, body)))
}

// findUnused records the zones whose instance group only this Service needs.
func (g *instanceGroups) findUnused(ctx context.Context, o *observed) error {
	stores := g.api.stores
	if !o.identified || stores.hasOtherUser(*o, indexCheck, sharedCheckName(o.cluster)) {
		return nil
	}
	zones, err := g.api.groupsNamed(ctx, o.at, groupName(o.cluster))
	for _, zone := range zones {
		if !stores.hasOtherUser(*o, indexGroup, o.at.group(groupID{zone, groupName(o.cluster)})) {
			o.groupZones = append(o.groupZones, zone)
		}
	}
	return err
}

// deletions delete the groups that only this Service needs.
func (g *instanceGroups) deletions(o observed) (list []change) {
	for _, zone := range o.groupZones {
		id := groupID{zone, groupName(o.cluster)}
		list = append(list, g.remove(id.object(), "no internal load balancer uses it", field("zone", zone),
			func(ctx context.Context, _ *services.Request, o *observed) error {
				err := g.delete(ctx, o.at, id)
				if err == nil {
					o.groupZones = slices.DeleteFunc(slices.Clone(o.groupZones), func(z string) bool { return z == zone })
				}
				return err
			}))
	}
	return list
}

// deleteUnused deletes the groups that a backend service no longer has, unless another one has them.
func (g *instanceGroups) deleteUnused(ctx context.Context, o observed, before *compute.BackendService, zones []string) error {
	for _, b := range before.Backends {
		path := resource(b.Group)
		id, ok := groupAt(path)
		if !ok || id.name != groupName(o.cluster) || slices.Contains(zones, id.zone) || g.api.stores.hasOtherUser(o, indexGroup, path) {
			continue
		}
		if err := g.delete(ctx, o.at, id); err != nil {
			return err
		}
	}
	return nil
}

func (g *instanceGroups) delete(ctx context.Context, at location, id groupID) error {
	unlock, err := g.locks.Lock(ctx, id.object())
	if err != nil {
		return err
	}
	defer unlock()
	err = g.api.sendAndWait(ctx, at.group(id), "deleting "+id.object(), request(g.api.sdk.InstanceGroups.Delete(at.project, id.zone, id.name)))
	if err == nil || errors.Is(err, cloudapi.ErrNotFound) {
		g.api.stores.groups.Forget(id)
		return nil
	}
	g.api.stores.groups.Doubt(id)
	if isInUse(err) {
		g.api.stores.backends.InvalidateAll()
		return nil // ingress-gce or another process uses it
	}
	return err
}

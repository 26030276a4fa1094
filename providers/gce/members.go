package gce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// lookAgain is the retry delay for an unreachable zone. One listing serves all load balancers.
const lookAgain = 30 * time.Second

// missingRetry is the retry delay for nodes without an instance, unless a read shows the instance earlier.
const missingRetry = time.Hour

// membership holds the instances found for the nodes.
type membership struct {
	// known are the existing instances in the region of the load balancer.
	known []instance
	// unknownZones are the zones whose instances are unknown, with the reason: their members neither join nor leave.
	unknownZones map[string]error
	// missing are the instances of nodes that do not exist now.
	missing []instanceID
}

// isZoneUnknown reports whether the members of a zone are left unchanged.
func (m *membership) isZoneUnknown(zone string) bool { return m.unknownZones[zone] != nil }

// poolMembers returns the members of a target pool: the wanted ones outside waiting zones, and the present ones in them. It adds zones to
// unknownZones.
func (i *instances) poolMembers(ctx context.Context, m membership, have []string) []string {
	var want, all []string
	for _, k := range m.known {
		want = append(want, k.id.path())
		if !m.isZoneUnknown(k.id.zone) {
			all = append(all, k.id.path())
		}
	}
	for _, path := range have {
		id, ok := instanceAt(path)
		if !ok {
			continue
		}
		if err := i.explainMissing(ctx, id); err != nil && !m.isZoneUnknown(id.zone) && !slices.Contains(want, path) {
			m.unknownZones[id.zone] = err // without nodes, and the cloud does not say whether its instances still exist
		}
		if m.isZoneUnknown(id.zone) {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// instanceAt parses an instance's path.
func instanceAt(path string) (id instanceID, ok bool) {
	parts := strings.Split(path, "/") // projects/p/zones/z/instances/i
	if len(parts) != 6 || parts[2] != "zones" {
		return id, false
	}
	return instanceID{parts[1], parts[3], parts[5]}, true
}

// existenceQuery is for instances whose absence lets something be removed.
func existenceQuery() inventory.Query {
	return inventory.Query{MaxAge: 10 * time.Minute, MaxMissAge: time.Minute}
}

// mayExist reports whether the instance with this path may exist. One of another project may.
func (i *instances) mayExist(ctx context.Context, path string) (bool, error) {
	id, ok := instanceAt(path)
	if !ok {
		return true, nil
	}
	_, err := i.all.Get(ctx, id, existenceQuery())
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return false, nil
	case errors.Is(err, cloudapi.ErrInvalid):
		return true, nil
	}
	return true, err
}

// unknownZoneFindings report the waiting zones, once while they stay the same, and schedule the next try.
func (i *instances) unknownZoneFindings(req services.Request, m membership) []services.Finding {
	var zones, why []string
	for zone, err := range m.unknownZones {
		zones, why = append(zones, zone), append(why, err.Error())
	}
	slices.Sort(zones)
	slices.Sort(why)
	text := strings.Join(zones, ", ")
	isNew := req.Purpose == services.Plan || i.reported.isNew(req.Service.UID, eventZoneWaits, text)
	var list []services.Finding
	if len(m.missing) > 0 {
		list = append(list, services.Finding{Again: missingRetry, When: i.arrivals.await(m.missing)})
	}
	if len(zones) == 0 {
		return list
	}
	var f services.Finding
	if isNew {
		f = services.Warning(eventZoneWaits, "nothing is known of the instances in %s, whose nodes neither join nor leave until the zone answers, "+
			"which is looked at by itself; the nodes of all other zones are as they should be: %s", text, strings.Join(slices.Compact(why), "; "))
	}
	f.Again = lookAgain
	return append(list, f)
}

// members returns the existing instances of the nodes in the load balancer's region, and the zones whose instances are unknown. It fails if
// no instance is known and a zone is unknown.
func (i *instances) members(ctx context.Context, nodes []*v1.Node, at location) (m membership, err error) {
	q := inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge, Expected: len(nodes)}
	m = membership{unknownZones: map[string]error{}}
	var unknown error
	for _, n := range nodes {
		id, err := i.config.parseProviderID(n.Spec.ProviderID)
		named := n.Spec.ProviderID != ""
		if named && (err != nil || regionOf(id.zone) != at.region) {
			continue // another region or cloud
		}
		found, err := i.Find(ctx, n, q)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound), !named && errors.Is(err, cloudapi.ErrConflict):
			if named {
				m.missing = append(m.missing, id) // the instance may be created again while its Node stays
			}
			continue // it does not exist, or its name is ambiguous
		case i.isUnreachable(ctx, id, err):
			unknown = err
			if zone := zoneOfNode(n, id); zone == unknownZone || regionOf(zone) == at.region {
				m.unknownZones[zone] = err
			}
			continue
		case err != nil:
			return m, err
		}
		m.known = append(m.known, found)
	}
	m.known = slices.DeleteFunc(m.known, func(known instance) bool { return m.isZoneUnknown(known.id.zone) })
	if unknown != nil && len(m.known) == 0 {
		return m, unknown
	}
	slices.SortFunc(m.known, func(x, y instance) int { return strings.Compare(x.id.path(), y.id.path()) })
	return m, nil
}

// isUnreachable reports whether an error means that a zone is unreachable, as opposed to a temporary failure. After a failed single read
// the listing decides.
func (i *instances) isUnreachable(ctx context.Context, id instanceID, err error) bool {
	if !errors.Is(err, cloudapi.ErrTransient) || ctx.Err() != nil {
		return false
	}
	_, partial := errors.AsType[*inventory.Partial[instanceID]](err)
	if partial || id.zone == "" {
		return partial
	}
	i.list(ctx)
	return i.all.Lacking(id) != nil
}

// explainMissing explains why a listing begun after the failure does not show an instance, nil if it can.
func (i *instances) explainMissing(ctx context.Context, id instanceID) error {
	if i.all.Lacking(id) == nil {
		return nil
	}
	i.list(ctx)
	return i.all.Lacking(id)
}

// list refreshes the listing if it is old. The next query returns its gaps and errors.
func (i *instances) list(ctx context.Context) {
	_, _ = i.all.All(ctx, inventory.Query{MaxAge: memberMaxAge})
}

// unknownZone stands for the zone of a node that does not say where it is.
const unknownZone = "a zone that is not known"

// zoneOfNode returns the zone that the Node or its provider ID names.
func zoneOfNode(n *v1.Node, id instanceID) string {
	return cmp.Or(id.zone, n.Labels[v1.LabelTopologyZone], unknownZone)
}

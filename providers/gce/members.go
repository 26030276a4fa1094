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

// lookAgain is when a zone that could not be reached is looked at again. The listing serves all load balancers.
const lookAgain = 30 * time.Second

// goneAgain is when nodes whose instances are gone are looked at again, if no read shows the instances before.
const goneAgain = time.Hour

// membership holds the instances found for the nodes.
type membership struct {
	// known are those that exist, in the region of the load balancer.
	known []instance
	// waits are zones of the region that cannot be asked, with why: what is there neither joins nor leaves.
	waits map[string]error
	// lacks says why nothing is known of an instance, as far as the latest listing tells.
	lacks func(instanceID) error
	// gone are the instances of nodes that do not exist now.
	gone []instanceID
}

// waiting reports whether a zone keeps what it has.
func (m *membership) waiting(zone string) bool { return m.waits[zone] != nil }

// keep adds what stays because nothing is known of it to the instances that should be members, of those that are. It notes the zones.
func (m *membership) keep(want, have []string) []string {
	all := slices.DeleteFunc(slices.Clone(want), func(path string) bool {
		id, ok := instanceAt(path)
		return ok && m.waiting(id.zone)
	})
	for _, path := range have {
		id, ok := instanceAt(path)
		if !ok {
			continue
		}
		if err := m.lacks(id); err != nil && !m.waiting(id.zone) && !slices.Contains(want, path) {
			m.waits[id.zone] = err // its nodes have gone, and whether they should leave is not said by the cloud
		}
		if m.waiting(id.zone) {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// paths are those of the known instances.
func (m *membership) paths() []string {
	paths := make([]string, len(m.known))
	for i, k := range m.known {
		paths[i] = k.id.path()
	}
	return paths
}

// instanceAt is the instance of a path.
func instanceAt(path string) (id instanceID, ok bool) {
	parts := strings.Split(path, "/") // projects/p/zones/z/instances/i
	if len(parts) != 6 || parts[2] != "zones" {
		return id, false
	}
	return instanceID{parts[1], parts[3], parts[5]}, true
}

// waitFindings tell which zones wait, once for as long as these do, and when nodes are to be applied again.
func (b *reconciler) waitFindings(r services.Request, m membership) []services.Finding {
	var zones, why []string
	for zone, err := range m.waits {
		zones, why = append(zones, zone), append(why, err.Error())
	}
	slices.Sort(zones)
	slices.Sort(why)
	text := strings.Join(zones, ", ")
	first := r.Purpose == services.Plan || b.told.first(r.Service.UID, eventZoneWaits, text)
	var list []services.Finding
	if len(m.gone) > 0 {
		list = append(list, services.Finding{Again: goneAgain, When: b.instances.arrivals.await(m.gone)})
	}
	if len(zones) == 0 {
		return list
	}
	f := services.Finding{Again: lookAgain}
	if first {
		f = services.Warning(eventZoneWaits, "nothing is known of the instances in %s, whose nodes neither join nor leave until the zone answers, "+
			"which is looked at by itself; the nodes of all other zones are as they should be: %s", text, strings.Join(slices.Compact(why), "; "))
		f.Again = lookAgain
	}
	return append(list, f)
}

// members are the instances of the nodes that exist, in the region of the load balancer, and the zones of which nothing is known. Where
// nothing at all is known that is an error.
func (b *reconciler) members(ctx context.Context, nodes []*v1.Node, at place) (m membership, err error) {
	q := inventory.Query{MaxAge: memberMaxAge, MaxMissAge: memberMaxAge, Expected: len(nodes)}
	m = membership{waits: map[string]error{}, lacks: func(id instanceID) error { return b.lacking(ctx, id) }}
	var unknown error
	for _, n := range nodes {
		id, err := b.config.parseProviderID(n.Spec.ProviderID)
		named := n.Spec.ProviderID != ""
		if named && (err != nil || regionOf(id.zone) != at.region) {
			continue // it is none of this cloud's region
		}
		i, err := b.instances.Find(ctx, n, q)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound), !named && errors.Is(err, cloudapi.ErrConflict):
			if named {
				m.gone = append(m.gone, id) // it may be made again while its Node stays
			}
			continue // the cloud would refuse it, or several have its name
		case b.waits(ctx, id, err):
			unknown = err
			if zone := zoneOfNode(n, id); zone == unknownZone || regionOf(zone) == at.region {
				m.waits[zone] = err
			}
			continue
		case err != nil:
			return m, err
		}
		m.known = append(m.known, i)
	}
	m.known = slices.DeleteFunc(m.known, func(i instance) bool { return m.waiting(i.id.zone) })
	if unknown != nil && len(m.known) == 0 {
		return m, unknown
	}
	slices.SortFunc(m.known, func(x, y instance) int { return compareText(x.id.path(), y.id.path()) })
	return m, nil
}

// waits reports whether an error says that a zone cannot be reached, as opposed to a failure that the next try may not meet. Where it is
// that of a single read, a listing tells.
func (b *reconciler) waits(ctx context.Context, id instanceID, err error) bool {
	if !errors.Is(err, cloudapi.ErrTransient) || ctx.Err() != nil {
		return false
	}
	_, partial := errors.AsType[*inventory.Partial[instanceID]](err)
	if partial || id.zone == "" {
		return partial
	}
	b.list(ctx)
	return b.instances.all.Lacking(id) != nil
}

// lacking says why the listing could not show an instance, unless another one can by now.
func (b *reconciler) lacking(ctx context.Context, id instanceID) error {
	if b.instances.all.Lacking(id) == nil {
		return nil
	}
	b.list(ctx)
	return b.instances.all.Lacking(id)
}

// list lists the instances, if that was not done lately. What the listing lacks, and that it fails, shows with the next question.
func (b *reconciler) list(ctx context.Context) {
	_, _ = b.instances.all.All(ctx, inventory.Query{MaxAge: memberMaxAge})
}

// unknownZone stands for the zone of a node that does not say where it is.
const unknownZone = "a zone that is not known"

// zoneOfNode is the zone of a node as far as the cloud need not be asked.
func zoneOfNode(n *v1.Node, id instanceID) string {
	return cmp.Or(id.zone, n.Labels[v1.LabelTopologyZone], unknownZone)
}

package gce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// recordNodes records all nodes of the cluster, including those without load balancer traffic.
func (b *reconciler) recordNodes(ctx context.Context, list []instance) error {
	for _, i := range list {
		b.onceNodes.Store(i.id.path(), true)
	}
	all, err := b.instances.nodes.KnownIn(ctx)
	if err != nil {
		return fmt.Errorf("finding out whose the members of instance groups are: %w", err)
	}
	for _, n := range all {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			b.onceNodes.Store(id.path(), true)
		}
	}
	return nil
}

// unknownMembers returns the existing members of a group that were never seen as nodes. They stay: a cluster restored from the same backup
// has the same ID and thus the same group names.
func (b *reconciler) unknownMembers(ctx context.Context, g desiredGroup) (list []string, err error) {
	if g.have == nil {
		return nil, nil
	}
	for _, m := range g.have.members {
		if _, once := b.onceNodes.Load(m); once || slices.Contains(g.want, m) {
			continue
		}
		id, ok := instanceAt(m)
		if !ok {
			list = append(list, m)
			continue
		}
		q := inventory.Query{MaxAge: 10 * time.Minute, MaxMissAge: time.Minute}
		_, err := b.instances.all.Get(ctx, id, q)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound): // it leaves the group by itself
		case err == nil, errors.Is(err, cloudapi.ErrInvalid):
			list = append(list, m)
		default:
			return nil, err
		}
	}
	return list, nil
}

// limit truncates a group to its maximum, in the order of names, as Google's own controller does.
func (g *desiredGroup) limit() {
	room := max(gcelimits.GroupMembers.Max-len(g.strangers), 0)
	if len(g.want) > room {
		g.leftOut = len(g.want) - room
		g.want = g.want[:room]
	}
}

// groupFindings report strangers and nodes left out of instance groups.
func groupFindings(groups []desiredGroup) (list []services.Finding) {
	for _, g := range groups {
		where := "instance group " + g.id.name + " in " + g.id.zone
		if len(g.strangers) > 0 {
			list = append(list, services.Warning(eventGroupShared,
				"%s has members that are no nodes of this cluster, and that stay: %s; if they are another cluster's, give that one another ID "+
					"(ConfigMap kube-system/%s), else remove them", where, shortList(lastParts(g.strangers)), idConfigMap))
		}
		if g.leftOut > 0 {
			list = append(list, services.Warning(eventGroupFull,
				"%s holds no more than %d instances; the last %d nodes of the zone by name get no traffic from internal load balancers; "+
					"label nodes with node.kubernetes.io/exclude-from-external-load-balancers to choose", where, gcelimits.GroupMembers.Max, g.leftOut))
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

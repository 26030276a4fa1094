package gce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// nodesSeen remembers which instances were nodes of this cluster while the program ran.
type nodesSeen struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (s *nodesSeen) add(paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = map[string]bool{}
	}
	for _, p := range paths {
		s.paths[p] = true
	}
}

func (s *nodesSeen) contains(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[path]
}

// seeNodes notes the nodes of the cluster, also those that no load balancer sends to.
func (b *reconciler) seeNodes(ctx context.Context, list []instance) error {
	for _, i := range list {
		b.seen.add(i.id.path())
	}
	all, err := b.instances.nodes.KnownIn(ctx)
	if err != nil {
		return fmt.Errorf("finding out whose the members of instance groups are: %w", err)
	}
	for _, n := range all {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			b.seen.add(id.path())
		}
	}
	return nil
}

// strangers are the members of a group that are there and were never seen as nodes: the name of the group follows from the cluster's ID,
// which another cluster may have as well, such as one that was restored from the same backup. They stay.
func (b *reconciler) strangers(ctx context.Context, g desiredGroup) (list []string, err error) {
	if g.have == nil {
		return nil, nil
	}
	for _, m := range g.have.members {
		if slices.Contains(g.want, m) || b.seen.contains(m) {
			continue
		}
		parts := strings.Split(m, "/") // projects/p/zones/z/instances/i
		if len(parts) != 6 {
			list = append(list, m)
			continue
		}
		q := inventory.Query{MaxAge: 10 * time.Minute, MaxMissAge: time.Minute}
		_, err := b.instances.all.Get(ctx, instanceID{parts[1], parts[3], parts[5]}, q)
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

// limit leaves out what a group cannot hold, as Google's own controller does: the last ones by their names.
func (g *desiredGroup) limit() {
	room := max(gcelimits.GroupMembers.Max-len(g.strangers), 0)
	if len(g.want) > room {
		g.leftOut = len(g.want) - room
		g.want = g.want[:room]
	}
}

// groupFindings tell what is unusual about instance groups.
func groupFindings(groups []desiredGroup) (list []services.Finding) {
	for _, g := range groups {
		where := "instance group " + g.id.name + " in " + g.id.zone
		if len(g.strangers) > 0 {
			names := make([]string, len(g.strangers))
			for i, m := range g.strangers {
				names[i] = lastPart(m)
			}
			list = append(list, services.Warning(eventGroupShared,
				"%s has members that are no nodes of this cluster, and that stay: %s; if they are another cluster's, give that one another ID "+
					"(ConfigMap kube-system/%s), else remove them", where, shortList(names), idConfigMap))
		}
		if g.leftOut > 0 {
			list = append(list, services.Warning(eventGroupFull,
				"%s holds no more than %d instances; the last %d nodes of the zone by name get no traffic from internal load balancers; "+
					"label nodes with node.kubernetes.io/exclude-from-external-load-balancers to choose", where, gcelimits.GroupMembers.Max, g.leftOut))
		}
	}
	return list
}

// shortList names the first few.
func shortList(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

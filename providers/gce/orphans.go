package gce

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.OrphanFinder = (*cloud)(nil)

const kindLoadBalancer = "load balancer"

// Orphans implements contract.OrphanFinder: load balancers whose name belongs to no Service. Unmarked ones are known to be the cluster's by
// its health check or instance groups.
func (c *cloud) Orphans(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
	return c.loadBalancers.reconciler.listOrphans(ctx, living, inventory.Query{MaxAge: ownership.OrphanMaxAge})
}

func (r *reconciler) listOrphans(ctx context.Context, living []*v1.Service, q inventory.Query) ([]contract.Orphan, error) {
	mark, err := r.identity.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	uid, _ := ownership.Marked([]string{mark})
	cluster, _, err := r.identity.clusterID(ctx, false)
	if err != nil {
		return nil, err
	}
	rules, err := r.api.stores.rules.All(ctx, q)
	if err != nil {
		return nil, err
	}
	s := orphanSearch{taken: map[string]bool{}, found: map[string]contract.Orphan{}}
	for _, service := range living {
		if ownership.MayHave(service) {
			s.taken[loadBalancerName("", service)] = true
		}
	}
	for _, rule := range rules {
		owner := rule.Labels[labelCluster]
		switch {
		case owner != "" && owner != uid, ownership.IsShown(living, rule.IPAddress):
			s.taken[rule.Name] = true
		case owner == uid:
			s.note(rule.Name, rule.Description, rule.CreationTimestamp)
		}
	}
	if cluster != "" { // an empty ID may belong to several clusters
		if err := r.findOrphanedParts(ctx, cluster, q, s); err != nil {
			return nil, err
		}
	}
	list := slices.AppendSeq([]contract.Orphan{}, maps.Values(s.found))
	slices.SortFunc(list, func(a, b contract.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// orphanSearch holds the names of load balancers that living Services have or show, or that have another cluster's mark, and the results.
type orphanSearch struct {
	taken map[string]bool
	found map[string]contract.Orphan
}

func (s orphanSearch) note(name, description, created string) {
	if service := serviceOf(description); isControllerName(name) && !s.taken[name] && service != "" {
		s.found[name] = contract.Orphan{Kind: kindLoadBalancer, ID: name, Name: service, Created: created}
	}
}

// findOrphanedParts finds unmarked target pools and backend services by the cluster's health check or instance groups.
func (r *reconciler) findOrphanedParts(ctx context.Context, cluster string, q inventory.Query, s orphanSearch) error {
	pools, err := r.api.stores.pools.All(ctx, q)
	if err != nil {
		return err
	}
	for _, p := range pools {
		if slices.Contains(lastParts(p.HealthChecks), sharedCheckName(cluster)) {
			s.note(p.Name, p.Description, p.CreationTimestamp)
		}
	}
	backends, err := r.api.stores.backends.All(ctx, q)
	if err != nil {
		return err
	}
	for _, v := range backends {
		if slices.ContainsFunc(v.Backends, func(g *compute.Backend) bool { return lastPart(g.Group) == groupName(cluster) }) {
			s.note(v.Name, v.Description, v.CreationTimestamp)
		}
	}
	return nil
}

// serviceOf returns the Service named in a description.
func serviceOf(description string) string {
	var said struct {
		Name string `json:"kubernetes.io/service-name"`
	}
	if json.Unmarshal([]byte(description), &said) != nil {
		return ""
	}
	return said.Name
}

// isControllerName reports whether a name has the controllers' form: "a" and a UID without dashes, cut at 32 characters.
func isControllerName(name string) bool {
	return len(name) == 32 && name[0] == 'a' && strings.Trim(name[1:], "0123456789abcdef") == ""
}

// DeleteOrphan implements contract.OrphanFinder. It searches again, because the list may be outdated.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	r := c.loadBalancers.reconciler
	if err := r.identity.StillOrphan(ctx, o, func(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
		return r.listOrphans(ctx, living, inventory.Query{})
	}); err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(o.Name, "/")
	// The name holds all of the UID but its last digit.
	gone := &v1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(o.ID[1:]),
		Finalizers: []string{finalizerNetLB, finalizerILB}, // without a forwarding rule only finalizers tell the kind
	}}
	return c.loadBalancers.EnsureLoadBalancerDeleted(ctx, "", gone)
}

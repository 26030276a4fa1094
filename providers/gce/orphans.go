package gce

import (
	"context"
	"encoding/json"
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

// Orphans implements contract.OrphanFinder: load balancers whose name belongs to no Service. Marked forwarding rules name their cluster.
// Interrupted ones and those of Google's controller are identified by the cluster's own health check or instance groups.
func (c *cloud) Orphans(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
	return c.loadBalancers.reconciler.listOrphans(ctx, living, inventory.Query{MaxAge: ownership.OrphanMaxAge})
}

func (b *reconciler) listOrphans(ctx context.Context, living []*v1.Service, q inventory.Query) ([]contract.Orphan, error) {
	found, err := b.orphans(ctx, living, q)
	if err != nil {
		return nil, err
	}
	list := []contract.Orphan{}
	for name, o := range found {
		list = append(list, contract.Orphan{Kind: kindLoadBalancer, ID: name, Name: o.service, Created: o.created})
	}
	slices.SortFunc(list, func(a, b contract.Orphan) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// orphan describes a load balancer whose Service does not exist.
type orphan struct{ service, created string }

func (b *reconciler) orphans(ctx context.Context, living []*v1.Service, q inventory.Query) (map[string]orphan, error) {
	mark, err := b.identity.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	uid, _ := ownership.Marked([]string{mark})
	cluster, _, err := b.identity.clusterID(ctx, false)
	if err != nil {
		return nil, err
	}
	rules, err := b.api.stores.rules.All(ctx, q)
	if err != nil {
		return nil, err
	}
	s := orphanSearch{taken: map[string]bool{}, others: map[string]bool{}, found: map[string]orphan{}}
	for _, service := range living {
		if ownership.MayHave(service) {
			s.taken[loadBalancerName("", service)] = true
		}
	}
	for _, r := range rules {
		owner := r.Labels[labelCluster]
		s.others[r.Name] = owner != "" && owner != uid
		if owner == uid {
			s.note(r.Name, r.Description, r.CreationTimestamp)
		}
	}
	if cluster != "" { // an empty ID may belong to several clusters
		err = b.orphanedParts(ctx, cluster, q, s)
	}
	return s.found, err
}

// orphanSearch holds the names of living Services, the names that another cluster has marked, and the results.
type orphanSearch struct {
	taken, others map[string]bool
	found         map[string]orphan
}

func (s orphanSearch) note(name, description, created string) {
	if service := serviceOf(description); isControllerName(name) && !s.taken[name] && !s.others[name] && service != "" {
		s.found[name] = orphan{service, created}
	}
}

// orphanedParts finds unmarked target pools and backend services by the cluster's health check or instance groups.
func (b *reconciler) orphanedParts(ctx context.Context, cluster string, q inventory.Query, s orphanSearch) error {
	pools, err := b.api.stores.pools.All(ctx, q)
	if err != nil {
		return err
	}
	for _, p := range pools {
		if slices.Contains(lastParts(p.HealthChecks), sharedCheckName(cluster)) {
			s.note(p.Name, p.Description, p.CreationTimestamp)
		}
	}
	backends, err := b.api.stores.backends.All(ctx, q)
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
	var told struct {
		Name string `json:"kubernetes.io/service-name"`
	}
	if json.Unmarshal([]byte(description), &told) != nil {
		return ""
	}
	return told.Name
}

// isControllerName reports whether a name has the controllers' form: "a" and a UID without dashes, cut at 32 characters.
func isControllerName(name string) bool {
	return len(name) == 32 && name[0] == 'a' && strings.Trim(name[1:], "0123456789abcdef") == ""
}

// DeleteOrphan implements contract.OrphanFinder. Time has passed since the search, so it first repeats it with the present Services.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	b := c.loadBalancers.reconciler
	if err := b.identity.StillOrphan(ctx, o, func(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
		return b.listOrphans(ctx, living, inventory.Query{})
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

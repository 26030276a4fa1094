package linode

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

// routesMaxAge is the maximum age of routes. The framework reads them every 10 s; our own changes are in the view at once, so the age only
// delays the sight of changes by hand.
const routesMaxAge = 2 * time.Minute

// routes implements cloudprovider.Routes: a route is a range of the VPC interface of the node's Linode.
type routes struct {
	api       *api
	instances *instances

	mu sync.Mutex
	// ipv6 holds IPv6 ranges by node name: the VPC routes them by itself, and the framework expects to see them.
	ipv6 map[types.NodeName]sets.Set[string]
	// busy locks a Linode, whose ranges are replaced as a whole.
	busy keylock.Locks
}

var (
	_ cloudprovider.Routes = (*routes)(nil)
	_ contract.SelfRouter  = (*routes)(nil)
)

func newRoutes(a *api, i *instances) *routes {
	return &routes{api: a, instances: i, ipv6: map[types.NodeName]sets.Set[string]{}}
}

// nodesByLinode returns the names of the registered nodes by the ID of their Linode.
func (r *routes) nodesByLinode() (map[int]types.NodeName, error) {
	all, err := r.instances.nodes.Known()
	if err != nil {
		return nil, err
	}
	byID := map[int]types.NodeName{}
	for _, n := range all {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			byID[id] = types.NodeName(n.Name)
		}
	}
	return byID, nil
}

// ListRoutes implements cloudprovider.Routes. Ranges of Linodes that are not nodes of this cluster are left out.
func (r *routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	nodes, err := r.nodesByLinode()
	if err != nil {
		return nil, err
	}
	all, err := r.instances.linodes.All(ctx, inventory.Query{MaxAge: routesMaxAge})
	if err != nil {
		return nil, err
	}
	list := []*cloudprovider.Route{}
	add := func(node types.NodeName, cidr string) {
		list = append(list, &cloudprovider.Route{Name: string(node) + " " + cidr, TargetNode: node, DestinationCIDR: cidr})
	}
	for _, l := range all {
		node, ours := nodes[l.id]
		if !ours {
			continue
		}
		if l.vpc != nil {
			for _, cidr := range l.vpc.ranges {
				add(node, cidr)
			}
		}
		for _, cidr := range r.knownIPv6(node) {
			add(node, cidr)
		}
	}
	slices.SortFunc(list, func(a, b *cloudprovider.Route) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (r *routes) knownIPv6(node types.NodeName) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ipv6[node].UnsortedList()
}

// RoutesItself implements contract.SelfRouter: ranges of IPv6 belong to the interfaces of Linodes, and --cluster-cidr is one network of
// IPv4.
func (r *routes) RoutesItself(network netip.Prefix) bool { return network.Addr().Is6() }

// CreateRoute implements cloudprovider.Routes.
func (r *routes) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	prefix, err := netip.ParsePrefix(route.DestinationCIDR)
	if err != nil {
		return &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: "creating a route", Message: fmt.Sprintf("%q is not a network", route.DestinationCIDR)}
	}
	if prefix.Addr().Is6() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ipv6[route.TargetNode] == nil {
			r.ipv6[route.TargetNode] = sets.New[string]()
		}
		r.ipv6[route.TargetNode].Insert(route.DestinationCIDR)
		return nil
	}
	return r.change(ctx, route, func(ranges []string) []string {
		if slices.Contains(ranges, route.DestinationCIDR) {
			return ranges
		}
		return append(slices.Clone(ranges), route.DestinationCIDR)
	})
}

// DeleteRoute implements cloudprovider.Routes. The routes of a deleted Linode are gone with it.
func (r *routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	if strings.Contains(route.DestinationCIDR, ":") {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ipv6[route.TargetNode], route.DestinationCIDR)
		return nil
	}
	err := r.change(ctx, route, func(ranges []string) []string {
		return slices.DeleteFunc(slices.Clone(ranges), func(one string) bool { return one == route.DestinationCIDR })
	})
	return cloudapi.IgnoreNotFound(err)
}

// change replaces the ranges of a node's interface if they differ, one change of a Linode at a time.
func (r *routes) change(ctx context.Context, route *cloudprovider.Route, desire func([]string) []string) error {
	node, err := r.instances.nodes.Node(route.TargetNode)
	if err != nil {
		return fmt.Errorf("route %s: %w", route.DestinationCIDR, err)
	}
	id, err := parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return fmt.Errorf("route %s: %w", route.DestinationCIDR, err)
	}
	unlock, err := r.busy.Lock(ctx, strconv.Itoa(id))
	if err != nil {
		return fmt.Errorf("route %s: %w", route.DestinationCIDR, err)
	}
	defer unlock()
	l, err := r.instances.linodes.Get(
		ctx, id, inventory.Query{MaxAge: routesMaxAge, MaxMissAge: nodes.MissMaxAge, Expected: r.instances.nodes.Counts().All},
	)
	if err == nil && l.vpc != nil && len(l.vpc.ranges) > 0 && !slices.Equal(desire(l.vpc.ranges), l.vpc.ranges) {
		// The ranges are replaced as a whole: keep others' recent additions, and our own writes that the listing does not show yet.
		known := l.vpc.ranges
		if l, err = r.instances.linodes.Get(ctx, id, inventory.Query{}); err == nil && l.vpc != nil {
			now := *l.vpc
			now.ranges = union(now.ranges, known...)
			l.vpc = &now
		}
	}
	if err != nil {
		return fmt.Errorf("route %s to node %s: %w", route.DestinationCIDR, node.Name, err)
	}
	if l.vpc == nil || l.vpc.interfaceID == 0 {
		return &cloudapi.Error{
			Class: cloudapi.ErrConflict, Operation: fmt.Sprintf("routing %s to node %s", route.DestinationCIDR, node.Name),
			Message: fmt.Sprintf("Linode %d has no interface in the VPC of the cluster", id),
		}
	}
	ranges := desire(l.vpc.ranges)
	if slices.Equal(ranges, l.vpc.ranges) {
		return nil
	}
	klog.InfoS("Changing routes", "node", node.Name, "linode", id, "ranges", ranges)
	if err := r.api.setRanges(ctx, l, ranges); err != nil {
		if !cloudapi.NotSent(err) {
			r.instances.linodes.Invalidate(id)
		}
		return err
	}
	changed := *l.vpc
	changed.ranges = ranges
	l.vpc = &changed
	r.instances.linodes.PutPartial(l)
	return nil
}

// union returns a and the further elements of b, each once.
func union(a []string, b ...string) []string {
	all, known := slices.Clone(a), sets.New(a...)
	for _, one := range b {
		if !known.Has(one) {
			known.Insert(one)
			all = append(all, one)
		}
	}
	return all
}

// setRanges replaces the ranges of a Linode's VPC interface, of either generation of interfaces. An empty list is sent as such.
func (a *api) setRanges(ctx context.Context, l instance, ranges []string) error {
	endpoint := fmt.Sprintf("linode/instances/%d/configs/%d/interfaces/%d", l.id, l.vpc.configID, l.vpc.interfaceID)
	fields := map[string]any{"ip_ranges": append([]string{}, ranges...)}
	if l.vpc.configID == 0 {
		list := []map[string]string{}
		for _, one := range ranges {
			list = append(list, map[string]string{"range": one})
		}
		endpoint = fmt.Sprintf("linode/instances/%d/interfaces/%d", l.id, l.vpc.interfaceID)
		fields = map[string]any{"vpc": map[string]any{"ipv4": map[string]any{"ranges": list}}}
	}
	type answer struct {
		ID int `json:"id"`
	}
	_, err := exchangeJSON(ctx, a, fmt.Sprintf("changing the routes of Linode %d", l.id), http.MethodPut, endpoint, fields,
		func(v *answer) bool { return v.ID == l.vpc.interfaceID })
	return err
}

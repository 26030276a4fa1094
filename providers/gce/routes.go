package gce

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

const (
	// routesMaxAge is the maximum age of the listing of routes. It always includes our own writes.
	routesMaxAge = 20 * time.Second
	// routeDescription and routePriority have the values of Google's own controller.
	routeDescription = "k8s-node-route"
	routePriority    = 1000
	// maxClusterName limits how much of the cluster's name is in the names of routes.
	maxClusterName = 26
)

var (
	// routeOwnerForm matches all that follows the cluster's name in a route's name: a node's UID, or the UID without dashes and a family.
	routeOwnerForm = regexp.MustCompile(`^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}-[46])$`)
	routeNameForm  = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// routes implements cloudprovider.Routes with static routes of the network. Each leads to an instance.
type routes struct {
	api       *api
	instances *instances
	all       *store[*compute.Route]
	// events is nil before the program leads.
	events record.EventRecorder
	// locks has a lock per route: the framework creates and deletes concurrently, and a creation may delete other routes.
	locks keylock.Locks
	// ledToNode are the names of routes that have led to a node.
	ledToNode sync.Map
}

var _ cloudprovider.Routes = (*routes)(nil)

func newRoutes(a *api, i *instances) *routes {
	return &routes{api: a, instances: i, all: newRouteStore(a)}
}

func newRouteStore(a *api) *store[*compute.Route] {
	return newStore(a, collection[*compute.Route, *compute.RouteList, *compute.RoutesListCall]{
		one: "route", many: "routes", kind: "compute#routeList",
		list: func(at location) *compute.RoutesListCall { return a.sdk.Routes.List(at.networkProject) },
		get: func(ctx context.Context, at location, name string) (*compute.Route, error) {
			return a.sdk.Routes.Get(at.networkProject, name).Context(ctx).Do()
		},
		page: func(l *compute.RouteList) ([]*compute.Route, string, string, any) {
			return l.Items, l.NextPageToken, l.Kind, l.Warning
		},
		name: func(v *compute.Route) string { return v.Name },
	})
}

// route returns the path of a route, in the project of the network.
func (p location) route(name string) string {
	return "projects/" + p.networkProject + "/global/routes/" + name
}

func routePrefix(cluster string) string { return cluster[:min(len(cluster), maxClusterName)] + "-" }

// routeName is the name that Google's own controller uses.
func routeName(cluster, uid string) string { return routePrefix(cluster) + uid }

// secondRouteName is for the node's other family if the usual name is taken. It fits the API's limit and has the usual prefix.
func secondRouteName(cluster, uid string, ip netip.Addr) string {
	family := "-4"
	if ip.Is6() {
		family = "-6"
	}
	return routePrefix(cluster) + removeDashes(uid) + family
}

func removeDashes(uid string) string { return strings.ReplaceAll(uid, "-", "") }

// routeOwner returns the UID, without dashes, of the node that this cluster's route was created for; "" for other routes.
func routeOwner(cluster string, at location, r *compute.Route) string {
	rest, ok := strings.CutPrefix(r.Name, routePrefix(cluster))
	if !ok || !routeOwnerForm.MatchString(rest) || r.Description != routeDescription || resource(r.Network) != at.network ||
		r.NextHopInstance == "" {
		return ""
	}
	return removeDashes(rest)[:32]
}

// routeTargets finds the node of a route.
type routeTargets struct {
	byUID, byPath, byLabel map[string]*v1.Node
}

// routeTargets returns the cluster's nodes. One without a provider ID is found by name.
func (r *routes) routeTargets() (routeTargets, error) {
	h := routeTargets{byUID: map[string]*v1.Node{}, byPath: map[string]*v1.Node{}, byLabel: map[string]*v1.Node{}}
	all, err := r.instances.nodes.Known()
	if err != nil {
		return h, err
	}
	for _, n := range all {
		h.byUID[removeDashes(string(n.UID))] = n
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			h.byPath[id.path()] = n
		} else if n.Spec.ProviderID == "" {
			h.byLabel[firstLabel(n.Name)] = n
		}
	}
	return h, nil
}

// nodeOf returns the node that a route leads to, or nil.
func (h routeTargets) nodeOf(route *compute.Route) *v1.Node {
	path := resource(route.NextHopInstance)
	if n := h.byPath[path]; n != nil {
		return n
	}
	return h.byLabel[lastPart(path)]
}

// ListRoutes implements cloudprovider.Routes. The framework deletes routes without a node, so those to an instance that was never a node
// are omitted, because a cluster of the same name may own them, and misdirected ones, so that they are replaced.
func (r *routes) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	at, all, nodes, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	list := []*cloudprovider.Route{}
	for _, route := range all {
		owner := routeOwner(cluster, at, route)
		if owner == "" {
			continue
		}
		shown := &cloudprovider.Route{Name: route.Name, DestinationCIDR: route.DestRange}
		if n := nodes.nodeOf(route); n != nil {
			r.ledToNode.Store(route.Name, true)
			shown.TargetNode = types.NodeName(n.Name)
			if i := slices.IndexFunc(n.Spec.PodCIDRs, func(c string) bool { return podranges.Same(c, route.DestRange) }); i >= 0 {
				shown.DestinationCIDR = n.Spec.PodCIDRs[i] // the framework compares texts
			}
			list = append(list, shown)
			continue
		}
		if nodes.byUID[owner] != nil {
			continue
		}
		foreign, err := r.isForeign(ctx, route)
		if err != nil {
			return nil, err
		}
		if !foreign {
			// a present node may have the deleted one's name and network, so return a name that no node has
			shown.TargetNode, shown.Blackhole = types.NodeName(route.Name), true
			list = append(list, shown)
		}
	}
	return list, nil
}

func (r *routes) read(ctx context.Context) (location, []*compute.Route, routeTargets, error) {
	nodes, err := r.routeTargets()
	if err != nil {
		return location{}, nil, nodes, err
	}
	at, err := r.api.locator.get(ctx)
	if err != nil {
		return at, nil, nodes, err
	}
	all, err := r.all.All(ctx, inventory.Query{MaxAge: routesMaxAge})
	if err != nil {
		return at, nil, nodes, cloudapi.NotAbsence(err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(v *compute.Route) bool { return resource(v.Network) != at.network })
	slices.SortFunc(all, func(a, b *compute.Route) int { return strings.Compare(a.Name, b.Name) })
	return at, all, nodes, nil
}

// isForeign reports whether a route may be another cluster's: it never led to a node of this one, and its instance exists or is in another
// project.
func (r *routes) isForeign(ctx context.Context, route *compute.Route) (bool, error) {
	if _, once := r.ledToNode.Load(route.Name); once {
		return false, nil
	}
	return r.instances.mayExist(ctx, resource(route.NextHopInstance))
}

// CreateRoute implements cloudprovider.Routes. An existing route costs no write.
func (r *routes) CreateRoute(ctx context.Context, cluster, uid string, wanted *cloudprovider.Route) error {
	destination, err := netip.ParsePrefix(wanted.DestinationCIDR)
	if err != nil {
		return fmt.Errorf("the destination of a route: %w", err)
	}
	if name := routeName(cluster, uid); !routeNameForm.MatchString(name) {
		return &cloudapi.Error{
			Class: cloudapi.ErrInvalid, Operation: "making a route to node " + string(wanted.TargetNode),
			Message: fmt.Sprintf("%q cannot be the name of a route; --cluster-name must begin with a lower-case letter and have lower-case letters, digits and dashes only", name),
		}
	}
	node, err := r.instances.nodes.Node(wanted.TargetNode)
	if err != nil {
		return fmt.Errorf("the route to %s: %w", wanted.TargetNode, err)
	}
	hop, err := r.nextHop(ctx, node)
	if err != nil {
		return err
	}
	at, all, nodes, err := r.read(ctx)
	if err != nil {
		return err
	}
	request := routeRequest{cluster: cluster, uid: uid, node: node, hop: hop.path(), destination: destination.Masked(), at: at, nodes: nodes}
	choice := request.decide(all)
	if choice.refusal == "" {
		choice.refusal, err = r.replacementRefusal(ctx, request, choice.obsolete)
	}
	if err != nil {
		return err
	}
	if choice.refusal != "" {
		return &cloudapi.Error{
			Class: cloudapi.ErrConflict, Operation: fmt.Sprintf("making the route of %s to node %s", wanted.DestinationCIDR, node.Name), Message: choice.refusal,
		}
	}
	if choice.exists {
		return nil
	}
	for _, old := range choice.obsolete {
		if err := r.remove(ctx, at, old.Name); err != nil {
			return err
		}
	}
	r.warnOfForwarding(node, hop)
	return r.createRoute(ctx, &compute.Route{
		Name: choice.name, Description: routeDescription, Network: at.network, DestRange: request.destination.String(),
		NextHopInstance: request.hop, Priority: routePriority,
	}, at)
}

// warnOfForwarding warns that the cloud drops packets to the pods of an instance without IP forwarding. The API accepts its route anyway.
func (r *routes) warnOfForwarding(node *v1.Node, hop instanceID) {
	i, known := r.instances.all.Peek(hop)
	if !known || i.forwards || r.events == nil {
		return
	}
	r.events.Eventf(node, v1.EventTypeWarning, eventNoForwarding,
		"the instance %s may not forward packets, so that the cloud drops those to and from its pods; set canIpForward on it "+
			"(gcloud compute instances update-from-file, or --can-ip-forward when it is made)", hop)
}

// nextHop returns the instance of a node, from the cloud and not from the Node.
func (r *routes) nextHop(ctx context.Context, node *v1.Node) (instanceID, error) {
	m, err := r.instances.Describe(ctx, node, existenceQuery())
	if err != nil {
		return instanceID{}, fmt.Errorf("finding the next hop of node %s: %w", node.Name, cloudapi.NotAbsence(err))
	}
	return parseProviderID(m.ProviderID)
}

// replacementRefusal explains why routes cannot be replaced, or "". Routes to a node of the cluster, or created for one, can be.
func (r *routes) replacementRefusal(ctx context.Context, c routeRequest, replaced []*compute.Route) (string, error) {
	for _, old := range replaced {
		if c.nodes.nodeOf(old) != nil || c.nodes.byUID[routeOwner(c.cluster, c.at, old)] != nil {
			continue
		}
		foreign, err := r.isForeign(ctx, old)
		if err != nil {
			return "", err
		}
		if foreign {
			return fmt.Sprintf("route %s is there for %s and leads to %s, which is no node of this cluster; remove that route, or give the clusters different names and pod ranges",
				old.Name, old.DestRange, resource(old.NextHopInstance)), nil
		}
	}
	return "", nil
}

type routeRequest struct {
	cluster, uid string
	node         *v1.Node
	hop          string
	destination  netip.Prefix
	at           location
	nodes        routeTargets
}

// choice is the decision about a route: keep it, or create it after deleting conflicting ones.
type choice struct {
	exists   bool
	refusal  string
	name     string
	obsolete []*compute.Route
}

// decide compares with the routes of the network. Routes are immutable, so a wrong one is replaced.
func (c routeRequest) decide(all []*compute.Route) (result choice) {
	taken := map[string]*compute.Route{}
	for _, have := range all {
		taken[have.Name] = have
		if !podranges.Same(have.DestRange, c.destination.String()) {
			continue
		}
		ours, leads := routeOwner(c.cluster, c.at, have) != "", resource(have.NextHopInstance) == c.hop
		if ours && leads {
			return choice{exists: true}
		}
		if !leads {
			if why := c.refusalReason(have, ours); why != "" {
				return choice{refusal: why}
			}
		}
		if ours {
			result.obsolete = append(result.obsolete, have)
		}
	}
	result.name = c.name(taken)
	if old := taken[result.name]; old != nil && !slices.Contains(result.obsolete, old) {
		if routeOwner(c.cluster, c.at, old) == "" || c.servesOtherFamily(old) {
			return choice{refusal: "route " + old.Name + " is there for " + old.DestRange + ", and no controller made it; remove that route"}
		}
		result.obsolete = append(result.obsolete, old)
	}
	return result
}

// refusalReason explains why a route may not be created beside another one to the same network.
func (c routeRequest) refusalReason(have *compute.Route, ours bool) string {
	switch other := c.servedNode(have); {
	case ours && other != "":
		return "node " + other + " has the same network; delete one of the two Nodes"
	case !ours && have.Priority == routePriority && len(have.Tags) == 0:
		return "route " + have.Name + ", which this controller did not make, is there for it with the same priority, so " +
			"that a part of the packets would go elsewhere; remove that route, or give the pods other networks"
	}
	return ""
}

// name returns the usual name for the node's first network, unless the route of its other family has it.
func (c routeRequest) name(taken map[string]*compute.Route) string {
	usual := routeName(c.cluster, c.uid)
	first := len(c.node.Spec.PodCIDRs) == 0 || podranges.Same(c.node.Spec.PodCIDRs[0], c.destination.String())
	if !first || c.servesOtherFamily(taken[usual]) {
		return secondRouteName(c.cluster, c.uid, c.destination.Addr())
	}
	return usual
}

// servedNode returns another node whose network the route serves, or "".
func (c routeRequest) servedNode(route *compute.Route) string {
	n := c.nodes.nodeOf(route)
	wanted := func(cidr string) bool { return podranges.Same(cidr, route.DestRange) }
	if n == nil || n.Name == c.node.Name || !slices.ContainsFunc(n.Spec.PodCIDRs, wanted) {
		return ""
	}
	return n.Name
}

// servesOtherFamily reports whether the node needs the route for another of its pod networks.
func (c routeRequest) servesOtherFamily(route *compute.Route) bool {
	return route != nil && routeOwner(c.cluster, c.at, route) != "" && resource(route.NextHopInstance) == c.hop &&
		!podranges.Same(route.DestRange, c.destination.String()) &&
		slices.ContainsFunc(c.node.Spec.PodCIDRs, func(cidr string) bool { return podranges.Same(cidr, route.DestRange) })
}

func (r *routes) createRoute(ctx context.Context, route *compute.Route, at location) error {
	what := fmt.Sprintf("making route %s of %s to %s", route.Name, route.DestRange, route.NextHopInstance)
	klog.InfoS("Making route", "route", route.Name, "destination", route.DestRange, "nextHop", route.NextHopInstance)
	err := r.api.sendAndWait(ctx, at.route(route.Name), what, request(r.api.sdk.Routes.Insert(at.networkProject, route)))
	if err != nil {
		r.all.Doubt(route.Name) // it may exist nevertheless
		return cloudapi.NotAbsence(err)
	}
	r.all.Put(route)
	r.ledToNode.Store(route.Name, true)
	return nil
}

// remove deletes a route, unless another worker just did.
func (r *routes) remove(ctx context.Context, at location, name string) error {
	unlock, err := r.locks.Lock(ctx, name)
	if err != nil {
		return fmt.Errorf("waiting for another change of route %s: %w", name, err)
	}
	defer unlock()
	if _, there := r.all.Peek(name); !there {
		return nil
	}
	klog.InfoS("Deleting route", "route", name)
	err = deleteOne(ctx, r.api, r.all, at.route(name), "deleting route "+name,
		request(r.api.sdk.Routes.Delete(at.networkProject, name)))
	if err == nil {
		r.ledToNode.Delete(name)
	}
	return err
}

// DeleteRoute implements cloudprovider.Routes. It deletes only routes that ListRoutes may have returned; a missing route is not an error.
func (r *routes) DeleteRoute(ctx context.Context, cluster string, unwanted *cloudprovider.Route) error {
	at, all, _, err := r.read(ctx)
	if err != nil {
		return err
	}
	for _, have := range all {
		if have.Name == unwanted.Name && routeOwner(cluster, at, have) != "" && podranges.Same(have.DestRange, unwanted.DestinationCIDR) {
			return r.remove(ctx, at, have.Name)
		}
	}
	return nil
}

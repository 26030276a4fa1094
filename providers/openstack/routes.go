package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
)

const (
	extensionRoutes       = "extraroute"
	extensionAtomicRoutes = "extraroute-atomic"
	extensionAddressPairs = "allowed-address-pairs"

	// routesMaxAge is for the router; our own writes are visible at once.
	routesMaxAge = 60 * time.Second
	// pairsMaxAge bounds how long it goes unnoticed that somebody removed the pod range from a port.
	pairsMaxAge = 10 * time.Minute
)

type router struct {
	ID       string  `json:"id"`
	Routes   []route `json:"routes"`
	Revision int     `json:"revision_number"`
}

type route struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nexthop"`
}

// routes implements cloudprovider.Routes on one router.
type routes struct {
	id        string
	api       *api
	instances *instances
	routers   *inventory.Inventory[string, *router]

	// ledToNode holds the routes that have led to a node.
	ledToNode sync.Map
	// writing serializes changes of the whole list.
	writing sync.Mutex
}

var _ cloudprovider.Routes = (*routes)(nil)

func newRoutes(c Config, a *api, i *instances) *routes {
	return &routes{id: c.RouterID, api: a, instances: i, routers: inventory.New(inventory.Source[string, *router]{
		Kind: "router", ID: func(r *router) string { return r.ID },
		Get: func(ctx context.Context, id string) (*router, error) {
			return get(ctx, a, network, "reading router "+id, "routers/"+id, "router", func(r *router) bool { return r.ID == id })
		},
	})}
}

// ListRoutes implements cloudprovider.Routes. The framework deletes routes without a node, so routes to existing machines that are not
// nodes are left out: they belong to another cluster.
func (r *routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	nodes, err := r.instances.nodes.Known()
	if err != nil {
		return nil, err
	}
	if err := r.checkExtension(ctx); err != nil {
		return nil, err
	}
	at, err := r.read(ctx, routesMaxAge)
	if err != nil {
		return nil, err
	}
	owners, err := r.owners(ctx, nodes)
	if err != nil {
		return nil, err
	}
	list := []*cloudprovider.Route{}
	for _, rt := range at.Routes {
		shown := &cloudprovider.Route{Name: rt.Destination, DestinationCIDR: rt.Destination}
		if n := owners[rt.NextHop]; n != nil {
			whole, err := r.acceptsRoute(ctx, n, rt)
			if err != nil {
				return nil, err
			}
			if !whole {
				continue // the framework then creates it again, and with it the address pair
			}
			shown.TargetNode = types.NodeName(n.Name)
			r.ledToNode.Store(rt, struct{}{})
		} else {
			foreign, err := r.isForeign(ctx, rt)
			if err != nil {
				return nil, err
			}
			if foreign {
				continue
			}
			shown.TargetNode, shown.Blackhole = types.NodeName(rt.NextHop), true
		}
		list = append(list, shown)
	}
	return list, nil
}

// owners returns the nodes by their servers' addresses. Addresses in a Node's status do not count, because a kubelet could claim the
// routes of others.
func (r *routes) owners(ctx context.Context, nodes []*v1.Node) (map[string]*v1.Node, error) {
	reached, err := r.connectedSubnets(ctx)
	if err != nil {
		return nil, err
	}
	owners := map[string]*v1.Node{}
	for _, n := range nodes {
		id, err := r.instances.config.parseProviderID(n.Spec.ProviderID)
		if err != nil {
			continue // it has no server in this cloud
		}
		ports, err := r.instances.portsOf(
			ctx, id, inventory.Query{MaxAge: pairsMaxAge, MaxMissAge: routesMaxAge, MaxUnlistedAge: routesMaxAge, Expected: len(nodes)},
		)
		if err != nil {
			return nil, err
		}
		for _, p := range ports {
			for _, f := range p.FixedIPs {
				if len(reached) == 0 || reached[f.SubnetID] {
					owners[f.Address] = n
				}
			}
		}
	}
	return owners, nil
}

// connectedSubnets returns the subnets with a port of the router; none if its ports belong to another project.
func (r *routes) connectedSubnets(ctx context.Context) (map[string]bool, error) {
	ports, err := r.instances.portsOf(ctx, r.id, withinAge(pairsMaxAge))
	subnets := map[string]bool{}
	for _, p := range ports {
		for _, f := range p.FixedIPs {
			subnets[f.SubnetID] = true
		}
	}
	return subnets, err
}

func (r *routes) checkExtension(ctx context.Context) error {
	for _, alias := range []string{extensionAtomicRoutes, extensionRoutes} {
		if has, err := r.api.hasExtension(ctx, alias); err != nil || has {
			return err
		}
	}
	return fmt.Errorf("Neutron has neither the extension %s nor %s, so nothing can be routed; remove router-id from the section [Route]", extensionAtomicRoutes, extensionRoutes) //nolint:staticcheck // a name
}

func (r *routes) read(ctx context.Context, age time.Duration) (*router, error) {
	at, err := r.routers.Get(ctx, r.id, inventory.Query{MaxAge: age})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, fmt.Errorf("the router of the section [Route]: %w", cloudapi.NotAbsence(err))
	}
	return at, err
}

// portsWithAddress returns the project's ports with an address.
func (r *routes) portsWithAddress(ctx context.Context, ip string) ([]*port, error) {
	all, err := r.instances.ports.All(ctx, inventory.Query{MaxAge: routesMaxAge})
	return slices.DeleteFunc(all, func(p *port) bool { return !p.hasAddress(ip) }), err
}

// isForeign reports whether a route leads to an existing machine that was never seen as a node of this cluster.
func (r *routes) isForeign(ctx context.Context, rt route) (bool, error) {
	if _, ours := r.ledToNode.Load(rt); ours {
		return false, nil
	}
	holders, err := r.portsWithAddress(ctx, rt.NextHop)
	return len(holders) > 0, err
}

// acceptsRoute reports whether the node's port accepts packets to the route's destination.
func (r *routes) acceptsRoute(ctx context.Context, node *v1.Node, rt route) (bool, error) {
	if has, err := r.api.hasExtension(ctx, extensionAddressPairs); err != nil || !has {
		return true, err
	}
	p, err := r.portOf(ctx, node, rt.NextHop, pairsMaxAge)
	if err != nil || p == nil {
		return true, err
	}
	return !p.hasPortSecurity() || p.acceptsCIDR(rt.Destination), nil
}

func (p *port) acceptsCIDR(cidr string) bool {
	return slices.ContainsFunc(p.AddressPairs, func(a addressPair) bool { return a.Address == cidr })
}

// portOf returns the port of a node's server with an address, or nil.
func (r *routes) portOf(ctx context.Context, node *v1.Node, ip string, age time.Duration) (*port, error) {
	id, err := r.instances.config.parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // a node of another cloud has no port here
	}
	ports, err := r.instances.nodePorts(ctx, id, age)
	if err != nil {
		return nil, err
	}
	if n := slices.IndexFunc(ports, func(p *port) bool { return p.hasAddress(ip) }); n >= 0 {
		return ports[n], nil
	}
	return nil, nil //nolint:nilnil // absence is an answer here
}

// CreateRoute implements cloudprovider.Routes. The router may already have the route while the port still drops its packets, so both are
// checked.
func (r *routes) CreateRoute(ctx context.Context, _, _ string, wanted *cloudprovider.Route) error {
	node, err := r.instances.nodes.Node(wanted.TargetNode)
	if err != nil {
		return err
	}
	hop, err := r.nextHop(ctx, node, wanted.DestinationCIDR)
	if err != nil {
		return err
	}
	rt := route{wanted.DestinationCIDR, hop}
	if rt, err = r.clearDestination(ctx, node, rt); err != nil {
		return err
	}
	if err := r.allowRoute(ctx, node, rt, true); err != nil { // the port comes first, because it would drop the packets
		return err
	}
	return r.change(ctx, rt, true)
}

// clearDestination removes a former node's route, because two routes with the same destination would split the traffic. It keeps a route to
// another address of the node; any other is an error.
func (r *routes) clearDestination(ctx context.Context, node *v1.Node, wanted route) (route, error) {
	at, err := r.read(ctx, routesMaxAge)
	if err != nil {
		return wanted, err
	}
	for _, rt := range at.Routes {
		if rt.Destination != wanted.Destination || rt.NextHop == wanted.NextHop {
			continue
		}
		if p, err := r.portOf(ctx, node, rt.NextHop, updateMaxAge); err != nil || p != nil {
			return rt, err
		}
		foreign, err := r.isForeign(ctx, rt)
		if err != nil {
			return wanted, err
		}
		if foreign {
			return wanted, fmt.Errorf("router %s already leads %s to %s, which is not a node of this cluster; remove that route, or give the clusters different pod ranges",
				r.id, rt.Destination, rt.NextHop)
		}
		if err := r.remove(ctx, nil, rt); err != nil {
			return wanted, err
		}
	}
	return wanted, nil
}

// remove removes a route from the router, and its destination from the port. node is nil if it is gone.
func (r *routes) remove(ctx context.Context, node *v1.Node, rt route) error {
	if err := r.change(ctx, rt, false); err != nil {
		return err
	}
	r.ledToNode.Delete(rt)
	if node != nil {
		return r.allowRoute(ctx, node, rt, false)
	}
	if has, err := r.api.hasExtension(ctx, extensionAddressPairs); err != nil || !has {
		return err
	}
	holders, err := r.portsWithAddress(ctx, rt.NextHop)
	if err != nil || len(holders) != 1 {
		return err // the machine is gone, or several networks have the address
	}
	return r.setAddressPair(ctx, holders[0], rt, false)
}

// DeleteRoute implements cloudprovider.Routes. It uses the router's next hop, which may differ from that of a new route.
func (r *routes) DeleteRoute(ctx context.Context, _ string, unwanted *cloudprovider.Route) error {
	at, err := r.read(ctx, routesMaxAge)
	if err != nil {
		return err
	}
	node, _ := r.instances.nodes.Node(unwanted.TargetNode) // it may be gone
	for _, rt := range at.Routes {
		if rt.Destination != unwanted.DestinationCIDR {
			continue
		}
		switch {
		case node == nil && rt.NextHop != string(unwanted.TargetNode):
			continue
		case node != nil:
			if p, err := r.portOf(ctx, node, rt.NextHop, pairsMaxAge); err != nil {
				return err
			} else if p == nil {
				continue
			}
		}
		if err := r.remove(ctx, node, rt); err != nil || node != nil {
			return err
		}
	}
	return nil
}

// nextHop returns the first internal address of the destination's family that the node's server has on a subnet of the router. The Node's
// status does not count.
func (r *routes) nextHop(ctx context.Context, node *v1.Node, destination string) (string, error) {
	prefix, err := netip.ParsePrefix(destination)
	if err != nil {
		return "", fmt.Errorf("the destination of a route: %w", err)
	}
	q := inventory.Query{MaxAge: updateMaxAge, MaxMissAge: missMaxAge, Expected: r.instances.nodes.Counts().All}
	m, err := r.instances.Describe(ctx, node, q)
	if err != nil {
		return "", fmt.Errorf("finding the next hop of node %s: %w", node.Name, cloudapi.NotAbsence(err))
	}
	reached, err := r.connectedSubnets(ctx)
	if err != nil {
		return "", err
	}
	for _, a := range m.NodeAddresses {
		if ip, err := netip.ParseAddr(a.Address); err != nil || a.Type != v1.NodeInternalIP || ip.Is4() != prefix.Addr().Is4() {
			continue
		}
		p, err := r.portOf(ctx, node, a.Address, updateMaxAge)
		if err != nil {
			return "", err
		}
		if p != nil && (len(reached) == 0 || reached[p.subnetOf(a.Address)]) {
			return a.Address, nil
		}
	}
	return "", fmt.Errorf("node %s has no internal address of the family of %s on a port of its server that router %s reaches", node.Name, destination, r.id)
}

// change adds or removes a route of the router. If Neutron cannot change one route, the whole list is written, provided that it is
// unchanged since the read.
func (r *routes) change(ctx context.Context, rt route, add bool) error {
	atomic, err := r.api.hasExtension(ctx, extensionAtomicRoutes)
	if err != nil {
		return err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	at, err := r.read(ctx, routesMaxAge)
	if err == nil && !atomic && slices.Contains(at.Routes, rt) != add {
		at, err = r.read(ctx, 0)
	}
	if err != nil || slices.Contains(at.Routes, rt) == add {
		return err
	}
	path, list, verb := "routers/"+r.id+"/add_extraroutes", []route{rt}, "adding"
	if !add {
		path, verb = "routers/"+r.id+"/remove_extraroutes", "removing"
	}
	if !atomic {
		path = "routers/" + r.id
		list = slices.DeleteFunc(slices.Clone(at.Routes), func(have route) bool { return have == rt })
		if add {
			list = append(list, rt)
		}
		ctx = ifRevision(ctx, at.Revision)
	}
	doing := fmt.Sprintf("%s the route to %s by %s", verb, rt.Destination, rt.NextHop)
	klog.InfoS("Changing router", "router", r.id, "change", verb, "destination", rt.Destination, "nextHop", rt.NextHop)
	after, err := neutron(ctx, r.api, doing, http.MethodPut, path, "router", map[string]any{"routes": list}, func(after *router) bool {
		return after.ID == r.id && slices.Contains(after.Routes, rt) == add
	})
	if err != nil {
		r.routers.Invalidate(r.id)
		if add {
			err = cloudapi.ExplainLimit(err, openstacklimits.Routes, len(at.Routes)+1)
		}
		return cloudapi.NotAbsence(err)
	}
	r.routers.Put(after)
	return nil
}

// allowRoute makes the node's port accept or reject packets of a route.
func (r *routes) allowRoute(ctx context.Context, node *v1.Node, rt route, through bool) error {
	if has, err := r.api.hasExtension(ctx, extensionAddressPairs); err != nil || !has {
		return err
	}
	p, err := r.portOf(ctx, node, rt.NextHop, updateMaxAge)
	switch {
	case err != nil:
		return err
	case p == nil && through:
		return fmt.Errorf("no port of node %s has its address %s, so the packets of %s would be dropped", node.Name, rt.NextHop, rt.Destination)
	case p == nil:
		return nil
	}
	id := p.ID
	err = r.setAddressPair(ctx, p, rt, through)
	for range maxRounds { // after a conflict; once the route is gone, nothing would remove the pair later
		if through || !errors.Is(err, cloudapi.ErrConflict) {
			break
		}
		if p, err = r.instances.ports.Get(ctx, id, inventory.Query{}); err == nil {
			err = r.setAddressPair(ctx, p, rt, through)
		}
	}
	return err
}

func (r *routes) setAddressPair(ctx context.Context, p *port, rt route, through bool) error {
	if !p.hasPortSecurity() || p.acceptsCIDR(rt.Destination) == through {
		return nil
	}
	pairs := slices.DeleteFunc(slices.Clone(p.AddressPairs), func(a addressPair) bool { return a.Address == rt.Destination })
	if through {
		pairs = append(pairs, addressPair{Address: rt.Destination})
	}
	doing := "changing the allowed address pairs of port " + p.ID
	body := map[string]any{"allowed_address_pairs": append([]addressPair{}, pairs...)}
	after, err := neutron(ifRevision(ctx, p.Revision), r.api, doing, http.MethodPut, "ports/"+p.ID, "port", body, p.isSame)
	if err != nil {
		r.instances.ports.Invalidate(p.ID)
		return cloudapi.NotAbsence(err)
	}
	r.instances.ports.Put(after)
	return nil
}

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
)

const (
	extensionRoutes       = "extraroute"
	extensionAtomicRoutes = "extraroute-atomic"
	extensionAddressPairs = "allowed-address-pairs"

	// routesMaxAge is how old the view of the router may be; our own writes are in it at once.
	routesMaxAge = 60 * time.Second
	// pairsMaxAge is how long it goes unnoticed that somebody took the pod range off a port.
	pairsMaxAge = 10 * time.Minute
)

// router is a Neutron router.
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

	mu sync.Mutex
	// known are the routes that were seen to lead to a node.
	known map[route]bool
	// writing keeps changes of the whole list from overtaking each other.
	writing sync.Mutex
}

var _ cloudprovider.Routes = (*routes)(nil)

func newRoutes(c Config, a *api, i *instances) *routes {
	return &routes{id: c.RouterID, api: a, instances: i, known: map[route]bool{}, routers: inventory.New(inventory.Source[string, *router]{
		Kind: "router", ID: func(r *router) string { return r.ID },
		Get: func(ctx context.Context, id string) (*router, error) {
			return get(ctx, a, network, "reading router "+id, "routers/"+id, "router", func(r *router) bool { return r.ID == id })
		},
	})}
}

// ListRoutes implements cloudprovider.Routes. The framework deletes routes without a node, so those that lead to a machine
// that is there, and is no node of this cluster, are not shown: they are another cluster's.
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
	for _, one := range at.Routes {
		shown := &cloudprovider.Route{Name: one.Destination, DestinationCIDR: one.Destination}
		if n := owners[one.NextHop]; n != nil {
			whole, err := r.passes(ctx, n, one)
			if err != nil {
				return nil, err
			}
			if !whole {
				continue // the framework makes it again, and with it what is missing
			}
			shown.TargetNode = types.NodeName(n.Name)
			r.remember(one)
		} else {
			foreign, err := r.foreign(ctx, one)
			if err != nil {
				return nil, err
			}
			if foreign {
				continue
			}
			shown.TargetNode, shown.Blackhole = types.NodeName(one.NextHop), true
		}
		list = append(list, shown)
	}
	return list, nil
}

// owners returns the nodes by the addresses of their servers' ports. What a Node says of itself counts for nothing: whoever
// runs a kubelet could take the routes of others away.
func (r *routes) owners(ctx context.Context, nodes []*v1.Node) (map[string]*v1.Node, error) {
	reached, err := r.reached(ctx)
	if err != nil {
		return nil, err
	}
	owners := map[string]*v1.Node{}
	for _, n := range nodes {
		id, err := r.instances.config.parseProviderID(n.Spec.ProviderID)
		if err != nil {
			continue // it has no server here
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

// reached are the subnets that the router has a port on. None are known where its ports are another project's.
func (r *routes) reached(ctx context.Context) (map[string]bool, error) {
	ports, err := r.instances.portsOf(ctx, r.id, inventory.Query{MaxAge: pairsMaxAge, MaxMissAge: pairsMaxAge, MaxUnlistedAge: pairsMaxAge})
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

// holders are the ports of the project that have an address.
func (r *routes) holders(ctx context.Context, ip string) ([]*port, error) {
	all, err := r.instances.ports.All(ctx, inventory.Query{MaxAge: routesMaxAge})
	return slices.DeleteFunc(all, func(p *port) bool { return !p.hasAddress(ip) }), err
}

// foreign reports whether a route leads to a machine that is there, and was not seen as a node of this cluster.
func (r *routes) foreign(ctx context.Context, one route) (bool, error) {
	r.mu.Lock()
	known := r.known[one]
	r.mu.Unlock()
	if known {
		return false, nil
	}
	holders, err := r.holders(ctx, one.NextHop)
	return len(holders) > 0, err
}

func (r *routes) remember(one route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[one] = true
}

func (r *routes) forget(one route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, one)
}

// passes reports whether the node's port lets packets of the route's destination through.
func (r *routes) passes(ctx context.Context, node *v1.Node, one route) (bool, error) {
	if has, err := r.api.hasExtension(ctx, extensionAddressPairs); err != nil || !has {
		return true, err
	}
	p, err := r.portOf(ctx, node, one.NextHop, pairsMaxAge)
	if err != nil || p == nil {
		return true, err
	}
	return !p.secured() || p.passes(one.Destination), nil
}

func (p *port) passes(cidr string) bool {
	return slices.ContainsFunc(p.AddressPairs, func(a addressPair) bool { return a.Address == cidr })
}

// portOf returns the port of a node's server that has an address, or nil.
func (r *routes) portOf(ctx context.Context, node *v1.Node, ip string, age time.Duration) (*port, error) {
	id, err := r.instances.config.parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // a node of another cloud has no port here
	}
	ports, err := r.instances.portsOf(ctx, id, inventory.Query{MaxAge: age, MaxMissAge: missMaxAge, Expected: r.instances.nodes.Counts().All})
	if err != nil {
		return nil, err
	}
	if n := slices.IndexFunc(ports, func(p *port) bool { return p.hasAddress(ip) }); n >= 0 {
		return ports[n], nil
	}
	return nil, nil //nolint:nilnil // absence is an answer here
}

// CreateRoute implements cloudprovider.Routes. The router may have the route already while the port does not let its
// packets through, so both are looked at each time.
func (r *routes) CreateRoute(ctx context.Context, _, _ string, wanted *cloudprovider.Route) error {
	node, err := r.instances.nodes.Node(wanted.TargetNode)
	if err != nil {
		return err
	}
	hop, err := r.nextHop(ctx, node, wanted.DestinationCIDR)
	if err != nil {
		return err
	}
	one := route{wanted.DestinationCIDR, hop}
	if one, err = r.alone(ctx, node, one); err != nil {
		return err
	}
	if err := r.let(ctx, node, one, true); err != nil { // the port comes first: a route to a closed one loses packets
		return err
	}
	return r.change(ctx, one, true)
}

// alone returns the route that is to be made where the router has one with the same destination: with two, a part of the packets would
// go to the wrong machine. One that leads to another address of the node is kept; one that led to a node of ours, or leads nowhere, is
// removed; any other one is somebody else's.
func (r *routes) alone(ctx context.Context, node *v1.Node, wanted route) (route, error) {
	at, err := r.read(ctx, routesMaxAge)
	if err != nil {
		return wanted, err
	}
	for _, one := range at.Routes {
		if one.Destination != wanted.Destination || one.NextHop == wanted.NextHop {
			continue
		}
		if p, err := r.portOf(ctx, node, one.NextHop, updateMaxAge); err != nil || p != nil {
			return one, err
		}
		foreign, err := r.foreign(ctx, one)
		if err != nil {
			return wanted, err
		}
		if foreign {
			return wanted, fmt.Errorf("router %s already leads %s to %s, which is not a node of this cluster; remove that route, or give the clusters different pod ranges",
				r.id, one.Destination, one.NextHop)
		}
		if err := r.remove(ctx, nil, one); err != nil {
			return wanted, err
		}
	}
	return wanted, nil
}

// remove takes a route off the router, and its destination off the port that it led to; node is nil for one that is gone.
func (r *routes) remove(ctx context.Context, node *v1.Node, one route) error {
	if err := r.change(ctx, one, false); err != nil {
		return err
	}
	r.forget(one)
	if node != nil {
		return r.let(ctx, node, one, false)
	}
	if has, err := r.api.hasExtension(ctx, extensionAddressPairs); err != nil || !has {
		return err
	}
	holders, err := r.holders(ctx, one.NextHop)
	if err != nil || len(holders) != 1 {
		return err // its machine is gone, or networks with the same range do not tell which one it was
	}
	return r.open(ctx, holders[0], one, false)
}

// DeleteRoute implements cloudprovider.Routes. The next hop is the one that the router has, not the one that a new route
// would get.
func (r *routes) DeleteRoute(ctx context.Context, _ string, unwanted *cloudprovider.Route) error {
	at, err := r.read(ctx, routesMaxAge)
	if err != nil {
		return err
	}
	node, _ := r.instances.nodes.Node(unwanted.TargetNode) // it may be gone
	for _, one := range at.Routes {
		if one.Destination != unwanted.DestinationCIDR {
			continue
		}
		switch {
		case node == nil && one.NextHop != string(unwanted.TargetNode):
			continue
		case node != nil:
			if p, err := r.portOf(ctx, node, one.NextHop, pairsMaxAge); err != nil {
				return err
			} else if p == nil {
				continue
			}
		}
		if err := r.remove(ctx, node, one); err != nil || node != nil {
			return err
		}
	}
	return nil
}

// nextHop is the first internal address of the destination's family that a port of the node's server has, on a subnet of the router. The
// cloud tells it, and not the Node.
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
	reached, err := r.reached(ctx)
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

// change adds or removes one route of the router: alone where Neutron can, else by the whole list, which must not have
// changed since it was read.
func (r *routes) change(ctx context.Context, one route, add bool) error {
	atomic, err := r.api.hasExtension(ctx, extensionAtomicRoutes)
	if err != nil {
		return err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	at, err := r.read(ctx, routesMaxAge)
	if err == nil && !atomic && slices.Contains(at.Routes, one) != add {
		at, err = r.read(ctx, 0)
	}
	if err != nil || slices.Contains(at.Routes, one) == add {
		return err
	}
	path, list, verb := "routers/"+r.id+"/add_extraroutes", []route{one}, "adding"
	if !add {
		path, verb = "routers/"+r.id+"/remove_extraroutes", "removing"
	}
	if !atomic {
		path = "routers/" + r.id
		list = slices.DeleteFunc(slices.Clone(at.Routes), func(have route) bool { return have == one })
		if add {
			list = append(list, one)
		}
		ctx = ifRevision(ctx, at.Revision)
	}
	doing := fmt.Sprintf("%s the route to %s by %s", verb, one.Destination, one.NextHop)
	klog.InfoS("Changing router", "router", r.id, "change", verb, "destination", one.Destination, "nextHop", one.NextHop)
	after, err := neutron[router](ctx, r.api, doing, http.MethodPut, path, "router", map[string]any{"routes": list}, http.StatusOK)
	if err == nil && (after.ID != r.id || slices.Contains(after.Routes, one) != add) {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: doing, Message: errWrongAnswer.Error()}
	}
	if err != nil {
		r.routers.Invalidate(r.id)
		return cloudapi.NotAbsence(err)
	}
	r.routers.Put(after)
	return nil
}

// let makes the node's port let packets of a route through, or no longer.
func (r *routes) let(ctx context.Context, node *v1.Node, one route, through bool) error {
	if has, err := r.api.hasExtension(ctx, extensionAddressPairs); err != nil || !has {
		return err
	}
	p, err := r.portOf(ctx, node, one.NextHop, updateMaxAge)
	switch {
	case err != nil:
		return err
	case p == nil && through:
		return fmt.Errorf("no port of node %s has its address %s, so the packets of %s would be dropped", node.Name, one.NextHop, one.Destination)
	case p == nil:
		return nil
	}
	id := p.ID
	err = r.open(ctx, p, one, through)
	for range maxRounds { // somebody else changed the port meanwhile; without its route nobody would come back for the pair
		if through || !errors.Is(err, cloudapi.ErrConflict) {
			break
		}
		if p, err = r.instances.ports.Get(ctx, id, inventory.Query{}); err == nil {
			err = r.open(ctx, p, one, through)
		}
	}
	return err
}

// open makes a port let packets of a route through, or no longer.
func (r *routes) open(ctx context.Context, p *port, one route, through bool) error {
	if !p.secured() || p.passes(one.Destination) == through {
		return nil
	}
	pairs := slices.DeleteFunc(slices.Clone(p.AddressPairs), func(a addressPair) bool { return a.Address == one.Destination })
	if through {
		pairs = append(pairs, addressPair{Address: one.Destination})
	}
	doing := "changing the allowed address pairs of port " + p.ID
	after, err := neutron[port](ifRevision(ctx, p.Revision), r.api, doing, http.MethodPut, "ports/"+p.ID, "port", map[string]any{
		"allowed_address_pairs": append([]addressPair{}, pairs...),
	}, http.StatusOK, http.StatusCreated)
	if err == nil && after.ID != p.ID {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: doing, Message: errWrongAnswer.Error()}
	}
	if err != nil {
		r.instances.ports.Invalidate(p.ID)
		return cloudapi.NotAbsence(err)
	}
	r.instances.ports.Put(after)
	return nil
}

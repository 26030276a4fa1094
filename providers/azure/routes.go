package azure

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
)

const (
	// routesMaxAge is the maximum age of the route table; our own writes are visible at once.
	routesMaxAge = 20 * time.Second
	// gatherRoutes is how long the first change of a route table waits for others, which come at the same time.
	gatherRoutes = time.Second
	// routeSeparator is between the node and the network in the name of a route.
	routeSeparator = "____"
	// toAppliance is the type of the next hop of routes to nodes.
	toAppliance = "VirtualAppliance"
)

// queryHops is for the machines that routes lead to.
func queryHops() inventory.Query {
	return inventory.Query{MaxAge: 10 * time.Minute, MaxMissAge: time.Minute}
}

// routeTable is the document of a route table.
type routeTable struct {
	resource
	Properties struct {
		object
		Routes []*route `json:"routes"`
	} `json:"properties"`
}

type route struct {
	subresource
	Properties routeProperties `json:"properties"`
}

type routeProperties struct {
	object
	Prefix  string `json:"addressPrefix"`
	HopType string `json:"nextHopType"`
	Hop     string `json:"nextHopIpAddress"`
}

// routes implements cloudprovider.Routes on one route table, which all nodes share: changes that come at the same time are one write.
type routes struct {
	config    *Config
	resources *resources
	instances *instances

	// seenRoutes are the routes that were seen to lead to a node.
	seenRoutes sync.Map

	mu sync.Mutex
	// unmanaged are the routes of nodes that Azure does not have, by name.
	unmanaged map[string]*cloudprovider.Route
}

var _ cloudprovider.Routes = (*routes)(nil)

func newRoutes(c *Config, r *resources, i *instances) *routes {
	return &routes{config: c, resources: r, instances: i, unmanaged: map[string]*cloudprovider.Route{}}
}

// routeName is the exact name that Azure's own controller gives.
func routeName(node, cidr string) string {
	return node + routeSeparator + strings.NewReplacer(".", "", ":", "", "/", "").Replace(cidr)
}

// nodeOfRoute is the node that a route is named after, "" where its name is not one that a controller gives.
func nodeOfRoute(have *route) string {
	node, _, _ := strings.Cut(have.Name, routeSeparator)
	if !have.hasName(routeName(node, have.Properties.Prefix)) || !strings.EqualFold(have.Properties.HopType, toAppliance) {
		return ""
	}
	return strings.ToLower(node)
}

// table is the route table as a document. It is made with the first route.
func (r *routes) table() document {
	return document{
		id: r.config.networkPath(r.config.RouteGroup, "routeTables/"+r.config.RouteTable), what: "route table " + r.config.RouteTable, gather: gatherRoutes,
		create: func() doc { return format(&routeTable{resource: resource{Location: r.config.Location}}) },
	}
}

// ListRoutes implements cloudprovider.Routes. The framework deletes routes without a node, so it is shown no route that another tool named,
// or that leads to a machine never seen as a node. A route to a wrong address of its node is left out too, so that the framework replaces
// it.
func (r *routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	nodes, err := r.listNodes()
	if err != nil {
		return nil, err
	}
	// A listing says by itself that there is no table yet; an answer that it is not found could be about anything in between.
	tables, err := r.resources.routeTables.All(ctx, inventory.Query{MaxAge: routesMaxAge})
	if err != nil {
		return nil, err
	}
	var table routeTable
	if n := slices.IndexFunc(tables, func(d doc) bool { return sameID(docID(d), r.table().id) }); n >= 0 {
		table = *parse[routeTable](tables[n])
	}
	list := []*cloudprovider.Route{}
	for _, have := range table.Properties.Routes {
		name := nodeOfRoute(have)
		if name == "" {
			continue
		}
		shown := &cloudprovider.Route{Name: have.Name, TargetNode: types.NodeName(name), DestinationCIDR: have.Properties.Prefix}
		visible, err := r.isCorrect(ctx, nodes[name], have)
		if err != nil {
			return nil, err
		}
		if visible {
			list = append(list, shown)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range sortedKeys(r.unmanaged) {
		list = append(list, r.unmanaged[key])
	}
	return list, nil
}

// isCorrect reports whether a route of the cluster is as desired; node is nil if there is no Node of its name.
func (r *routes) isCorrect(ctx context.Context, node *v1.Node, have *route) (bool, error) {
	key := strings.ToLower(have.Name) + " " + have.Properties.Hop
	if node == nil {
		if _, known := r.seenRoutes.Load(key); known {
			return true, nil
		}
		foreign, err := r.leadsToMachine(ctx, have.Properties.Hop)
		return !foreign, err
	}
	hop, err := r.nextHop(ctx, node, have.Properties.Prefix)
	leadsHere := err == nil && sameIP(hop, have.Properties.Hop)
	if leadsHere {
		r.seenRoutes.Store(key, true)
	}
	return leadsHere || err != nil, nil // while the machine cannot be read, the route stays as it is
}

// leadsToMachine reports whether a machine has an address.
func (r *routes) leadsToMachine(ctx context.Context, hop string) (bool, error) {
	all, err := r.instances.networks.nics.All(ctx, queryHops())
	return slices.ContainsFunc(all, func(nic networkInterface) bool {
		has := slices.ContainsFunc(nic.Properties.Configs, func(c ipConfiguration) bool { return sameIP(c.Properties.Address, hop) })
		return has && nic.Properties.Machine != nil
	}), err
}

// listNodes are the Nodes by their names.
func (r *routes) listNodes() (map[string]*v1.Node, error) {
	all, err := r.instances.nodes.Known()
	if err != nil {
		return nil, err
	}
	found := map[string]*v1.Node{}
	for _, n := range all {
		found[strings.ToLower(n.Name)] = n
	}
	return found, nil
}

// nextHop is the address of a node's family on the primary interface of its machine. The cloud decides, not the Node.
func (r *routes) nextHop(ctx context.Context, node *v1.Node, cidr string) (string, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "", fmt.Errorf("the destination of a route: %w", err)
	}
	m, err := r.instances.machines.Describe(ctx, node, queryHops())
	if err != nil {
		return "", fmt.Errorf("finding the next hop of node %s: %w", node.Name, cloudapi.NotAbsence(err))
	}
	for _, a := range m.NodeAddresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == v1.NodeInternalIP && ip.Is4() == prefix.Addr().Is4() {
			return a.Address, nil
		}
	}
	return "", fmt.Errorf("the machine of node %s has no internal address of the family of %s on its primary interface", node.Name, cidr)
}

// CreateRoute implements cloudprovider.Routes. Nodes that Azure does not have get no route: somebody else brings their packets.
func (r *routes) CreateRoute(ctx context.Context, _, _ string, wanted *cloudprovider.Route) error {
	node, err := r.instances.nodes.Node(wanted.TargetNode)
	if err != nil {
		return fmt.Errorf("the route to %s: %w", wanted.TargetNode, err)
	}
	name := routeName(strings.ToLower(node.Name), wanted.DestinationCIDR)
	if isUnmanaged(node) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unmanaged[name] = &cloudprovider.Route{Name: name, TargetNode: wanted.TargetNode, DestinationCIDR: wanted.DestinationCIDR}
		return nil
	}
	hop, err := r.nextHop(ctx, node, wanted.DestinationCIDR)
	if err != nil {
		return err
	}
	others, err := r.listNodes()
	if err != nil {
		return err
	}
	klog.InfoS("Making route", "node", node.Name, "destination", wanted.DestinationCIDR, "nextHop", hop)
	var asked atomic.Int64
	err = r.resources.submit(ctx, r.table(), editOf(func(table *routeTable) error {
		err := r.pointRoute(table, others, node, name, wanted.DestinationCIDR, hop)
		asked.Store(int64(len(table.Properties.Routes)))
		return err
	}))
	return cloudapi.ExplainLimit(err, azurelimits.Routes, int(asked.Load()))
}

// pointRoute sets a network's route to a node. It replaces routes of former nodes, of nodes with another network, and those that very old
// controllers named after the node only.
func (r *routes) pointRoute(table *routeTable, nodes map[string]*v1.Node, node *v1.Node, name, cidr, hop string) error {
	var kept []*route
	for _, have := range table.Properties.Routes {
		if !podranges.Same(have.Properties.Prefix, cidr) {
			if !have.hasName(name) {
				kept = append(kept, have)
			}
			continue
		}
		owner := nodeOfRoute(have)
		switch {
		case have.hasName(name) && sameIP(have.Properties.Hop, hop) && owner != "":
			return errKeep
		case owner == strings.ToLower(node.Name), have.hasName(node.Name):
		case owner == "":
			return r.refusal(node, cidr, "route "+have.Name+", which no controller made, is there for it; remove that route, or give the pods other networks")
		case nodes[owner] != nil && slices.ContainsFunc(nodes[owner].Spec.PodCIDRs, func(c string) bool { return podranges.Same(c, cidr) }):
			return r.refusal(node, cidr, "node "+owner+" has the same network; delete one of the two Nodes")
		}
	}
	kept = append(kept, &route{
		subresource: subresource{Name: name}, Properties: routeProperties{Prefix: cidr, HopType: toAppliance, Hop: hop},
	})
	table.Properties.Routes = kept
	if strings.EqualFold(r.config.RouteGroup, r.config.Group) {
		_, err := table.mergeTags(r.config.tags, r.config.SystemTags, clusterTag)
		return err
	}
	return nil
}

func (r *routes) refusal(node *v1.Node, cidr, why string) error {
	return &cloudapi.Error{
		Class: cloudapi.ErrConflict, Operation: fmt.Sprintf("making the route of %s to node %s in route table %s", cidr, node.Name, r.config.RouteTable), Message: why,
	}
}

// DeleteRoute implements cloudprovider.Routes. The name decides, whole and not by how it begins; a route that is gone is no error.
func (r *routes) DeleteRoute(ctx context.Context, _ string, unwanted *cloudprovider.Route) error {
	name := routeName(strings.ToLower(string(unwanted.TargetNode)), unwanted.DestinationCIDR)
	r.mu.Lock()
	_, inMemory := r.unmanaged[name]
	delete(r.unmanaged, name)
	r.mu.Unlock()
	if inMemory {
		return nil
	}
	klog.InfoS("Deleting route", "node", unwanted.TargetNode, "destination", unwanted.DestinationCIDR)
	return r.resources.submit(ctx, r.table(), editOf(func(table *routeTable) error {
		list := table.Properties.Routes
		left := slices.DeleteFunc(slices.Clone(list), func(have *route) bool {
			return have.hasName(name) && nodeOfRoute(have) != "" && podranges.Same(have.Properties.Prefix, unwanted.DestinationCIDR)
		})
		table.Properties.Routes = left
		return keepUnless(len(left) < len(list), nil)
	}))
}

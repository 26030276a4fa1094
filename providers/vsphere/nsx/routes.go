package nsx

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// Scopes of the tags of routes.
const (
	scopeRouteCluster = "vsphere.k8s.io/cluster-name"
	scopeRouteNode    = "vsphere.k8s.io/node-name"
)

const (
	kindRoute = "static route"
	// routesMaxAge is the maximum age of the routes; our own writes are in it at once.
	routesMaxAge = 30 * time.Second
	// routePatience is how long a new route is awaited.
	routePatience = 10 * time.Second
)

// routes implements cloudprovider.Routes on one tier-1 gateway.
type routes struct {
	client     *client
	collection string
	view       view[*staticRoute]
	cluster    *ownership.Cluster
	nodes      Nodes
	// events is set before the first call.
	events record.EventRecorder
	// inForce holds, by the ID of a route, true once NSX showed it in force, and false after a write until then.
	inForce sync.Map
}

var _ cloudprovider.Routes = (*routes)(nil)

func newRoutes(c routeConfig, n *client, nodes Nodes) (*routes, error) {
	gateway, err := c.tier1()
	if err != nil {
		return nil, err
	}
	collection := tier1Prefix + gateway + "/static-routes"
	return &routes{
		client: n, collection: collection, cluster: &ownership.Cluster{}, nodes: nodes,
		view: newView[staticRoute](n, kindRoute, collection, func(known, listed *staticRoute) bool { return known.hop() == listed.hop() }, nil),
	}, nil
}

// check makes a cheap authenticated read.
func (r *routes) check(ctx context.Context) error {
	_, err := r.view.All(ctx, inventory.Query{MaxAge: routesMaxAge})
	return err
}

func (r *routes) nodesByName() (map[string]*v1.Node, error) {
	list, err := r.nodes.Known()
	byName := map[string]*v1.Node{}
	for _, n := range list {
		byName[n.Name] = n
	}
	return byName, err
}

// hop returns the next hop of a route, or "" if it has several.
func (s *staticRoute) hop() string {
	if len(s.NextHops) != 1 {
		return ""
	}
	return s.NextHops[0].IPAddress
}

// ownRoutes returns the routes of this cluster: with its name in the tag, and without another cluster's mark.
func (r *routes) ownRoutes(ctx context.Context, cluster string, age time.Duration) ([]*staticRoute, error) {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	all, err := r.view.All(ctx, inventory.Query{MaxAge: age})
	if err != nil {
		return nil, err
	}
	own := filterObjects(all, func(o object) bool {
		c := o.common()
		return c.tag(scopeRouteCluster) == cluster && c.tag(scopeRouteNode) != "" && !ownership.Foreign(mark, marksOf(o))
	})
	sortObjects(own)
	return own, nil
}

// ListRoutes implements cloudprovider.Routes. A route to an address that its node no longer has, or that is not realized, is left out: the
// framework then creates it again, and corrects it.
func (r *routes) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	nodes, err := r.nodesByName()
	if err != nil {
		return nil, err
	}
	own, err := r.ownRoutes(ctx, cluster, routesMaxAge)
	if err != nil {
		return nil, err
	}
	list := []*cloudprovider.Route{}
	for _, s := range own {
		name := s.tag(scopeRouteNode)
		node := nodes[name]
		shown := &cloudprovider.Route{Name: s.ID, TargetNode: types.NodeName(name), DestinationCIDR: s.Network}
		if node != nil {
			addresses, err := r.nodes.Addresses(ctx, node)
			if err != nil { // the route stays until they are known; those of other nodes do not wait
				klog.ErrorS(err, "It is not known whether a route leads to its node", "node", name, "route", s.ID)
			}
			if slices.Contains(node.Spec.PodCIDRs, s.Network) && (!leadsTo(s, name, addresses) || !r.isRealized(ctx, node, s)) {
				continue
			}
			shown.TargetNodeAddresses = node.Status.Addresses
		}
		list = append(list, shown)
	}
	return list, ctx.Err()
}

// isRealized reports whether a route is known to be in force. A former process's is if the framework recorded that on the Node, whose
// condition a network plugin may set as well. NSX is asked about others, until they are; those of other nodes do not wait for a failure.
func (r *routes) isRealized(ctx context.Context, node *v1.Node, s *staticRoute) bool {
	is, known := r.inForce.Load(s.ID)
	if is == true || (!known && slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeNetworkUnavailable && c.Status == v1.ConditionFalse && c.Reason == "RouteCreated"
	})) {
		return true
	}
	state, _, err := r.client.realizedState(ctx, pathIn(r.collection, s))
	if err != nil {
		klog.ErrorS(err, "It is not known whether a route is in force", "node", node.Name, "route", s.ID)
	}
	if state != stateRealized {
		return false
	}
	r.inForce.Store(s.ID, true)
	return true
}

// leadsTo reports whether a route leads to the address of a node. A node without addresses counts as yes.
func leadsTo(s *staticRoute, node string, addresses []v1.NodeAddress) bool {
	address, err := hopOf(node, addresses, s.Network)
	return err != nil || address == s.hop()
}

// hopOf returns the first internal address of a node, else the first external one, in the family of a destination.
func hopOf(node string, addresses []v1.NodeAddress, destination string) (string, error) {
	prefix, err := netip.ParsePrefix(destination)
	if err != nil {
		return "", fmt.Errorf("the destination of a route: %w", err)
	}
	family := "IPv6"
	if prefix.Addr().Is4() {
		family = "IPv4"
	}
	var all []string
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil {
				continue
			}
			if ip.Is4() == prefix.Addr().Is4() {
				return ip.String(), nil
			}
			all = append(all, a.Address)
		}
	}
	if len(all) == 0 {
		return "", fmt.Errorf("node %s has no address to route to", node)
	}
	return "", fmt.Errorf("node %s has no address of %s to route to, only %s", node, family, strings.Join(all, ", "))
}

// CreateRoute implements cloudprovider.Routes. An existing route of the node to the destination is corrected.
func (r *routes) CreateRoute(ctx context.Context, cluster, hint string, wanted *cloudprovider.Route) error {
	node := string(wanted.TargetNode)
	nodes, err := r.nodesByName()
	if err != nil {
		return err
	}
	known, addresses := nodes[node], wanted.TargetNodeAddresses
	if known != nil {
		if addresses, err = r.nodes.Addresses(ctx, known); err != nil {
			return err
		}
	}
	hop, err := hopOf(node, addresses, wanted.DestinationCIDR)
	if err != nil {
		return err
	}
	own, err := r.ownRoutes(ctx, cluster, routesMaxAge)
	if err != nil {
		return err
	}
	s := firstOf(own, func(s *staticRoute) bool { return s.tag(scopeRouteNode) == node && s.Network == wanted.DestinationCIDR })
	if s == nil || s.hop() != hop {
		if s, err = r.writeRoute(ctx, cluster, hint, node, wanted.DestinationCIDR, hop, s); err != nil {
			return err
		}
	}
	return r.waitUntilRealized(ctx, known, s)
}

// writeRoute creates a route, or changes its address.
func (r *routes) writeRoute(ctx context.Context, cluster, hint, node, destination, hop string, now *staticRoute) (*staticRoute, error) {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	s := &staticRoute{Network: destination, NextHops: []nextHop{{IPAddress: hop}}, commonFields: commonFields{
		ID: hint + "_" + strings.ReplaceAll(destination, "/", "_"), DisplayName: cluster + "_" + node + "_" + destination,
		Tags: []tag{{Scope: scopeRouteCluster, Tag: cluster}, {Scope: scopeRouteNode, Tag: node}},
	}}
	if now != nil {
		s = now.withHop(hop)
	} else if err := r.checkVacant(ctx, s, mark, cluster); err != nil {
		return nil, err
	}
	if mark != "" {
		s.Tags = marking{marks: []string{mark}}.addMarks(s.Tags)
	}
	klog.InfoS("Changing route", "gateway", r.collection, "route", s.ID, "destination", destination, "nextHop", hop)
	r.inForce.Store(s.ID, false)
	if err := r.client.patch(ctx, kindRoute, pathIn(r.collection, s), s); err != nil {
		r.view.Invalidate(s.ID)
		return nil, cloudapi.NotAbsence(err)
	}
	r.view.Put(s)
	return s, nil
}

// withHop returns a route with another address in our fields. Others' fields stay.
func (s *staticRoute) withHop(hop string) *staticRoute {
	hops := []nextHop{{IPAddress: hop}}
	if len(s.NextHops) == 1 {
		hops[0].AdminDistance, hops[0].Scope = s.NextHops[0].AdminDistance, s.NextHops[0].Scope
	}
	return &staticRoute{Network: s.Network, NextHops: hops, commonFields: commonFields{ID: s.ID, DisplayName: s.DisplayName, Tags: s.Tags}}
}

// checkVacant refuses a new route if another owner's has its ID, or the same network: NSX would send a part of the traffic there.
func (r *routes) checkVacant(ctx context.Context, s *staticRoute, mark, cluster string) error {
	all, err := r.view.All(ctx, inventory.Query{MaxAge: routesMaxAge})
	if err != nil {
		return err
	}
	for _, there := range all {
		switch ours := there.tag(scopeRouteCluster) == cluster && !ownership.Foreign(mark, marksOf(there)); {
		case ours:
		case there.ID == s.ID:
			return fmt.Errorf("static route %s of %s is not this cluster's; remove it, or give the clusters different names (--cluster-name)", s.ID, r.collection)
		case podranges.Same(there.Network, s.Network):
			return fmt.Errorf("static route %s of %s leads to %s as well, and is not this cluster's; remove it, or give the clusters different networks for Pods",
				there.ID, r.collection, s.Network)
		}
	}
	return nil
}

// waitUntilRealized waits until NSX has realized a route.
func (r *routes) waitUntilRealized(ctx context.Context, node *v1.Node, s *staticRoute) error {
	path := pathIn(r.collection, s)
	return services.Patiently(ctx, routePatience, func() error {
		entities, err := r.client.readRealized(ctx, path)
		if err != nil {
			return err
		}
		for _, e := range entities {
			switch e.State {
			case stateError:
				err := fmt.Errorf("NSX cannot put the route to %s in force: %s", s.Network, e.alarms())
				if node != nil {
					r.events.Event(node, v1.EventTypeWarning, eventRouteNotRealized, err.Error())
				}
				return err
			case stateRealized:
				r.inForce.Store(s.ID, true)
				return nil
			}
		}
		return cloudproviderapi.NewRetryError("waiting for static route "+path, realizePause)
	})
}

// DeleteRoute implements cloudprovider.Routes. It deletes only a route of this cluster, after reading it again.
func (r *routes) DeleteRoute(ctx context.Context, cluster string, unwanted *cloudprovider.Route) error {
	own, err := r.ownRoutes(ctx, cluster, routesMaxAge)
	if err != nil {
		return err
	}
	for _, s := range own {
		named := s.ID == unwanted.Name || unwanted.Name == ""
		if !named || s.Network != unwanted.DestinationCIDR || s.tag(scopeRouteNode) != string(unwanted.TargetNode) {
			continue
		}
		klog.InfoS("Deleting route", "gateway", r.collection, "route", s.ID, "destination", s.Network)
		if err := r.client.remove(ctx, kindRoute, pathIn(r.collection, s)); err != nil {
			r.view.Invalidate(s.ID)
			return err
		}
		r.view.Forget(s.ID)
		r.inForce.Delete(s.ID)
	}
	return nil
}

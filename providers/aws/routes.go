package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
)

// routesMaxAge is how old the records of the route table may be when routes are reconciled; our own writes end it.
const routesMaxAge = 20 * time.Second

// routes implements cloudprovider.Routes.
type routes struct {
	config    Config
	api       *api
	instances *instances
	network   *vpcNetwork

	// made are routes that were just made.
	made inventory.Recent[string]
}

var _ cloudprovider.Routes = (*routes)(nil)

// table returns the one route table that is managed: the one that the option names, else the one with the cluster's tag.
func (r *routes) table(ctx context.Context, maxAge time.Duration) (routeTable, error) {
	_, id, err := r.api.connect(ctx)
	if err != nil {
		return routeTable{}, err
	}
	all, err := r.network.tables.All(ctx, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return routeTable{}, err
	}
	var found []routeTable
	for _, t := range all {
		if t.id == r.config.RouteTableID || (r.config.RouteTableID == "" && id.isTagged(t.tags)) {
			found = append(found, t)
		}
	}
	switch {
	case len(found) == 0 && r.config.RouteTableID != "":
		return routeTable{}, fmt.Errorf("there is no route table %s in VPC %s; correct RouteTableID in the cloud config", r.config.RouteTableID, id.vpc)
	case len(found) == 0:
		return routeTable{}, fmt.Errorf("no route table has the tag of cluster %s; tag the route table of the nodes with %s, or set RouteTableID in the cloud config", id.clusterID, id.clusterTag())
	case len(found) > 1:
		return routeTable{}, fmt.Errorf("several route tables have the tag of cluster %s; set RouteTableID in the cloud config, or leave the tag %s on one of them", id.clusterID, id.clusterTag())
	}
	return found[0], nil
}

// ListRoutes implements cloudprovider.Routes. A route to an instance of the cluster without a Node has the instance's name, so that it is
// deleted. A route to a living instance of somebody else is not shown; one to a deleted instance is a black hole.
func (r *routes) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	table, err := r.table(ctx, routesMaxAge)
	if err != nil {
		return nil, err
	}
	nodes, err := r.nodesByInstance()
	if err != nil {
		return nil, err
	}
	var list []*cloudprovider.Route
	for _, one := range table.routes {
		cidr := routeDestination(one)
		use, err := r.useOf(ctx, one, nodes)
		if err != nil {
			return nil, err
		}
		shown := &cloudprovider.Route{Name: cluster + "-" + cidr, DestinationCIDR: cidr}
		switch {
		case use.blackhole:
			shown.Blackhole = true
		case use.node != "":
			shown.TargetNode = types.NodeName(use.node)
		case use.ours:
			shown.TargetNode = types.NodeName(cmp.Or(use.instance.privateDNS, use.instance.id))
		default:
			continue
		}
		list = append(list, shown)
	}
	slices.SortFunc(list, func(a, b *cloudprovider.Route) int { return strings.Compare(a.DestinationCIDR, b.DestinationCIDR) })
	return list, nil
}

// routeUse is the target of a route.
type routeUse struct {
	// blackhole is set where it leads nowhere any more.
	blackhole bool
	// node is the Node of the route's instance; instance is set if there is no Node.
	node     string
	instance instance
	// ours is set where the route is the cluster's: that of a Node, or of an instance with the cluster's tag.
	ours bool
}

// useOf finds out whom a route leads to. A target other than an instance is somebody else's. EC2 shows a route to a stopped instance as a
// black hole; its owner stays the same.
func (r *routes) useOf(ctx context.Context, one ec2types.Route, nodes map[string]*v1.Node) (routeUse, error) {
	instanceID := aws.ToString(one.InstanceId)
	blackhole := one.State == ec2types.RouteStateBlackhole
	if routeDestination(one) == "" || (instanceID == "" && !blackhole) || toGateway(one) {
		return routeUse{}, nil
	}
	if node, known := nodes[instanceID]; known {
		return routeUse{node: node.Name, ours: true}, nil
	}
	if instanceID == "" {
		return routeUse{blackhole: true, ours: true}, nil
	}
	_, id, err := r.api.connect(ctx)
	if err != nil {
		return routeUse{}, err
	}
	found, err := r.instances.inventory.Get(ctx, instanceID, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: backendMaxAge})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return routeUse{blackhole: blackhole, ours: blackhole}, nil // the next look shows a black hole
	case err != nil:
		return routeUse{}, err
	case blackhole:
		ours := id.isTagged(found.tags) || found.state == stateTerminated
		return routeUse{blackhole: ours, ours: ours}, nil
	}
	return routeUse{instance: found, ours: id.isTagged(found.tags)}, nil
}

// toGateway reports whether a route leads to something that is no instance.
func toGateway(r ec2types.Route) bool {
	return slices.ContainsFunc([]*string{
		r.GatewayId, r.NatGatewayId, r.TransitGatewayId, r.VpcPeeringConnectionId, r.EgressOnlyInternetGatewayId, r.CarrierGatewayId,
		r.LocalGatewayId, r.CoreNetworkArn,
	}, func(target *string) bool { return aws.ToString(target) != "" })
}

// routeDestination is the network that a route is for; routes for prefix lists have none.
func routeDestination(r ec2types.Route) string {
	if r.DestinationCidrBlock != nil {
		return *r.DestinationCidrBlock
	}
	return aws.ToString(r.DestinationIpv6CidrBlock)
}

func (r *routes) nodesByInstance() (map[string]*v1.Node, error) {
	nodes, err := r.instances.nodes.Known()
	if err != nil {
		return nil, err
	}
	found := map[string]*v1.Node{}
	for _, n := range nodes {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			found[id] = n
		}
	}
	return found, nil
}

// CreateRoute implements cloudprovider.Routes. An instance that forwards for pods must not check sources; a route of ours
// that leads elsewhere makes way.
func (r *routes) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	one, err := r.instanceOf(ctx, route.TargetNode)
	if err != nil {
		return err
	}
	if err := r.disableSourceCheck(ctx, one); err != nil {
		return err
	}
	made := route.DestinationCIDR + " " + one.id
	if r.made.Has(made) {
		return nil // the listing may not show it yet
	}
	if err = r.pointRoute(ctx, route, one, routesMaxAge); codeOf(err) == "RouteAlreadyExists" {
		err = r.pointRoute(ctx, route, one, 0) // the records were too old
	}
	if err == nil {
		r.made.Add(made)
	}
	return err
}

// pointRoute sets the target of a network's route to an instance.
func (r *routes) pointRoute(ctx context.Context, route *cloudprovider.Route, one instance, maxAge time.Duration) error {
	table, err := r.table(ctx, maxAge)
	if err != nil {
		return err
	}
	in := &ec2.CreateRouteInput{RouteTableId: aws.String(table.id)}
	if in.DestinationCidrBlock, in.DestinationIpv6CidrBlock, err = destinationParams(route.DestinationCIDR); err != nil {
		return err
	}
	in.InstanceId, in.NetworkInterfaceId = forwardingInstance(one)
	for _, have := range table.routes {
		if !podranges.Same(routeDestination(have), route.DestinationCIDR) {
			continue
		}
		if (have.State == ec2types.RouteStateActive || one.state == stateStopped) && aws.ToString(have.InstanceId) == one.id {
			return nil
		}
		if err := r.mayReplace(ctx, table, have, route); err != nil {
			return err
		}
		klog.InfoS("Replacing route", "node", route.TargetNode, "destination", route.DestinationCIDR, "instance", one.id)
		return r.replace(ctx, route, in)
	}
	klog.InfoS("Creating route", "node", route.TargetNode, "destination", route.DestinationCIDR, "instance", one.id)
	return r.create(ctx, route, in)
}

func (r *routes) create(ctx context.Context, route *cloudprovider.Route, in *ec2.CreateRouteInput) error {
	_, err := call(ctx, r.api, fmt.Sprintf("creating the route of %s to node %s", route.DestinationCIDR, route.TargetNode), (*ec2.Client).CreateRoute, in)
	r.network.tables.InvalidateAll()
	return err
}

// mayReplace returns an error where a route is not the cluster's, or is that of another Node which has the network.
func (r *routes) mayReplace(ctx context.Context, table routeTable, have ec2types.Route, route *cloudprovider.Route) error {
	nodes, err := r.nodesByInstance()
	if err != nil {
		return err
	}
	use, err := r.useOf(ctx, have, nodes)
	if err != nil {
		return err
	}
	refuse := func(reason string) error {
		return &cloudapi.Error{
			Class: cloudapi.ErrConflict, Operation: "creating the route to node " + string(route.TargetNode),
			Message: fmt.Sprintf("the route of %s in table %s leads to %s", route.DestinationCIDR, table.id, reason),
		}
	}
	if !use.ours {
		return refuse("something that is not this cluster's; remove it, or give the pods other networks")
	}
	if node := nodes[aws.ToString(have.InstanceId)]; node != nil && node.Name != string(route.TargetNode) &&
		slices.ContainsFunc(node.Spec.PodCIDRs, func(c string) bool { return podranges.Same(c, route.DestinationCIDR) }) {
		return refuse("node " + node.Name + ", which has the same network; delete one of the two Nodes")
	}
	return nil
}

// replace changes where a route leads. Without the permission for it, the route is deleted and made again.
func (r *routes) replace(ctx context.Context, route *cloudprovider.Route, in *ec2.CreateRouteInput) error {
	what := fmt.Sprintf("replacing the route of %s by one to node %s", route.DestinationCIDR, route.TargetNode)
	_, err := call(ctx, r.api, what, (*ec2.Client).ReplaceRoute, &ec2.ReplaceRouteInput{
		RouteTableId: in.RouteTableId, DestinationCidrBlock: in.DestinationCidrBlock, DestinationIpv6CidrBlock: in.DestinationIpv6CidrBlock,
		InstanceId: in.InstanceId, NetworkInterfaceId: in.NetworkInterfaceId,
	})
	r.network.tables.InvalidateAll()
	if !permissionRefused(err) {
		return err
	}
	if err := r.DeleteRoute(ctx, "", route); err != nil {
		return err
	}
	return r.create(ctx, route, in)
}

// forwardingInstance returns the target of a route to an instance: AWS does not choose among several interfaces.
func forwardingInstance(one instance) (instanceID, networkInterface *string) {
	if len(one.interfaces) > 1 {
		return nil, aws.String(one.interfaces[0].id)
	}
	return aws.String(one.id), nil
}

// destinationParams is the network of a route in the parameter of its family.
func destinationParams(cidr string) (v4, v6 *string, err error) {
	p, err := netip.ParsePrefix(cidr)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("route to %q: %w", cidr, err)
	case p.Addr().Is4():
		return aws.String(cidr), nil, nil
	}
	return nil, aws.String(cidr), nil
}

// instanceOf returns the instance of a node.
func (r *routes) instanceOf(ctx context.Context, name types.NodeName) (instance, error) {
	node, err := r.instances.nodes.Node(name)
	if err != nil {
		return instance{}, fmt.Errorf("the route to %s: %w", name, err)
	}
	one, err := r.instances.byNode.Find(ctx, node, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: missMaxAge})
	if err != nil {
		return instance{}, fmt.Errorf("finding the instance of node %s for its route: %w", name, err)
	}
	return one, nil
}

// disableSourceCheck disables the source/destination check, once for each instance.
func (r *routes) disableSourceCheck(ctx context.Context, one instance) error {
	if !one.checksSource {
		return nil
	}
	off := &ec2types.AttributeBooleanValue{Value: aws.Bool(false)}
	what := "switching off the source/destination check of instance " + one.id
	var err error
	if instanceID, networkInterface := forwardingInstance(one); networkInterface != nil {
		_, err = call(ctx, r.api, what, (*ec2.Client).ModifyNetworkInterfaceAttribute, &ec2.ModifyNetworkInterfaceAttributeInput{
			NetworkInterfaceId: networkInterface, SourceDestCheck: off,
		})
	} else {
		_, err = call(ctx, r.api, what, (*ec2.Client).ModifyInstanceAttribute, &ec2.ModifyInstanceAttributeInput{
			InstanceId: instanceID, SourceDestCheck: off,
		})
	}
	if err != nil {
		return err
	}
	one.checksSource = false
	r.instances.inventory.PutPartial(one)
	return nil
}

// DeleteRoute implements cloudprovider.Routes. A route that is gone already is no error, and one that is not the cluster's by
// now is left alone.
func (r *routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	table, err := r.table(ctx, 0)
	if err != nil {
		return err
	}
	n := slices.IndexFunc(table.routes, func(have ec2types.Route) bool {
		return podranges.Same(routeDestination(have), route.DestinationCIDR)
	})
	if n < 0 {
		return nil
	}
	nodes, err := r.nodesByInstance()
	if err != nil {
		return err
	}
	if use, err := r.useOf(ctx, table.routes[n], nodes); err != nil || !use.ours {
		return err
	}
	in := &ec2.DeleteRouteInput{RouteTableId: aws.String(table.id)}
	if in.DestinationCidrBlock, in.DestinationIpv6CidrBlock, err = destinationParams(routeDestination(table.routes[n])); err != nil {
		return err
	}
	klog.InfoS("Deleting route", "destination", route.DestinationCIDR)
	r.made.Remove(func(made string) bool {
		return made == routeDestination(table.routes[n])+" "+aws.ToString(table.routes[n].InstanceId)
	})
	_, err = call(ctx, r.api, "deleting the route of "+route.DestinationCIDR, (*ec2.Client).DeleteRoute, in)
	r.network.tables.InvalidateAll()
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

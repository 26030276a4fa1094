package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
)

// routesMaxAge is how old the picture of the route table may be when routes are reconciled; our own writes end it.
const routesMaxAge = 20 * time.Second

// routes implements cloudprovider.Routes.
type routes struct {
	config    Config
	api       *api
	instances *instances
	network   *network

	mu     sync.Mutex
	lister listers.NodeLister
}

var _ cloudprovider.Routes = (*routes)(nil)

func newRoutes(c Config, a *api, i *instances, n *network) *routes {
	return &routes{config: c, api: a, instances: i, network: n}
}

func (r *routes) setLister(l listers.NodeLister) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lister = l
}

// table returns the one route table that is managed: the one that the option names, else the one with the cluster's tag.
func (r *routes) table(ctx context.Context, maxAge time.Duration) (routeTable, error) {
	_, id, err := r.api.ready(ctx)
	if err != nil {
		return routeTable{}, err
	}
	all, err := r.network.tables.All(ctx, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return routeTable{}, err
	}
	var found []routeTable
	for _, t := range all {
		if t.id == r.config.RouteTableID || (r.config.RouteTableID == "" && id.ours(t.tags)) {
			found = append(found, t)
		}
	}
	switch {
	case len(found) == 0 && r.config.RouteTableID != "":
		return routeTable{}, fmt.Errorf("unable to find route table %s in VPC %s; correct RouteTableID in the cloud config", r.config.RouteTableID, id.vpc)
	case len(found) == 0:
		return routeTable{}, fmt.Errorf("unable to find route table for AWS cluster: %s; tag the route table of the nodes with %s, or set RouteTableID in the cloud config", id.clusterID, id.clusterTag())
	case len(found) > 1:
		return routeTable{}, fmt.Errorf("found multiple matching AWS route tables for AWS cluster: %s; set RouteTableID in the cloud config, or leave the tag %s on one of them", id.clusterID, id.clusterTag())
	}
	return found[0], nil
}

// ListRoutes implements cloudprovider.Routes. A route to an instance that lives and is no node of ours belongs to somebody
// else and is not shown; one whose instance is gone is shown as a black hole.
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
		instanceID, cidr := aws.ToString(one.InstanceId), destinationOf(one)
		blackhole := one.State == ec2types.RouteStateBlackhole
		if cidr == "" || (instanceID == "" && !blackhole) || one.GatewayId != nil || one.NatGatewayId != nil || one.TransitGatewayId != nil || one.VpcPeeringConnectionId != nil {
			continue
		}
		shown := &cloudprovider.Route{Name: cluster + "-" + cidr, DestinationCIDR: cidr}
		node, known := nodes[instanceID]
		switch {
		case blackhole:
			shown.Blackhole = true
		case known:
			shown.TargetNode = types.NodeName(node)
		default:
			continue
		}
		list = append(list, shown)
	}
	slices.SortFunc(list, func(a, b *cloudprovider.Route) int { return strings.Compare(a.DestinationCIDR, b.DestinationCIDR) })
	return list, nil
}

// destinationOf is the network that a route is for; routes for prefix lists have none.
func destinationOf(r ec2types.Route) string {
	if r.DestinationCidrBlock != nil {
		return *r.DestinationCidrBlock
	}
	return aws.ToString(r.DestinationIpv6CidrBlock)
}

func (r *routes) nodesByInstance() (map[string]string, error) {
	r.mu.Lock()
	lister := r.lister
	r.mu.Unlock()
	names := map[string]string{}
	if lister == nil {
		return names, nil
	}
	nodes, err := lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing nodes for routes: %w", err)
	}
	for _, n := range nodes {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			names[id] = n.Name
		}
	}
	return names, nil
}

// CreateRoute implements cloudprovider.Routes. An instance that forwards for pods must not check sources; a route of ours
// that leads nowhere makes way.
func (r *routes) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	one, err := r.instanceOf(ctx, route.TargetNode)
	if err != nil {
		return err
	}
	if err := r.forwards(ctx, one); err != nil {
		return err
	}
	table, err := r.table(ctx, routesMaxAge)
	if err != nil {
		return err
	}
	for _, have := range table.routes {
		if destinationOf(have) == route.DestinationCIDR && have.State == ec2types.RouteStateBlackhole {
			if err := r.DeleteRoute(ctx, "", route); err != nil {
				return err
			}
		}
	}
	in := &ec2.CreateRouteInput{RouteTableId: aws.String(table.id), InstanceId: aws.String(one.id)}
	if len(one.interfaces) > 1 {
		// AWS does not choose among interfaces.
		in.InstanceId, in.NetworkInterfaceId = nil, aws.String(one.interfaces[0].id)
	}
	if in.DestinationCidrBlock, in.DestinationIpv6CidrBlock, err = destination(route.DestinationCIDR); err != nil {
		return err
	}
	klog.InfoS("Creating route", "node", route.TargetNode, "destination", route.DestinationCIDR, "instance", one.id)
	_, err = call(ctx, r.api, fmt.Sprintf("creating the route of %s to node %s", route.DestinationCIDR, route.TargetNode), (*ec2.Client).CreateRoute, in)
	r.changed(table.id)
	return err
}

// changed makes the next look read the tables again.
func (r *routes) changed(string) { r.network.tables.Distrust() }

// destination is the network of a route in the parameter of its family.
func destination(cidr string) (v4, v6 *string, err error) {
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
	r.mu.Lock()
	lister := r.lister
	r.mu.Unlock()
	if lister == nil {
		return instance{}, fmt.Errorf("the nodes are not known yet; the route to %s has to wait", name)
	}
	node, err := lister.Get(string(name))
	if err != nil {
		return instance{}, fmt.Errorf("finding node %s for its route: %w", name, err)
	}
	one, err := r.instances.lookup(ctx, node, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: missMaxAge})
	if err != nil {
		return instance{}, fmt.Errorf("finding the instance of node %s for its route: %w", name, err)
	}
	return one, nil
}

// forwards switches off the check of sources and destinations. It is set once for each instance and stays so.
func (r *routes) forwards(ctx context.Context, one instance) error {
	if !one.checksSource {
		return nil
	}
	off := &ec2types.AttributeBooleanValue{Value: aws.Bool(false)}
	what := "switching off the source/destination check of instance " + one.id
	var err error
	if len(one.interfaces) > 1 {
		_, err = call(ctx, r.api, what, (*ec2.Client).ModifyNetworkInterfaceAttribute, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: aws.String(one.interfaces[0].id), SourceDestCheck: off})
	} else {
		_, err = call(ctx, r.api, what, (*ec2.Client).ModifyInstanceAttribute, &ec2.ModifyInstanceAttributeInput{InstanceId: aws.String(one.id), SourceDestCheck: off})
	}
	if err != nil {
		return err
	}
	one.checksSource = false
	r.instances.all.Amend(one)
	return nil
}

// DeleteRoute implements cloudprovider.Routes. A route that is gone already is as wished.
func (r *routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	table, err := r.table(ctx, routesMaxAge)
	if err != nil {
		return err
	}
	in := &ec2.DeleteRouteInput{RouteTableId: aws.String(table.id)}
	if in.DestinationCidrBlock, in.DestinationIpv6CidrBlock, err = destination(route.DestinationCIDR); err != nil {
		return err
	}
	klog.InfoS("Deleting route", "destination", route.DestinationCIDR)
	_, err = call(ctx, r.api, "deleting the route of "+route.DestinationCIDR, (*ec2.Client).DeleteRoute, in)
	r.changed(table.id)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	tagRolePublic   = "kubernetes.io/role/elb"
	tagRoleInternal = "kubernetes.io/role/internal-elb"
	zoneUsual       = "availability-zone"

	// networkMaxAge is how old the knowledge of subnets and route tables may be where load balancers are placed.
	networkMaxAge = 60 * time.Second
	// tablePage is EC2's largest page of route tables.
	tablePage = 100
)

// subnet of the VPC.
type subnet struct {
	id, zone string
	cidr     string
	cidrs6   []string
	tags     map[string]string
}

// routeTable of the VPC.
type routeTable struct {
	id      string
	main    bool
	subnets []string
	routes  []ec2types.Route
	tags    map[string]string
}

// isPublic reports whether a table leads to the internet by itself.
func (t routeTable) isPublic() bool {
	return slices.ContainsFunc(t.routes, func(r ec2types.Route) bool { return strings.HasPrefix(aws.ToString(r.GatewayId), "igw") })
}

// vpcNetwork is the VPC as load balancers and routes see it.
type vpcNetwork struct {
	api     *api
	zones   *zones
	subnets *inventory.Inventory[string, subnet]
	tables  *inventory.Inventory[string, routeTable]
}

func newNetwork(a *api, z *zones) *vpcNetwork {
	return &vpcNetwork{
		api: a, zones: z,
		subnets: inventory.New(inventory.Source[string, subnet]{Kind: "subnet", ID: func(s subnet) string { return s.id }, List: a.listSubnets}),
		tables:  inventory.New(inventory.Source[string, routeTable]{Kind: "route table", ID: func(t routeTable) string { return t.id }, List: a.listTables}),
	}
}

func (a *api) listSubnets(ctx context.Context) ([]subnet, int, error) {
	_, id, err := a.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	in := &ec2.DescribeSubnetsInput{MaxResults: aws.Int32(pageSize), Filters: []ec2types.Filter{filter("vpc-id", id.vpc)}}
	return listPages(ctx, a, cloudapi.WatchListing, "listing subnets", (*ec2.Client).DescribeSubnets, in, &in.NextToken,
		func(out *ec2.DescribeSubnetsOutput) ([]ec2types.Subnet, *string) { return out.Subnets, out.NextToken }, newSubnet)
}

func newSubnet(s *ec2types.Subnet) subnet {
	one := subnet{
		id: aws.ToString(s.SubnetId), zone: aws.ToString(s.AvailabilityZone), cidr: aws.ToString(s.CidrBlock), tags: mapOf(s.Tags, ec2Tag),
	}
	for _, a := range s.Ipv6CidrBlockAssociationSet {
		if a.Ipv6CidrBlockState != nil && a.Ipv6CidrBlockState.State == ec2types.SubnetCidrBlockStateCodeAssociated {
			one.cidrs6 = append(one.cidrs6, aws.ToString(a.Ipv6CidrBlock))
		}
	}
	return one
}

func (a *api) listTables(ctx context.Context) ([]routeTable, int, error) {
	_, id, err := a.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	in := &ec2.DescribeRouteTablesInput{MaxResults: aws.Int32(tablePage), Filters: []ec2types.Filter{filter("vpc-id", id.vpc)}}
	return listPages(ctx, a, cloudapi.WatchListing, "listing route tables", (*ec2.Client).DescribeRouteTables, in, &in.NextToken,
		func(out *ec2.DescribeRouteTablesOutput) ([]ec2types.RouteTable, *string) {
			return out.RouteTables, out.NextToken
		}, newTable)
}

func newTable(t *ec2types.RouteTable) routeTable {
	one := routeTable{id: aws.ToString(t.RouteTableId), routes: t.Routes, tags: mapOf(t.Tags, ec2Tag)}
	for _, a := range t.Associations {
		one.main = one.main || aws.ToBool(a.Main)
		if a.SubnetId != nil {
			one.subnets = append(one.subnets, *a.SubnetId)
		}
	}
	return one
}

// chooseSubnets returns the subnets of a new load balancer, and of a classic one whose subnets may change.
func (n *vpcNetwork) chooseSubnets(ctx context.Context, s settings, internal bool) ([]subnet, error) {
	_, id, err := n.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	q := inventory.Query{MaxAge: networkMaxAge}
	all, err := n.subnets.All(ctx, q)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b subnet) int { return strings.Compare(a.id, b.id) })
	if len(s.Subnets) > 0 {
		return namedSubnets(all, s.Subnets)
	}
	if !slices.ContainsFunc(all, func(s subnet) bool { return isCandidate(id, s) }) {
		return ownSubnet(all, id)
	}
	tables, err := n.tables.All(ctx, q)
	if err != nil {
		return nil, err
	}
	chosen, err := discoverSubnets(id, all, tables, internal)
	if err != nil {
		return nil, err
	}
	var usual []subnet
	for _, one := range chosen {
		z, err := n.zones.get(ctx, one.zone)
		if err != nil {
			return nil, err
		}
		if z.kind == "" || z.kind == zoneUsual {
			usual = append(usual, one)
		}
	}
	if len(usual) == 0 {
		return nil, noSubnetError(id, internal)
	}
	return usual, nil
}

// namedSubnets finds the subnets that the annotation names, in its order: addresses are paired with them.
func namedSubnets(all []subnet, names []string) ([]subnet, error) {
	var chosen []subnet
	problem := func(reason string, args ...any) error {
		return &schema.Problem{Place: "annotation " + annotationSubnets, Value: strings.Join(names, ","), Reason: fmt.Sprintf(reason, args...)}
	}
	for _, name := range names {
		found := slices.DeleteFunc(slices.Clone(all), func(s subnet) bool {
			return s.id != name && (strings.HasPrefix(name, "subnet-") || s.tags["Name"] != name)
		})
		switch {
		case len(found) == 0:
			return nil, problem("holds %q, which is neither the ID nor the tag Name of a subnet of the VPC", name)
		case len(found) > 1:
			return nil, problem("holds %q, which is the Name of %d subnets; use IDs", name, len(found))
		case slices.ContainsFunc(chosen, func(s subnet) bool { return s.id == found[0].id }):
			return nil, problem("names subnet %s twice", found[0].id)
		case slices.ContainsFunc(chosen, func(s subnet) bool { return s.zone == found[0].zone }):
			return nil, problem("names two subnets of zone %s; AWS allows one", found[0].zone)
		}
		chosen = append(chosen, found[0])
	}
	return chosen, nil
}

// isCandidate reports whether a subnet belongs to the cluster or to nobody.
func isCandidate(id *identity, s subnet) bool {
	return id.isTagged(s.tags) ||
		!slices.ContainsFunc(slices.Collect(maps.Keys(s.tags)), func(k string) bool { return strings.HasPrefix(k, clusterTagPrefix) })
}

// ownSubnet is the last resort: the subnet that we run in.
func ownSubnet(all []subnet, id *identity) ([]subnet, error) {
	for _, s := range all {
		if s.id == id.subnet {
			return []subnet{s}, nil
		}
	}
	return nil, noSubnetError(id, false)
}

// noSubnetError begins as the message of AWS's own controller does.
func noSubnetError(id *identity, internal bool) error {
	role, kind := tagRolePublic, "a public"
	if internal {
		role, kind = tagRoleInternal, "a"
	}
	return fmt.Errorf("no subnet can have the load balancer: tag %s subnet of each zone with %s and %s, or name subnets in the annotation %s", kind, id.clusterTag(), role, annotationSubnets)
}

var errNoTable = errors.New("no route table is associated with the subnet, and the VPC has no main one")

// isPublic reports whether a subnet leads to the internet: by its own table, else by the main one.
func isPublic(s subnet, tables []routeTable) (bool, error) {
	var table *routeTable
	for i, t := range tables {
		if slices.Contains(t.subnets, s.id) {
			table = &tables[i]
			break
		}
		if t.main {
			table = &tables[i]
		}
	}
	if table == nil {
		return false, fmt.Errorf("subnet %s: %w", s.id, errNoTable)
	}
	return table.isPublic(), nil
}

// discoverSubnets chooses one subnet of each zone: by the tag of its role, then by the cluster's, then by its ID.
func discoverSubnets(id *identity, all []subnet, tables []routeTable, internal bool) ([]subnet, error) {
	role := tagRolePublic
	if internal {
		role = tagRoleInternal
	}
	rank := func(s subnet) (byRole, byCluster int) {
		if _, tagged := s.tags[role]; !tagged {
			byRole = 1
		}
		if !id.isTagged(s.tags) {
			byCluster = 1
		}
		return byRole, byCluster
	}
	best := map[string]subnet{}
	for _, s := range all {
		if !isCandidate(id, s) || s.zone == "" || s.id == "" {
			continue
		}
		public, err := isPublic(s, tables)
		if err != nil {
			return nil, err
		}
		if !internal && !public {
			continue
		}
		have, taken := best[s.zone]
		roleA, clusterA := rank(s)
		roleB, clusterB := rank(have)
		if !taken || cmp.Or(roleA-roleB, clusterA-clusterB, strings.Compare(s.id, have.id)) < 0 {
			best[s.zone] = s
		}
	}
	chosen := slices.SortedFunc(maps.Values(best), func(a, b subnet) int { return strings.Compare(a.zone, b.zone) })
	if len(chosen) == 0 {
		return nil, noSubnetError(id, internal)
	}
	return chosen, nil
}

// zonesOf returns the zones of all subnets of the VPC.
func (n *vpcNetwork) zonesOf(ctx context.Context) (map[string]string, error) {
	all, err := n.subnets.All(ctx, inventory.Query{MaxAge: 10 * networkMaxAge})
	zones := make(map[string]string, len(all))
	for _, s := range all {
		zones[s.id] = s.zone
	}
	return zones, err
}

// cidrsOf returns the networks of subnets by their IDs, of one family. It is complete where each of them is listed.
func (n *vpcNetwork) cidrsOf(ctx context.Context, ids []string, v6 bool) (list []netip.Prefix, complete bool, err error) {
	var found int
	for _, maxAge := range []time.Duration{10 * networkMaxAge, networkMaxAge} { // one that is missing may be new
		if list, found, err = n.knownCIDRs(ctx, ids, v6, maxAge); err != nil || found == len(ids) {
			return list, true, err
		}
	}
	klog.InfoS("Some subnets of a load balancer are not listed; no rule of the nodes is removed", "subnets", ids, "listed", found)
	return list, false, nil
}

func (n *vpcNetwork) knownCIDRs(
	ctx context.Context, ids []string, v6 bool, maxAge time.Duration,
) (list []netip.Prefix, found int, err error) {
	all, err := n.subnets.All(ctx, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return nil, 0, err
	}
	for _, s := range all {
		if !slices.Contains(ids, s.id) {
			continue
		}
		found++
		texts := []string{s.cidr}
		if v6 {
			texts = s.cidrs6
		}
		for _, text := range texts {
			if p, err := netip.ParsePrefix(text); err == nil {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return list, found, nil
}

func idsOf(subnets []subnet) []string {
	ids := make([]string, len(subnets))
	for i, s := range subnets {
		ids[i] = s.id
	}
	return ids
}

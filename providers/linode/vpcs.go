package linode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linode/linodego"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// networkMaxAge is the maximum age of a VPC and its subnets.
	networkMaxAge = time.Hour
	// networkMissMaxAge is the maximum age of the answer that a VPC or a subnet is missing: it may have been created since.
	networkMissMaxAge = 15 * time.Second
)

// subnet is a subnet of a VPC of the cluster.
type subnet struct {
	vpcID, id int
	ipv4      string
}

// subnets holds the subnets of one VPC.
type subnets struct {
	vpcID int
	list  []linodego.VPCSubnet
}

// vpcs finds the cluster's VPCs and subnets, by label or by ID; labels of VPCs are unique in an account, those of subnets only in their
// VPC.
type vpcs struct {
	config  Config
	api     *api
	all     *inventory.Inventory[int, linodego.VPC]
	subnets *inventory.Inventory[int, subnets]
	// missMaxAge is networkMissMaxAge; tests shorten it.
	missMaxAge time.Duration
}

func newVPCs(c Config, a *api) *vpcs {
	return &vpcs{
		config: c, api: a, missMaxAge: networkMissMaxAge,
		all: inventory.New(inventory.Source[int, linodego.VPC]{
			Kind: "VPC", ID: func(v linodego.VPC) int { return v.ID },
			List: func(ctx context.Context) ([]linodego.VPC, int, error) {
				return listAll[linodego.VPC](ctx, a, "VPCs", "vpcs", "")
			},
			Indexes: map[string]func(linodego.VPC) []string{indexLabel: func(v linodego.VPC) []string { return []string{v.Label} }},
		}),
		subnets: inventory.New(inventory.Source[int, subnets]{
			Kind: "VPC subnets", ID: func(s subnets) int { return s.vpcID },
			Get: func(ctx context.Context, id int) (subnets, error) {
				list, _, err := listAll[linodego.VPCSubnet](ctx, a, fmt.Sprintf("subnets of VPC %d", id), fmt.Sprintf("vpcs/%d/subnets", id), "")
				return subnets{vpcID: id, list: list}, err
			},
		}),
	}
}

// resolve returns the subnets of the cluster, in the order of the options. A missing label is an error, because without its subnet the
// Linodes in it would seem to have left the cluster. It is searched again, in case it was created since.
func (v *vpcs) resolve(ctx context.Context, maxAge time.Duration) ([]subnet, error) {
	own, err := v.resolveOnce(ctx, maxAge)
	if _, missing := errors.AsType[*missingNetwork](err); missing && maxAge > v.missMaxAge {
		return v.resolveOnce(ctx, v.missMaxAge)
	}
	return own, err
}

// missingNetwork is the error about a missing VPC or subnet.
type missingNetwork struct{ what string }

func (m *missingNetwork) Error() string { return m.what }

func (v *vpcs) resolveOnce(ctx context.Context, maxAge time.Duration) ([]subnet, error) {
	if !v.config.inVPC() {
		return nil, nil
	}
	ids := slices.Clone(v.config.VPCIDs)
	for _, label := range v.config.VPCNames {
		id, err := v.vpcID(ctx, label, maxAge)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	var own []subnet
	found := map[string]bool{}
	for _, vpcID := range ids {
		list, err := v.subnetsOf(ctx, vpcID, maxAge)
		if err != nil {
			return nil, err
		}
		place := func(s linodego.VPCSubnet) int {
			return max(slices.Index(v.config.SubnetIDs, s.ID), slices.Index(v.config.SubnetNames, s.Label))
		}
		list = slices.SortedStableFunc(slices.Values(list), func(a, b linodego.VPCSubnet) int { return cmp.Compare(place(a), place(b)) })
		for _, s := range list {
			if place(s) >= 0 {
				found[s.Label], found[strconv.Itoa(s.ID)] = true, true
				own = append(own, subnet{vpcID: vpcID, id: s.ID, ipv4: s.IPv4})
			}
		}
	}
	for _, name := range v.config.SubnetNames {
		if !found[name] {
			return nil, &missingNetwork{fmt.Sprintf("flag --subnet-names: no VPC of the cluster has a subnet %q", name)}
		}
	}
	for _, id := range v.config.SubnetIDs {
		if !found[strconv.Itoa(id)] {
			return nil, &missingNetwork{fmt.Sprintf("flag --subnet-ids: no VPC of the cluster has the subnet %d", id)}
		}
	}
	return own, nil
}

// vpcID returns the ID of a VPC by its label.
func (v *vpcs) vpcID(ctx context.Context, label string, maxAge time.Duration) (int, error) {
	found, err := v.all.Find(ctx, indexLabel, label, inventory.Query{MaxAge: maxAge, MaxMissAge: v.missMaxAge, MaxUnlistedAge: v.missMaxAge})
	switch {
	case err != nil:
		return 0, err
	case len(found) == 0:
		return 0, &missingNetwork{fmt.Sprintf("no VPC has the label %q, or the token may not read it", label)}
	}
	return found[0].ID, nil
}

// subnetsOf returns the subnets of a VPC. A missing one may have been created again, under another ID.
func (v *vpcs) subnetsOf(ctx context.Context, vpcID int, maxAge time.Duration) ([]linodego.VPCSubnet, error) {
	s, err := v.subnets.Get(ctx, vpcID, inventory.Query{MaxAge: maxAge, MaxMissAge: v.missMaxAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		v.invalidate(vpcID)
		return nil, &missingNetwork{fmt.Sprintf("VPC %d does not exist, or the token may not read it", vpcID)}
	}
	return s.list, err
}

// invalidate makes a VPC be read again.
func (v *vpcs) invalidate(vpcID int) {
	v.all.Invalidate(vpcID)
	v.subnets.Invalidate(vpcID)
}

// subnetID returns the ID of a subnet by the labels of its VPC and its own.
func (v *vpcs) subnetID(ctx context.Context, vpcLabel, label string) (int, error) {
	for _, maxAge := range []time.Duration{networkMaxAge, v.missMaxAge} {
		vpcID, err := v.vpcID(ctx, vpcLabel, maxAge)
		if err != nil {
			return 0, err
		}
		list, err := v.subnetsOf(ctx, vpcID, maxAge)
		if _, missing := errors.AsType[*missingNetwork](err); err != nil && !missing {
			return 0, err
		}
		if i := slices.IndexFunc(list, func(s linodego.VPCSubnet) bool { return s.Label == label }); i >= 0 {
			return list[i].ID, nil
		}
	}
	return 0, &missingNetwork{fmt.Sprintf("VPC %q has no subnet %q", vpcLabel, label)}
}

// addresses lists the addresses of Linodes in the subnets of the cluster; linodeID 0 means all Linodes.
func (v *vpcs) addresses(ctx context.Context, linodeID int) (map[int]*vpcAddresses, int, error) {
	own, err := v.resolve(ctx, networkMaxAge)
	if err != nil || len(own) == 0 {
		return nil, 0, err
	}
	byLinode := map[int]*vpcAddresses{}
	calls, groups := 0, groupByVPC(own)
	for vpcID, ids := range groups {
		filter := subnetFilter(ids, linodeID)
		// The filter is a hint; the entries are checked.
		mine := func(ip linodego.VPCIP) bool {
			return ip.LinodeID != 0 && slices.Contains(ids, ip.SubnetID) && (linodeID == 0 || ip.LinodeID == linodeID)
		}
		for _, kind := range [][2]string{{"addresses", "ips"}, {"IPv6 addresses", "ipv6s"}} {
			what, path := fmt.Sprintf("%s in VPC %d", kind[0], vpcID), fmt.Sprintf("vpcs/%d/%s", vpcID, kind[1])
			list, pages, err := listAll[linodego.VPCIP](ctx, v.api, what, path, filter)
			calls += pages
			if errors.Is(err, cloudapi.ErrNotFound) {
				v.invalidate(vpcID)
			}
			if err != nil {
				return nil, calls, err
			}
			for _, ip := range list {
				if mine(ip) {
					if byLinode[ip.LinodeID] == nil {
						byLinode[ip.LinodeID] = &vpcAddresses{inOneVPC: len(groups) == 1}
					}
					byLinode[ip.LinodeID].add(ip)
				}
			}
		}
	}
	return byLinode, calls, nil
}

// add stores an entry of a listing. A list that grew during the reading may contain one twice.
func (a *vpcAddresses) add(ip linodego.VPCIP) {
	if ip.AddressRange != nil && *ip.AddressRange != "" {
		a.ranges = union(a.ranges, *ip.AddressRange)
	}
	if ip.Address != nil && *ip.Address != "" {
		a.ipv4 = union(a.ipv4, *ip.Address)
		if a.interfaceID == 0 {
			a.interfaceID, a.configID = ip.InterfaceID, ip.ConfigID
		}
	}
	if ip.IPv6Range != nil && *ip.IPv6Range != "" && !slices.Contains(a.rangesV6, *ip.IPv6Range) {
		// A range with an address that the Linode assigned itself comes first.
		if len(ip.IPv6Addresses) > 0 {
			a.rangesV6 = append([]string{*ip.IPv6Range}, a.rangesV6...)
		} else {
			a.rangesV6 = append(a.rangesV6, *ip.IPv6Range)
		}
	}
	for _, one := range ip.IPv6Addresses {
		if ip.IPv6IsPublic != nil && *ip.IPv6IsPublic {
			a.externalV6 = union(a.externalV6, one.SLAACAddress)
		} else {
			a.internalV6 = union(a.internalV6, one.SLAACAddress)
		}
	}
}

// callsPerLinode is how many calls reading one Linode takes: itself, and the addresses of both families in each VPC.
func (v *vpcs) callsPerLinode() int {
	if !v.config.inVPC() {
		return 1
	}
	return 1 + 2*max(len(v.config.VPCNames)+len(v.config.VPCIDs), 1)
}

// groupByVPC groups subnet IDs by their VPC.
func groupByVPC(own []subnet) map[int][]int {
	groups := map[int][]int{}
	for _, s := range own {
		groups[s.vpcID] = append(groups[s.vpcID], s.id)
	}
	return groups
}

// subnetFilter selects the entries of some subnets, in the API's form for several: joined by commas.
func subnetFilter(ids []int, linodeID int) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(id)
	}
	filter := map[string]any{"subnet_id": strings.Join(texts, ",")}
	if linodeID != 0 {
		filter["linode_id"] = linodeID
	}
	return body(filter)
}

// backendSubnet returns the subnet in which NodeBalancers reach the nodes, or 0 for the private network: that of the annotations, otherwise
// that of the options, otherwise the cluster's first.
func (v *vpcs) backendSubnet(ctx context.Context, s settings) (int, error) {
	if !v.config.inVPC() || v.config.NoVPCBackends || s.IPv6Backends {
		return 0, nil
	}
	if s.BackendSubnetID != 0 {
		return s.BackendSubnetID, nil
	}
	firstVPC := firstOf(v.config.VPCNames)
	switch {
	case s.BackendVPC != "" || s.BackendSubnet != "":
		return v.subnetID(ctx, cmp.Or(s.BackendVPC, firstVPC), cmp.Or(s.BackendSubnet, firstOf(v.config.SubnetNames)))
	case v.config.BackendSubnetID != 0:
		return v.config.BackendSubnetID, nil
	case v.config.BackendSubnetName != "" && firstVPC != "":
		return v.subnetID(ctx, firstVPC, v.config.BackendSubnetName)
	}
	own, err := v.resolve(ctx, networkMaxAge)
	if err != nil || len(own) == 0 {
		return 0, err
	}
	return own[0].id, nil
}

// firstOf returns the first name of a list, or "".
func firstOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// backendVPCs attaches the NodeBalancer to the network of its backends; the first applicable rule counts.
func (v *vpcs) backendVPCs(ctx context.Context, s settings) ([]vpcOptions, error) {
	subnetID, err := v.backendSubnet(ctx, s)
	if err != nil || subnetID == 0 {
		return nil, err
	}
	o := vpcOptions{SubnetID: subnetID}
	switch {
	case s.BackendRange != "":
		if err := checkInside(s.BackendRange, v.config.BackendSubnet); err != nil {
			return nil, err
		}
		o.IPv4Range = s.BackendRange
	case s.BackendVPC != "" || s.BackendSubnet != "":
	case v.config.BackendSubnetID != 0:
		o.SubnetID = v.config.BackendSubnetID
	case v.config.BackendSubnet != "":
		o.IPv4Range, o.IPv4RangeAutoAssign = v.config.BackendSubnet, true
	}
	return []vpcOptions{o}, nil
}

// checkInside refuses a range outside of the option's range.
func checkInside(text, bound string) error {
	if bound == "" {
		return nil
	}
	inner, outer := netip.MustParsePrefix(text), netip.MustParsePrefix(strings.TrimSpace(bound)) // the tables checked both
	if !outer.Contains(inner.Addr()) || inner.Bits() < outer.Bits() {
		return &schema.Problem{Place: "annotation " + annotationBackendRange, Value: text, Reason: "is not inside --nodebalancer-backend-ipv4-subnet, " + bound}
	}
	return nil
}

func (v *vpcs) frontendVPCs(ctx context.Context, s settings) ([]vpcOptions, error) {
	if !s.hasFrontendVPC() {
		return nil, nil
	}
	id := s.FrontendSubnetID
	if id == 0 {
		var err error
		if id, err = v.subnetID(ctx, s.FrontendVPC, s.FrontendSubnet); err != nil {
			return nil, err
		}
	}
	return []vpcOptions{{SubnetID: id, IPv4Range: s.FrontendRangeV4, IPv6Range: s.FrontendRangeV6}}, nil
}

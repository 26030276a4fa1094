package linode

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/linode/linodego"
)

// subnet is a subnet of a VPC of the cluster.
type subnet struct {
	vpcID, id int
	ipv4      string
}

// vpcs knows the VPCs and subnets that the cluster lives in. They are looked up once, by label or by ID; labels of VPCs
// are unique in an account, those of subnets in their VPC alone.
type vpcs struct {
	config Config
	api    *api

	mu      sync.Mutex
	byLabel map[string]int
	subnets map[int][]linodego.VPCSubnet
	own     []subnet
}

func newVPCs(c Config, a *api) *vpcs {
	return &vpcs{config: c, api: a, byLabel: map[string]int{}, subnets: map[int][]linodego.VPCSubnet{}}
}

// resolve returns the subnets of the cluster, in the order of the options. Nothing is guessed: a label that leads nowhere
// is an error, for without its subnet the Linodes in it would look as if they had left the cluster.
func (v *vpcs) resolve(ctx context.Context) ([]subnet, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.own != nil || !v.config.inVPC() {
		return v.own, nil
	}
	ids := slices.Clone(v.config.VPCIDs)
	for _, label := range v.config.VPCNames {
		id, err := v.vpcLocked(ctx, label)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	var own []subnet
	found := map[string]bool{}
	for _, vpcID := range ids {
		list, err := v.subnetsLocked(ctx, vpcID)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if slices.Contains(v.config.SubnetIDs, s.ID) || slices.Contains(v.config.SubnetNames, s.Label) {
				found[s.Label], found[strconv.Itoa(s.ID)] = true, true
				own = append(own, subnet{vpcID: vpcID, id: s.ID, ipv4: s.IPv4})
			}
		}
	}
	for _, name := range v.config.SubnetNames {
		if !found[name] {
			return nil, fmt.Errorf("flag --subnet-names: no VPC of the cluster has a subnet %q", name)
		}
	}
	for _, id := range v.config.SubnetIDs {
		if !found[strconv.Itoa(id)] {
			return nil, fmt.Errorf("flag --subnet-ids: no VPC of the cluster has the subnet %d", id)
		}
	}
	v.own = own
	return own, nil
}

// vpcLocked returns the ID of a VPC.
func (v *vpcs) vpcLocked(ctx context.Context, label string) (int, error) {
	if id, ok := v.byLabel[label]; ok {
		return id, nil
	}
	all, _, err := listAll[linodego.VPC](ctx, v.api, "VPCs", "vpcs", "")
	if err != nil {
		return 0, err
	}
	for _, vpc := range all {
		v.byLabel[vpc.Label] = vpc.ID
	}
	id, ok := v.byLabel[label]
	if !ok {
		return 0, fmt.Errorf("no VPC has the label %q, or the token may not read it", label)
	}
	return id, nil
}

func (v *vpcs) subnetsLocked(ctx context.Context, vpcID int) ([]linodego.VPCSubnet, error) {
	if list, ok := v.subnets[vpcID]; ok {
		return list, nil
	}
	list, _, err := listAll[linodego.VPCSubnet](ctx, v.api, fmt.Sprintf("subnets of VPC %d", vpcID), fmt.Sprintf("vpcs/%d/subnets", vpcID), "")
	if err == nil {
		v.subnets[vpcID] = list
	}
	return list, err
}

// subnetID returns the ID of a subnet by the labels of its VPC and its own.
func (v *vpcs) subnetID(ctx context.Context, vpcLabel, label string) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	vpcID, err := v.vpcLocked(ctx, vpcLabel)
	if err != nil {
		return 0, err
	}
	list, err := v.subnetsLocked(ctx, vpcID)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(list, func(s linodego.VPCSubnet) bool { return s.Label == label })
	if i < 0 {
		return 0, fmt.Errorf("VPC %q has no subnet %q", vpcLabel, label)
	}
	return list[i].ID, nil
}

// addresses lists the addresses of Linodes in the subnets of the cluster; linodeID 0 means all Linodes.
func (v *vpcs) addresses(ctx context.Context, linodeID int) (map[int]*vpcAddresses, int, error) {
	own, err := v.resolve(ctx)
	if err != nil || len(own) == 0 {
		return nil, 0, err
	}
	byLinode := map[int]*vpcAddresses{}
	calls := 0
	for vpcID, ids := range bySubnets(own) {
		filter := subnetFilter(ids, linodeID)
		// The filter is a hint; what counts is what the entries say.
		mine := func(ip linodego.VPCIP) bool {
			return ip.LinodeID != 0 && slices.Contains(ids, ip.SubnetID) && (linodeID == 0 || ip.LinodeID == linodeID)
		}
		v4, pages, err := listAll[linodego.VPCIP](ctx, v.api, fmt.Sprintf("addresses in VPC %d", vpcID), fmt.Sprintf("vpcs/%d/ips", vpcID), filter)
		calls += pages
		if err != nil {
			return nil, calls, err
		}
		v6, pages, err := listAll[linodego.VPCIP](ctx, v.api, fmt.Sprintf("IPv6 addresses in VPC %d", vpcID), fmt.Sprintf("vpcs/%d/ipv6s", vpcID), filter)
		calls += pages
		if err != nil {
			return nil, calls, err
		}
		for _, ip := range append(v4, v6...) {
			if mine(ip) {
				if byLinode[ip.LinodeID] == nil {
					byLinode[ip.LinodeID] = &vpcAddresses{}
				}
				byLinode[ip.LinodeID].add(ip)
			}
		}
	}
	return byLinode, calls, nil
}

func (a *vpcAddresses) add(ip linodego.VPCIP) {
	if ip.AddressRange != nil && *ip.AddressRange != "" {
		a.ranges = append(a.ranges, *ip.AddressRange)
	}
	if ip.Address != nil && *ip.Address != "" {
		a.ipv4 = append(a.ipv4, *ip.Address)
		if a.interfaceID == 0 {
			a.vpcID, a.interfaceID, a.configID = ip.VPCID, ip.InterfaceID, ip.ConfigID
		}
	}
	if ip.IPv6Range != nil && *ip.IPv6Range != "" {
		// A range with an address that the Linode gives itself comes before others.
		if len(ip.IPv6Addresses) > 0 {
			a.rangesV6 = append([]string{*ip.IPv6Range}, a.rangesV6...)
		} else {
			a.rangesV6 = append(a.rangesV6, *ip.IPv6Range)
		}
	}
	for _, one := range ip.IPv6Addresses {
		if ip.IPv6IsPublic != nil && *ip.IPv6IsPublic {
			a.externalV6 = append(a.externalV6, one.SLAACAddress)
		} else {
			a.internalV6 = append(a.internalV6, one.SLAACAddress)
		}
	}
}

// bySubnets groups subnet IDs by their VPC.
func bySubnets(own []subnet) map[int][]int {
	groups := map[int][]int{}
	for _, s := range own {
		groups[s.vpcID] = append(groups[s.vpcID], s.id)
	}
	return groups
}

// subnetFilter asks for the entries of some subnets, in the form that the API takes for several: joined by commas.
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

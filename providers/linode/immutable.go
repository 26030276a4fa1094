package linode

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/linode/linodego"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// placement is a VPC that a NodeBalancer is attached to.
type placement struct {
	VPCID     int    `json:"vpc_id"`
	SubnetID  int    `json:"subnet_id"`
	IPv4Range string `json:"ipv4_range"`
	IPv6Range string `json:"ipv6_range"`
	// vpc and subnet are the labels.
	vpc, subnet string
}

var _ services.Fixer[observed, *desired] = (*reconciler)(nil)

// Fixed implements services.Fixer. The VPCs of a NodeBalancer are read only if the Service has settings about them.
func (r *reconciler) Fixed(ctx context.Context, req services.Request, o observed, _ *desired) ([]services.Fixed, error) {
	if o.nb == nil {
		return nil, nil
	}
	s := o.settings
	all := []services.Fixed{services.Single(annotationReservedIPv4, s.ReservedIPv4, o.nb.IPv4)}
	if req.Service.Annotations[annotationType] != "" && o.nb.Type != "" {
		all = append(all, services.Single(annotationType, s.Type, o.nb.Type))
	}
	backend := r.config.inVPC() && !r.config.NoVPCBackends && !s.IPv6Backends && s.hasBackendVPC()
	if !s.hasFrontendVPC() && !backend {
		return all, nil
	}
	front, back, err := r.vpcs.placements(ctx, o.nb, s)
	if err != nil {
		return all, err
	}
	// A NodeBalancer in a VPC that is not listed proves nothing.
	if s.hasFrontendVPC() && (front.SubnetID != 0 || o.nb.FrontendAddressType != frontendVPC) {
		keys := [3]string{annotationFrontendSubnetID, annotationFrontendVPC, annotationFrontendSubnet}
		all = append(all, front.fixedSubnet(keys, s.FrontendSubnetID, s.FrontendVPC, s.FrontendSubnet)...)
		all = append(all, fixedRange(annotationFrontendRangeV4, s.FrontendRangeV4, front.IPv4Range))
		all = append(all, fixedRange(annotationFrontendRangeV6, s.FrontendRangeV6, front.IPv6Range))
	}
	if backend {
		keys := [3]string{annotationBackendSubnetID, annotationBackendVPC, annotationBackendSubnet}
		all = append(all, back.fixedSubnet(keys, s.BackendSubnetID, s.BackendVPC, s.BackendSubnet)...)
		all = append(all, fixedRange(annotationBackendRange, s.BackendRange, back.IPv4Range))
	}
	return all, nil
}

// hasBackendVPC reports whether a Service has settings about the network of its backends.
func (s settings) hasBackendVPC() bool {
	return s.BackendSubnetID != 0 || s.BackendVPC != "" || s.BackendSubnet != "" || s.BackendRange != ""
}

// fixedSubnet returns the subnet by its ID, or else by labels, with the three keys.
func (p placement) fixedSubnet(keys [3]string, id int, vpc, subnet string) []services.Fixed {
	if id != 0 {
		has := ""
		if p.SubnetID != 0 {
			has = strconv.Itoa(p.SubnetID)
		}
		return []services.Fixed{services.Single(keys[0], strconv.Itoa(id), has)}
	}
	return []services.Fixed{services.Single(keys[1], vpc, p.vpc), services.Single(keys[2], subnet, p.subnet)}
}

// fixedRange compares a requested range with the part of it that a NodeBalancer has.
func fixedRange(key, asked, has string) services.Fixed {
	return services.Matching(key, asked, has, isWithin(asked, has))
}

// isWithin reports whether a range is part of a requested one. Unreadable values are ignored.
func isWithin(asked, has string) bool {
	outer, err := netip.ParsePrefix(asked)
	inner, unknown := netip.ParsePrefix(has)
	return err != nil || unknown != nil || outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// placements returns the subnets in which clients reach a NodeBalancer and in which it reaches its backends, with labels if settings
// have any.
func (v *vpcs) placements(ctx context.Context, nb *nodeBalancer, s settings) (front, back placement, err error) {
	list, _, err := listAll[placement](ctx, v.api, fmt.Sprintf("VPCs of NodeBalancer %d", nb.ID), fmt.Sprintf("nodebalancers/%d/vpcs", nb.ID), "")
	if err != nil {
		return front, back, cloudapi.NotAbsence(err)
	}
	for _, p := range list {
		if s.FrontendVPC+s.FrontendSubnet+s.BackendVPC+s.BackendSubnet != "" {
			if p.vpc, p.subnet, err = v.labels(ctx, p.VPCID, p.SubnetID); err != nil {
				return front, back, err
			}
		}
		if nb.FrontendSubnetID == p.SubnetID && front.SubnetID == 0 {
			front = p
		} else {
			back = p
		}
	}
	// Two ranges of one subnet do not say which of them clients reach.
	fits := isWithin(s.FrontendRangeV4, front.IPv4Range) && isWithin(s.BackendRange, back.IPv4Range)
	if front.SubnetID == back.SubnetID && !fits {
		front, back = back, front
	}
	return front, back, nil
}

// labels returns the labels of a VPC and of one of its subnets.
func (v *vpcs) labels(ctx context.Context, vpcID, subnetID int) (vpc, subnet string, err error) {
	all, err := v.all.All(ctx, inventory.Query{MaxAge: networkMaxAge})
	if err != nil {
		return "", "", err
	}
	list, err := v.subnetsOf(ctx, vpcID, networkMaxAge)
	if i := slices.IndexFunc(all, func(one linodego.VPC) bool { return one.ID == vpcID }); i >= 0 {
		vpc = all[i].Label
	}
	if i := slices.IndexFunc(list, func(s linodego.VPCSubnet) bool { return s.ID == subnetID }); i >= 0 {
		subnet = list[i].Label
	}
	return vpc, subnet, err
}

package openstack

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

func (r *reconciler) Fixed(ctx context.Context, req services.Request, o observed, d desired) ([]services.Fixed, error) {
	if o.lb == nil || d.renew {
		return nil, nil
	}
	var all []services.Fixed
	if have := req.Service.Annotations[annotationAddress]; isIP(have) && isIP(req.Service.Spec.LoadBalancerIP) {
		all = append(all, services.Single(portable.FieldLoadBalancerIP, req.Service.Spec.LoadBalancerIP, have))
	}
	if !o.role.owner {
		return all, nil
	}
	s := o.settings
	all = append(all, s.fixedPlace(o.lb)...)
	if req.Service.Annotations[annotationFlavorID] != "" && o.features.hasFlavors() {
		all = append(all, services.Single(annotationFlavorID, s.FlavorID, o.lb.FlavorID))
	}
	if req.Service.Annotations[annotationZone] != "" && o.features.hasZones() {
		all = append(all, services.Single(annotationZone, s.Zone, o.lb.Zone))
	}
	floating, err := r.floatingIPs.readFixed(ctx, req, o.lb, s)
	return append(all, floating...), err
}

// fixedSetting returns the value of an annotation or of the Service's class, whichever takes precedence. The class may have changed since
// the creation.
func (s settings) fixedSetting(key, annotated, class, has string, classFirst bool) services.Fixed {
	if class != "" && (classFirst || annotated == "") {
		return services.Single(annotationClass, s.classValue(class), s.classValue(has))
	}
	return services.Single(key, annotated, has)
}

// classValue names a value of the Service's class, which the operator may change.
func (s settings) classValue(value string) string { return s.ClassName + " with " + value }

// fixedPlace returns the network, subnet or port of the VIP.
func (s settings) fixedPlace(lb *loadBalancer) []services.Fixed {
	if s.PortID != "" {
		return []services.Fixed{services.Single(annotationPortID, s.PortID, lb.VIPPortID)}
	}
	if _, subnetID := vipNetworks(s, loadBalancerConfig{}); subnetID != "" {
		return []services.Fixed{s.fixedSetting(annotationSubnetID, s.SubnetID, s.serviceClass.SubnetID, lb.VIPSubnetID, !s.internal)}
	}
	return []services.Fixed{s.fixedSetting(annotationNetworkID, s.NetworkID, s.serviceClass.NetworkID, lb.VIPNetworkID, !s.internal)}
}

// readFixed returns the network and subnet of the floating address. Only Services that set them cause a read.
func (ips *floatingIPs) readFixed(ctx context.Context, req services.Request, lb *loadBalancer, s settings) ([]services.Fixed, error) {
	c, choice := s.serviceClass, floatingSubnetChoice(s, loadBalancerConfig{})
	addressDecides := req.Service.Spec.LoadBalancerIP != ""
	if addressDecides || s.internal || (s.FloatingNetworkID == "" && c.FloatingNetworkID == "" && choice == subnetChoice{}) {
		return nil, nil
	}
	f, err := ips.findAt(ctx, lb, attachmentQuery())
	if err != nil || f == nil {
		return nil, err
	}
	all := []services.Fixed{s.fixedSetting(annotationFloatingNetworkID, s.FloatingNetworkID, c.FloatingNetworkID, f.NetworkID, true)}
	subnets, err := ips.networks.subnets.All(ctx, inventory.Query{MaxAge: networksMaxAge})
	i := slices.IndexFunc(subnets, func(n subnet) bool { return n.NetworkID == f.NetworkID && n.contains(f.Address) })
	if err != nil || i < 0 {
		return all, err // the project may not see the subnet
	}
	return append(all, s.fixedSubnet(choice, subnets[i])...), nil
}

// fixedSubnet compares the subnet of the floating address with the chosen one.
func (s settings) fixedSubnet(choice subnetChoice, has subnet) []services.Fixed {
	c := s.serviceClass
	byName, byTags := matchesName(choice.name, has.Name), matchesTags(choice.tags, has.Tags)
	switch fromClass := choice == (subnetChoice{c.FloatingSubnetID, c.FloatingSubnet, c.FloatingSubnetTags}); {
	case choice == subnetChoice{}:
		return nil
	case fromClass:
		matches := choice.id == has.ID || choice.id == "" && byName && byTags
		asked := strings.Trim(choice.id+" "+choice.name+" "+choice.tags, " ")
		return []services.Fixed{services.Matching(annotationClass, s.classValue(asked), s.classValue(has.ID), matches)}
	case choice.id != "":
		return []services.Fixed{services.Single(annotationFloatingSubnetID, choice.id, has.ID)}
	}
	return []services.Fixed{
		services.Matching(annotationFloatingSubnet, choice.name, has.Name, byName),
		services.Matching(annotationFloatingSubnetTags, choice.tags, strings.Join(has.Tags, ","), byTags),
	}
}

func (s subnet) contains(address string) bool {
	network, err := netip.ParsePrefix(s.CIDR)
	a, bad := netip.ParseAddr(address)
	return err == nil && bad == nil && network.Contains(a)
}

package openstack

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// memberSubnet returns the members' subnet: the first configured one, otherwise the one found for the load balancer.
func memberSubnet(s settings, o loadBalancerConfig, found string) string {
	return cmp.Or(s.MemberSubnetID, s.serviceClass.MemberSubnetID, o.MemberSubnetID, o.SubnetID, s.SubnetID, s.serviceClass.SubnetID, found)
}

// vipNetworks returns the network and subnet of the VIP. For internal Services annotations take precedence over the class.
func vipNetworks(s settings, o loadBalancerConfig) (networkID, subnetID string) {
	if s.internal {
		return cmp.Or(s.NetworkID, s.serviceClass.NetworkID, o.NetworkID), cmp.Or(s.SubnetID, s.serviceClass.SubnetID, o.SubnetID)
	}
	return cmp.Or(s.serviceClass.NetworkID, s.NetworkID, o.NetworkID), cmp.Or(s.serviceClass.SubnetID, s.SubnetID, o.SubnetID)
}

// desireNew computes a new load balancer, with its parts if the provider supports that. The name is always the same, so that a creation
// whose response was lost is found.
func (r *reconciler) desireNew(ctx context.Context, req services.Request, o observed) (d desired, findings []services.Finding, err error) {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return d, nil, err
	}
	service, c := req.Service, r.config.LoadBalancer
	o.features.provider = c.Provider
	d.role = role{name: loadBalancerName(req.Cluster, service), mark: mark, serviceMark: ownership.ServiceMark(service.UID), owner: true}
	request := newRequest(req, o, d.role, r.config.OwnershipTag)
	d.request = &request
	members, err := r.instances.backends(ctx, service, req.Nodes, o.settings)
	if err != nil {
		return d, nil, err
	}
	reachable := members
	if len(reachable) == 0 {
		// The VIP gets the subnet of the nodes, even if none is selected yet.
		if reachable, err = r.instances.backends(ctx, service, req.Nodes, settings{}); err != nil {
			return d, nil, err
		}
	}
	subnetID, findings, err := r.placeVIP(ctx, service, o, reachable, &request)
	if err != nil {
		return d, findings, err
	}
	planned := observed{role: d.role, features: o.features, settings: o.settings}
	planned.lb = &loadBalancer{VIPSubnetID: subnetID, AdditionalVIPs: request.AdditionalVIPs}
	want, err := desirePorts(service, planned, members, c)
	if err != nil {
		return d, findings, err
	}
	for _, w := range want.ports {
		d.ports = append(d.ports, fmt.Sprintf("%s/%d with %d members", w.listener.Protocol, w.listener.Port, len(members)))
		if !c.Serial {
			withPool, p := w.listener, w.pool
			p.Monitor = w.monitor
			withPool.Pool = &p
			request.Listeners = append(request.Listeners, withPool)
		}
	}
	return d, findings, nil
}

// creation returns the change that creates a load balancer, and those that follow it.
func (r *reconciler) creation(service *v1.Service, s settings, d desired) []change {
	changes := []change{{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "load balancer " + d.request.Name, Detail: strings.Join(d.ports, ", ")},
		Replan:  true,
		Creates: true,
		Compare: func() (before, after any) { return nil, d.request },
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			lb, err := r.writer.create(ctx, req, *d.request)
			if err == nil {
				err = r.record(ctx, req, map[string]string{annotationID: lb.ID, annotationMade: lb.ID})
			}
			after := observed{role: d.role, features: o.features}
			after.setLoadBalancer(lb, req.Service, r.config)
			return after, err
		},
	}}
	if r.config.LoadBalancer.ManageSecurityGroups {
		changes = append(changes, r.securityGroups.creation(service))
	}
	if !s.internal {
		changes = append(changes, change{
			Planned: contract.Planned{Action: contract.PlanCreate, Object: "floating address", Detail: "unless one of the Service's is there"},
			Compare: func() (before, after any) {
				network := cmp.Or(s.serviceClass.FloatingNetworkID, s.FloatingNetworkID, r.config.LoadBalancer.FloatingNetworkID)
				return nil, map[string]any{"floating_network_id": cmp.Or(network, "the external network")}
			},
		})
	}
	return changes
}

// newRequest returns the request for a new load balancer, without VIP and listeners.
func newRequest(req services.Request, o observed, r role, marks bool) loadBalancerRequest {
	request := loadBalancerRequest{
		Name: r.name, Description: loadBalancerDescription(req.Cluster, req.Service), Provider: o.features.provider,
	}
	if o.features.hasTags() {
		request.Tags = withMarks([]string{r.name}, r, marks)
	}
	if o.features.hasFlavors() {
		request.FlavorID = o.settings.FlavorID
	}
	if o.features.hasZones() {
		request.Zone = o.settings.Zone
	}
	return request
}

// placeVIP sets the network and subnet of the VIP, and returns the subnet that it found.
func (r *reconciler) placeVIP(
	ctx context.Context, service *v1.Service, o observed, members []backend, request *loadBalancerRequest,
) (found string, findings []services.Finding, err error) {
	s := o.settings
	networkID, subnetID := vipNetworks(s, r.config.LoadBalancer)
	switch {
	case networkID != "" && subnetID == "" && familyOf(service) == v1.IPv6Protocol && s.PortID == "":
		subnetID, err = r.networks.subnetOfFamily(ctx, networkID, 6)
	case networkID == "" && subnetID == "":
		if subnetID, err = r.instances.subnetOf(ctx, members); err != nil && s.PortID != "" {
			klog.V(2).InfoS("No subnet for members was found", "service", klog.KObj(service), "reason", err.Error())
			err = nil
		} else if err != nil {
			findings = append(findings, configFinding(err))
		}
	}
	if err != nil {
		return "", findings, err
	}
	if s.PortID != "" {
		request.VIPPortID = s.PortID
		return subnetID, nil, nil
	}
	request.VIPNetworkID, request.VIPSubnetID = networkID, subnetID
	if service.Spec.LoadBalancerIP != "" && (s.internal || familyOf(service) == v1.IPv6Protocol) {
		request.VIPAddress = service.Spec.LoadBalancerIP
	}
	if len(service.Spec.IPFamilies) > 1 {
		findings, err = r.networks.placeSecondVIP(ctx, service, o.features, request)
	}
	return subnetID, findings, err
}

// rangesOfFamilies returns the source ranges whose family the load balancer has. Octavia refuses others.
func rangesOfFamilies(all sources.Set, service *v1.Service, lb *loadBalancer) (sources.Set, error) {
	v4, v6 := familyOf(service) != v1.IPv6Protocol, familyOf(service) == v1.IPv6Protocol
	if lb != nil && lb.VIPAddress != "" {
		v4, v6 = !isIPv6(lb.VIPAddress), isIPv6(lb.VIPAddress)
	}
	if lb != nil && len(lb.AdditionalVIPs) > 0 {
		v4, v6 = true, true
	}
	kept := all.Families(v4, v6)
	if len(all.Networks()) > 0 && len(kept.Networks()) == 0 {
		return kept, &schema.Problem{Place: "source ranges of the Service", Reason: "are all of another IP family than the address of the load balancer, so that nobody could come in; add a range of its family"}
	}
	return kept, nil
}

package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
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
func (l *loadBalancers) desireNew(
	ctx context.Context, r services.Request, s settings, f features,
) (d desired, findings []services.Finding, err error) {
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return d, nil, err
	}
	service, o := r.Service, l.config.LoadBalancer
	d.settings = s
	d.role = role{name: loadBalancerName(r.Cluster, service), mark: mark, serviceMark: ownership.ServiceMark(service.UID), owner: true}
	request := l.createRequest(r.Cluster, service, s, f, d.role)
	d.request = &request
	if d.members, err = l.backends(ctx, service, r.Nodes, s); err != nil {
		return d, nil, err
	}
	reachable := d.members
	if len(reachable) == 0 {
		// The VIP gets the subnet of the nodes, even if none is selected yet.
		if reachable, err = l.backends(ctx, service, r.Nodes, settings{}); err != nil {
			return d, nil, err
		}
	}
	found, findings, err := l.placeVIP(ctx, service, s, f, reachable, &request)
	if err != nil {
		return d, findings, err
	}
	planned := &loadBalancer{Provider: o.Provider, AdditionalVIPs: request.AdditionalVIPs}
	want, err := l.desirePorts(service, s, d.role, planned, memberSubnet(s, o, found), f, d.members)
	if err != nil {
		more, err := configFinding(err)
		return d, append(findings, more...), err
	}
	d.ports = want.ports
	if !o.Serial {
		for _, w := range want.ports {
			withPool, p := w.listener, w.pool
			p.Monitor = w.monitor
			withPool.Pool = &p
			request.Listeners = append(request.Listeners, withPool)
		}
	}
	return d, findings, nil
}

// creation returns the change that creates a load balancer, and those that follow it.
func (l *loadBalancers) creation(service *v1.Service, d desired) []change {
	ports := make([]string, len(d.ports))
	for i, w := range d.ports {
		ports[i] = fmt.Sprintf("%s/%d with %d members", w.listener.Protocol, w.listener.Port, len(d.members))
	}
	changes := []change{{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "load balancer " + d.request.Name, Detail: strings.Join(ports, ", ")},
		Replan:  true,
		Creates: true,
		Compare: func() (before, after any) { return nil, d.request },
		Make: func(ctx context.Context, r *services.Request, o observation) (observation, error) {
			lb, err := l.create(ctx, r, *d.request)
			return observation{lb: lb, role: d.role, features: o.features}, err
		},
	}}
	if l.config.LoadBalancer.ManageSecurityGroups {
		changes = append(changes, change{
			Planned: contract.Planned{Action: contract.PlanCreate, Object: "security group " + securityGroupName(service)},
			Compare: func() (before, after any) { return nil, map[string]any{"name": securityGroupName(service)} },
		})
	}
	if !d.settings.internal {
		changes = append(changes, change{
			Planned: contract.Planned{Action: contract.PlanCreate, Object: "floating address", Detail: "unless one of the Service's is there"},
			Compare: func() (before, after any) {
				network := cmp.Or(d.settings.serviceClass.FloatingNetworkID, d.settings.FloatingNetworkID, l.config.LoadBalancer.FloatingNetworkID)
				return nil, map[string]any{"floating_network_id": cmp.Or(network, "the external network")}
			},
		})
	}
	return changes
}

// creationAfter returns the creation that follows the deletion of a broken load balancer. Only plan needs it.
func (l *loadBalancers) creationAfter(service *v1.Service, d desired) []change {
	if d.request == nil {
		return nil
	}
	return l.creation(service, d)
}

// create requests a load balancer and records it on the Service. Octavia builds it later.
func (l *loadBalancers) create(ctx context.Context, r *services.Request, request loadBalancerRequest) (*loadBalancer, error) {
	lb, err := l.api.createLoadBalancer(ctx, request)
	if err != nil {
		if !cloudapi.NotSent(err) {
			l.observed.Invalidate("")
		}
		if errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrQuota) {
			r.Report(services.Warning(eventConfigError, "%s", err))
		}
		return nil, cloudapi.NotAbsence(err)
	}
	l.observed.Put(lb)
	return lb, l.record(ctx, r, map[string]string{annotationID: lb.ID, annotationMade: lb.ID})
}

// createRequest returns the request for a new load balancer, without VIP and listeners.
func (l *loadBalancers) createRequest(cluster string, service *v1.Service, s settings, f features, r role) loadBalancerRequest {
	provider := l.config.LoadBalancer.Provider
	request := loadBalancerRequest{Name: r.name, Description: loadBalancerDescription(cluster, service), Provider: provider}
	if f.hasTags() {
		request.Tags = l.withMarks([]string{r.name}, r)
	}
	if f.hasFlavors(provider) {
		request.FlavorID = s.FlavorID
	}
	if f.hasZones(provider) {
		request.Zone = s.Zone
	}
	return request
}

// placeVIP sets the network and subnet of the VIP, and returns the subnet that it found.
func (l *loadBalancers) placeVIP(
	ctx context.Context, service *v1.Service, s settings, f features, members []backend, request *loadBalancerRequest,
) (found string, findings []services.Finding, err error) {
	networkID, subnetID := vipNetworks(s, l.config.LoadBalancer)
	switch {
	case networkID != "" && subnetID == "" && familyOf(service) == v1.IPv6Protocol && s.PortID == "":
		subnetID, err = l.subnetOfFamily(ctx, networkID, 6)
	case networkID == "" && subnetID == "":
		if subnetID, err = l.subnetOf(ctx, members); err != nil && s.PortID != "" {
			klog.V(2).InfoS("No subnet for members was found", "service", klog.KObj(service), "reason", err.Error())
			err = nil
		} else if err != nil {
			findings, err = configFinding(err)
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
		findings, err = l.placeSecondVIP(ctx, service, networkID, subnetID, f, request)
	}
	return subnetID, findings, err
}

// placeSecondVIP adds a VIP of the other family if the network has a subnet for it.
func (l *loadBalancers) placeSecondVIP(
	ctx context.Context, service *v1.Service, networkID, subnetID string, f features, request *loadBalancerRequest,
) ([]services.Finding, error) {
	second, err := l.secondSubnet(ctx, networkID, subnetID, f)
	switch {
	case err != nil:
		return nil, err
	case second == "":
		return []services.Finding{singleStack(service.Spec.IPFamilies[0])}, nil
	}
	request.AdditionalVIPs = []additionalVIP{{SubnetID: second}}
	return nil, nil
}

// subnetOf returns the subnet of the first member with a known port.
func (l *loadBalancers) subnetOf(ctx context.Context, members []backend) (string, error) {
	for _, m := range members {
		if m.serverID == "" {
			continue
		}
		ports, err := l.instances.portsOf(
			ctx, m.serverID, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: missMaxAge, Expected: l.instances.nodes.Counts().All},
		)
		if err != nil {
			return "", err
		}
		for _, p := range ports {
			if subnetID := p.subnetOf(m.address); subnetID != "" {
				return subnetID, nil
			}
		}
	}
	return "", &schema.Problem{Place: "Service", Reason: "needs a subnet for the address of its load balancer, and no node's port in OpenStack has the node's address; set " + annotationSubnetID + " or the option subnet-id"}
}

// secondSubnet returns a subnet of the other family on the VIP's network; "" if there is none or Octavia does not support additional VIPs.
func (l *loadBalancers) secondSubnet(ctx context.Context, networkID, subnetID string, f features) (string, error) {
	if !f.hasMoreVIPs(l.config.LoadBalancer.Provider) {
		return "", nil
	}
	family := 4
	if subnetID != "" {
		first, err := l.networks.subnet(ctx, subnetID)
		if err != nil {
			return "", cloudapi.NotAbsence(err)
		}
		networkID, family = first.NetworkID, first.IPVersion
	}
	return l.subnetOfFamily(ctx, networkID, 10-family)
}

// subnetOfFamily returns the network's first subnet of IPv4 or IPv6, or "". Octavia itself would choose IPv4.
func (l *loadBalancers) subnetOfFamily(ctx context.Context, networkID string, version int) (string, error) {
	all, err := l.networks.subnets.All(ctx, inventory.Query{MaxAge: networksMaxAge})
	if err != nil {
		return "", err
	}
	slices.SortFunc(all, func(a, b subnet) int { return strings.Compare(a.ID, b.ID) })
	for _, one := range all {
		if one.NetworkID == networkID && one.IPVersion == version {
			return one.ID, nil
		}
	}
	return "", nil
}

// ofFamilies returns the source ranges whose family the load balancer has. Octavia refuses others.
func ofFamilies(all sources.Set, service *v1.Service, lb *loadBalancer) (sources.Set, error) {
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

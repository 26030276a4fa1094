package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
)

// This file has what network load balancers alone have.

const (
	protocolUDP  = "UDP"
	protocolBoth = "TCP_AND_UDP"
	twinSuffix   = "-IPv6"
)

// nlbName returns the name that Oracle's own controller gives.
func nlbName(service *v1.Service) string {
	name := service.Namespace + "/" + service.Name + "/" + string(service.UID)
	return ocilimits.Title.Cut(name)
}

// families returns the IP versions that a Service asks for.
func families(service *v1.Service) (four, six bool) {
	list := service.Spec.IPFamilies
	six = slices.Contains(list, v1.IPv6Protocol)
	return !six || slices.Contains(list, v1.IPv4Protocol), six
}

// nlbPorts returns the ports of a network load balancer. TCP and UDP of one number share a listener, and each IP version has its own. Two
// node ports for one number were refused before; the first counts.
func (s settings) nlbPorts(service *v1.Service) (all []servedPort) {
	var numbers []servedPort
	for _, p := range service.Spec.Ports {
		protocol := cmp.Or(string(p.Protocol), protocolTCP)
		at := slices.IndexFunc(numbers, func(o servedPort) bool { return o.port == p.Port })
		switch {
		case at < 0:
			numbers = append(numbers, servedPort{protocol: protocol, port: p.Port, node: p.NodePort})
		case numbers[at].protocol != protocol:
			numbers[at].protocol = protocolBoth
		}
	}
	for _, p := range numbers {
		name := p.protocol + "-" + strconv.Itoa(int(p.port))
		if p.listener, p.set, p.version = name, name, versionIPv4; !s.ipv6Only {
			all = append(all, p)
		}
		if p.listener, p.set, p.version = name+twinSuffix, name+twinSuffix, versionIPv6; s.ipv6 {
			all = append(all, p)
		}
	}
	return all
}

// nlbCreation returns the fields of a creation request that only network load balancers have.
func (d desired) nlbCreation(s settings, p placement) document {
	all := document{"subnetId": p.subnets[0], "nlbIpVersion": d.version}
	if s.PrivateIPv4 != "" && d.version != versionIPv6 {
		all["assignedPrivateIpv4"] = s.PrivateIPv4
	}
	if s.IPv6 != "" && d.version != versionIPv4 {
		all["assignedIpv6"] = s.IPv6
	}
	return all
}

var errNoNLBSubnet = errors.New("a network load balancer needs a subnet; set loadBalancer.subnet1, or the annotation " + nlbSubnet)

// chooseVersions selects the IP versions of a network load balancer: those of the Service that its subnet has. The subnet is read only if
// the Service asks for IPv6.
func (r *reconciler) chooseVersions(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer) (settings, error) {
	if !s.nlb {
		return s, nil
	}
	four, six := families(service)
	id := cmp.Or(s.Subnet1, r.api.config.Subnet1)
	if lb != nil {
		id = lb.subnet()
	}
	if id == "" {
		return s, errNoNLBSubnet
	}
	if !six {
		return s, nil
	}
	found, err := r.networks.subnets.Get(ctx, id, inventory.Query{MaxAge: subnetMaxAge})
	if err != nil {
		return s, cloudapi.NotAbsence(err)
	}
	return s.withVersionsOf(found, four, service.Spec.IPFamilyPolicy)
}

// withVersionsOf selects the IP versions that the Service asks for, the subnet has and the policy allows.
func (s settings) withVersionsOf(found subnet, four bool, policy *v1.IPFamilyPolicy) (settings, error) {
	id, hasFour, hasSix := found.ID, len(found.cidrs(true, false)) > 0, len(found.cidrs(false, true)) > 0
	prefers := policy != nil && *policy == v1.IPFamilyPolicyPreferDualStack
	switch {
	case !hasFour && !hasSix:
		return s, fmt.Errorf("subnet %s has no network", id)
	case !hasSix && (!prefers || !four):
		return s, fmt.Errorf("subnet %s has no network of IPv6", id)
	case four && !hasFour && !prefers:
		return s, fmt.Errorf("subnet %s has no network of IPv4", id)
	}
	return s.inVersions(four && hasFour, hasSix), nil
}

package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// This file has what is read for network load balancers alone.

// chooseNetworkSubnet is where a new network load balancer is to be.
func (r *reconciler) chooseNetworkSubnet(_ context.Context, _ *v1.Service, s settings, p *placement) error {
	p.subnets = []string{cmp.Or(s.Subnet1, r.config.Subnet1)}
	return nil
}

var errNoNetworkSubnet = errors.New("a network load balancer needs a subnet; set loadBalancer.subnet1, or the annotation " + networkSubnet)

// networkVersions are the settings with the versions of IP that a network load balancer is to have: those of the Service that its subnet
// has. A subnet is read only where the Service asks for more than IPv4.
func (r *reconciler) networkVersions(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer) (settings, error) {
	four, six := families(service)
	id := cmp.Or(s.Subnet1, r.config.Subnet1)
	if lb != nil {
		id = lb.subnet()
	}
	if id == "" {
		return s, errNoNetworkSubnet
	}
	if !six {
		return s, nil
	}
	found, err := r.subnets.Get(ctx, id, inventory.Query{MaxAge: subnetMaxAge})
	if err != nil {
		return s, cloudapi.NotAbsence(err)
	}
	hasFour, hasSix := len(found.networks(true, false)) > 0, len(found.networks(false, true)) > 0
	policy := service.Spec.IPFamilyPolicy
	prefers := policy != nil && *policy == v1.IPFamilyPolicyPreferDualStack
	switch {
	case !hasFour && !hasSix:
		return s, fmt.Errorf("subnet %s has no network", id)
	case !hasSix && (!prefers || !four):
		return s, fmt.Errorf("subnet %s has no network of IPv6", id)
	case four && !hasFour && !prefers:
		return s, fmt.Errorf("subnet %s has no network of IPv4", id)
	}
	return s.inVersions(four && hasFour, six && hasSix), nil
}

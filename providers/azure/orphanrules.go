package azure

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// This file removes deleted Services from the network security group.

// closeTo takes a Service that is gone out of the security group, by its part of a load balancer: the addresses of its frontends, those of
// others' frontends with its rules, and its node ports, unless a living Service uses them now.
func (r orphans) closeTo(ctx context.Context, lb *loadBalancer, base string, living []*v1.Service) error {
	lbs, err := r.resources.loadBalancers.All(ctx, inventory.Query{MaxAge: observeMaxAge})
	if err != nil {
		return err
	}
	k := claim{sharedPorts: map[string][]string{}}
	for _, other := range parseAll[loadBalancer](lbs) {
		for _, f := range other.Properties.Fronts {
			ip, err := r.addressAt(ctx, f)
			if err != nil {
				return fmt.Errorf("reading the address of frontend %s: %w", f.Name, err)
			}
			if ip == "" {
				continue
			}
			if sameID(other.ID, lb.ID) && (ownedBy(base, f.Name) || servesFrontend(lb, f, base)) {
				k.ownIPs = append(k.ownIPs, ip)
			}
			k.sharedPorts[ip] = append(k.sharedPorts[ip], otherPorts(other, f, base)...)
		}
	}
	for _, rule := range lb.Properties.Rules {
		p := rule.Properties
		if ownedBy(base, rule.Name) && !p.Floating && p.BackPort > 0 {
			k.nodePorts = append(k.nodePorts, rule.portAt(p.BackPort))
		}
	}
	k.sparePorts(living)
	if len(k.nodePorts) > 0 {
		if k.nodes, err = r.nodeAddresses(ctx); err != nil {
			return err
		}
	}
	return r.withdrawClaim(ctx, k)
}

// nodeAddresses are the addresses of the present Nodes.
func (r orphans) nodeAddresses(ctx context.Context) ([]string, error) {
	if r.kube == nil {
		return nil, errors.New("listing Nodes, for the rules of their ports: the API server is not known")
	}
	list, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Nodes, for the rules of their ports: %w", err)
	}
	nodes := make([]*v1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	nodes, err = r.attestedNodes(ctx, nodes)
	return nodeIPs(nodes), err
}

// closeAddress takes a public address that is about to be deleted, and that is behind no frontend, out of the security group.
func (r orphans) closeAddress(ctx context.Context, id string, living []*v1.Service) error {
	a, err := readAs[publicIP](ctx, r.resources, id, false)
	if err != nil {
		return err
	}
	k := claim{sharedPorts: map[string][]string{}}
	if a != nil && a.Properties.Address != "" {
		k.ownIPs = []string{a.Properties.Address}
	}
	k.sparePorts(living)
	return r.withdrawClaim(ctx, k)
}

// withdrawClaim removes a claim from the security group, if the group contains any of it.
func (r *reconciler) withdrawClaim(ctx context.Context, k claim) error {
	if r.config.SecurityGroup == "" || len(k.ownIPs)+len(k.nodePorts) == 0 {
		return nil
	}
	var err error
	if k.mark, err = r.cluster.KnownMark(ctx); err != nil {
		return err
	}
	k.denies = r.denierAt(nil)
	return r.resources.submit(ctx, r.config.groupDocument(), editOf(func(group *securityGroup) error {
		known, err := r.cluster.Services(ctx) // the present ones
		if err != nil {
			return err
		}
		return keepUnless(applyClaim(group, k.sparingServices(known, &v1.Service{})))
	}))
}

package azure

import (
	"context"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// NodeChanges are those that follow from the nodes alone.
func (r *reconciler) NodeChanges(_ context.Context, q services.Request, o *observed) ([]change, []services.Finding, error) {
	base := baseName(q.Service)
	var list []change
	var findings []services.Finding
	for _, lb := range o.lbs {
		name := lb.Name
		if !hasPart(lb, base) {
			continue
		}
		var fronts []desiredFront
		for _, ipv6 := range families(q.Service) {
			fronts = append(fronts, desiredFront{ipv6: ipv6, pool: o.poolOf(r.config, q.Service, ipv6)})
		}
		if err := r.config.checkPoolKind(lb, isInternal(name), fronts); err != nil {
			return nil, nil, err
		}
		list = append(list, r.memberChange(q, o, name, fronts)...)
		members, found, err := r.poolMembers(q, o, name, isInternal(name), fronts)
		if err != nil {
			return nil, nil, err
		}
		findings = append(findings, found...)
		e := func(lb *loadBalancer) error {
			return keepUnless(applyAddresses(lb, members, r.config.networkID()), nil)
		}
		if e(clone(lb)) == nil {
			list = append(list, change{
				Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + name, Detail: "members of its pools"},
				Make: func(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
					err := r.resources.submit(ctx, r.loadBalancerDocument(lb.ID, name), editOf(e))
					if err == nil && r.config.hasOwnPool(q.Service) {
						q.Report(services.Notice(eventPoolUpdated, "the pool of the Service on load balancer %s has the nodes with an endpoint", name))
					}
					return o, err
				},
			})
		}
	}
	rules, err := r.nodeAccess(q, o)
	return append(list, rules...), findings, err
}

// nodeAccess keeps the security group in step with the nodes where its rules name them.
func (r *reconciler) nodeAccess(q services.Request, o *observed) ([]change, error) {
	if o.group == nil || !o.usesNodePorts() {
		return nil, nil
	}
	d := newDesired(q.Service, &o.settings)
	d.LB = r.config.loadBalancerNameOf(q.Cluster, d.Internal)
	for _, ipv6 := range families(q.Service) {
		d.Fronts = append(d.Fronts, desiredFront{ipv6: ipv6})
	}
	return r.securityChange(q, o, d)
}

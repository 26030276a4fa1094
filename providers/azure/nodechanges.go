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
		families, _ := families(q.Service)
		var fronts []front
		for _, six := range families {
			fronts = append(fronts, front{six: six, pool: o.poolOf(r.config, q.Service, six)})
		}
		if r.config.fillsPools(isInternal(name)) {
			if err := unlikePool(lb, fronts, r.config.PoolType == poolIP); err != nil {
				return nil, nil, err
			}
		}
		if c, ok := r.memberChange(q, o, name, fronts); ok {
			list = append(list, c)
		}
		if r.config.PoolType != poolIP || !r.config.fillsPools(isInternal(name)) {
			continue
		}
		members, told, err := r.poolMembers(q, o, name, fronts)
		if err != nil {
			return nil, nil, err
		}
		findings = append(findings, told...)
		e := func(lb *loadBalancer) error {
			return keepUnless(applyAddresses(lb, members, r.config.networkID()), nil)
		}
		if e(clone(lb)) == nil {
			list = append(list, change{
				Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + name, Detail: "members of its pools"},
				Make: func(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
					err := r.resources.submit(ctx, r.loadBalancerDocument(lb.ID, name), editOf(e))
					if err == nil && r.config.ownPool(q.Service) {
						q.Report(services.Notice(eventPoolUpdated, "the pool of the Service on load balancer %s has the nodes with an endpoint", name))
					}
					return o, err
				},
			})
		}
	}
	c, due, err := r.nodeAccess(q, o)
	if due {
		list = append(list, c)
	}
	return list, findings, err
}

// nodeAccess keeps the security group in step with the nodes where its rules name them.
func (r *reconciler) nodeAccess(q services.Request, o *observed) (c change, due bool, err error) {
	s, _, err := parseSettings(q.Service)
	if o.group == nil || err != nil || !s.NoFloating {
		return c, false, nil //nolint:nilerr // a fault in an annotation is told by Ensure
	}
	d := &spec{Base: baseName(q.Service), Internal: s.Internal, LB: r.config.loadBalancerNameOf(q.Cluster, s.Internal)}
	d.accessTo(q.Service, s)
	list, _ := families(q.Service)
	for _, six := range list {
		d.Fronts = append(d.Fronts, front{six: six})
	}
	return r.securityChange(q, o, d)
}

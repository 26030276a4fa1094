package azure

import (
	"errors"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// removal takes a Service out of a load balancer, which is deleted with its last Service.
func (r *reconciler) removal(q services.Request, lb *loadBalancer, a otherParts) change {
	name := lb.Name
	base := baseName(q.Service)
	draft := clone(lb)
	action, err := contract.PlanChange, r.config.withoutService(name, base, a)(draft)
	if errors.Is(err, errRemove) {
		action, draft = contract.PlanDelete, nil
	}
	return r.documentChange(change{
		Planned: contract.Planned{Action: action, Detail: "without the Service"},
		Compare: func() (before, after any) {
			if draft == nil {
				return format(lb), nil
			}
			return withoutAdded(format(lb)), withoutAdded(format(draft))
		},
		Expect: func(o *observed) *observed { return o.afterBalancer(base, lb, draft) },
	}, r.loadBalancerDocument(lb.ID, name), editOf(r.config.withoutService(name, base, a)))
}

// withoutService is the edit for that. A load balancer without a Service stays if others fill its pools.
func (c *Config) withoutService(name, base string, a otherParts) func(*loadBalancer) error {
	return func(lb *loadBalancer) error {
		changed, err := applyService(lb, base, nil, c, a)
		if err == nil && isEmpty(lb) && c.fillsPools(isInternal(name)) {
			return errRemove
		}
		return keepUnless(changed, err)
	}
}

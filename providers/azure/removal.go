package azure

import (
	"context"
	"errors"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// removal takes a Service out of a load balancer, which goes with the last one.
func (r *reconciler) removal(q services.Request, lb *loadBalancer, a otherParts) services.Change[*observed] {
	name := lb.Name
	base := baseName(q.Service)
	draft := clone(lb)
	action, err := contract.PlanChange, r.config.withoutService(name, base, a)(draft)
	if errors.Is(err, errRemove) {
		action, draft = contract.PlanDelete, nil
	}
	return services.Change[*observed]{
		Planned: contract.Planned{Action: action, Object: "load balancer " + name, Detail: "without the Service"},
		Compare: func() (before, after any) {
			if draft == nil {
				return format(lb), nil
			}
			return withoutAdded(format(lb)), withoutAdded(format(draft))
		},
		Expect: func(o *observed) *observed { return o.expectLoadBalancer(base, lb, draft) },
		Make: r.thenObserve(func(ctx context.Context, q *services.Request, o *observed) error {
			return r.resources.submit(ctx, r.withoutTarget(lb), editOf(r.config.withoutService(name, base, a)))
		}),
	}
}

// withoutTarget is the document of a load balancer that a Service is taken out of.
func (r *reconciler) withoutTarget(lb *loadBalancer) document {
	return document{
		id: lb.ID, what: "load balancer " + lb.Name, beforeRemoval: r.members.decouple,
	}
}

// withoutService takes a Service out of a load balancer, which goes with the last one unless others fill its pools.
func (c *Config) withoutService(name, base string, a otherParts) func(*loadBalancer) error {
	return func(lb *loadBalancer) error {
		if lb == nil {
			return errKeep
		}
		changed, err := applyService(lb, base, nil, c, a)
		switch {
		case err != nil:
			return err
		case isEmpty(lb) && c.fillsPools(isInternal(name)):
			return errRemove
		case !changed:
			return errKeep
		}
		return nil
	}
}

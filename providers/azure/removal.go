package azure

import (
	"context"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// removal takes a Service out of a load balancer, which goes with the last one.
func (r *reconciler) removal(q services.Request, lb *loadBalancer, a otherParts) services.Change[*observed] {
	name := lb.Name
	base := baseName(q.Service)
	return services.Change[*observed]{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + name, Detail: "without the Service"},
		Compare: func() (before, after any) {
			draft := clone(lb)
			if _, err := applyService(draft, base, nil, r.config, a); err != nil || isEmpty(draft) {
				return format(lb), nil
			}
			return withoutAdded(format(lb)), withoutAdded(format(draft))
		},
		Make: r.thenObserve(func(ctx context.Context, q *services.Request, o *observed) error {
			return r.resources.submit(ctx, r.withoutTarget(lb), r.withoutService(name, base, a))
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
func (r *reconciler) withoutService(name, base string, a otherParts) edit {
	return editOf(func(lb *loadBalancer) error {
		if lb == nil {
			return errKeep
		}
		changed, err := applyService(lb, base, nil, r.config, a)
		switch {
		case err != nil:
			return err
		case isEmpty(lb) && r.config.fillsPools(isInternal(name)):
			return errRemove
		case !changed:
			return errKeep
		}
		return nil
	})
}

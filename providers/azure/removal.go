package azure

import (
	"context"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// removal takes a Service out of a load balancer, which goes with the last one.
func (r *reconciler) removal(q services.Request, lb doc, a otherParts) services.Change[*observed] {
	name := str(lb, "name")
	base := baseName(q.Service)
	return services.Change[*observed]{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + name, Detail: "without the Service"},
		Compare: func() (before, after any) {
			draft := jsondoc.Clone(lb)
			if _, err := applyService(draft, base, nil, r.config, a); err != nil || isEmpty(draft) {
				return lb, nil
			}
			return withoutAdded(lb), withoutAdded(draft)
		},
		Make: func(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
			_, err := r.resources.documents.submit(ctx, r.withoutTarget(lb), r.withoutService(name, base, a))
			if err != nil {
				return o, err
			}
			return r.reobserve(ctx, q, o)
		},
	}
}

// withoutTarget is the document of a load balancer that a Service is taken out of.
func (r *reconciler) withoutTarget(lb doc) document {
	return document{
		id: str(lb, "id"), what: "load balancer " + str(lb, "name"), version: networkVersion, beforeRemoval: r.members.decouple,
	}
}

// withoutService takes a Service out of a load balancer, which goes with the last one unless others fill its pools.
func (r *reconciler) withoutService(name, base string, a otherParts) edit {
	return func(d doc) error {
		if d == nil {
			return errKeep
		}
		changed, err := applyService(d, base, nil, r.config, a)
		switch {
		case err != nil:
			return err
		case isEmpty(d) && r.fillsPools(isInternal(name)):
			return errRemove
		case !changed:
			return errKeep
		}
		return nil
	}
}

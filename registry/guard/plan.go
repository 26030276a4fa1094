package guard

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// PlanLoadBalancer implements Planner for the Nodes that are ours.
func (c *Cloud) PlanLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (plan contract.Plan, err error) {
	planner, ok := c.inner.(contract.Planner)
	if !ok {
		return plan, contract.ErrNoPlan
	}
	t := c.facts.translate(service)
	w, _, err := contract.Annotations.Parse(t.Service.Annotations)
	if err != nil || w.Disown {
		return plan, err
	}
	said := translationFindings(t, c.facts.findIneffective(service))
	defer func() { plan.Findings = append(said, plan.Findings...) }()
	if t.Err != nil {
		return plan, t.Err
	}
	backends := c.ownership.filterOurs(nodes)
	if c.loadBalancers != nil {
		if backends, err = c.loadBalancers.matchSelector(t.Service, backends); err != nil {
			return plan, err
		}
	}
	if backends, err = c.verification.filterVerified(ctx, backends); err != nil {
		return plan, err
	}
	defer recoverPanic(&err, "PlanLoadBalancer", serviceName(service))
	plan, err = planner.PlanLoadBalancer(c.ownership.withForeign(portable.With(ctx, t)), cluster, t.Service, backends)
	return plan, t.Explain(err)
}

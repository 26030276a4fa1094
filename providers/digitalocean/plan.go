package digitalocean

import (
	"context"
	"fmt"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// PlanLoadBalancer implements guard.Planner.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (guard.Plan, error) {
	changes, err := c.plannedChanges(ctx, cluster, service, nodes)
	return guard.Plan{Changes: changes}, err
}

func (c *cloud) plannedChanges(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) ([]guard.Planned, error) {
	l := c.loadBalancers
	if disowned, err := isDisowned(service); err != nil || disowned {
		return nil, err
	}
	if err := precheck(service, l.config.DefaultType); err != nil {
		return nil, err
	}
	found, err := l.find(ctx, service, nodes, inventory.Query{MaxAge: ensureMaxAge})
	if err == nil {
		err = found.Err()
	}
	if err != nil {
		return nil, err
	}
	observed := found.lb
	s, err := l.settings(service, observed)
	if err != nil {
		return nil, err
	}
	want, _, err := l.want(ctx, service, s, found, nodes)
	if err != nil {
		return nil, err
	}
	if observed == nil {
		return []guard.Planned{{Action: guard.PlanCreate, Object: "load balancer " + want.Name, Detail: fmt.Sprintf("type %s, in %s, %s, %d droplets", want.Type, want.Region, rulesOf(want.ForwardingRules), len(want.DropletIDs))}}, nil
	}
	var planned []guard.Planned
	for _, st := range plan(l.withoutVanished(ctx, observed, want.DropletIDs), want) {
		detail := string(st.kind) + ": " + strings.Join(st.reasons, ", ")
		planned = append(planned, guard.Planned{Action: guard.PlanChange, Object: "load balancer " + observed.ID, Detail: detail})
	}
	return planned, nil
}

func rulesOf(rules []godo.ForwardingRule) string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = fmt.Sprintf("%s/%d to %s/%d", r.EntryProtocol, r.EntryPort, r.TargetProtocol, r.TargetPort)
	}
	return strings.Join(texts, ", ")
}

package linode

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// PlanLoadBalancer implements guard.Planner, by the decisions that the work uses.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (guard.Plan, error) {
	changes, err := c.plannedChanges(ctx, cluster, service, nodes)
	return guard.Plan{Changes: changes}, err
}

func (c *cloud) plannedChanges(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) ([]guard.Planned, error) {
	l := c.loadBalancers
	s, err := l.settings(service)
	if err != nil {
		return nil, err
	}
	found, err := l.find(ctx, service, nodes, inventory.Query{MaxAge: ensureMaxAge})
	if err == nil {
		err = found.Err()
	}
	if err != nil {
		return nil, err
	}
	nb := found.nb
	want, err := l.want(ctx, cluster, service, s, nodes)
	if err != nil {
		return nil, err
	}
	firewalls, wish, err := l.firewallPlan(ctx, service, s, nb)
	if err != nil {
		return nil, err
	}
	if firewalls.stays != nil {
		l.reportForeignFirewall(service, nb, firewalls.stays)
	}
	planned := plannedFirewalls(firewalls, wish, label(l.config.Prefix, service), nb)
	if nb == nil {
		object := "NodeBalancer " + label(l.config.Prefix, service)
		return append(planned, guard.Planned{Action: guard.PlanCreate, Object: object, Detail: fmt.Sprintf("in %s, %s", l.config.Region, portsOf(want.configs))}), nil
	}
	d, err := l.details.Get(ctx, nb.ID, inventory.Query{MaxAge: ensureDetailsMaxAge})
	if err != nil {
		return nil, err
	}
	for _, st := range plan(nb, d, want) {
		planned = append(planned, guard.Planned{Action: actionOf(st.kind), Object: fmt.Sprintf("NodeBalancer %d", nb.ID), Detail: strings.TrimSuffix(string(st.kind)+": "+strings.Join(st.reasons, ", "), ": ")})
	}
	return planned, nil
}

// plannedFirewalls tells of the steps about firewalls.
func plannedFirewalls(p firewallPlan, w firewallWish, name string, nb *nodeBalancer) []guard.Planned {
	var planned []guard.Planned
	for _, step := range p.steps {
		title := fmt.Sprintf("firewall %d", step.id)
		if step.id == 0 {
			title = "firewall " + name
		}
		one := guard.Planned{Action: guard.PlanChange, Object: title, Detail: string(step.kind)}
		switch step.kind {
		case createFirewall:
			one = guard.Planned{Action: guard.PlanCreate, Object: title, Detail: fmt.Sprintf("%d rules, otherwise %s", len(w.rules.Inbound), w.rules.InboundPolicy)}
		case changeRules:
			one.Detail = fmt.Sprintf("%s: %d rules, otherwise %s", step.kind, len(w.rules.Inbound), w.rules.InboundPolicy)
		case attachFirewall, detachFirewall:
			one.Object, one.Detail = fmt.Sprintf("NodeBalancer %d", nb.ID), fmt.Sprintf("%s: %s", step.kind, title)
		case dropFirewall:
			one = guard.Planned{Action: guard.PlanDelete, Object: title, Detail: "detach and delete"}
		}
		planned = append(planned, one)
	}
	return planned
}

func actionOf(kind stepKind) string {
	switch kind {
	case createPort, addNode:
		return guard.PlanCreate
	case deletePort, removeNode:
		return guard.PlanDelete
	case updateBalancer, updatePort, rebuildPort:
	}
	return guard.PlanChange
}

func portsOf(configs []configFields) string {
	texts := make([]string, len(configs))
	for i, f := range configs {
		texts[i] = fmt.Sprintf("%s/%d with %d nodes", f.Protocol, f.Port, len(f.Nodes))
	}
	return strings.Join(texts, ", ")
}

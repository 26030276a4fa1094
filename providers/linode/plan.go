package linode

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// PlanLoadBalancer implements guard.Planner. Of firewalls it tells what the Service wants, not what differs.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) ([]guard.Planned, error) {
	l := c.loadBalancers
	s, err := l.settings(service)
	if err != nil {
		return nil, err
	}
	nb, err := l.find(ctx, service, inventory.Query{MaxAge: ensureMaxAge})
	if err == nil {
		err = l.checkOwner(ctx, service, nb)
	}
	if err != nil {
		return nil, err
	}
	want, err := l.want(ctx, cluster, service, s, nodes)
	if err != nil {
		return nil, err
	}
	if nb == nil {
		planned := []guard.Planned{{Action: guard.PlanCreate, Object: "NodeBalancer " + label(l.config.Prefix, service), Detail: fmt.Sprintf("in %s, %s", l.config.Region, portsOf(want.configs))}}
		if s.ACL != nil {
			planned = append([]guard.Planned{{Action: guard.PlanCreate, Object: "firewall", Detail: "for the source ranges of the Service"}}, planned...)
		}
		return planned, nil
	}
	d, err := l.details.Get(ctx, nb.ID, inventory.Query{MaxAge: ensureDetailsMaxAge})
	if err != nil {
		return nil, err
	}
	var planned []guard.Planned
	for _, st := range plan(nb, d, want) {
		planned = append(planned, guard.Planned{Action: actionOf(st.kind), Object: fmt.Sprintf("NodeBalancer %d", nb.ID), Detail: strings.TrimSuffix(string(st.kind)+": "+strings.Join(st.reasons, ", "), ": ")})
	}
	return planned, nil
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

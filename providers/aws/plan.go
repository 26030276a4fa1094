package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// PlanLoadBalancer implements guard.Planner.
func (c *cloud) PlanLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (guard.Plan, error) {
	changes, err := c.plannedChanges(ctx, cluster, service, nodes)
	return guard.Plan{Changes: changes}, err
}

func (c *cloud) plannedChanges(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) ([]guard.Planned, error) {
	l := c.loadBalancers
	if _, elsewhere := kindOf(service); elsewhere {
		return nil, cloudprovider.ImplementedElsewhere
	}
	s, err := l.settings(service)
	if err != nil {
		return nil, err
	}
	q := inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge}
	p, err := l.find(ctx, service, q, q)
	if err == nil {
		err = l.checkOwner(ctx, p)
	}
	if err == nil {
		err = kindChanged(service, s, p)
	}
	if err != nil {
		return nil, err
	}
	backends, err := l.targetsOf(ctx, nodes, &s)
	if err != nil {
		return nil, err
	}
	if s.network {
		return l.planNetwork(ctx, cluster, service, s, p.network, backends)
	}
	return l.planClassic(ctx, service, s, p.classic, backends)
}

// planSteps are the calls of a plan in the words of an operator.
func planSteps(object string, steps []step) []guard.Planned {
	var planned []guard.Planned
	for _, s := range steps {
		action := guard.PlanChange
		switch verb, _, _ := strings.Cut(s.what, " "); verb {
		case "creating", "registering", "adding", "attaching":
			action = guard.PlanCreate
		case "deleting", "deregistering", "detaching":
			action = guard.PlanDelete
		}
		planned = append(planned, guard.Planned{Action: action, Object: object, Detail: s.what})
	}
	return planned
}

// planOwnGroup tells of the security group of a load balancer itself, and returns its ID if it exists.
func (l *loadBalancers) planOwnGroup(ctx context.Context, name string, want []rule, description string) ([]guard.Planned, string, error) {
	g, found, err := l.groups.named(ctx, name)
	if err != nil {
		return nil, "", err
	}
	if !found {
		return []guard.Planned{{Action: guard.PlanCreate, Object: "security group " + name, Detail: fmt.Sprintf("%d rules", len(want))}}, "", nil
	}
	return planRules(exactly(g, want, frontMine(description))), g.id, nil
}

func planRules(c ruleChange) []guard.Planned {
	if c.empty() {
		return nil
	}
	return []guard.Planned{{Action: guard.PlanChange, Object: fmt.Sprintf("security group %s (%s)", c.group.id, c.group.name), Detail: fmt.Sprintf("rules: %d more, %d less", len(c.add), len(c.remove))}}
}

func (l *loadBalancers) planClassic(ctx context.Context, service *v1.Service, s settings, lb *classicBalancer, backends []backend) ([]guard.Planned, error) {
	want, err := l.classicWish(ctx, service, s, lb, backends)
	if err != nil {
		return nil, err
	}
	var planned []guard.Planned
	if want.groups = l.givenClassicGroups(s); len(want.groups) == 0 {
		name := classicGroupName(want.name)
		own, id, err := l.planOwnGroup(ctx, name, classicFrontRules(want, s), descriptionFront+want.name)
		if err != nil {
			return nil, err
		}
		planned, want.groups = own, []string{cmp.Or(id, name)} // the name stands for a group that does not exist yet
	}
	want.groups = withExtra(want.groups, s)
	if err := l.checkGroups(ctx, service, attachedClassic(lb), l.namedClassicGroups(s)); err != nil {
		return nil, err
	}
	_, changes, err := l.classicNodeChanges(ctx, service, want.groups[0], backends)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		planned = append(planned, planRules(c)...)
	}
	object := "classic load balancer " + want.name
	if lb == nil {
		ports := make([]string, len(want.listeners))
		for i, p := range want.listeners {
			ports[i] = fmt.Sprintf("%s/%d to %s/%d", p.protocol, p.port, p.instanceProtocol, p.instancePort)
		}
		return append(planned, guard.Planned{Action: guard.PlanCreate, Object: object, Detail: fmt.Sprintf("%s, %s, subnets %s, %d instances", want.scheme, strings.Join(ports, ", "), strings.Join(want.subnets, ", "), len(want.instances))}), nil
	}
	settled, err := l.balancers.classicSettings.Get(ctx, want.name, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, notAbsence(err)
	}
	tags, err := l.classicTags(ctx, lb)
	if err != nil && !l.tagsUnknown(err) {
		return nil, notAbsence(err)
	}
	planned = append(planned, planSteps(object, planClassic(lb, settled.value, tags, want))...)
	old, err := l.planOldGroup(ctx, classicGroupName(want.name), want.groups)
	return append(planned, old...), err
}

func (l *loadBalancers) planNetwork(ctx context.Context, cluster string, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, backends []backend) ([]guard.Planned, error) {
	want, err := l.networkWishes(ctx, service, s, lb, backends)
	if err != nil {
		return nil, err
	}
	var planned []guard.Planned
	if l.config.NLBGroupMode == groupModeManaged && (lb == nil || len(lb.SecurityGroups) > 0) {
		if err := l.checkGroups(ctx, service, attachedNetwork(lb), groupNames{"annotation " + annotationGroups: s.Groups}); err != nil {
			return nil, err
		}
		want.groups = s.Groups
		if len(want.groups) == 0 {
			own, id, err := l.planOwnGroup(ctx, managedGroupName(cluster, service), networkFrontRules(want, s), descriptionFront+want.name)
			if err != nil {
				return nil, err
			}
			planned, want.groups = own, []string{cmp.Or(id, managedGroupName(cluster, service))} // the name stands for a group that does not exist yet
		}
	}
	object := "network load balancer " + want.name
	if lb == nil {
		var subnets []string
		for _, m := range want.mappings {
			subnets = append(subnets, aws.ToString(m.SubnetId))
		}
		planned = append(planned, guard.Planned{Action: guard.PlanCreate, Object: object, Detail: fmt.Sprintf("%s, %s, subnets %s", want.scheme, want.addressType, strings.Join(subnets, ", "))})
		for _, p := range want.listeners {
			planned = append(planned, guard.Planned{Action: guard.PlanCreate, Object: fmt.Sprintf("listener %s/%d", p.protocol, p.port), Detail: fmt.Sprintf("target group %s, %s/%d, %d targets", p.group.name, p.group.protocol, p.group.port, len(want.targets))})
		}
		return planned, nil
	}
	state, err := l.networkState(ctx, service, s, lb, ensureMaxAge)
	if err != nil {
		return nil, err
	}
	nodes, err := l.planNodeRules(ctx, service, s, lb, want.listeners, backends)
	if err != nil {
		return nil, err
	}
	steps, err := l.ownSteps(ctx, service, state, planNetwork(state, want))
	if err != nil {
		return nil, err
	}
	planned = append(append(planned, nodes...), planSteps(object, steps)...)
	if l.config.NLBGroupMode != groupModeManaged || want.groups == nil {
		return planned, nil
	}
	old, err := l.planOldGroup(ctx, managedGroupName(cluster, service), want.groups)
	return append(planned, old...), err
}

// planNodeRules tells of the rules of the nodes' security groups.
func (l *loadBalancers) planNodeRules(ctx context.Context, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, listeners []listenerWish, backends []backend) ([]guard.Planned, error) {
	if l.config.NoNodeGroupRules || len(backends) == 0 {
		return nil, nil
	}
	want, targets, err := l.nodeRuleWish(ctx, service, s, lb, listeners, backends)
	if err != nil {
		return nil, err
	}
	changes, _, err := l.networkNodeChanges(ctx, want, targets)
	if err != nil {
		return nil, err
	}
	var planned []guard.Planned
	for _, c := range changes {
		planned = append(planned, planRules(c)...)
	}
	return planned, nil
}

// planOldGroup tells of the group of its own that a load balancer does not have any more.
func (l *loadBalancers) planOldGroup(ctx context.Context, name string, have []string) ([]guard.Planned, error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return nil, err
	}
	g, found, err := l.groups.named(ctx, name)
	if err != nil || !found || slices.Contains(have, g.id) || !id.owned(g.tags) {
		return nil, err
	}
	return []guard.Planned{{Action: guard.PlanDelete, Object: fmt.Sprintf("security group %s (%s)", g.id, g.name), Detail: "the load balancer has other security groups"}}, nil
}

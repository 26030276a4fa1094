package openstack

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// PlanLoadBalancer implements guard.Planner. Floating addresses and security groups follow when the load balancer is there;
// of them it tells what the Service wants.
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
	f, err := l.api.octavia(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.checkCertificates(ctx, service, s); err != nil {
		return nil, err
	}
	lb, err := l.find(ctx, cluster, service)
	if err != nil {
		return nil, err
	}
	if lb == nil {
		return l.planCreation(ctx, cluster, service, s, f, nodes)
	}
	r, err := l.admit(ctx, cluster, service, s, lb, f, nodes)
	if err != nil {
		return nil, err
	}
	switch {
	case lb.pending():
		return nil, fmt.Errorf("load balancer %s is in %s; what there is to do shows when that has ended", lb.ID, lb.Status)
	case lb.Status == statusError:
		renew, err := l.renewable(ctx, service, lb, r)
		if err != nil || !renew {
			return []guard.Planned{{Action: guard.PlanChange, Object: "load balancer " + lb.ID, Detail: "failover, for it is in ERROR"}}, err
		}
		planned, err := l.planCreation(ctx, cluster, service, s, f, nodes)
		return append([]guard.Planned{{Action: guard.PlanDelete, Object: "load balancer " + lb.ID, Detail: "Octavia could not build it"}}, planned...), err
	}
	return l.planChanges(ctx, service, s, f, r, lb, nodes)
}

// planChanges tells of the changes of a load balancer that exists and is at rest.
func (l *loadBalancers) planChanges(
	ctx context.Context, service *v1.Service, s settings, f features, r role, lb *balancer, nodes []*v1.Node,
) ([]guard.Planned, error) {
	d, err := l.observe(ctx, lb)
	if err != nil {
		return nil, err
	}
	members, err := l.backends(ctx, service, nodes, s)
	if err != nil {
		return nil, err
	}
	want, err := l.want(service, s, r, lb, memberSubnet(s, l.config.LoadBalancer, lb.VIPSubnetID), f, members)
	if err != nil {
		return nil, err
	}
	l.wantIdentity(service, lb, r, f, &want)
	steps, err := plan(lb, d, want, r)
	var planned []guard.Planned
	for _, st := range steps {
		planned = append(planned, guard.Planned{Action: actionOf(st.kind), Object: "load balancer " + lb.ID, Detail: strings.TrimSuffix(fmt.Sprintf("%s: %s", st.kind, st.reason), ": ")})
	}
	return planned, err
}

// planCreation tells of a load balancer that does not exist yet.
func (l *loadBalancers) planCreation(ctx context.Context, cluster string, service *v1.Service, s settings, f features, nodes []*v1.Node) ([]guard.Planned, error) {
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	r := role{name: balancerName(cluster, service), mark: mark, serviceMark: ownership.ServiceMark(service.UID), owner: true}
	request := l.birth(cluster, service, s, f, r)
	members, err := l.backends(ctx, service, nodes, s)
	if err != nil {
		return nil, err
	}
	found, err := l.placeVIP(ctx, service, s, f, members, &request)
	if err != nil {
		return nil, err
	}
	want, err := l.want(service, s, r, &balancer{Provider: l.config.LoadBalancer.Provider, AdditionalVIPs: request.AdditionalVIPs}, memberSubnet(s, l.config.LoadBalancer, found), f, members)
	if err != nil {
		return nil, err
	}
	ports := make([]string, len(want.ports))
	for i, w := range want.ports {
		ports[i] = fmt.Sprintf("%s/%d with %d members", w.listener.Protocol, w.listener.Port, len(members))
	}
	planned := []guard.Planned{{Action: guard.PlanCreate, Object: "load balancer " + request.Name, Detail: strings.Join(ports, ", ")}}
	if !s.internal {
		planned = append(planned, guard.Planned{Action: guard.PlanCreate, Object: "floating address", Detail: "unless one of the Service's is there"})
	}
	if l.config.LoadBalancer.ManageSecurityGroups {
		planned = append(planned, guard.Planned{Action: guard.PlanCreate, Object: "security group " + securityGroupName(service)})
	}
	return planned, nil
}

func actionOf(kind stepKind) string {
	switch text := string(kind); {
	case strings.HasPrefix(text, "create"), strings.HasPrefix(text, "add"):
		return guard.PlanCreate
	case strings.HasPrefix(text, "delete"), strings.HasPrefix(text, "remove"):
		return guard.PlanDelete
	}
	return guard.PlanChange
}

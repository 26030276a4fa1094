package digitalocean

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file makes the reconciler ignore disowned Services. They are not even validated.

func isDisowned(service *v1.Service) (bool, error) {
	s, _, err := disownTable.Parse(service.Annotations)
	return s.Disown, err
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (r *reconciler) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return service.Status.LoadBalancer.DeepCopy(), err
	}
	return r.LoadBalancer.EnsureLoadBalancer(ctx, cluster, service, nodes)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (r *reconciler) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return err
	}
	return r.LoadBalancer.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (r *reconciler) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return err
	}
	return r.LoadBalancer.EnsureLoadBalancerDeleted(ctx, cluster, service)
}

// NarrowLoadBalancer implements contract.Narrower.
func (r *reconciler) NarrowLoadBalancer(ctx context.Context, cluster string, service *v1.Service) error {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return err
	}
	return r.LoadBalancer.NarrowLoadBalancer(ctx, cluster, service)
}

// PlanLoadBalancer implements contract.Planner.
func (r *reconciler) PlanLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (contract.Plan, error) {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return contract.Plan{}, err
	}
	return r.LoadBalancer.PlanLoadBalancer(ctx, cluster, service, nodes)
}

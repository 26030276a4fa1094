package guard

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// MarkedLoadBalancers implements LoadBalancerHandover.
func (c *Cloud) MarkedLoadBalancers(ctx context.Context, services []*v1.Service) (found []contract.MarkedLoadBalancer, err error) {
	h, ok := c.inner.(contract.LoadBalancerHandover)
	if !ok {
		return nil, contract.ErrNoHandover
	}
	defer recoverPanic(&err, "MarkedLoadBalancers", c.facts.Provider)
	return h.MarkedLoadBalancers(ctx, c.facts.translateAll(services))
}

// RemarkLoadBalancer implements LoadBalancerHandover.
func (c *Cloud) RemarkLoadBalancer(ctx context.Context, m contract.MarkedLoadBalancer, service types.UID) (err error) {
	h, ok := c.inner.(contract.LoadBalancerHandover)
	if !ok {
		return contract.ErrNoHandover
	}
	defer recoverPanic(&err, "RemarkLoadBalancer", m.ID)
	return h.RemarkLoadBalancer(ctx, m, service)
}

package contract

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MarkedLoadBalancer is a load balancer in the cloud with marks of this program.
type MarkedLoadBalancer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Cluster is the UID of the namespace kube-system in the marks, and ServiceUID that of the Service; "" without such a mark.
	Cluster    string `json:"cluster"`
	ServiceUID string `json:"serviceUID"`
	// Claims are the Services of this cluster that record it, as namespace/name.
	Claims []string `json:"claims,omitempty"`
}

// LoadBalancerHandover is implemented by clouds that can replace the marks of load balancers, for a cluster that was restored with another
// identity.
type LoadBalancerHandover interface {
	// MarkedLoadBalancers returns every load balancer with a mark, of any cluster. It writes nothing.
	MarkedLoadBalancers(ctx context.Context, services []*v1.Service) ([]MarkedLoadBalancer, error)
	// RemarkLoadBalancer replaces the marks of a load balancer by those of this cluster and a Service. It refuses if the marks have
	// changed. It does not check whether the handover is right: the operator must.
	RemarkLoadBalancer(ctx context.Context, m MarkedLoadBalancer, service types.UID) error
}

// ErrNoHandover is returned by a cloud that cannot replace marks.
var ErrNoHandover = errors.New("this provider cannot hand load balancers over")

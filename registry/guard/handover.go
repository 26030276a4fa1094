package guard

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
)

// Foreign is a load balancer, or what belongs to one, that a Service of this cluster has recorded and that carries the mark
// of another cluster.
type Foreign struct {
	// Service is the Service of this cluster, as namespace/name.
	Service string `json:"service"`
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	// Cluster is the UID of the namespace kube-system that the mark names.
	Cluster string `json:"cluster"`
}

// Handover is implemented by clouds whose objects carry marks. A cluster that was restored has another UID of the namespace
// kube-system, and with it no load balancer any more.
type Handover interface {
	// Foreign returns what the Services have recorded, or find by name, and another cluster has marked. It changes nothing.
	Foreign(ctx context.Context, services []*v1.Service) ([]Foreign, error)
	// HandOver replaces the mark of the other cluster by ours, and a mark of the Service by that of this one. It reads the object
	// right before, and changes nothing where the mark is no longer that of f.Cluster.
	HandOver(ctx context.Context, f Foreign, service *v1.Service) error
}

// ErrNoHandover is the answer of a cloud that cannot hand over.
var ErrNoHandover = errors.New("this provider cannot hand load balancers over")

// Foreign implements Handover.
func (c *Cloud) Foreign(ctx context.Context, services []*v1.Service) (found []Foreign, err error) {
	h, ok := c.inner.(Handover)
	if !ok {
		return nil, ErrNoHandover
	}
	defer recovered(&err, "Foreign", c.facts.Provider)
	return h.Foreign(ctx, services)
}

// HandOver implements Handover.
func (c *Cloud) HandOver(ctx context.Context, f Foreign, service *v1.Service) (err error) {
	h, ok := c.inner.(Handover)
	if !ok {
		return ErrNoHandover
	}
	defer recovered(&err, "HandOver", f.ID)
	return h.HandOver(ctx, f, service)
}

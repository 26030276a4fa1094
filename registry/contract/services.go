package contract

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Narrower is implemented by load balancers that can shut out clients whom a refused Service no longer allows.
type Narrower interface {
	NarrowLoadBalancer(ctx context.Context, cluster string, service *v1.Service) error
}

// Reasons of the events that the guard writes about annotations of Services. docs/events.md describes each.
const (
	// EventConfigError: this cloud's load balancers cannot have the Service's settings.
	EventConfigError = "LoadBalancerConfigError"
	// EventAnnotationIgnored: an annotation has no effect.
	EventAnnotationIgnored = "LoadBalancerAnnotationIgnored"
	// EventDefaulted: a Service has annotations by the defaults of its class.
	EventDefaulted = "LoadBalancerDefaulted"
	// EventLoadBalancerRetained: the Service was deleted, its load balancer stays.
	EventLoadBalancerRetained = "LoadBalancerRetained"
	// EventLoadBalancerWaiting: the cloud takes unusually long, with the current step.
	EventLoadBalancerWaiting = "LoadBalancerWaiting"
)

// ServiceRetrier is implemented by clouds that notice when Services need another reconciliation: a failed one can succeed, or a Secret that
// it names has changed.
type ServiceRetrier interface {
	// SetServiceRetry sets the function that reconciles the Services which satisfy a condition.
	SetServiceRetry(retry func(waits func(*v1.Service) bool))
}

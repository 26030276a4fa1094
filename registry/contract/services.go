package contract

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Annotations of Services with the same meaning on every cloud.
const (
	// AnnotationRetain keeps the load balancer when its Service is deleted.
	AnnotationRetain = "anyccm.io/retain-load-balancer"
	// AnnotationProtect prevents the deletion of the load balancer, and therefore of its Service.
	AnnotationProtect = "anyccm.io/protect-load-balancer"
	// AnnotationDisown makes the program ignore the load balancer.
	AnnotationDisown = "anyccm.io/disown-load-balancer"
	// AnnotationIPMode is the ipMode of the addresses in the status.
	AnnotationIPMode = "anyccm.io/load-balancer-ip-mode"
)

// ServiceSettings are the values of these annotations.
type ServiceSettings struct {
	Retain, Protect, Disown bool
	IPMode                  string
}

// Annotations is the table of annotations with the same meaning on every cloud.
var Annotations = schema.Annotations[ServiceSettings]{
	schema.BoolAnnotation(func(w *ServiceSettings) *bool { return &w.Retain }, schema.AnnotationRow{
		Key: AnnotationRetain, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "false", Help: "Keep the load balancer in the cloud when the Service is deleted or changes its type."},
	}),
	schema.BoolAnnotation(func(w *ServiceSettings) *bool { return &w.Protect }, schema.AnnotationRow{
		Key: AnnotationProtect, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "false", Help: "Refuse to delete the load balancer. A Service that is deleted stays until the annotation is removed."},
	}),
	schema.BoolAnnotation(func(w *ServiceSettings) *bool { return &w.Disown }, schema.AnnotationRow{
		Key: AnnotationDisown, Changes: schema.InPlace,
		Spec: schema.Spec{Default: "false", Help: "Leave the load balancer alone: it is neither created, changed nor deleted while this is true."},
	}),
	schema.EnumAnnotation(func(w *ServiceSettings) *string { return &w.IPMode }, schema.AnnotationRow{
		Key: AnnotationIPMode, Changes: schema.InPlace,
		Spec: schema.Spec{
			Choices: []string{string(v1.LoadBalancerIPModeVIP), string(v1.LoadBalancerIPModeProxy)}, DefaultHelp: "as the cloud's own controller has it",
			Help: "ipMode of the addresses in the status. Proxy makes pods of the cluster go through the load balancer, which they must where it adds the PROXY protocol header or ends TLS.",
		},
	}),
}

// Keeps reports whether a Service's load balancers, present and former, are to be kept. An invalid value counts as yes.
func Keeps(service *v1.Service) bool {
	w, _, err := Annotations.Parse(service.Annotations)
	return err != nil || w.Retain || w.Protect
}

// IsDisowned reports whether a Service's load balancer is to be ignored by all who could write it. An invalid value counts as yes.
func IsDisowned(service *v1.Service) bool {
	w, _, err := Annotations.Parse(service.Annotations)
	return err != nil || w.Disown
}

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

// ServiceRetrier is implemented by clouds that notice when failed Services can succeed, and request an immediate retry.
type ServiceRetrier interface {
	// SetServiceRetry sets the function that retries the Services which satisfy a condition.
	SetServiceRetry(retry func(waits func(*v1.Service) bool))
}

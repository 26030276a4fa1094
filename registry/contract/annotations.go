package contract

import (
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

package xcloud

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const annotationAlgorithm = "xcloud.example/load-balancer-algorithm"

// settings are what the annotations of a Service ask for.
type settings struct {
	Algorithm string
}

// Annotations is the table of annotations, with the names that the cloud's own controller uses.
var Annotations = schema.Annotations[settings]{
	schema.EnumAnnotation(func(s *settings) *string { return &s.Algorithm }, schema.AnnotationRow{
		Key: annotationAlgorithm, Changes: schema.InPlace,
		Spec: schema.Spec{Choices: []string{"round-robin", "least-connections"}, Default: "round-robin", Help: "How backends are chosen."},
	}).Serving(schema.Serves{Portable: portable.Algorithm}),
}

// parseSettings reads the annotations of a Service, and judges what needs no look at the cloud.
func parseSettings(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	warned, refused := unserved(service)
	return s, errors.Join(warnings, warned), errors.Join(err, refused)
}

// unserved is what a Service asks for and the cloud does not have. A load balancer that is open to more clients than was asked for is
// refused.
func unserved(service *v1.Service) (warning, err error) {
	if ranges := service.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		err = &schema.Problem{
			Place: "spec.loadBalancerSourceRanges", Value: strings.Join(ranges, ","), Reason: "cannot be served on Xcloud; remove it",
		}
	}
	if len(service.Spec.IPFamilies) > 1 {
		warning = &schema.Problem{Place: "spec.ipFamilies", Reason: "only the first has a load balancer on Xcloud", Warning: true}
	}
	return warning, err
}

// checkService implements registry.Provider.CheckService.
func checkService(_ registry.Inputs, service *v1.Service) (warnings, err error) {
	_, warnings, err = parseSettings(service)
	return warnings, err
}

package xcloud

import (
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
	return Annotations.Parse(service.Annotations)
}

// checkService implements registry.Provider.CheckService.
func checkService(_ registry.Inputs, service *v1.Service) (warnings, err error) {
	_, warnings, err = parseSettings(service)
	return warnings, err
}

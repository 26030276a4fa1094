package xcloud

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const annotationAlgorithm = "xcloud.example/load-balancer-algorithm"

// settings holds the parsed annotations of a Service.
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

// serviceFields declares how each field of a Service is handled. It is refused where the load balancer would serve nobody, or more clients
// than the Service allows; otherwise the user is told.
var serviceFields = append(schema.ServedFields(schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart), schema.Fields{
	{Field: schema.FieldAddress, Becomes: schema.Told, Words: "has no effect on Xcloud"},
	{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: "cannot be served on Xcloud, whose load balancers have IPv4 alone"},
	{Field: schema.FieldPreferBoth, Becomes: schema.Told, Words: "only the first has a load balancer on Xcloud"},
	{Field: schema.FieldRequireBoth, Becomes: schema.Told, Words: "only the first has a load balancer on Xcloud"},
	{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "leaves ports without a node port, to which Xcloud sends; remove it"},
	{Field: schema.FieldAffinity, Becomes: schema.Told, Words: "has no effect on Xcloud"},
	{Field: schema.FieldLocal, Becomes: schema.Told, Words: "loses connections on Xcloud, which sends to all nodes; use Cluster"},
	{Field: schema.FieldSourceRanges, Becomes: schema.Refused, Words: "cannot be served on Xcloud; remove it"},
	{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "cannot be served on Xcloud; use TCP or UDP"},
}...)

// parseSettings reads the annotations of a Service and checks them without calls.
func parseSettings(service *v1.Service) (s settings, warnings, err error) {
	s, warnings, err = Annotations.Parse(service.Annotations)
	warned, refused := serviceFields.Judge(service, nil)
	return s, errors.Join(warnings, warned), errors.Join(err, refused)
}

// checkService implements registry.Provider.CheckService.
func checkService(_ registry.Inputs, service *v1.Service) (warnings, err error) {
	_, warnings, err = parseSettings(service)
	return warnings, err
}

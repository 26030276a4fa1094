package aws

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// serviceFields declares how each field of a Service is handled; without an annotation of the type, the load balancer is a classic one.
var serviceFields = func() schema.Fields {
	nlb := map[string]string{annotationType: typeNLB}
	const (
		onlyIPv4 = "a classic load balancer has IPv4 alone"
		familyIs = "the subnets have IPv6; the families are fixed when it is created"
		classic  = "is not supported by a classic load balancer; use TCP, or set " + annotationType + " to nlb"
	)
	return append(append(
		schema.ServedFields(schema.FieldLocal, schema.FieldSourceRanges),
		schema.OnlyWith(nlb, classic, schema.FieldUDP, schema.FieldMixed, schema.FieldShared)...,
	), schema.Fields{
		{Field: schema.FieldAddress, Becomes: schema.Refused, Words: "is not supported by AWS load balancers; remove it, or use " +
			annotationEIPs + " or " + annotationPrivateAddresses},
		{Field: schema.FieldIPv6, With: nlb, Becomes: schema.Served, Only: "the subnets have IPv6, and no port is of UDP"},
		{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: onlyIPv4 + ", where the Service does not answer; set " + annotationType + " to nlb"},
		{Field: schema.FieldPreferBoth, With: nlb, Becomes: schema.Served, Only: familyIs, Later: schema.Told},
		{Field: schema.FieldPreferBoth, Becomes: schema.Told, Words: onlyIPv4},
		{Field: schema.FieldRequireBoth, With: nlb, Becomes: schema.Served, Only: familyIs, Later: schema.Told},
		{Field: schema.FieldRequireBoth, Becomes: schema.Told, Words: onlyIPv4},
		{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Silent: true, Words: "no port of the Service has a node port; remove it"},
		{Field: schema.FieldAffinity, Becomes: schema.Refused, Words: "is not supported by AWS load balancers; use None"},
		{Field: schema.FieldSCTP, With: nlb, Becomes: schema.Refused, Words: "is not supported by a network load balancer; use TCP or UDP"},
		{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: classic},
		{Field: schema.FieldApart, Becomes: schema.Refused, Words: "is used by TCP and by UDP with different node ports, which one listener cannot " +
			"send to; give both ports one nodePort, or use two Services"},
	}...)
}()

// judgeFields says what becomes of the fields of a Service. A port without a node port has no listener, as with AWS's own controller, and
// there must be one that has.
func (s *settings) judgeFields(service *v1.Service, f *faults) {
	warnings, err := serviceFields.Judge(service, map[string]string{annotationType: map[bool]string{true: typeNLB}[s.network]})
	f.warnings, f.problems = append(f.warnings, schema.Problems(warnings)...), append(f.problems, schema.Problems(err)...)
	const place = "spec.allocateLoadBalancerNodePorts"
	ports := service.Spec.Ports
	first := slices.IndexFunc(ports, func(p v1.ServicePort) bool { return p.NodePort == 0 })
	switch {
	case len(ports) == 0:
		f.problems = append(f.problems, &schema.Problem{Place: "spec.ports", Reason: "is empty"})
	case first < 0:
	case slices.ContainsFunc(ports, func(p v1.ServicePort) bool { return p.NodePort != 0 }):
		reason := fmt.Sprintf("port %d has no node port, and gets no listener", ports[first].Port)
		f.warnings = append(f.warnings, &schema.Problem{Place: place, Reason: reason, Warning: true})
	default:
		f.problems = append(f.problems, &schema.Problem{Place: place, Reason: "no port of the Service has a node port; set " + place + " to true"})
	}
}

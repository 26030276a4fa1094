package linode

import (
	"strconv"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// serviceFields declares how each field of a Service is handled. Each NodeBalancer takes clients of both families.
var serviceFields = func() schema.Fields {
	shown, six := map[string]string{annotationIPv6Ingress: "true"}, map[string]string{annotationIPv6Backends: "true"}
	const hidden = "the status has the IPv4 address alone; set " + annotationIPv6Ingress + ": \"true\" for both"
	return append(schema.ServedFields(
		schema.FieldSourceRanges, schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart,
	), schema.Fields{
		{Field: schema.FieldAddress, Becomes: schema.Told, Words: "has no effect on Linode; a reserved address is named by " + annotationReservedIPv4},
		{Field: schema.FieldIPv6, With: six, Becomes: schema.Served, Anyway: true},
		{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: "cannot be served: nodes are reached by IPv4 alone, where the Service does not answer; set " +
			annotationIPv6Backends + ": \"true\""},
		{Field: schema.FieldPreferBoth, With: shown, Becomes: schema.Served, Anyway: true},
		{Field: schema.FieldPreferBoth, Becomes: schema.Told, Words: hidden},
		{Field: schema.FieldRequireBoth, With: shown, Becomes: schema.Served, Anyway: true},
		{Field: schema.FieldRequireBoth, Becomes: schema.Told, Words: hidden},
		{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "leaves ports without a node port, to which NodeBalancers send; remove it"},
		{Field: schema.FieldAffinity, Becomes: schema.Told, Words: "has no effect on the NodeBalancer, which picks a node for each connection"},
		// health checks find the nodes without a pod
		{Field: schema.FieldLocal, Becomes: schema.Served, Anyway: true},
		{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "is a protocol that NodeBalancers do not have; use TCP or UDP"},
	}...)
}()

// fieldOptions implements registry.Provider.FieldOptions.
func fieldOptions(in registry.Inputs) map[string]string {
	c, _ := Options.Parse(in.Sources) // missing options do not matter for fields
	return settings{IPv6Ingress: c.IPv6Ingress, IPv6Backends: c.IPv6Backends}.fieldConditions()
}

// fieldConditions are the settings that select rows of serviceFields.
func (s settings) fieldConditions() map[string]string {
	return map[string]string{
		annotationIPv6Ingress: strconv.FormatBool(s.IPv6Ingress), annotationIPv6Backends: strconv.FormatBool(s.IPv6Backends),
	}
}

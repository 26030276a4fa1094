package azure

import (
	"strconv"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// serviceFields declares how each field of a Service is handled. With floating IP packets reach nodes as clients send them, so that no node
// port is needed.
var serviceFields = append(schema.ServedFields(
	schema.FieldAddress, schema.FieldIPv6, schema.FieldPreferBoth, schema.FieldRequireBoth, schema.FieldAffinity, schema.FieldLocal,
	schema.FieldSourceRanges, schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart,
), schema.Fields{
	{Field: schema.FieldNoNodePorts, With: map[string]string{annotationNoFloating: "true"}, Becomes: schema.Refused, Words: "leaves ports without a " +
		"node port, which they need where floating IP is off; remove it"},
	{Field: schema.FieldNoNodePorts, Becomes: schema.Told, Silent: true, Words: "leaves ports without a probe that have none of their own"},
	{Field: schema.FieldSCTP, With: map[string]string{annotationInternal: "true"}, Becomes: schema.Served},
	{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "a public load balancer serves no SCTP; set annotation " + annotationInternal +
		`: "true", or use TCP or UDP`},
}...)

// fieldConditions are the settings by which rows of serviceFields are chosen.
func (s *settings) fieldConditions() map[string]string {
	return map[string]string{annotationInternal: strconv.FormatBool(s.Internal), annotationNoFloating: strconv.FormatBool(s.NoFloating)}
}

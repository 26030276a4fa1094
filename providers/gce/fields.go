package gce

import "github.com/anyccm/cloud-controller-manager/registry/schema"

// serviceFields declares how each field of a Service is handled. Packets arrive with the client's destination, so no node port is needed.
var serviceFields = append(schema.ServedFields(
	schema.FieldAddress, schema.FieldAffinity, schema.FieldLocal, schema.FieldSourceRanges, schema.FieldUDP,
), schema.Fields{
	{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: "cannot be served: these load balancers have IPv4 addresses alone"},
	{Field: schema.FieldPreferBoth, Becomes: schema.Told, Words: "get an address of IPv4 alone: these load balancers have no others"},
	{Field: schema.FieldRequireBoth, Becomes: schema.Refused, Words: "these load balancers have IPv4 addresses alone; use PreferDualStack or SingleStack"},
	{Field: schema.FieldNoNodePorts, Becomes: schema.Served, Anyway: true},
	{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "is a protocol that these load balancers do not have; use TCP or UDP"},
	// the framework's condition reports it too
	{Field: schema.FieldMixed, Becomes: schema.Refused, Silent: true, Words: "are of TCP and of UDP, which one load balancer cannot serve; use TCP or UDP for all ports, and two Services for both"},
	{Field: schema.FieldShared, Becomes: schema.Refused, Silent: true, Words: "as before"},
	{Field: schema.FieldApart, Becomes: schema.Refused, Silent: true, Words: "as before"},
}...)

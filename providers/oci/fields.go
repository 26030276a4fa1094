package oci

import "github.com/anyccm/cloud-controller-manager/registry/schema"

// serviceFields declares how each field of a Service is handled, by the kind of load balancer.
var serviceFields = func() schema.Fields {
	nlb := map[string]string{annotationType: typeNLB}
	const (
		both  = "the subnets of the load balancer have IPv6"
		noUDP = "is a protocol that load balancers of this kind do not have; use TCP, or a network load balancer"
	)
	return append(append(
		schema.ServedFields(schema.FieldLocal), schema.OnlyWith(nlb, noUDP, schema.FieldMixed, schema.FieldShared)...,
	), schema.Fields{
		{Field: schema.FieldAddress, Becomes: schema.Served, Only: "it is a reserved public address, and the load balancer is public", Later: schema.Refused},
		{Field: schema.FieldIPv6, With: nlb, Becomes: schema.Served, Only: both},
		{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: "is not served by load balancers of this kind, which have IPv4; use SingleStack IPv4 or both, or a network load balancer"},
		{Field: schema.FieldPreferBoth, Becomes: schema.Served, Only: both},
		{Field: schema.FieldRequireBoth, With: nlb, Becomes: schema.Served, Only: both},
		{Field: schema.FieldRequireBoth, Becomes: schema.Served, Only: both, Later: schema.Told},
		{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "load balancers of Oracle's cloud send traffic to node ports, which the Service must have"},
		{Field: schema.FieldAffinity, Becomes: schema.Refused, Words: "has no equivalent on Oracle's load balancers; use None"},
		{Field: schema.FieldSourceRanges, Becomes: schema.Served, Only: "security rules are managed, which they are not for network load balancers unless an annotation says so"},
		{Field: schema.FieldSCTP, With: nlb, Becomes: schema.Refused, Words: "is a protocol that network load balancers do not have; use TCP or UDP"},
		{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "is a protocol that Oracle's load balancers do not have; use TCP"},
		{Field: schema.FieldUDP, With: nlb, Becomes: schema.Served, Only: "security lists are not managed"},
		{Field: schema.FieldUDP, Becomes: schema.Refused, Words: noUDP},
		{Field: schema.FieldApart, Becomes: schema.Refused, Words: "TCP and UDP of one port have one listener, with one node port, and the Service has two: " +
			"give both ports the same nodePort, or make two Services"},
	}...)
}()

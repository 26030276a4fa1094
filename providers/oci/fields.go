package oci

import "github.com/anyccm/cloud-controller-manager/registry/schema"

// serviceFields are what becomes of the fields of a Service, with the words of Oracle's own controller.
var serviceFields = func() schema.Fields {
	nlb := map[string]string{annotationType: typeNetwork}
	const both = "the subnets of the load balancer have IPv6"
	return append(schema.ServedFields(schema.FieldLocal, schema.FieldMixed, schema.FieldShared), schema.Fields{
		{Field: schema.FieldAddress, Becomes: schema.Served, Only: "it is a reserved public address, and the load balancer is public", Later: schema.Refused},
		{Field: schema.FieldIPv6, With: nlb, Becomes: schema.Served, Only: both},
		{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: "SingleStack IPv6 is not supported for OCI LBaaS"},
		{Field: schema.FieldPreferBoth, Becomes: schema.Served, Only: both},
		{Field: schema.FieldRequireBoth, With: nlb, Becomes: schema.Served, Only: both},
		{Field: schema.FieldRequireBoth, Becomes: schema.Served, Only: both, Later: schema.Told},
		{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "load balancers of Oracle's cloud send traffic to node ports, which the Service must have"},
		{Field: schema.FieldAffinity, Becomes: schema.Refused, Words: `invalid service: OCI only supports SessionAffinity "None" currently`},
		{Field: schema.FieldSourceRanges, Becomes: schema.Served, Only: "security rules are managed, which they are not for network load balancers unless an annotation says so"},
		{Field: schema.FieldSCTP, With: nlb, Becomes: schema.Refused, Words: `invalid backend protocol "SCTP" requested for network load balancer listener`},
		{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "invalid service: OCI load balancers do not support SCTP"},
		{Field: schema.FieldUDP, With: nlb, Becomes: schema.Served, Only: "security lists are not managed"},
		{Field: schema.FieldUDP, Becomes: schema.Refused, Words: "invalid service: OCI load balancers do not support UDP"},
		{Field: schema.FieldApart, Becomes: schema.Refused, Words: "TCP and UDP of one port have one listener, with one node port, and the Service has two: " +
			"give both ports the same nodePort, or make two Services"},
	}...)
}()

package cloudstack

import "github.com/anyccm/cloud-controller-manager/registry/schema"

// serviceFields declares how each field of a Service is handled.
var serviceFields = func() schema.Fields {
	const twice = "is there twice, with TCP and UDP, which CloudStack cannot have at one address; use two Services"
	return append(schema.ServedFields(schema.FieldAffinity, schema.FieldSourceRanges), schema.Fields{
		{Field: schema.FieldAddress, Becomes: schema.Served, Only: "the address is of the nodes' network", Later: schema.Told},
		{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: "cannot be served on CloudStack, whose load balancers have IPv4 alone"},
		{Field: schema.FieldPreferBoth, Becomes: schema.Told, Words: "only IPv4 has a load balancer on CloudStack"},
		{Field: schema.FieldRequireBoth, Becomes: schema.Told, Words: "only IPv4 has a load balancer on CloudStack"},
		{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "leaves a port that has no node port, which load balancers of CloudStack need; remove it"},
		{Field: schema.FieldLocal, Becomes: schema.Told, Words: "loses connections: the load balancer sends to all nodes, also to those without a " +
			"pod of the Service; use Cluster, or pods on all nodes"},
		{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "is a protocol that CloudStack's load balancers do not have; use TCP"},
		{Field: schema.FieldUDP, Becomes: schema.Refused, Only: "the network's load balancer takes UDP, which virtual routers do not", Silent: true, Later: schema.Told},
		{Field: schema.FieldMixed, Becomes: schema.Told, Only: "the same", Silent: true},
		{Field: schema.FieldShared, Becomes: schema.Refused, Words: twice},
		{Field: schema.FieldApart, Becomes: schema.Refused, Words: twice},
	}...)
}()

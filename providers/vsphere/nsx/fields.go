package nsx

import "github.com/anyccm/cloud-controller-manager/registry/schema"

// ServiceFields declares how each field of a Service is handled on NSX, whose load balancers know clients and nodes by address alone.
var ServiceFields = append(schema.ServedFields(schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart), schema.Fields{
	{Field: schema.FieldAddress, Becomes: schema.Told, Words: "has no effect: the address comes from the pool of the Service's class"},
	{Field: schema.FieldIPv6, Becomes: schema.Told, Words: "has no effect: the address is of the family of its class's pool, and by IPv4 the Service does not answer"},
	{Field: schema.FieldPreferBoth, Becomes: schema.Told, Words: "the load balancer has one address only, of the family of its class's pool"},
	{Field: schema.FieldRequireBoth, Becomes: schema.Told, Words: "the load balancer has one address only, of the family of its class's pool"},
	{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "leaves ports without a node port, and NSX's load balancer sends to node ports; remove it"},
	{Field: schema.FieldAffinity, Becomes: schema.Told, Words: "counts between nodes and Pods alone: the load balancer picks a node for each connection"},
	{Field: schema.FieldLocal, Becomes: schema.Told, Words: "has no effect on the load balancer: NSX sends to the node ports of all nodes, takes TCP ports out " +
		"of nodes without endpoints by their health check alone, and UDP ports not at all"},
	{Field: schema.FieldSourceRanges, Becomes: schema.Told, Words: "has no effect on the load balancer: NSX's lets every client in; restrict clients by the " +
		"distributed firewall or a network policy"},
	{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "is a protocol that NSX's load balancer does not serve; use TCP or UDP"},
}...)

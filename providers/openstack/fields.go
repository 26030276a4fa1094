package openstack

import "github.com/anyccm/cloud-controller-manager/registry/schema"

// serviceFields declares how each field of a Service is handled.
var serviceFields = func() schema.Fields {
	const both = "Octavia's API has version 2.26, its provider knows it, and the network has a subnet of the other family"
	return append(schema.ServedFields(
		schema.FieldAffinity, schema.FieldSCTP, schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart,
	), schema.Fields{
		{Field: schema.FieldAddress, Becomes: schema.Served, Later: schema.Told},
		{Field: schema.FieldIPv6, Becomes: schema.Served, Only: "the network of the load balancer and the nodes have IPv6"},
		{Field: schema.FieldPreferBoth, Becomes: schema.Served, Only: both, Later: schema.Told},
		{Field: schema.FieldRequireBoth, Becomes: schema.Served, Only: both, Later: schema.Told},
		{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "leaves ports without a node port, so that no node would be a member; remove it"},
		{Field: schema.FieldLocal, Becomes: schema.Served, Only: "health is checked: " + annotationMonitor + " or the option create-monitor"},
		{Field: schema.FieldSourceRanges, Becomes: schema.Served, Only: "Octavia's API has version 2.12, or manage-security-groups with ovn"},
	}...)
}()

package ibm

import "github.com/anyccm/cloud-controller-manager/registry/schema"

// serviceFields declares how each field of a Service is handled. Application load balancers take only TCP.
var serviceFields = append(append(
	schema.ServedFields(schema.FieldLocal, schema.FieldSourceRanges),
	schema.OnlyWith(map[string]string{annotationFeatures: featureNLB},
		"application load balancers take TCP alone; network ones take it: "+annotationFeatures+": nlb",
		schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart)...,
), schema.Fields{
	{Field: schema.FieldAddress, Becomes: schema.Told, Words: "has no effect on IBM Cloud"},
	{Field: schema.FieldIPv6, Becomes: schema.Refused, Words: "cannot be served: load balancers of IBM Cloud have IPv4 alone, where the Service does not answer"},
	{Field: schema.FieldPreferBoth, Becomes: schema.Told, Words: "load balancers of IBM Cloud have IPv4 alone"},
	{Field: schema.FieldRequireBoth, Becomes: schema.Told, Words: "load balancers of IBM Cloud have IPv4 alone"},
	{Field: schema.FieldNoNodePorts, Becomes: schema.Refused, Words: "is not possible: IBM's load balancers send to node ports; remove it"},
	{Field: schema.FieldAffinity, Becomes: schema.Told, Words: "has no effect on IBM Cloud"},
	{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "is not a protocol of IBM's load balancers; use TCP or UDP"},
}...)

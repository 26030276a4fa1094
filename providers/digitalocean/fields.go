package digitalocean

import (
	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// serviceFields declares how each field of a Service is handled. Load balancers accept clients of both families unless the network stack
// says otherwise.
var serviceFields = func() schema.Fields {
	regional := map[string]string{annotationType: godo.LoadBalancerTypeRegional}
	override := map[string]string{annotationOverrideCheck: "true"}
	stack := map[string]string{annotationNetworkStack: godo.LoadBalancerNetworkStackIPv4}
	internal := map[string]string{annotationNetwork: godo.LoadBalancerNetworkTypeInternal}
	const noNodePort = "leaves ports without a node port; remove it, or set the type of the load balancer to " +
		godo.LoadBalancerTypeRegionalNetwork + " without a health check of your own"
	rows := append(schema.ServedFields(
		schema.FieldLocal, schema.FieldSourceRanges, schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart,
	), schema.Fields{
		{Field: schema.FieldAddress, Becomes: schema.Told, Words: "has no effect on DigitalOcean; one of your own addresses is named by " + annotationIP},
		{Field: schema.FieldIPv6, With: regional, Becomes: schema.Refused, Words: "cannot be served: droplets are reached by IPv4 alone, where the Service does not answer"},
		{Field: schema.FieldIPv6, Becomes: schema.Told, Words: "counts for droplets with IPv6 alone: others are reached by IPv4, where the Service does not answer"},
		{Field: schema.FieldNoNodePorts, With: regional, Becomes: schema.Refused, Words: noNodePort},
		{Field: schema.FieldNoNodePorts, With: override, Becomes: schema.Refused, Words: noNodePort},
		{Field: schema.FieldNoNodePorts, Becomes: schema.Served, Anyway: true},
		{Field: schema.FieldAffinity, Becomes: schema.Told, Words: "has no effect on the load balancer, which picks a droplet for each connection; for HTTP set " +
			annotationStickyType + " to cookies"},
		{Field: schema.FieldSCTP, Becomes: schema.Refused, Words: "is a protocol that DigitalOcean's load balancers do not have; use TCP or UDP"},
	}...)
	for _, f := range []schema.Field{schema.FieldPreferBoth, schema.FieldRequireBoth} {
		for _, with := range []map[string]string{stack, internal} {
			rows = append(rows, schema.FieldRow{Field: f, With: with, Becomes: schema.Told, Words: "this load balancer has IPv4 alone"})
		}
		rows = append(rows, schema.FieldRow{Field: f, Becomes: schema.Served, Anyway: true})
	}
	return rows
}()

// judge returns the warnings and errors about a Service's fields.
func (s settings) judge(service *v1.Service) (warnings, err error) {
	return serviceFields.Judge(service, map[string]string{annotationType: s.Type})
}

// fieldOptions implements registry.Provider.FieldOptions.
func fieldOptions(in registry.Inputs) map[string]string {
	c, _ := Options.Parse(in.Sources) // missing options do not affect fields
	return map[string]string{annotationType: c.DefaultType}
}

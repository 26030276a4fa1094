package keepalived

import (
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// serviceFields declares how each field of a Service is handled; kube-proxy serves the traffic to its address.
var serviceFields = func() schema.Fields {
	rows := schema.Fields{
		{Field: schema.FieldSourceRanges, With: map[string]string{envAnnouncer: announcerVIP}, Becomes: schema.Told, Words: "has no effect: " +
			"kube-keepalived-vip forwards past kube-proxy, which would keep other clients out"},
		{Field: schema.FieldLocal, With: map[string]string{envAnnouncer: announcerKeepalived}, Becomes: schema.Told, Words: "loses " +
			"traffic while the node that holds the address has no pod of the Service; use Cluster, or pods on all nodes"},
	}
	for _, f := range schema.AllFields() {
		rows = append(rows, schema.FieldRow{Field: f, Becomes: schema.Served})
	}
	return rows
}()

func (c Config) judge(service *v1.Service) (warnings, err error) {
	return serviceFields.Judge(service, map[string]string{envAnnouncer: c.Announcer})
}

// fieldOptions implements registry.Provider.FieldOptions.
func fieldOptions(in registry.Inputs) map[string]string {
	c, _, _ := parseConfig(in) // missing options do not matter for fields
	return map[string]string{envAnnouncer: c.Announcer}
}

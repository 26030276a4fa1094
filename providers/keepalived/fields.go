package keepalived

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
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

// judge is about what the options alone make of a Service.
func (c Config) judge(service *v1.Service) (warnings, err error) {
	warnings, err = serviceFields.Judge(service, map[string]string{envAnnouncer: c.Announcer})
	for _, of := range []struct{ key, why string }{
		{annotationMethod, c.notFor(announcerVIP)},
		{annotationInterface, c.notFor(announcerKubeVIP)},
		{portable.BackendSelector, "kube-proxy leads to the pods from every node; set " + envSelector + " for all Services"},
	} {
		if service.Annotations[of.key] != "" && of.why != "" {
			warnings = errors.Join(warnings, &schema.Problem{Place: "annotation " + of.key, Reason: "has no effect: " + of.why, Warning: true})
		}
	}
	return warnings, err
}

// notFor says that the announcer of addresses is another one; "" where it may be this one.
func (c Config) notFor(announcer string) string {
	if c.Announcer == announcer || c.Announcer == announcerNone {
		return ""
	}
	return "it is " + announcer + "'s, and " + envAnnouncer + " is " + c.Announcer
}

// fieldOptions implements registry.Provider.FieldOptions.
func fieldOptions(in registry.Inputs) map[string]string {
	c, _, _ := parseConfig(in) // missing options do not matter for fields
	return map[string]string{envAnnouncer: c.Announcer}
}

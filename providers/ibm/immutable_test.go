package ibm

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// fixedCases are values of what counts only when a load balancer is made.
func fixedCases() map[string]func() conformance.FixedCase {
	values := conformance.FixedValues
	const zone, instance = "example-com-zone1", "crn:v1:bluemix:public:dns-svcs:global:a/1::"
	return map[string]func() conformance.FixedCase{
		annotationIPType:      values("", typePrivate),
		annotationDNSInstance: values(instance, "crn:v1:bluemix:public:dns-svcs:global:a/2::", annotationIPType, typePrivate, annotationDNSZone, zone),
		annotationDNSZone:     values(zone, "example-com-zone2", annotationIPType, typePrivate, annotationDNSInstance, instance),
	}
}

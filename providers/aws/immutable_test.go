package aws

import (
	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// fixedCases are values of what counts only when a load balancer is made.
func fixedCases(sim *awssim.Sim) map[string]func() conformance.FixedCase {
	values := conformance.FixedValues
	return map[string]func() conformance.FixedCase{
		annotationType:     values("", typeNLB),
		annotationInternal: values("", "true"),
		annotationTags:     values("team=web", "team=api,more=", annotationType, typeNLB),
		annotationEIPs: func() conformance.FixedCase {
			return values(sim.AddElasticIP(), sim.AddElasticIP(), annotationType, typeNLB, annotationSubnets, "public-us-east-1a")()
		},
		annotationPrivateAddresses: values(
			"10.0.1.10", "10.0.1.11", annotationType, typeNLB, annotationInternal, "true", annotationSubnets, "private-us-east-1a",
		),
	}
}

package oci

import (
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// fixedCases are values of what counts only when a load balancer of either kind is made.
func fixedCases(sim *ocisim.Sim) map[string]func() conformance.FixedCase {
	type fixedCase = conformance.FixedCase
	values := conformance.FixedValues
	domain, other := ocisim.DomainSubnets()
	elsewhere := ocisim.Compartment + "other"
	free, defined := [2]string{`{"team":"a"}`, `{"team":"b","more":"c"}`}, [2]string{`{"ns":{"a":"b"}}`, `{"ns":{"a":"c"}}`}
	return map[string]func() fixedCase{
		annotationInternal: values("", "true"),
		annotationSubnet1:  values("", ocisim.DualSubnet()),
		annotationSubnet2:  values(other, ocisim.DualSubnet(), annotationSubnet1, domain),
		annotationAddress: func() fixedCase {
			sim.AddReserved("192.0.2.50")
			return fixedCase{Later: "192.0.2.50"}
		},
		annotationCompartment: func() fixedCase {
			sim.Add("elsewhere", func(i *ocisim.Instance) { i.Compartment = elsewhere })
			return fixedCase{Later: elsewhere}
		},
		annotationType:     values("", typeNLB),
		annotationFreeform: values(free[0], free[1]),
		annotationDefined:  values(defined[0], defined[1]),
		nlbInternal:        values("", "true", annotationType, typeNLB),
		nlbSubnet:          values("", ocisim.DualSubnet(), annotationType, typeNLB),
		nlbFreeform:        values(free[0], free[1], annotationType, typeNLB),
		nlbDefined:         values(defined[0], defined[1], annotationType, typeNLB),
		nlbNewFreeform:     values(free[0], free[1], annotationType, typeNLB),
		nlbNewDefined:      values(defined[0], defined[1], annotationType, typeNLB),
		nlbPrivateIPv4:     values("", "10.0.64.77", annotationType, typeNLB),
		nlbIPv6: func() fixedCase {
			return fixedCase{
				First: "2603:c020:0:4::77", Later: "2603:c020:0:4::78", With: pairs(annotationType, typeNLB, nlbSubnet, ocisim.DualSubnet()),
				DualStack: true,
			}
		},
	}
}

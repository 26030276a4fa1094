package linode

import (
	"strconv"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// fixedCases are values of what counts only when a NodeBalancer is made. inVPC puts the cluster into a VPC with further subnets, and
// returns the IDs of all of them.
func fixedCases(sim *linodesim.Sim, inVPC func(second ...[2]string) []int) map[string]func() conformance.FixedCase {
	type fixedCase = conformance.FixedCase
	networks := func(try func(first, second string) fixedCase) func() fixedCase {
		return func() fixedCase {
			subnets := inVPC([2]string{"second", "10.1.0.0/16"})
			sim.AddVPC("other", [2]string{"default", "10.2.0.0/16"})
			return try(strconv.Itoa(subnets[0]), strconv.Itoa(subnets[1]))
		}
	}
	values := func(first, later string, with ...string) func() fixedCase {
		return networks(func(string, string) fixedCase { return fixedCase{First: first, Later: later, With: annotated(with...)} })
	}
	return map[string]func() fixedCase{
		annotationType:             func() fixedCase { return fixedCase{Later: "premium"} },
		annotationReservedIPv4:     func() fixedCase { return fixedCase{Later: reservedIP} },
		annotationBackendVPC:       values("cluster", "other"),
		annotationBackendSubnet:    values("default", "second"),
		annotationBackendSubnetID:  networks(func(first, second string) fixedCase { return fixedCase{First: first, Later: second} }),
		annotationBackendRange:     values("10.0.7.0/30", "10.0.8.0/30"),
		annotationFrontendVPC:      values("cluster", "other", annotationFrontendSubnet, "default"),
		annotationFrontendSubnet:   values("default", "second", annotationFrontendVPC, "cluster"),
		annotationFrontendSubnetID: networks(func(first, second string) fixedCase { return fixedCase{First: first, Later: second} }),
		annotationFrontendRangeV4:  values("10.0.7.0/30", "10.0.8.0/30", annotationFrontendVPC, "cluster", annotationFrontendSubnet, "default"),
		annotationFrontendRangeV6:  values("2001:db8:7::/64", "2001:db8:8::/64", annotationFrontendVPC, "cluster", annotationFrontendSubnet, "default"),
	}
}

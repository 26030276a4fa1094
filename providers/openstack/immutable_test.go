package openstack

import (
	"fmt"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// fixedCases are values of what counts only when a load balancer is made. configure adds to the cloud config.
func fixedCases(sim *openstacksim.Sim, configure func(sections string)) map[string]func() conformance.FixedCase {
	type fixedCase = conformance.FixedCase
	floating := func(first, later string) func() fixedCase {
		return func() fixedCase {
			withFloatingSubnets(sim)
			return fixedCase{First: first, Later: later}
		}
	}
	internal := annotated(annotationInternal, textTrue)
	return map[string]func() fixedCase{
		annotationFloatingNetworkID: func() fixedCase {
			second := sim.AddNetwork("public-2", true)
			sim.AddSubnet(second, "public-2-subnet", "198.51.100.0/24")
			private := sim.Networks()[1].ID
			sim.AddRouter("second", second, private)
			return fixedCase{First: sim.Networks()[0].ID, Later: second}
		},
		annotationFloatingSubnetID: func() fixedCase {
			public := sim.Subnets()[0].ID
			return fixedCase{First: public, Later: withFloatingSubnets(sim)}
		},
		annotationFloatingSubnet:     floating("ext-g*", "~ext-silver"),
		annotationFloatingSubnetTags: floating("&gold,fast", "silver"),
		annotationClass: func() fixedCase {
			for i, name := range []string{"one", "two"} {
				subnet := sim.AddSubnet(sim.AddNetwork(name, false), name, fmt.Sprintf("10.%d.0.0/24", 7+i))
				configure(fmt.Sprintf("[LoadBalancerClass %q]\nsubnet-id = %s\nmember-subnet-id = %s\n", name, subnet, firstSubnet))
			}
			return fixedCase{First: "one", Later: "two", With: internal}
		},
		annotationPortID: func() fixedCase {
			port := func(address string) string {
				at := []openstacksim.FixedIP{{SubnetID: firstSubnet, Address: address}}
				return sim.AddPort(openstacksim.Port{NetworkID: firstNet, FixedIPs: at, PortSecurity: true})
			}
			return fixedCase{First: port("10.0.77.7"), Later: port("10.0.77.8"), With: internal}
		},
		annotationSubnetID: func() fixedCase {
			with := annotated(annotationInternal, textTrue, annotationMemberSubnetID, firstSubnet)
			return fixedCase{Later: sim.AddSubnet(firstNet, "front-subnet", "10.7.0.0/24"), With: with}
		},
		annotationNetworkID: func() fixedCase {
			network := sim.AddNetwork("front", false)
			sim.AddSubnet(network, "front-subnet", "10.7.0.0/24")
			return fixedCase{Later: network, With: annotated(annotationInternal, textTrue, annotationMemberSubnetID, firstSubnet)}
		},
		annotationFlavorID: func() fixedCase { return fixedCase{Later: someID} },
		annotationZone:     func() fixedCase { return fixedCase{Later: "nova"} },
	}
}

package openstack

import (
	"fmt"
	"slices"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// portableCases are values of portable annotations that the simulated cloud has, and what goes with them.
func portableCases(sim *openstacksim.Sim, url string) map[string]conformance.PortableCase {
	prepared := func(prepare func() conformance.PortableCase) conformance.PortableCase {
		return conformance.PortableCase{Prepare: func(clientset.Interface) conformance.PortableCase { return prepare() }}
	}
	container := ""
	withContainer := func(make func() conformance.PortableCase) conformance.PortableCase {
		return prepared(func() conformance.PortableCase {
			container = sim.AddContainer("containers", url+"/key-manager")
			return make()
		})
	}
	return map[string]conformance.PortableCase{
		portable.Network: prepared(func() conformance.PortableCase {
			network := sim.AddNetwork("front", false)
			sim.AddSubnet(network, "front-subnet", "10.7.0.0/24")
			return conformance.PortableCase{Value: network, With: map[string]string{portable.Scheme: portable.SchemeInternal}}
		}),
		portable.Subnet: prepared(func() conformance.PortableCase {
			private := sim.Networks()[1].ID
			return conformance.PortableCase{
				Value: sim.AddSubnet(private, "front-subnet", "10.7.0.0/24"), With: map[string]string{portable.Scheme: portable.SchemeInternal},
			}
		}),
		portable.Address: prepared(func() conformance.PortableCase {
			sim.AddFloatingIP(sim.Networks()[0].ID, "203.0.113.77", "reserved")
			return conformance.PortableCase{Value: "203.0.113.77"}
		}),
		portable.Certificate: withContainer(func() conformance.PortableCase { return conformance.PortableCase{Value: container} }),
		portable.TLSPorts: withContainer(func() conformance.PortableCase {
			return conformance.PortableCase{
				Value: "http,https", With: map[string]string{portable.Certificate: container},
				Seen: func() string { return tlsEnded(sim, container) },
			}
		}),
		portable.CheckPort: {Seen: func() string { return nodePortsChecked(sim) }},
	}
}

// tlsEnded says where one of the two ports does not end TLS with a certificate.
func tlsEnded(sim *openstacksim.Sim, reference string) string {
	all := sim.Listeners()
	if len(all) != 2 || slices.ContainsFunc(all, func(l openstacksim.Listener) bool {
		return l.Protocol != "TERMINATED_HTTPS" || deref(l.TLSRef) != reference
	}) {
		return fmt.Sprintf("listeners: %+v", all)
	}
	return ""
}

// nodePortsChecked says where a pool is not checked at the node port, which is its members' port unless they name another one.
func nodePortsChecked(sim *openstacksim.Sim) string {
	var ports []int
	for _, p := range sim.Pools() {
		if p.MonitorID == "" {
			return "a pool without a monitor"
		}
		for _, m := range p.BackendMembers() {
			if m.MonitorPort != nil {
				return fmt.Sprintf("a member is checked at %d", *m.MonitorPort)
			}
			ports = append(ports, m.ProtocolPort)
		}
	}
	slices.Sort(ports)
	if want := []int{30080, 30080, 30443, 30443}; !slices.Equal(ports, want) {
		return fmt.Sprintf("the members have the ports %v", ports)
	}
	return ""
}

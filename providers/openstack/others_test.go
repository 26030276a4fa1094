package openstack

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// tryOthers says what tenants may ask for, and what others make of what Services have.
func tryOthers(t testing.TB, sim *openstacksim.Sim, f *conformance.Fixture) *conformance.Fixture {
	t.Helper()
	find := func(address string) *openstacksim.FloatingIP {
		for _, a := range sim.FloatingIPs() {
			if a.Address == address {
				return &a
			}
		}
		return nil
	}
	f.Reserve = func() conformance.Reserved {
		const theirs = "203.0.113.50"
		sim.AddFloatingIP(sim.Networks()[0].ID, theirs, "")
		return conformance.Reserved{
			Address: theirs, Exists: func() bool { return find(theirs) != nil }, Claims: []map[string]string{{annotationAddress: theirs}},
		}
	}
	f.Additions = map[string]func(*v1.Service) func() bool{
		"a floating address to a machine": func(s *v1.Service) func() bool {
			machine, address := sim.Ports()[0].ID, s.Status.LoadBalancer.Ingress[0].IP
			require.NoError(t, sim.AttachFloatingIP(find(address).ID, machine))
			return func() bool {
				a := find(address)
				return a != nil && deref(a.PortID) == machine
			}
		},
	}
	f.Claims = &conformance.Claims{
		Of:      func(s *v1.Service) string { return s.Annotations[annotationID] },
		Claim:   func(s *v1.Service, id string) { s.Annotations[annotationID] = id },
		Foreign: func() string { return byHand(t, sim) },
		Exists: func(id string) bool {
			return slices.ContainsFunc(sim.LoadBalancers(), func(lb openstacksim.LoadBalancer) bool { return lb.ID == id })
		},
	}
	f.Share = func(guest, owner *v1.Service) { guest.Annotations[annotationID] = owner.Annotations[annotationID] }
	f.Lacks = map[string]string{"OwnershipTags": "no annotation sets tags"}
	f.TwinOf, f.Capitals = f.AddInstance, "Worker-A1"
	f.AddInterface = func(providerID string) {
		second := sim.AddNetwork("storage", false)
		sim.AddPort(openstacksim.Port{
			DeviceID: serverID(t, providerID), DeviceOwner: "compute:nova", NetworkID: second,
			FixedIPs: []openstacksim.FixedIP{{SubnetID: sim.AddSubnet(second, "storage", "10.9.0.0/24"), Address: "10.9.0.5"}},
		})
	}
	return f
}

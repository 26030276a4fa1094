package linode

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// tryOthers says what tenants may ask for, and what others add to what Services have.
func tryOthers(t testing.TB, sim *linodesim.Sim, f *conformance.Fixture) *conformance.Fixture {
	t.Helper()
	f.Reserve = func() conformance.Reserved {
		return conformance.Reserved{
			Address: reservedIP, With: map[string]string{annotationReservedIPv4: reservedIP},
			Exists: func() bool { return sim.Reserved(reservedIP) }, Claims: []map[string]string{{annotationRetainReservedIPv4: "false"}},
		}
	}
	f.Additions = map[string]func(*v1.Service) func() bool{
		"a NodeBalancer to a firewall": func(*v1.Service) func() bool {
			firewall := sim.Firewalls()[0].ID
			sim.Protect(firewall, 1)
			return func() bool {
				all := sim.Firewalls()
				return len(all) == 1 && slices.Contains(all[0].Devices(), 1)
			}
		},
	}
	f.AddInterface = func(providerID string) {
		_, subnets := sim.AddVPC("storage", [2]string{"storage", "10.9.0.0/24"})
		sim.JoinSubnet(linodeID(t, providerID), subnets[0])
	}
	f.Capitals = "Worker-A1"
	f.Lacks = map[string]string{
		"Share": "a NodeBalancer serves one Service", "Address6": "an address that a Service asks for is of IPv4",
		"TwinOf": "an account has no two Linodes with one label",
	}
	f.OwnershipTags = []string{"anyccm:other", "anyccm-svc:other", "anyccm-for:other"}
	return f
}

package oci

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// tryOthers says what tenants may ask for.
func tryOthers(t testing.TB, sim *ocisim.Sim, f *conformance.Fixture) *conformance.Fixture {
	t.Helper()
	f.Reserve = func() conformance.Reserved {
		const theirs = "192.0.2.60"
		id := sim.AddReserved(theirs)
		return conformance.Reserved{Address: theirs, Exists: func() bool { return strings.Contains(string(sim.State()), id) }}
	}
	f.Lacks = map[string]string{
		"Claims":    "load balancers are found by the UID in their names",
		"Share":     "a load balancer serves one Service",
		"Address6":  "an address that a Service asks for is of IPv4",
		"Additions": "security lists alone are shared, where Access tries it, and Oracle refuses to delete a group that has members",
	}
	f.AddInterface = func(providerID string) {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		require.NoError(t, sim.Change(id, func(i *ocisim.Instance) {
			i.Interfaces(func(cards []ocisim.VNIC) []ocisim.VNIC {
				return append([]ocisim.VNIC{sim.SecondInterface(2)}, cards...)
			})
		}))
	}
	f.OwnershipTags = []string{tagCluster, "AnyCCM-Cluster"}
	return f
}

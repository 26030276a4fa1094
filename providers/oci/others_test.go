package oci

import (
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// tryOthers says what tenants may ask for. Security lists, which others write as well, are tried by Access.
func tryOthers(sim *ocisim.Sim, f *conformance.Fixture) *conformance.Fixture {
	f.Reserve = func() conformance.Reserved {
		const theirs = "192.0.2.60"
		id := sim.AddReserved(theirs)
		return conformance.Reserved{Address: theirs, Exists: func() bool { return strings.Contains(string(sim.State()), id) }}
	}
	f.OwnershipTags = []string{tagCluster, "AnyCCM-Cluster"}
	return f
}

package linode

import (
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// tryOthers says what tenants may ask for.
func tryOthers(sim *linodesim.Sim, f *conformance.Fixture) *conformance.Fixture {
	f.Reserve = func() conformance.Reserved {
		return conformance.Reserved{
			Address: reservedIP, With: map[string]string{annotationReservedIPv4: reservedIP},
			Exists: func() bool { return sim.Reserved(reservedIP) }, Claims: []map[string]string{{annotationRetainReservedIPv4: "false"}},
		}
	}
	f.OwnershipTags = []string{"anyccm:other", "anyccm-svc:other", "anyccm-for:other"}
	return f
}

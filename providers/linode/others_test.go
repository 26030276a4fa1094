package linode

import (
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// tryOthers says what tenants may ask for.
func tryOthers(sim *linodesim.Sim, f *conformance.Fixture) *conformance.Fixture {
	f.Reserve = func() conformance.Reserved {
		return conformance.Reserved{
			Address: reservedIP, There: func() bool { return sim.Reserved(reservedIP) }, With: map[string]string{annotationReservedIPv4: reservedIP},
			Claims: []map[string]string{{annotationRetainReservedIPv4: "false"}},
		}
	}
	f.Marks = []string{"anyccm:other", "anyccm-svc:other", "anyccm-for:other"}
	return f
}

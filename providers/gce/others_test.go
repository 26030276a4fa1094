package gce

import (
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryOthers says what tenants may ask for. What Services share here Google refuses to delete while others use it.
func tryOthers(sim *gcesim.Sim, f *conformance.Fixture) *conformance.Fixture {
	f.Reserve = func() conformance.Reserved {
		const theirs = "203.0.113.201"
		sim.Put("regions/us-central1/addresses/idle", map[string]any{"address": theirs})
		return conformance.Reserved{Address: theirs, Exists: func() bool {
			return slices.ContainsFunc(sim.Objects("addresses"), func(a map[string]any) bool { return a["address"] == theirs })
		}}
	}
	return f
}

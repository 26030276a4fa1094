package photon

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/photon/photonsim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := photonsim.New(photonsim.New12(), simkit.SeedOf(t))
	network := simkit.NewNetwork()
	env := authenticated(t, network, sim, server, network.Serve(t, server))
	idOf := func(providerID string) string { return strings.TrimPrefix(providerID, providerIDPrefix) }
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(),
		Inputs:         func() registry.Inputs { return conformance.Inputs(nil, env) },
		AddInstance:    func(name string) string { return providerIDPrefix + sim.Add(name).ID },
		RemoveInstance: func(id string) { sim.Remove(idOf(id)) },
		PowerOff:       func(id string) { sim.Edit(idOf(id), func(v *photonsim.VM) { v.State = "STOPPED" }) },
		Resize: func(id string) {
			sim.Edit(idOf(id), func(v *photonsim.VM) { v.Flavor = new("cluster-large") })
		},
		Tag: func(id string, tags map[string]string) {
			sim.Edit(idOf(id), func(v *photonsim.VM) { v.Tags = slices.Sorted(maps.Keys(tags)) })
		},
		RefuseAccount: func() {
			sim.SetPassword("another")
			sim.EndTokens(true)
		},
		OtherAccount:     sim.RemoveAll,
		MalformedIDs:     []string{providerIDPrefix + "a/b", providerIDPrefix + "?", providerIDPrefix + " "},
		CallsPerInstance: 4, // a task, and a read of its end
		InstanceListing:  "GET /projects/{id}/vms",
	}
	f.TwinOf, f.Capitals = f.AddInstance, "Worker-A1"
	return f
}

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

package ovirt

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := ovirtsim.New(simkit.SeedOf(t))
	sim.Add("HostedEngine") // the engine runs in a virtual machine of its own
	network := simkit.NewNetwork()
	env := sim.Variables(network.Serve(t, server))
	idOf := func(providerID string) string {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		return id
	}
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(),
		Inputs:         func() registry.Inputs { return conformance.Inputs(nil, env) },
		AddInstance:    func(name string) string { return providerIDPrefix + sim.Add(name).ID },
		RemoveInstance: func(id string) { sim.Remove(idOf(id)) },
		PowerOff:       func(id string) { require.NoError(t, sim.SetStatus(idOf(id), "down")) },
		Resize:         func(string) { sim.SetType("large") },
		Tag: func(id string, tags map[string]string) {
			sim.Edit(idOf(id), func(v *ovirtsim.VM) { v.Tags = slices.Sorted(maps.Keys(tags)) })
		},
		RefuseAccount: func() {
			sim.SetPassword("another")
			sim.EndTokens(false)
		},
		OtherAccount: func() { sim.Permit() },
		MalformedIDs: []string{
			providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "4230", earlierPrefix, earlierPrefix + "/5f3ae1c0-7b1d-4e0a-9c55-000000000001",
		},
		InstanceListing: ovirtsim.Listing,
	}
	f.TwinOf, f.Capitals = f.AddInstance, "Worker-A1" // in another data center
	return f
}

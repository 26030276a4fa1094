package azure

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryNodes says how the suite tries nodes.
func tryNodes(t testing.TB, sim *azuresim.Sim, f *conformance.Fixture) {
	t.Helper()
	f.AddInstance = sim.AddInstance
	f.Capitals = "Worker-A1"
	f.TwinOf = func(name string) string {
		sim.AddScaleSet("second", "Uniform", azuresim.ScaleSet, nil)
		return sim.AddInstanceTo("second", name)
	}
	f.RemoveInstance = func(id string) { require.NoError(t, sim.RemoveByID(id)) }
	f.Resize = func(id string) { require.NoError(t, sim.SetSize(id, "Standard_D8s_v5")) }
	f.Tag = func(id string, tags map[string]string) { require.NoError(t, sim.SetTags(id, tags)) }
	f.PowerOff = func(id string) { require.NoError(t, sim.SetPower(id, "deallocated")) }
	f.InstanceListing = "GET Microsoft.Compute/virtualMachineScaleSets/virtualMachines"
	f.RefuseAccount = func() { sim.SetSecret("another") }
	f.OtherAccount = sim.RemoveInstances
	f.MalformedIDs = []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + azuresim.ID("Microsoft.Compute/virtualMachines", "")}
}

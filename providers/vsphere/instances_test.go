package vsphere

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

// tryNodes says how the suite tries nodes.
func tryNodes(t testing.TB, sim *vspheresim.Sim, f *conformance.Fixture) {
	t.Helper()
	instanceOf := func(providerID string) string {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		return id
	}
	f.AddInstance = func(name string) string { return providerIDPrefix + sim.AddInstance(name) }
	f.RemoveInstance = func(id string) { sim.RemoveInstanceByID(instanceOf(id)) }
	f.PowerOff = func(id string) { require.NoError(t, sim.SetStatus(instanceOf(id), "stopped")) }
	f.InstanceListing = "GET /v1/instances"
	f.RefuseAccount = func() { sim.SetToken("another") }
	f.OtherAccount = sim.RemoveInstances
	f.MalformedIDs = []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "A"}
}

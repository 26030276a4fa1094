package vsphere

import (
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/mo"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

// tryNodes says how the suite tries nodes.
func tryNodes(t testing.TB, sim *vspheresim.Sim, f *conformance.Fixture) {
	t.Helper()
	of := func(providerID string) *vspheresim.Machine {
		return sim.Find(strings.TrimPrefix(providerID, providerIDPrefix))
	}
	f.AddInstance = func(name string) string { return providerIDPrefix + sim.Add(vspheresim.Spec{Name: name}).UUID }
	f.RemoveInstance = func(id string) { sim.Destroy(of(id)) }
	f.Resize = func(id string) {
		sim.Edit(of(id), func(m *mo.VirtualMachine) { m.Summary.Config.NumCpu = 32 })
	}
	f.PowerOff = func(id string) { sim.PowerOff(of(id)) }
	f.InstanceListing = vspheresim.Listing
	f.RefuseAccount = func() {
		sim.SetPassword("another")
		sim.EndSessions()
	}
	f.OtherAccount = sim.HideAll
	f.MalformedIDs = []string{
		providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "4230", providerIDPrefix + "00000000-0000-0000-0000-000000000000",
	}
}

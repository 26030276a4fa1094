package vsphere

import (
	"testing"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

// tryInterfaces says how the suite gives a machine a second interface.
func tryInterfaces(sim *vspheresim.Sim, f *conformance.Fixture) {
	second := types.GuestNicInfo{
		Network: "storage", DeviceConfigId: 4001, Connected: true, MacAddress: "00:50:56:01:00:01", IpAddress: []string{"10.99.0.5"},
	}
	f.AddInterface = func(providerID string) {
		one := sim.Instance(providerID)
		sim.Edit(one, func(m *mo.VirtualMachine) { m.Guest.Net = append(m.Guest.Net, second) })
	}
}

// tryNodes says how the suite tries nodes.
func tryNodes(t testing.TB, sim *vspheresim.Sim, f *conformance.Fixture) {
	t.Helper()
	of := func(providerID string) *vspheresim.Machine {
		return sim.Instance(providerID)
	}
	f.AddInstance = func(name string) string { return providerIDPrefix + sim.Add(vspheresim.Spec{Name: name}).UUID }
	f.Capitals = "Worker-A1"
	f.TwinOf = func(name string) string {
		return providerIDPrefix + sim.Add(vspheresim.Spec{Name: name + "-copy", HostName: name}).UUID
	}
	f.SystemUUID = func(id string) string { return of(id).UUID }
	f.RemoveInstance = func(id string) { sim.Destroy(of(id)) }
	f.Resize = func(id string) {
		sim.Edit(of(id), func(m *mo.VirtualMachine) { m.Summary.Config.NumCpu = 32 })
	}
	f.Tag = func(id string, tags map[string]string) { sim.SetTags(of(id).Ref, tags) }
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

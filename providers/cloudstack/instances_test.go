package cloudstack

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// nodeWorld is the provider's nodes in front of a simulated zone, in virtual time.
type nodeWorld struct {
	*conformance.NodeBench
	sim   *cloudstacksim.Sim
	cloud *cloud
}

func inNodeWorld(t *testing.T, more string, test func(w *nodeWorld)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := cloudstacksim.New(cloudstacksim.Options{Seed: simkit.SeedOf(t)})
		b, address := conformance.NewNodeBench(t, server)
		b.Config = sim.CloudConfig(address) + more
		w := &nodeWorld{NodeBench: b, sim: sim}
		w.start()
		test(w)
	})
}

func (w *nodeWorld) start() {
	w.Helper()
	w.Start(func(in registry.Inputs, informers cloudbase.Informers) nodes.API {
		c, err := maker().New(in)
		require.NoError(w, err)
		c.Inform(informers)
		w.cloud = c
		return c.instances
	})
}

// TestFormsOfProviderIDs: every ID that a controller ever wrote leads to the machine; the word of v1.1 leads there by the name of the node.
func TestFormsOfProviderIDs(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		t := w.T
		id := w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		for _, text := range []string{providerIDPrefix + id, providerIDPrefix + "/" + id, "cloudstack:///" + id, "cloudstack://r1/" + id, id} {
			w.RequireExists(conformance.InitializedNode("another-name", text))
		}
		w.RequireExists(conformance.InitializedNode("n1", bareID))
		assert.Equal(t, providerIDPrefix+id, w.RequireMetadata(conformance.NewNode("n1", "")).ProviderID)
	})
}

// TestOldConstantIDIsNeverGone: no answer about a node with the word of v1.1 proves anything, for only its name leads to a machine.
func TestOldConstantIDIsNeverGone(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		w.sim.AddVM(cloudstacksim.Spec{Name: "n2"})
		w.RequireDoubt(conformance.InitializedNode("n1", bareID), "no virtual machine is named n1")
	})
}

// TestNames: a node with a domain is found by its first label; two machines whose names differ by case are told apart by nobody.
func TestNames(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		t := w.T
		id := w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		assert.Equal(t, providerIDPrefix+id, w.RequireMetadata(conformance.NewNode("N1.example.org", "")).ProviderID)
		w.sim.AddVM(cloudstacksim.Spec{Name: "web10"})
		_, err := w.Metadata(conformance.NewNode("web1", ""))
		require.ErrorContains(t, err, "no virtual machine is named web1", "part of a name is none")
		w.sim.AddVM(cloudstacksim.Spec{Name: "N1"})
		w.Later()
		_, err = w.Metadata(conformance.NewNode("n1", ""))
		require.ErrorContains(t, err, "2 virtual machines are named n1")
	})
}

func TestMetadata(t *testing.T) {
	inNodeWorld(t, "region = r1\n", func(w *nodeWorld) {
		t := w.T
		second := w.sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "second"})
		id := w.sim.AddVM(cloudstacksim.Spec{
			Name: "n1", Offering: "Small Instance", Zone: "zone one",
			Networks: []string{w.sim.Networks()[0].ID, second}, Default: 1,
		})
		var ips []string
		for _, v := range w.sim.List() {
			if v.ID == id {
				ips = []string{v.NICs[1].IP, v.NICs[0].IP}
			}
		}
		w.sim.Edit(id, func(v *cloudstacksim.VM) { v.PublicIP = "203.0.113.200" })
		m := w.RequireMetadata(conformance.NewNode("n1", ""))
		assert.Equal(t, []string{"SmallInstance", "zone-one", "r1"}, []string{m.InstanceType, m.Zone, m.Region})
		assert.Equal(t, []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: ips[0]},
			{Type: v1.NodeInternalIP, Address: ips[1]},
			{Type: v1.NodeHostName, Address: "n1"},
			{Type: v1.NodeExternalIP, Address: "203.0.113.200"},
		}, m.NodeAddresses, "the interface of the default route comes first")
	})
}

// TestMachineWithoutInterface is an error about that machine alone.
func TestMachineWithoutInterface(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		t := w.T
		id := w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		w.sim.Edit(id, func(v *cloudstacksim.VM) { v.NICs = nil })
		w.sim.AddVM(cloudstacksim.Spec{Name: "n2"})
		_, err := w.Metadata(conformance.NewNode("n1", ""))
		require.ErrorContains(t, err, "does not have an internal IP")
		w.RequireMetadata(conformance.NewNode("n2", ""))
	})
}

func TestStates(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		t := w.T
		id := w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		n := conformance.InitializedNode("n1", providerIDPrefix+id)
		for state, down := range map[string]bool{
			"Running": false, "Starting": false, "Stopping": false, "Migrating": false, "Error": false, "Unknown": false, "Stopped": true, "Shutdown": true,
		} {
			require.NoError(t, w.sim.SetStatus(id, state))
			w.Later()
			w.RequireExists(n)
			assert.Equal(t, down, w.ShutDown(n), state)
		}
	})
}

// TestPages: with whatever size of pages the listing is whole, and 1,000 nodes cost its pages.
func TestPages(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		t := w.T
		w.sim.Seed(1200)
		for n := range 1000 {
			w.RequireMetadata(conformance.NewNode(fmt.Sprintf("node-%d", n+1), ""))
		}
		assert.LessOrEqual(t, w.Calls("listVirtualMachines"), 6)
		w.RequireNothingRefused()
	})
}

func TestSmallPages(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		w.sim.SetPageSize(2)
		w.sim.Seed(7)
		for n := range 7 {
			w.RequireMetadata(conformance.NewNode(fmt.Sprintf("node-%d", n+1), ""))
		}
		w.RequireNothingRefused()
	})
}

// TestProjectByName: it is looked up once, and every listing is of the project.
func TestProjectByName(t *testing.T) {
	inNodeWorld(t, "project-id = "+cloudstacksim.ProjectName+"\n", func(w *nodeWorld) {
		t := w.T
		w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		w.sim.AddVM(cloudstacksim.Spec{Name: "n2"})
		_, err := w.Metadata(conformance.NewNode("n1", ""))
		require.Error(t, err, "it is not the project's")
		w.sim.MoveToProject()
		w.Later()
		w.RequireMetadata(conformance.NewNode("n1", ""))
		_, err = w.cloud.api.project(inventory.NotBefore(w.Context(), time.Now()))
		require.NoError(t, err)
		assert.Equal(t, 1, w.Calls("listProjects"), "a lost creation is no reason either")
	})
}

// TestStartNeedsNoAdministrator: neither for nodes nor for the version, which a narrow role may not read.
func TestStartNeedsNoAdministrator(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		t := w.T
		w.sim.Restrict(cloudstacksim.APIKey, "listVirtualMachines")
		w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		require.NoError(t, w.cloud.CheckAPI(w.Context()))
		require.NoError(t, w.cloud.CheckSettings(w.Context()))
		w.RequireMetadata(conformance.NewNode("n1", ""))
		inPlace, err := w.cloud.api.changesNetworks(w.Context())
		require.NoError(t, err)
		assert.False(t, inPlace)
		assert.Zero(t, w.Calls("listManagementServersMetrics"))
	})
}

// TestAppliance: what the server encodes in other ways of a virtual network function is not asked for.
func TestAppliance(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		w.sim.AddVM(cloudstacksim.Spec{Name: "appliance", VNF: true})
		w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		w.RequireMetadata(conformance.NewNode("n1", ""))
	})
}

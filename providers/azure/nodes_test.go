package azure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

func TestProviderIDsInAnyCase(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.sim.AddInstance("worker")
		upper := strings.Replace(id, strings.ToLower(azuresim.Group), strings.ToUpper(azuresim.Group), 1)
		for _, form := range []string{id, upper, strings.Replace(upper, "resourceGroups", "resourcegroups", 1)} {
			exists, err := w.cloud.instances.InstanceExists(w.Context(), node("worker", form))
			require.NoError(t, err, form)
			assert.True(t, exists)
			m, err := w.cloud.instances.InstanceMetadata(w.Context(), node("worker", form))
			require.NoError(t, err)
			assert.Equal(t, id, m.ProviderID)
		}
		assert.Equal(t, instanceKey(id), instanceKey(upper))
	})
	// The name of a resource group may also be part of other names; only the group itself is written in lower case.
	assert.Equal(t, "azure:///subscriptions/RG/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/RG-1",
		canonicalMachineID("/subscriptions/RG/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/RG-1"))
	written, err := parseProviderID("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/set_4")
	require.NoError(t, err)
	plain, err := parseProviderID("azure:///subscriptions/s/resourceGroups/G/providers/microsoft.compute/virtualMachineScaleSets/set/virtualMachines/4")
	require.NoError(t, err)
	assert.Equal(t, plain, written)
}

// kindsOfMachines adds one of each kind, by name.
func kindsOfMachines(w *world) map[string]string {
	w.sim.AddScaleSet("flex", "Flexible", "", nil)
	return map[string]string{
		"uniform": w.sim.AddInstance("uniform"), "flexible": w.sim.AddInstanceTo("flex", "flexible"), "alone": w.sim.AddMachine("alone"),
		"zonal": w.sim.AddMachine("zonal", "2"),
	}
}

func TestDeletedMachines(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for name, id := range kindsOfMachines(w) {
			n := node(name, id)
			exists, err := w.cloud.instances.InstanceExists(w.Context(), n)
			require.NoError(t, err)
			require.True(t, exists, name)
			require.NoError(t, w.sim.RemoveByID(id))
			time.Sleep(time.Minute)
			exists, err = w.cloud.instances.InstanceExists(w.Context(), n)
			require.NoError(t, err, name)
			assert.False(t, exists, "%s: one fresh read of the machine says so", name)
		}
		id := w.sim.AddMachine("deleting")
		require.NoError(t, w.sim.SetState(id, "Deleting"))
		exists, err := w.cloud.instances.InstanceExists(w.Context(), node("deleting", id))
		require.NoError(t, err)
		assert.False(t, exists)
		m, err := w.cloud.instances.InstanceMetadata(w.Context(), node("again", ""))
		require.Error(t, err)
		assert.Nil(t, m)
	})
}

func TestPowerStates(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		machines := kindsOfMachines(w)
		for _, power := range []string{"running", "stopped", "deallocated", "deallocating", "starting"} {
			for name, id := range machines {
				require.NoError(t, w.sim.SetPower(id, power))
				time.Sleep(time.Minute)
				_, err := w.cloud.instances.inventory.All(w.Context(), queryNow) // answers come from the listing
				require.NoError(t, err)
				down, err := w.cloud.instances.InstanceShutdown(w.Context(), node(name, id))
				require.NoError(t, err)
				assert.Equal(t, power != "running" && power != "starting", down, "%s %s", name, power)
			}
		}
		for name, id := range machines {
			require.NoError(t, w.sim.SetPower(id, "stopped"))
			require.NoError(t, w.sim.SetState(id, "Updating"))
			time.Sleep(time.Minute)
			down, err := w.cloud.instances.InstanceShutdown(w.Context(), node(name, id))
			require.NoError(t, err)
			assert.False(t, down, "%s is being updated", name)
		}
	})
}

func TestUnmanagedNodes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.server.ResetCalls()
		labelled := node("labelled", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/x")
		labelled.Labels[labelManaged] = "false"
		arc := node("arc", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.HybridCompute/machines/x")
		for _, n := range []*v1.Node{labelled, arc} {
			exists, err := w.cloud.instances.InstanceExists(w.Context(), n)
			require.NoError(t, err)
			assert.True(t, exists)
			down, err := w.cloud.instances.InstanceShutdown(w.Context(), n)
			require.NoError(t, err)
			assert.False(t, down)
			m, err := w.cloud.instances.InstanceMetadata(w.Context(), n)
			require.NoError(t, err)
			assert.Equal(t, n.Spec.ProviderID, m.ProviderID)
		}
		assert.Zero(t, w.server.Calls().Total)
	})
}

func TestZones(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		machines := kindsOfMachines(w)
		zoned, err := w.cloud.instances.InstanceMetadata(w.Context(), node("zonal", ""))
		require.NoError(t, err)
		assert.Equal(t, "westeurope-2", zoned.Zone)
		assert.Equal(t, "westeurope", zoned.Region)
		for _, name := range []string{"alone", "flexible"} {
			first, err := w.cloud.instances.InstanceMetadata(w.Context(), node(name, ""))
			require.NoError(t, err)
			assert.Regexp(t, `^[0-4]$`, first.Zone, "a fault domain")
			w.restart()
			again, err := w.cloud.instances.InstanceMetadata(w.Context(), node(name, machines[name]))
			require.NoError(t, err)
			assert.Equal(t, first, again)
		}
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.sim.AddInstance("worker")
		w.sim.GivePublicAddress(id)
		m, err := w.cloud.instances.InstanceMetadata(w.Context(), node("worker", ""))
		require.NoError(t, err)
		var kinds []v1.NodeAddressType
		for _, a := range m.NodeAddresses {
			kinds = append(kinds, a.Type)
		}
		want := []v1.NodeAddressType{v1.NodeHostName, v1.NodeInternalIP, v1.NodeExternalIP, v1.NodeInternalIP}
		assert.Equal(t, want, kinds, "%v", m.NodeAddresses)
		assert.Equal(t, "worker", m.NodeAddresses[0].Address)
		assert.Equal(t, "Standard_D2s_v5", m.InstanceType)
	})
}

// TestNodeCost: 300 nodes in three scale sets cost listings, whose number does not grow with the nodes.
func TestNodeCost(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.sim.AddScaleSet("b", "Uniform", "", nil)
		w.sim.AddScaleSet("c", "Uniform", "", nil)
		var nodes []*v1.Node
		for i := range 300 {
			set := []string{azuresim.ScaleSet, "b", "c"}[i%3]
			name := fmt.Sprintf("%s-%d", set, i)
			nodes = append(nodes, node(name, w.sim.AddInstanceTo(set, name)))
		}
		w.show(nodes...)
		w.server.ResetCalls()
		for range 2 {
			for _, n := range nodes {
				_, err := w.cloud.instances.InstanceMetadata(w.Context(), n)
				require.NoError(t, err)
				_, err = w.cloud.instances.InstanceExists(w.Context(), n)
				require.NoError(t, err)
			}
		}
		calls := w.server.Calls()
		assert.LessOrEqual(t, calls.Total, 3+(1+1+3)+(1+1+3), "tokens, machines, network interfaces: %v", calls.ByOperation)
		assert.Empty(t, calls.Refused)
	})
}

// TestOtherResourceGroup: a label names the resource group of a node's machine.
func TestOtherResourceGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.sim.AddMachineTo(azuresim.OtherGroup, "far")
		n := node("far", "")
		_, err := w.cloud.instances.InstanceMetadata(w.Context(), n)
		require.Error(t, err)
		n.Labels[labelGroup] = azuresim.OtherGroup
		w.show(n)
		time.Sleep(time.Minute)
		m, err := w.cloud.instances.InstanceMetadata(w.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, id, m.ProviderID)
	})
}

// TestMachineUnderCreationStays: one that has no name and no network interface yet exists.
func TestMachineUnderCreationStays(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.sim.AddInstance("young")
		require.NoError(w, w.sim.Change(id, func(d map[string]any) {
			delete(props(d), "osProfile")
			delete(props(d), "networkProfile")
			props(d)["provisioningState"] = "Creating"
		}))
		exists, err := w.cloud.instances.InstanceExists(w.Context(), node("young", id))
		require.NoError(w, err)
		assert.True(w, exists)
		down, err := w.cloud.instances.InstanceShutdown(w.Context(), node("young", id))
		require.NoError(w, err)
		assert.False(w, down)
	})
}

// TestLiveMachineOutsideOfScaleSets: where all nodes are said to be in scale sets, one that stands alone is still not taken for deleted.
func TestLiveMachineOutsideOfScaleSets(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		id := w.sim.AddMachine("alone")
		w.set(map[string]any{"disableAvailabilitySetNodes": true})
		exists, err := w.cloud.instances.InstanceExists(w.Context(), node("alone", id))
		require.NoError(w, err)
		assert.True(w, exists)
		require.NoError(w, w.sim.RemoveByID(id))
		time.Sleep(time.Minute)
		exists, err = w.cloud.instances.InstanceExists(w.Context(), node("alone", id))
		require.NoError(w, err)
		assert.False(w, exists)
	})
}

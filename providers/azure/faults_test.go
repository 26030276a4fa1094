package azure

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// These tests are about faults of Azure's own controller that no other test names.

// TestScaleSetChangedMeanwhile: somebody else who changes a scale set or a machine at the same time costs a further read, and no loop.
func TestScaleSetChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		set := azuresim.ID("Microsoft.Compute/virtualMachineScaleSets", azuresim.ScaleSet)
		for _, id := range []string{set, strings.TrimPrefix(w.nodes[0].Spec.ProviderID, "azure://")} {
			for range 2 {
				w.sim.Meanwhile(id, func(d map[string]any) { d["tags"] = doc{"scaled": "meanwhile"} })
			}
		}
		w.ensure(s)
		snapshot := w.sim.Snapshot()
		assert.Contains(w, snapshot, "pool kubernetes member n1")
		assert.Contains(w, snapshot, "model of "+azuresim.ScaleSet)
		calls := w.server.Calls()
		assert.Equal(w, 3, calls.ByOperation["PUT Microsoft.Compute/virtualMachineScaleSets/{name}"])
		assert.Equal(w, 3, calls.ByOperation["PUT Microsoft.Compute/virtualMachineScaleSets/virtualMachines/{name}"])
		assert.Equal(w, "meanwhile", tagsOf(w.sim.Shown(set))["scaled"])
	})
}

// TestBoundAddressIsNotForgotten: a public address that cannot be deleted yet is an error, until it is gone.
func TestBoundAddressIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.sim.Refuse("DELETE Microsoft.Network/publicIPAddresses", http.StatusBadRequest, "PublicIPAddressCannotBeDeleted",
			"Public IP address can not be deleted since it is still allocated to resource x.")
		require.ErrorContains(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, w.Current(s)), "still allocated")
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), clusterName, w.Current(s))
		require.NoError(w, err)
		assert.True(w, exists, "the framework asks whether anything is left")
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestConfigInYAML: the file may be JSON or YAML.
func TestConfigInYAML(t *testing.T) {
	t.Parallel()
	c, warnings, err := parseConfig(inputs("tenantId: t\nsubscriptionId: s\naadClientId: a\naadClientSecret: x\nresourceGroup: RG\nlocation: westeurope\n" +
		"tagsMap: {a: b}\nuseManagedIdentityExtension: false\n"))
	require.NoError(t, err)
	require.NoError(t, warnings)
	assert.Equal(t, "rg", c.Group)
	assert.Equal(t, map[string]string{"a": "b"}, c.tags)
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

// TestScaleSetOfAnotherLoadBalancer: machines that are behind another load balancer of the kind are left there, and all others are served.
func TestScaleSetOfAnotherLoadBalancer(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	inWorld(t, func(w *world) {
		w.sim.AddScaleSet("aaa-first", "Uniform", "", nil)
		w.sim.Leave(lbID("by-hand"), doc{"location": azuresim.Location, "sku": doc{"name": "Standard"}, "properties": doc{
			"backendAddressPools": []any{part("pool", doc{})},
		}})
		pool := azuresim.ID("Microsoft.Network/loadBalancers", "by-hand", "backendAddressPools", "pool")
		busy := w.sim.AddInstanceTo("aaa-first", "busy")
		for _, id := range []string{azuresim.ID("Microsoft.Compute/virtualMachineScaleSets", "aaa-first"), busy} {
			w.sim.LeaveMember(id, pool, false)
		}
		w.joinAs("busy", busy)
		w.join("n1")
		w.Apply(s)
		w.ensure(s)
		snapshot := w.sim.Snapshot()
		assert.Contains(w, snapshot, "kubernetes pool kubernetes member n1")
		assert.NotContains(w, snapshot, "kubernetes pool kubernetes member busy")
		assert.Contains(w, snapshot, "by-hand pool pool member busy")
		assert.Empty(w, w.server.Calls().Refused)
		w.remove(s)
		assert.Contains(w, w.sim.Snapshot(), "by-hand pool pool member busy")
	})
}

// TestDeletionWithoutRights: a credential that may not look, or not delete, is an error that says so, and nothing is taken for gone.
func TestDeletionWithoutRights(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{
		"GET Microsoft.Network/loadBalancers", "GET Microsoft.Network/publicIPAddresses", "DELETE Microsoft.Network/loadBalancers/{name}",
		"DELETE Microsoft.Network/publicIPAddresses/{name}", "PUT Microsoft.Network/networkSecurityGroups/{name}",
	} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.ensure(s)
				w.restart()
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: operation})
				require.NoError(w, err)
				require.Error(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, w.Current(s)))
				w.server.ClearFaults()
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}

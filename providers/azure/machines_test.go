package azure

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// These tests are about machines that are not as the others: what one of them lacks keeps no other one from being served.

// TestInterfaceWithoutMachine: a network interface that outlived its machine stays where it is, and no Service waits for it. It leaves
// with the load balancer.
func TestInterfaceWithoutMachine(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.joinAs("alone", w.sim.AddMachine("alone"))
		w.ensure(s)
		require.Equal(w, 2, strings.Count(w.sim.Snapshot(), "pool kubernetes member"))
		w.sim.Detach("alone")
		w.nodes, w.known = w.nodes[:1], w.known[:1]
		w.restart()
		w.show(node("waits-for-its-machine", ""))
		w.ensure(s)
		w.update(s)
		w.server.ResetCalls()
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
		assert.NotNil(w, w.sim.Shown(azuresim.ID("Microsoft.Network/networkInterfaces", "alone-nic")))
	})
}

// TestForeignInterfaceWithoutRights: who put a network interface of another resource group into a pool keeps no Service from being served,
// although the credential may not see it.
func TestForeignInterfaceWithoutRights(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		theirs := w.sim.AddMachineTo(azuresim.OtherGroup, "theirs")
		w.ensure(s)
		w.sim.LeaveMember(theirs, lbID("kubernetes")+"/backendAddressPools/kubernetes", false)
		w.restart()
		_, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "GET Microsoft.Network/networkInterfaces/{name}",
		})
		require.NoError(w, err)
		w.ensure(s)
		w.join("n2")
		w.update(s)
		assert.Contains(w, w.sim.Snapshot(), "member n2")
		assert.Equal(w, 3, strings.Count(w.sim.Snapshot(), "pool kubernetes member"), "theirs as well")
	})
}

// TestMachineOfAnotherSubscription: it exists as far as anybody can tell, is in no pool, and keeps nothing from being served.
func TestMachineOfAnotherSubscription(t *testing.T) {
	t.Parallel()
	for _, pools := range []string{poolNIC, poolIP} {
		t.Run(pools, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.set(map[string]any{"loadBalancerBackendPoolConfigurationType": pools})
				far := node("far", "azure:///subscriptions/0f0f0f0f-0000-4000-8000-000000000000/resourceGroups/k8s-rg/providers/Microsoft.Compute/virtualMachines/far")
				far.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.77.0.4"}}
				w.show(far)
				w.nodes = append(w.nodes, far)
				assert.NotEmpty(w, w.ensure(s).Status.LoadBalancer.Ingress)
				w.server.ResetCalls()
				w.update(s)
				assert.Zero(w, w.server.Calls().Writes)
				for _, a := range docs(w.parts("kubernetes", "backendAddressPools")[0], "properties", "loadBalancerBackendAddresses") {
					assert.NotEqual(w, "10.77.0.4", str(a, "properties", "ipAddress"))
				}
			})
		})
	}
}

// TestResourceGroupThatIsNone: the label of one node names a resource group that does not exist, or that the credential may not see. All
// other nodes are found.
func TestResourceGroupThatIsNone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		old := w.join("n1")
		odd := node("odd", "")
		odd.Labels[labelGroup] = "no-such-group"
		w.show(odd)
		m, err := w.cloud.instances.InstanceMetadata(w.Context(), node("n2", w.sim.AddInstance("n2")))
		require.NoError(w, err)
		assert.NotEmpty(w, m.NodeAddresses)
		time.Sleep(15 * time.Minute)
		w.sim.AddInstance("n3")
		m, err = w.cloud.instances.InstanceMetadata(w.Context(), node("n3", ""))
		require.NoError(w, err, "found by its name in a listing")
		assert.Contains(w, m.ProviderID, "virtualMachines")
		exists, err := w.cloud.instances.InstanceExists(w.Context(), old)
		require.NoError(w, err)
		assert.True(w, exists)
	})
}

// TestManyNodesJoinAtOnce: the work on their machines goes on at the same time.
func TestManyNodesJoinAtOnce(t *testing.T) {
	t.Parallel()
	const nodes = 40
	s := webService(nil)
	withNode(t, s, func(w *world) {
		for i := range nodes {
			w.join(fmt.Sprintf("more-%d", i))
		}
		w.sim.SetActivation(20 * time.Second)
		began := time.Now()
		w.tryOften(s)
		assert.Equal(w, nodes+1, strings.Count(w.sim.Snapshot(), "pool kubernetes member"))
		assert.Less(w, time.Since(began), 5*time.Minute, "one after the other takes a quarter of an hour")
	})
}

// TestTimeToAnAddress: the first Service over many nodes waits until the limit of calls has let out the writes of their machines, one each,
// which no call of Azure's joins, and for the end of Azure's work once for each batch.
func TestTimeToAnAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes   int
		isAlone bool
	}{"200 in a scale set": {200, false}, "200 alone": {200, true}, "1000 in a scale set": {1000, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.nodes > 200 {
				tier.Full(t)
			}
			inWorld(t, func(w *world) {
				for i := range c.nodes {
					if name := fmt.Sprintf("n%d", i); c.isAlone {
						w.joinAs(name, w.sim.AddMachine(name))
					} else {
						w.join(name)
					}
				}
				s := webService(nil)
				w.Apply(s)
				w.server.ResetCalls()
				began := time.Now()
				w.ensure(s)
				took, calls := time.Since(began), w.server.Calls()
				writes := time.Duration(c.nodes-75) * time.Second / 4 // a burst of 75, and four in a second
				assert.Less(w, took, writes+30*time.Second)
				assert.LessOrEqual(w, calls.Writes, c.nodes+4, "each machine once: %v", calls.ByOperation)
				assert.LessOrEqual(w, calls.Reads, c.nodes*9/4+40, "each machine, and the end of the work on it: %v", calls.ByOperation)
				assert.Len(w, docs(w.parts("kubernetes", "backendAddressPools")[0], "properties", "backendIPConfigurations"), c.nodes)
			})
		})
	}
}

// TestStoppedMachinesCostNothing: machines that take no change are not read again for every Service.
func TestStoppedMachinesCostNothing(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		second := webNumber(1, nil)
		w.Apply(second)
		for i := range 5 {
			require.NoError(w, w.sim.SetPower(w.join(fmt.Sprintf("stopped-%d", i)).Spec.ProviderID, "deallocated"))
		}
		w.ensure(s)
		w.ensure(second)
		w.server.ResetCalls()
		w.ensure(s)
		w.ensure(second)
		w.update(s)
		w.update(second)
		assert.LessOrEqual(w, w.server.Calls().Total, 5, "%v", w.server.Calls().ByOperation)
	})
}

// TestLockedResource: a lock on a resource is no work in progress, for whose end anybody could wait.
func TestLockedResource(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationIdle] = "30" })
		w.server.ResetCalls()
		w.sim.Refuse("PUT Microsoft.Network/loadBalancers", http.StatusConflict, "ScopeLocked", "The scope 'x' cannot perform write operation because following "+
			"scope(s) are locked: 'x'. Please remove the lock and try again.")
		_, err := w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes)
		require.ErrorContains(w, err, "Please remove the lock")
		assert.Equal(w, 1, w.server.Calls().ByOperation["PUT Microsoft.Network/loadBalancers/{name}"])
	})
}

// TestWorkThatFailsByItself: what Azure could not finish for reasons of its own is no fault of the Service.
func TestWorkThatFailsByItself(t *testing.T) {
	t.Parallel()
	for code, class := range map[string]error{
		"InternalServerError": cloudapi.ErrTransient, "GatewayTimeout": cloudapi.ErrTransient, "OperationTimedOut": cloudapi.ErrTransient,
		"TooManyRequests": cloudapi.ErrRateLimited, "RetryableErrorDueToAnotherOperation": cloudapi.ErrConflict, "InvalidParameter": cloudapi.ErrInvalid,
	} {
		assert.ErrorIs(t, classOf(errorBody{Code: code}, cloudapi.ErrInvalid), class, code)
	}
}

// TestAddressOfAnInternalFrontendChanges: its zones stay, which Azure lets nobody change.
func TestAddressOfAnInternalFrontendChanges(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationInternal: "true"})
	for name, zones := range map[string][]any{"in zones": {"1", "2", "3"}, "older than zones": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withNode(t, s.DeepCopy(), func(w *world) {
				w.ensure(s)
				lb := w.sim.Shown(lbID("kubernetes-internal"))
				front := docs(lb, "properties", "frontendIPConfigurations")[0]
				if delete(front, "zones"); zones != nil {
					front["zones"] = zones
				}
				w.sim.Leave(lbID("kubernetes-internal"), lb)
				w.restart()
				w.change(s, func(s *v1.Service) { s.Annotations[annotationIPv4] = "10.240.0.99" })
				assert.Equal(w, "10.240.0.99", w.ensure(s).Status.LoadBalancer.Ingress[0].IP)
				shown := w.parts("kubernetes-internal", "frontendIPConfigurations")[0]
				have, _ := shown["zones"].([]any)
				assert.ElementsMatch(w, zones, have)
			})
		})
	}
}

// TestStatusKeepsItsOrder: addresses come as the load balancer has them, as Azure's own controller shows them, whichever family the Service
// names first.
func TestStatusKeepsItsOrder(t *testing.T) {
	t.Parallel()
	s := webService(nil, bothFamilies)
	withNode(t, s, func(w *world) {
		before := w.ensure(s).Status
		w.change(s, func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol, v1.IPv4Protocol} })
		assert.Equal(w, before, w.ensure(s).Status)
	})
}

// TestScaleSetComesBackMeanwhile: a scale set that has a pool again when its load balancer is deleted is asked once more.
func TestScaleSetComesBackMeanwhile(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.sim.Refuse("DELETE Microsoft.Network/loadBalancers", http.StatusBadRequest, codeInUse, "Cannot delete load balancer kubernetes since its child "+
			"resources kubernetes are in use by virtual machine scale set /subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/x.")
		w.server.ResetCalls()
		w.remove(s)
		assert.Equal(w, 2, w.server.Calls().ByOperation["DELETE Microsoft.Network/loadBalancers/{name}"])
		assert.NotContains(w, w.sim.Snapshot(), "model of", "no scale set has a pool that is not there")
		assert.Empty(w, w.sim.Snapshot())
	})
}

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

// TestMembersLeaveAfterOthersJoined: where all nodes are others, the former ones serve until one of the new ones does.
func TestMembersLeaveAfterOthersJoined(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	inWorld(t, func(w *world) {
		w.Apply(s)
		w.joinAlone("former")
		w.ensure(s)
		members := func() (nics []string) {
			for _, pool := range w.parts("kubernetes", "backendAddressPools") {
				for _, config := range docs(pool, "properties", "backendIPConfigurations") {
					nics = append(nics, nameOf(ownerOf(str(config, "id"))))
				}
			}
			return nics
		}
		w.joinAlone("next")
		w.nodes = w.nodes[1:]
		require.NoError(w, w.sim.SetPower(w.nodes[0].Spec.ProviderID, "stopped"))
		waitFor(2 * observeMaxAge)
		w.update(s)
		assert.Equal(w, []string{"former-nic"}, members(), "the next one takes no change")
		require.NoError(w, w.sim.SetPower(w.nodes[0].Spec.ProviderID, "running"))
		waitFor(2 * observeMaxAge)
		w.update(s)
		assert.Equal(w, []string{"next-nic"}, members())
	})
}

// TestMemberWhoseNodeWentUnseen: while no process runs, a Node is excluded, and another one deleted whose machine stays. The first one's
// machine leaves the pool. Nothing tells the other one from a machine that somebody else put there: it stays, and its probe decides.
func TestMemberWhoseNodeWentUnseen(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	inWorld(t, func(w *world) {
		w.Apply(s)
		for _, name := range []string{"stays", "excluded", "deleted"} {
			w.joinAlone(name)
		}
		s = w.ensure(s)
		members := func() (nics []string) {
			for _, config := range docs(w.parts("kubernetes", "backendAddressPools")[0], "properties", "backendIPConfigurations") {
				nics = append(nics, nameOf(ownerOf(str(config, "id"))))
			}
			return nics
		}
		require.Len(w, members(), 3)
		deleted := w.nodes[2]
		w.nodes, w.known = w.nodes[:1], w.known[:2]
		w.restart()
		w.ensure(s)
		w.update(s)
		assert.ElementsMatch(w, []string{"stays-nic", "deleted-nic"}, members())
		w.show(deleted)
		w.nodes = append(w.nodes, deleted)
		w.update(s)
		w.nodes = w.nodes[:1]
		w.update(s)
		assert.Equal(w, []string{"stays-nic"}, members(), "what was seen as a node's leaves")
	})
}

// TestVanishedMachinesAreReadOnce: machines that are gone while their Nodes are not are read once, however many Services ask.
func TestVanishedMachinesAreReadOnce(t *testing.T) {
	t.Parallel()
	const gone = 10
	for name, together := range map[string]bool{"together": true, "one after the other": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				list := w.serveServices(40, 2)
				for i := range gone {
					w.joinAlone(fmt.Sprint("gone-", i))
				}
				w.together(list, func(s *v1.Service) *v1.Service { w.update(s); return s })
				for _, n := range w.nodes[2:] {
					require.NoError(w, w.sim.RemoveByID(n.Spec.ProviderID))
				}
				waitFor(2 * observeMaxAge)
				w.server.ResetCalls()
				if together {
					w.together(list, func(s *v1.Service) *v1.Service { w.update(s); return s })
				} else {
					for _, s := range list {
						w.update(s)
					}
				}
				calls := w.server.Calls()
				assert.LessOrEqual(w, calls.ByOperation["GET Microsoft.Compute/virtualMachines/{name}"], gone, "%v", calls.ByOperation)
				assert.LessOrEqual(w, calls.Reads, gone+15, "%v", calls.ByOperation)
				assert.Zero(w, calls.Writes)
			})
		})
	}
}

// TestInterfaceInAnotherResourceGroup: a machine whose network interface is in another resource group is served by its address.
func TestInterfaceInAnotherResourceGroup(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true"})
	inWorld(t, func(w *world) {
		w.byAddress()
		machine := w.sim.AddMachine("alone")
		here := azuresim.ID("Microsoft.Network/networkInterfaces", "alone-nic")
		there := strings.Replace(here, "/"+azuresim.Group+"/", "/"+azuresim.OtherGroup+"/", 1)
		nic := w.sim.Shown(here)
		nic["id"] = there
		w.sim.Leave(there, nic)
		require.NoError(w, w.sim.Change(machine, func(d map[string]any) {
			props(d)["networkProfile"] = doc{"networkInterfaces": []any{doc{"id": there, "properties": doc{"primary": true}}}}
		}))
		require.NoError(w, w.sim.RemoveByID("azure://"+here))
		n := w.joinAs("alone", machine)
		w.Apply(s)
		w.restart()
		w.ensure(s)
		assert.Equal(w, members4(n), w.pool("kubernetes"))
		require.Len(w, w.securityRules(), 1)
		assert.Contains(w, destinationsOf(w.securityRules()[0]), internalIP(n, false))
		waitFor(2 * observeMaxAge)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(w, w.server.Calls().Writes)
		assert.LessOrEqual(w, w.server.Calls().Reads, 8, "%v", w.server.Calls().ByOperation)
	})
}

package azure

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

// byAddress switches to pools whose members are addresses.
func (w *world) byAddress() {
	w.set(map[string]any{"loadBalancerBackendPoolConfigurationType": "nodeIP"})
}

// pool are the members of a pool by address: name and IP.
func (w *world) pool(name string) (list []string) {
	shown := w.sim.Shown(lbID("kubernetes"))
	for _, a := range docs(byName(docs(shown, "properties", "backendAddressPools"), name), "properties", "loadBalancerBackendAddresses") {
		list = append(list, str(a, "name")+" "+str(a, "properties", "ipAddress"))
	}
	return list
}

func members4(nodes ...*v1.Node) (list []string) {
	for _, n := range nodes {
		list = append(list, n.Name+" "+internalIP(n, false))
	}
	return list
}

// TestAddressPools: the pool of a family is one write for any number of nodes and Services, in the load balancer's own document.
func TestAddressPools(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.byAddress()
		for i := range 5 {
			w.join(fmt.Sprintf("n%d", i+1))
		}
		var list []*v1.Service
		for i := range 10 {
			list = append(list, webNumber(i, nil, bothFamilies))
		}
		w.Apply(list...)
		w.together(list, w.ensure)
		assert.ElementsMatch(w, members4(w.nodes...), w.pool("kubernetes"))
		assert.Len(w, w.pool("kubernetes-IPv6"), 5)
		assert.Zero(w, w.server.Calls().ByOperation["PUT Microsoft.Compute/virtualMachineScaleSets/{name}"], "scale sets are left alone")

		for i := range 3 {
			w.join(fmt.Sprintf("m%d", i+1))
		}
		w.server.ResetCalls()
		w.together(list, func(s *v1.Service) *v1.Service { w.update(s); return s })
		calls := w.server.Calls()
		assert.Equal(w, 1, calls.Writes, "both families, all nodes and all Services: %v", calls.ByOperation)
		assert.LessOrEqual(w, calls.Reads, 8, "%v", calls.ByOperation)
		assert.ElementsMatch(w, members4(w.nodes...), w.pool("kubernetes"))

		gone := w.nodes[0]
		w.nodes = w.nodes[1:]
		w.server.ResetCalls()
		w.together(list, func(s *v1.Service) *v1.Service { w.update(s); return s })
		assert.Equal(w, 1, w.server.Calls().Writes)
		assert.NotContains(w, w.pool("kubernetes"), members4(gone)[0])
		for _, s := range list {
			w.remove(s)
		}
		assert.Empty(w, w.sim.Snapshot())
		assert.Empty(w, w.server.Calls().Refused)
	})
}

// TestAddressPoolMembers: a node without an address of the family is left out, and costs no write in the next look; nodes of another
// resource group belong to the pool only where their addresses are in the network, and control planes and excluded nodes do not.
func TestAddressPoolMembers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.byAddress()
		plain, four := w.join("n1"), w.join("n2")
		four.Status.Addresses = four.Status.Addresses[:2] // host name and IPv4
		excluded, plane, unmanaged := w.join("excluded"), w.join("plane"), w.join("unmanaged")
		excluded.Labels[labelExclude] = "true"
		plane.Labels["node-role.kubernetes.io/control-plane"] = ""
		unmanaged.Labels[labelManaged] = "false"
		s := webService(nil, bothFamilies)
		w.Apply(s)
		w.ensure(s)
		assert.ElementsMatch(w, members4(plain, four), w.pool("kubernetes"))
		assert.Equal(w, []string{"n1 " + internalIP(plain, true)}, w.pool("kubernetes-IPv6"))
		w.server.ResetCalls()
		w.ensure(s)
		w.update(s)
		assert.Zero(w, w.server.Calls().Writes)

		w.nodes = nil
		w.update(s)
		w.ensure(s)
		assert.Zero(w, w.server.Calls().Writes, "a pool is never emptied")
	})
}

// TestNetworkOfAnotherSubscription: pools by address name the network where it is, and not where the machines are.
func TestNetworkOfAnotherSubscription(t *testing.T) {
	t.Parallel()
	c, _, err := parseConfig(inputs(`{"subscriptionId":"s","networkResourceSubscriptionID":"n","resourceGroup":"G","vnetName":"v","vnetResourceGroup":"vg",
		"location":"westeurope","tenantId":"t","aadClientId":"a","aadClientSecret":"x"}`))
	require.NoError(t, err)
	r := &reconciler{observer: observer{config: &c}}
	assert.Equal(t, "/subscriptions/n/resourceGroups/vg/providers/Microsoft.Network/virtualNetworks/v", r.config.networkID())
}

// TestPoolsThatOthersFill: their members are left alone, and the load balancer stays with its last Service.
func TestPoolsThatOthersFill(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"nodeIP", "nodeIPConfiguration"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.set(map[string]any{"loadBalancerBackendPoolConfigurationType": kind, "preConfiguredBackendPoolLoadBalancerTypes": "external"})
				w.join("n1")
				s := webService(nil)
				w.Apply(s)
				w.ensure(s)
				assert.Empty(w, w.pool("kubernetes"))
				w.remove(s)
				assert.NotNil(w, w.sim.Shown(azuresim.ID("Microsoft.Network/loadBalancers", "kubernetes")))
			})
		})
	}
}

// TestUnlikeKindOfPool: a pool with members of the other kind is not mixed up: nothing is written into it.
func TestUnlikeKindOfPool(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.join("n1")
		s := webService(nil)
		w.Apply(s)
		w.ensure(s)
		before := w.sim.Snapshot()
		w.byAddress()
		w.server.ResetCalls()
		err := w.refuse(s)
		require.ErrorContains(w, err, "loadBalancerBackendPoolConfigurationType")
		require.Error(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes))
		assert.Zero(w, w.server.Calls().Writes)
		assert.Equal(w, before, w.sim.Snapshot())
	})
}

// TestLyingKubelet: an address that a Node tells and its machine does not have becomes neither a member of a pool nor a destination of a
// rule.
func TestLyingKubelet(t *testing.T) {
	t.Parallel()
	const theirs = "10.240.0.200"
	for name, prepare := range map[string]func(w *world){"by network interface": func(*world) {}, "by address": (*world).byAddress} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(map[string]string{annotationNoFloating: "true"})
			withNode(t, s, func(w *world) {
				prepare(w)
				w.ensure(s)
				pool, opened := w.pool("kubernetes"), w.opened()
				n := w.nodes[0].DeepCopy()
				for i, a := range n.Status.Addresses {
					if a.Type == v1.NodeInternalIP {
						n.Status.Addresses[i].Address = theirs
					}
				}
				w.nodes[0] = n
				w.show(n)
				w.update(s)
				w.ensure(s)
				assert.Equal(w, pool, w.pool("kubernetes"))
				assert.Equal(w, opened, w.opened())

				n.Status.Addresses = nil
				w.update(s)
				assert.Equal(w, opened, w.opened(), "a Node that tells nothing is reached by what its machine has")
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}

// TestLoadBalancerInUpperCase: of which kind a load balancer is, its name says in any case.
func TestLoadBalancerInUpperCase(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationInternal: "true"})
	withNode(t, s, func(w *world) {
		w.set(map[string]any{"preConfiguredBackendPoolLoadBalancerTypes": "internal"})
		lb := doc{"location": azuresim.Location, "sku": doc{"name": "Standard"}, "properties": doc{}}
		require.NoError(w, w.cloud.reconciler.resources.api.put(w.Context(), "lb", lbID("KUBERNETES-INTERNAL"), networkVersion, lb, ""))
		w.ensure(s)
		w.join("n2")
		w.update(s)
		pool := byName(w.parts("kubernetes-internal", "backendAddressPools"), "kubernetes")
		assert.NotNil(w, pool)
		assert.Empty(w, docs(pool, "properties", "backendIPConfigurations"), "somebody else fills it")
	})
}

// TestBalancerDeletedWhileNodesChange: what somebody deletes while the members of its pools are written is no fault of the nodes.
func TestBalancerDeletedWhileNodesChange(t *testing.T) {
	inWorld(t, func(w *world) {
		w.byAddress()
		w.join("n1")
		s := webNumber(0, nil)
		w.Apply(s)
		w.ensure(s)
		w.join("n2")
		w.sim.RemoveLoadBalancers()
		w.update(s)
	})
}

package vsphere

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/types"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

func internalIP(address string) v1.NodeAddress {
	return v1.NodeAddress{Type: v1.NodeInternalIP, Address: address}
}

// TestLyingKubelet: an address that its virtual machine does not have gets neither the traffic of Services nor that of Pods.
func TestLyingKubelet(t *testing.T) {
	t.Parallel()
	inNSX(t, nsxsim.Options{}, nil, func(w *nsxWorld) {
		w.has = map[string][]v1.NodeAddress{"n1": {internalIP("10.0.0.1")}}
		n := w.routed(1)
		n.Status.Addresses = []v1.NodeAddress{internalIP("10.9.9.9")}
		s := webService()
		w.Apply(s)
		w.ensure(s)
		members := w.sim.Objects(pathPools)[0].Fields["members"]
		assert.Equal(w.T, []any{fields{"admin_state": "ENABLED", "display_name": "kubernetes:n1", "ip_address": "10.0.0.1"}}, members)
		require.NoError(w.T, w.makeRoute(n))
		assert.Equal(w.T, []any{fields{"ip_address": "10.0.0.1"}}, w.sim.Objects(routesPath)[0].Fields["next_hops"])
		assert.Len(w.T, w.listRoutes(), 1)
	})
}

// TestNodeJoinsBeforeItTellsItsAddress: the framework comes once, when the Node has its provider ID, and not again for its addresses.
func TestNodeJoinsBeforeItTellsItsAddress(t *testing.T) {
	t.Parallel()
	inNSX(t, nsxsim.Options{}, nil, func(w *nsxWorld) {
		s := serving(w, webService())
		w.has = map[string][]v1.NodeAddress{"n2": {internalIP("10.0.0.2")}}
		w.addNode("n2", "10.0.0.2").Status.Addresses = nil
		w.update(s)
		assert.Len(w.T, w.sim.Objects(pathPools)[0].Fields["members"], 2)
	})
}

func TestAddressesOfANode(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "node-1"})
		w.start()
		n := nodeOf(m)
		addresses := func() []v1.NodeAddress {
			w.Helper()
			list, err := w.cloud.instances.addressesOf(w.Context(), n)
			require.NoError(w, err)
			return list
		}
		own := addresses()
		require.NotEmpty(w, own, "what the virtual machine has, though the Node tells nothing")
		n.Status.Addresses = []v1.NodeAddress{internalIP("10.9.9.9")}
		assert.Equal(w, own, addresses())

		w.servers[0].ResetCalls()
		addresses()
		assert.Empty(w, w.servers[0].Calls().ByOperation, "it is known")

		w.sims[0].Update(m, types.PropertyChange{Name: "guest.net", Val: []types.GuestNicInfo{}})
		w.start()
		assert.Empty(w, addresses(), "not known while the virtual machine reports none")
	})
}

// TestOneNodeHoldsUpNoOthers: what is wrong with one node, for which its own kubelet or guest can see, is no error: load balancers and
// routes of all nodes would wait for it.
func TestOneNodeHoldsUpNoOthers(t *testing.T) {
	for name, arrange := range map[string]func(w *testWorld) *v1.Node{
		"a malformed provider ID": func(*testWorld) *v1.Node { return conformance.NewNode("worker", "vsphere://none") },
		"not initialized":         func(*testWorld) *v1.Node { return conformance.NewNode("worker", "") },
		"cloud-init's data cannot be read": func(w *testWorld) *v1.Node {
			return nodeOf(w.sims[0].Add(vspheresim.Spec{Name: "worker", Metadata: "*", Encoding: "base64"}))
		},
		"two copies run": func(w *testWorld) *v1.Node {
			m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.sims[0].Add(vspheresim.Spec{Name: "copy", UUID: m.UUID, HostName: "worker"})
			return nodeOf(m)
		},
		"gone, which an inaccessible virtual machine keeps from being proved": func(w *testWorld) *v1.Node {
			w.sims[0].Lose(w.sims[0].Add(vspheresim.Spec{Name: "lost"}))
			return conformance.NewNode("worker", "vsphere://4230aaaa-3f21-5a6b-9c0d-0000000000aa")
		},
		"gone, while the account lacks a right": func(w *testWorld) *v1.Node {
			m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.sims[0].Hide(m)
			return nodeOf(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, "", nil, func(w *testWorld) {
				other := w.sims[0].Add(vspheresim.Spec{Name: "other"})
				n := arrange(w)
				w.start()
				list, err := w.cloud.instances.addressesOf(w.Context(), n)
				require.NoError(w, err)
				assert.Empty(w, list)
				w.servers[0].ResetCalls()
				_, err = w.cloud.instances.addressesOf(w.Context(), n)
				require.NoError(w, err)
				assert.Zero(w, w.calls(), "each Service asks")
				list, err = w.cloud.instances.addressesOf(w.Context(), nodeOf(other))
				require.NoError(w, err)
				assert.NotEmpty(w, list)
			})
		})
	}
}

// TestVCenterThatDoesNotAnswerHidesNoAddresses: a load balancer that is made meanwhile would be without its nodes, and nobody comes back.
func TestVCenterThatDoesNotAnswerHidesNoAddresses(t *testing.T) {
	inWorld(t, twoVCenters, []vspheresim.Options{{}, {}}, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker", UUID: "4230aaaa-3f21-5a6b-9c0d-0000000000aa"})
		other := w.sims[1].Add(vspheresim.Spec{Name: "other", UUID: "4230bbbb-3f21-5a6b-9c0d-0000000000bb"})
		w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 503})
		w.start()
		_, err := w.cloud.instances.addressesOf(w.Context(), nodeOf(m))
		require.Error(w, err)
		list, err := w.cloud.instances.addressesOf(w.Context(), nodeOf(other))
		require.NoError(w, err)
		assert.NotEmpty(w, list)
		w.servers[0].ClearFaults()
		w.Later()
		list, err = w.cloud.instances.addressesOf(w.Context(), nodeOf(m))
		require.NoError(w, err)
		assert.NotEmpty(w, list)
	})
}

// TestSilentVCenterHoldsUpNoOtherNodes: a node whose vCenter does not answer stays where it is, and others join and leave. A new
// pool waits for it, because nobody would come back.
func TestSilentVCenterHoldsUpNoOtherNodes(t *testing.T) {
	t.Parallel()
	inNSX(t, nsxsim.Options{}, nil, func(w *nsxWorld) {
		w.routed(1)
		w.routed(2)
		s := webService()
		w.Apply(s)
		s = w.ensure(s)
		for _, n := range w.nodes {
			require.NoError(w.T, w.makeRoute(n))
		}
		w.silent = map[string]bool{"n1": true}
		w.restart()
		assert.Len(w.T, w.listRoutes(), 2)
		w.nodes = []*v1.Node{w.nodes[0], w.routed(3)}
		require.NoError(w.T, w.makeRoute(w.nodes[1]))
		want := []string{"10.0.0.1", "10.0.0.3"}
		require.ErrorContains(w.T, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes), "vCenter does not answer")
		assert.Equal(w.T, want, w.memberAddresses(w.sim.Objects(pathPools)[0]))

		w.nodes = []*v1.Node{w.nodes[0], w.routed(4)}
		_, err := w.try(w.change(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30777 }))
		require.ErrorContains(w.T, err, "vCenter does not answer")
		assert.Equal(w.T, []string{"10.0.0.1", "10.0.0.4"}, w.memberAddresses(w.sim.Objects(pathPools)[0]))
		assert.Equal(w.T, []any{"30777"}, w.sim.Objects(pathServers)[0].Fields["default_pool_member_ports"])

		w.server.ResetCalls()
		_, err = w.try(w.change(s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }))
		require.ErrorContains(w.T, err, "vCenter does not answer")
		assert.Empty(w.T, w.writes())
		w.silent = nil
		w.ensure(s)
		for _, p := range w.sim.Objects(pathPools) {
			assert.Equal(w.T, []string{"10.0.0.1", "10.0.0.4"}, w.memberAddresses(p))
		}
	})
}

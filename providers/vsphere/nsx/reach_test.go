package nsx

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

func internalIP(address string) v1.NodeAddress {
	return v1.NodeAddress{Type: v1.NodeInternalIP, Address: address}
}

// TestLyingKubelet: an address that its machine does not have gets neither the traffic of Services nor that of Pods.
func TestLyingKubelet(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
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
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := serving(w, webService())
		w.has = map[string][]v1.NodeAddress{"n2": {internalIP("10.0.0.2")}}
		w.addNode("n2", "10.0.0.2").Status.Addresses = nil
		w.update(s)
		assert.Len(w.T, w.sim.Objects(pathPools)[0].Fields["members"], 2)
	})
}

// TestNodeOfUnknownAddressHoldsUpNoOthers: a node whose addresses cannot be read stays where it is, and others join and leave. A new
// pool waits for it, because nobody would come back.
func TestNodeOfUnknownAddressHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
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
		require.ErrorContains(w.T, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes), "no addresses are known")
		assert.Equal(w.T, want, w.memberAddresses(w.sim.Objects(pathPools)[0]))

		w.nodes = []*v1.Node{w.nodes[0], w.routed(4)}
		_, err := w.try(w.change(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30777 }))
		require.ErrorContains(w.T, err, "no addresses are known")
		assert.Equal(w.T, []string{"10.0.0.1", "10.0.0.4"}, w.memberAddresses(w.sim.Objects(pathPools)[0]))
		assert.Equal(w.T, []any{"30777"}, w.sim.Objects(pathServers)[0].Fields["default_pool_member_ports"])

		w.server.ResetCalls()
		_, err = w.try(w.change(s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }))
		require.ErrorContains(w.T, err, "no addresses are known")
		assert.Empty(w.T, w.writes())
		w.silent = nil
		w.ensure(s)
		for _, p := range w.sim.Objects(pathPools) {
			assert.Equal(w.T, []string{"10.0.0.1", "10.0.0.4"}, w.memberAddresses(p))
		}
	})
}

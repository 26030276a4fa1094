package nsx

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// oldPool is a pool of addresses that no class has any more.
const oldPool = "old-pool"

// inOldPool is a Service that the cloud's own controller made a load balancer for, when its class had another pool.
func inOldPool(w *testWorld) *v1.Service {
	w.sim.AddPool(oldPool, "Old VIPs", "192.0.2.1", "192.0.2.250")
	w.addNode("n1", "10.0.0.1")
	s, o := twoPorts(), nsxsim.NewOriginal(w.sim)
	o.Pool, o.Address = oldPool, "192.0.2.7"
	o.Serve(s, w.nodes)
	w.Apply(s)
	w.server.ResetCalls()
	return s
}

func (w *testWorld) allocationsIn(pool string) int {
	return len(w.sim.Objects(pathIPPools + "/" + pool + "/ip-allocations"))
}

// The address is one of another pool than the class's: it stays, new ports are at it, and it is released with the Service.
func TestAddressOfAnotherPool(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := inOldPool(w)
		shown := s.Status.LoadBalancer
		s = w.ensure(s)
		assert.Equal(w.T, shown, s.Status.LoadBalancer)
		assert.Empty(w.T, w.writes())
		assert.Contains(w.T, strings.Join(w.Events(), "\n"), "in pool "+oldPool)
		s = w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }))
		assert.Equal(w.T, shown, s.Status.LoadBalancer)
		servers := w.sim.Objects(pathServers)
		require.Len(w.T, servers, 3)
		for _, v := range servers {
			assert.Equal(w.T, "192.0.2.7", v.Text("ip_address"))
			assert.Equal(w.T, oldPool, v.Tag(scopePool))
		}
		assert.Equal(w.T, []int{0, 1}, []int{w.allocationsIn(nsxsim.PoolID), w.allocationsIn(oldPool)})
		w.restart()
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths())
		w.requireNothingRefused()
	})
}

// The virtual servers alone say which pool the address is of. Without them, the address is found all the same: where the deletion broke
// off after any of its writes, and where somebody deleted them by hand.
func TestAddressOfAnotherPoolWithoutVirtualServers(t *testing.T) {
	t.Parallel()
	for k := 1; k <= 7; k++ {
		t.Run(fmt.Sprintf("the deletion breaks off after %d writes", k-1), func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				s := inOldPool(w)
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Writes: true, From: k})
				require.NoError(w.T, err)
				require.Error(w.T, w.remove(s))
				w.server.ClearFaults()
				w.restart()
				require.NoError(w.T, w.remove(s))
				assert.Zero(w.T, w.allocationsIn(oldPool))
			})
		})
	}
	t.Run("deleted by hand", func(t *testing.T) {
		t.Parallel()
		inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
			s := inOldPool(w)
			w.sim.RemoveLoadBalancers()
			shown := s.Status.LoadBalancer
			s = w.ensure(s)
			assert.Equal(w.T, shown, s.Status.LoadBalancer, "it is served at the same address")
			assert.Equal(w.T, []int{0, 1}, []int{w.allocationsIn(nsxsim.PoolID), w.allocationsIn(oldPool)})
			require.NoError(w.T, w.remove(s))
			assert.Empty(w.T, w.sim.Paths())
		})
	})
}

// What a new object is to refer to was deleted by hand a moment ago: it is found out at once, and made again.
func TestMissingReferences(t *testing.T) {
	t.Parallel()
	t.Run("the load balancer service", func(t *testing.T) {
		t.Parallel()
		inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
			serving(w, webService())
			w.sim.RemoveLoadBalancers()
			other := service("other", nil, port("http", 80, 30085))
			w.Apply(other)
			w.ensure(other)
			services, servers := w.sim.Objects(pathServices), w.sim.Objects(pathServers)
			require.Len(w.T, services, 1)
			require.Len(w.T, servers, 1)
			assert.Equal(w.T, services[0].Path, servers[0].Text("lb_service_path"))
		})
	})
	for name, gone := range map[string][]string{"a health check": {pathServers, pathPools}, "a pool": {pathServers}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				s := serving(w, webService())
				remove := func(collection string) {
					for _, o := range w.sim.Objects(collection) {
						if o.Tag(scopeService) != "" {
							w.sim.Remove(o.Path)
						}
					}
				}
				for _, collection := range gone {
					remove(collection)
				}
				w.restart()
				_, err := w.loadBalancers.PlanLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes)
				require.NoError(w.T, err)
				remove(map[string]string{"a health check": pathMonitors, "a pool": pathPools}[name])
				w.ensure(s)
				servers, pools := w.sim.Objects(pathServers), w.sim.Objects(pathPools)
				require.Len(w.T, servers, 1)
				require.Len(w.T, pools, 1)
				assert.Equal(w.T, pools[0].Path, servers[0].Text("pool_path"))
				require.NotNil(w.T, w.sim.Get(pools[0].Fields["active_monitor_paths"].([]any)[0].(string)))
			})
		})
	}
}

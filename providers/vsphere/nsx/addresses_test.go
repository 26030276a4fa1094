package nsx

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// What is made again at an address of another pool says which one that is: after a restart nothing else does, and the address would stay
// allocated for good.
func TestAddressOfAnotherPoolIsNoted(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		s := inOldPool(w)
		w.sim.RemoveLoadBalancers()
		s = w.ensure(s)
		for _, v := range w.sim.Objects(pathServers) {
			assert.Equal(w.T, "192.0.2.7", v.Text("ip_address"))
			assert.Equal(w.T, oldPool, v.Tag(scopePool))
		}
		w.restart()
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths())
	})
}

// The class is corrected before there is a load balancer: its address is one of the class that counts, and the other one is released.
func TestClassChangesBeforeTheLoadBalancerIsThere(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]nsxsim.Options{"addresses are shown": {}, "older NSX": {OldAllocations: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, o, nil, func(w *testWorld) {
				w.addNode("n1", "10.0.0.1")
				s := service("web", map[string]string{annotationClass: "dmz"}, port("http", 80, 30080))
				w.Apply(s)
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Writes: true, From: 2})
				require.NoError(w.T, err)
				_, err = w.try(s)
				require.Error(w.T, err)
				require.Equal(w.T, 1, w.allocationsIn(nsxsim.OtherPool))
				w.server.ClearFaults()
				w.restart()
				s = w.ensure(w.change(s, func(s *v1.Service) { s.Annotations = nil }))
				assert.Equal(w.T, "203.0.113.1", s.Status.LoadBalancer.Ingress[0].IP)
				assert.Equal(w.T, nsxsim.PoolID, w.sim.Objects(pathServers)[0].Tag(scopePool))
				assert.Equal(w.T, []int{1, 0}, []int{w.allocationsIn(nsxsim.PoolID), w.allocationsIn(nsxsim.OtherPool)})
				require.NoError(w.T, w.remove(s))
				assert.Empty(w.T, w.sim.Paths())
			})
		})
	}
}

// The cloud's own controller takes another address for a port that is added after a change of the class. Both are used, and none is
// released that a virtual server listens on.
func TestAddressesThatAreUsedStay(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.addNode("n1", "10.0.0.1")
		s, o := webService(), nsxsim.NewOriginal(w.sim)
		o.Serve(s, w.nodes)
		more := service("web", nil, port("alt", 8080, 30081))
		o.Pool, o.Class, o.Address = nsxsim.OtherPool, "dmz", "198.51.100.7"
		o.Serve(more, w.nodes)
		s.Spec.Ports = append(s.Spec.Ports, more.Spec.Ports...)
		w.Apply(s)
		w.server.ResetCalls()
		for range 2 {
			w.restart()
			w.ensure(s)
		}
		assert.Empty(w.T, w.writes())
		assert.Equal(w.T, []int{1, 1}, []int{w.allocationsIn(nsxsim.PoolID), w.allocationsIn(nsxsim.OtherPool)})
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths())
	})
}

// Somebody gives another pool the name of a class's, or takes the name away: load balancers that have their address go on, and nothing
// new is made at an address that nobody meant.
func TestNameOfThePoolIsNotUnique(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *testWorld){
		"two pools have it": func(w *testWorld) { w.sim.AddPool("another", nsxsim.PoolName, "192.0.2.1", "192.0.2.9") },
		"none has it": func(w *testWorld) {
			w.sim.Change(pathIPPools+"/"+nsxsim.PoolID, func(f fields) { f["display_name"] = "renamed" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				s := serving(w, webService())
				change(w)
				w.restart()
				shown := s.Status.LoadBalancer
				s = w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) }))
				assert.Equal(w.T, shown, s.Status.LoadBalancer)
				assert.Len(w.T, w.sim.Objects(pathServers), 2)
				other := service("other", nil, port("http", 80, 30085))
				other.UID = "other-uid"
				w.Apply(other)
				_, err := w.try(other)
				require.ErrorContains(w.T, err, nsxsim.PoolName)
				require.NoError(w.T, w.remove(s))
				assert.Empty(w.T, w.sim.Paths())
			})
		})
	}
}

// A cluster of the same name, on another gateway, has a load balancer service of the cloud's own controller: nothing is put on it, and it
// stays.
func TestLoadBalancerServiceOnAnotherGateway(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		o := nsxsim.NewOriginal(w.sim)
		w.sim.Change(o.Service, func(f fields) { f["connectivity_path"] = nsxsim.OtherTier1 })
		s := serving(w, webService())
		at := w.sim.Objects(pathServers)[0].Text("lb_service_path")
		assert.Equal(w.T, nsxsim.Tier1, w.sim.Get(at).Text("connectivity_path"))
		require.NoError(w.T, w.remove(s))
		assert.Equal(w.T, []string{o.Service}, w.sim.Paths())
	})
}

// NSX deletes behind its answer, and what is being deleted counts as a user: a deletion waits for that, and no user hears of it.
func TestDeletionWaitsForWhatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: 3 * time.Second, SlowReferences: true}, nil, func(w *testWorld) {
		s := serving(w, twoPorts())
		s = w.ensure(w.change(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }))
		assert.Len(w.T, w.sim.Objects(pathPools), 1)
		require.NoError(w.T, w.loadBalancers.EnsureLoadBalancerDeleted(w.T.Context(), w.cluster, w.Current(s)), "at once, for each failure is an event")
		assert.Empty(w.T, w.sim.Paths())
		assert.Empty(w.T, w.Events())
	})
}

// What somebody else's object uses is not waited for, whichever field names it.
func TestDeletionDoesNotWaitForOthers(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"pool_path", "sorry_pool_path"} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				s := serving(w, webService())
				w.sim.Add(pathServers+"/by-hand", fields{
					"ip_address": "203.0.113.200", "ports": []any{"80"}, "application_profile_path": nsxsim.TCPProfile, field: w.sim.Objects(pathPools)[0].Path,
				})
				time.Sleep(time.Millisecond) // otherwise the last listing is from this very moment
				begun := time.Now()
				require.ErrorContains(w.T, w.remove(s), "cannot be deleted while other objects use it")
				assert.Less(w.T, time.Since(begun), realizePause)
				w.sim.Remove(pathServers + "/by-hand")
				require.NoError(w.T, w.remove(s))
				assert.Empty(w.T, w.sim.Paths())
			})
		})
	}
}

// A creation broke off when it had an address, and the class is gone since: the address is all that there is of the Service.
func TestAddressAloneIsReleased(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.addNode("n1", "10.0.0.1")
		s := service("web", map[string]string{annotationClass: "dmz"}, port("http", 80, 30080))
		w.Apply(s)
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Writes: true, From: 2})
		require.NoError(w.T, err)
		_, err = w.try(s)
		require.Error(w.T, err)
		require.Equal(w.T, 1, w.allocationsIn(nsxsim.OtherPool))
		w.server.ClearFaults()
		w.config.LoadBalancer.Classes = nil
		w.restart()
		w.sim.AddPool("another-tenants", "Another tenant's", "192.0.2.1", "192.0.2.9")
		_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 401, Operation: "GET " + infra + "/ip-pools/{id}/ip-allocations"})
		require.NoError(w.T, err)
		require.Error(w.T, w.remove(s), "nothing is known about any pool")
		w.server.ClearFaults()
		w.sim.Deny("/infra/ip-pools/another-tenants")
		require.NoError(w.T, w.remove(s))
		assert.Empty(w.T, w.sim.Paths())
	})
}

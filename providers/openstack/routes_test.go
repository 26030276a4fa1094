package openstack

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// routed returns a world with two nodes and the router of the simulator, on a Neutron with the given extensions.
func routed(t *testing.T, extensions ...string) *world {
	t.Helper()
	var router string
	w := newTestWorld(t, "", func(s *openstacksim.Sim) {
		if len(extensions) > 0 {
			s.SetExtensions(extensions...)
		}
		router = s.Routers()[0].ID
	})
	w.file = "[Route]\nrouter-id = " + router + "\n"
	w.restart()
	w.addNode(openstacksim.Spec{Name: "n1"})
	w.addNode(openstacksim.Spec{Name: "n2"})
	return w
}

func podRoute(node, cidr string) *cloudprovider.Route {
	return &cloudprovider.Route{TargetNode: types.NodeName(node), DestinationCIDR: cidr}
}

// shown are the routes as the framework sees them.
func (w *world) showsAddress() []string {
	w.T.Helper()
	list, err := w.routes.ListRoutes(w.T.Context(), "kubernetes")
	require.NoError(w.T, err)
	var lines []string
	for _, r := range list {
		lines = append(lines, fmt.Sprint(r.DestinationCIDR, " ", r.TargetNode, " ", r.Blackhole))
	}
	slices.Sort(lines)
	return lines
}

func (w *world) pairs(node string) []openstacksim.AddressPair {
	for _, n := range w.nodes {
		for _, p := range w.sim.Ports() {
			if n.Name == node && providerIDPrefix+"/"+p.DeviceID == n.Spec.ProviderID {
				return p.AddressPairs
			}
		}
	}
	return nil
}

// TestRoutes: routes are made and removed one by one or by the whole list, with the ports that must let them through.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		extensions []string
		write      string
		pairs      int
	}{
		"atomic":           {[]string{"extraroute-atomic", "extraroute", "allowed-address-pairs"}, "PUT /networking/v2.0/routers/{id}/add_extraroutes", 1},
		"classic":          {[]string{"extraroute", "allowed-address-pairs"}, "PUT /networking/v2.0/routers/{id}", 1},
		"no address pairs": {[]string{"extraroute-atomic"}, "PUT /networking/v2.0/routers/{id}/add_extraroutes", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := routed(t, c.extensions...)
				assert.Empty(t, w.showsAddress())
				w.server.ResetCalls()
				require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
				require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n2", "10.244.2.0/24")))
				assert.Equal(t, 2, w.server.Calls().ByOperation[c.write])
				assert.Equal(t, []string{"10.244.1.0/24 n1 false", "10.244.2.0/24 n2 false"}, w.showsAddress())
				assert.Len(t, w.pairs("n1"), c.pairs)
				w.server.ResetCalls()
				require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
				for range 12 {
					w.showsAddress()
				}
				assert.Zero(t, w.server.Calls().Total, "a minute at rest costs nothing: %v", w.server.Calls().ByOperation)
				require.NoError(t, w.routes.DeleteRoute(t.Context(), "", podRoute("n1", "10.244.1.0/24")))
				require.NoError(t, w.routes.DeleteRoute(t.Context(), "", podRoute("n1", "10.244.1.0/24")))
				assert.Equal(t, []string{"10.244.2.0/24 n2 false"}, w.showsAddress())
				assert.Empty(t, w.pairs("n1"))
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
	t.Run("no extension", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := routed(t, "router")
			_, err := w.routes.ListRoutes(t.Context(), "")
			require.ErrorContains(t, err, "remove router-id")
		})
	})
	t.Run("no router", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := routed(t)
			w.file = "[Route]\nrouter-id = " + someID + "\n"
			w.restart()
			_, err := w.routes.ListRoutes(t.Context(), "")
			require.ErrorContains(t, err, "the router of the section [Route]")
			_, offered := newTestWorld(t, "", nil).Routes()
			assert.False(t, offered)
		})
	})
}

// TestRoutesOfOthers: what leads to a machine that is no node of ours is another cluster's; what leads nowhere is ours to
// remove.
func TestRoutesOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := routed(t)
		foreign := w.sim.AddServer(openstacksim.Spec{Name: "of-another-cluster"})
		address := ""
		for _, p := range w.sim.Ports() {
			if p.DeviceID == foreign {
				address = p.FixedIPs[0].Address
			}
		}
		w.sim.ChangeRouter(w.config.RouterID, func(r *openstacksim.Router) {
			r.Routes = []openstacksim.Route{{Destination: "10.244.7.0/24", NextHop: address}, {Destination: "10.244.8.0/24", NextHop: "10.0.99.99"}}
		})
		w.restart()
		assert.Equal(t, []string{"10.244.8.0/24 10.0.99.99 true"}, w.showsAddress())
		require.NoError(
			t,
			w.routes.DeleteRoute(t.Context(), "", &cloudprovider.Route{TargetNode: "10.0.99.99", DestinationCIDR: "10.244.8.0/24", Blackhole: true}),
		)
		assert.Empty(t, w.showsAddress())
		assert.Equal(t, []openstacksim.Route{{Destination: "10.244.7.0/24", NextHop: address}}, w.sim.Routers()[0].Routes)
	})
}

// TestRoutesAreRepaired: a port that lets the packets through no longer makes its route be made again.
func TestRoutesAreRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := routed(t)
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
		for _, p := range w.sim.Ports() {
			if len(p.AddressPairs) > 0 {
				w.sim.ChangePort(p.ID, func(p *openstacksim.Port) { p.AddressPairs = nil })
			}
		}
		w.restart()
		assert.Empty(t, w.showsAddress())
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
		assert.Len(t, w.pairs("n1"), 1)
		assert.Equal(t, []string{"10.244.1.0/24 n1 false"}, w.showsAddress())

		require.ErrorContains(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n2", "2001:db8::/64")), "no internal address of the family")
		w.sim.ChangeRouter(w.config.RouterID, func(r *openstacksim.Router) {
			r.Routes = []openstacksim.Route{{Destination: "10.244.2.0/24", NextHop: w.nodes[1].Status.Addresses[0].Address}}
		})
		w.restart()
		require.NoError(t, w.routes.DeleteRoute(t.Context(), "", podRoute("n2", "10.244.2.0/24")))
		assert.Empty(t, w.sim.Routers()[0].Routes)
	})
}

// TestRoutesOfTwoWriters: a change of somebody else between our read and our write is not lost.
func TestRoutesOfTwoWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := routed(t, "extraroute", "allowed-address-pairs")
		assert.Empty(t, w.showsAddress())
		theirs := openstacksim.Route{Destination: "192.168.9.0/24", NextHop: "10.0.0.1"}
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "PUT /networking/v2.0/routers/{id}", Count: 8})
		require.NoError(t, err)
		require.Error(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
		w.server.ClearFaults()
		w.sim.ChangeRouter(w.config.RouterID, func(r *openstacksim.Router) { r.Routes = append(r.Routes, theirs) })
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
		assert.Contains(t, w.sim.Routers()[0].Routes, theirs)
		assert.Len(t, w.sim.Routers()[0].Routes, 2)

		// The view is a moment old when somebody else writes: the write is refused, and made again on what is there.
		w.showsAddress()
		w.sim.ChangeRouter(w.config.RouterID, func(r *openstacksim.Router) {
			r.Routes = append(r.Routes, openstacksim.Route{Destination: "192.168.10.0/24", NextHop: "10.0.0.1"})
		})
		var last error
		for range 3 {
			if last = w.routes.DeleteRoute(t.Context(), "", podRoute("n1", "10.244.1.0/24")); last == nil {
				break
			}
		}
		require.NoError(t, last)
		assert.Len(t, w.sim.Routers()[0].Routes, 2)
	})
}

// TestManyRoutes: the last route that the router may have is made, and one more is told as what it is.
func TestManyRoutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := routed(t)
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
		fill := func(n int) {
			w.sim.ChangeRouter(w.sim.Routers()[0].ID, func(r *openstacksim.Router) {
				r.Routes = r.Routes[:min(len(r.Routes), n)]
				for i := len(r.Routes); i < n; i++ {
					r.Routes = append(r.Routes, openstacksim.Route{Destination: fmt.Sprintf("192.168.%d.0/24", i), NextHop: r.Routes[0].NextHop})
				}
			})
		}
		fill(openstacklimits.Routes.Max)
		time.Sleep(2 * routesMaxAge)
		err := w.routes.CreateRoute(t.Context(), "", "", podRoute("n2", "10.244.2.0/24"))
		require.ErrorIs(t, err, cloudapi.ErrQuota)
		require.ErrorContains(t, err, "a router would have 31 routes, and the cloud takes at most 30 unless it was raised for this account; have max_routes raised")
		fill(openstacklimits.Routes.Max - 1)
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n2", "10.244.2.0/24")))
	})
}

// TestOneRouteForAPodRange: a pod range never leads to two machines. The route of a node that left goes, and its port lets the
// range through no longer; another cluster's route stays.
func TestOneRouteForAPodRange(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]bool{"seen before": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := routed(t)
				require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
				if seen {
					w.showsAddress()
				}
				w.Unregister(w.nodes[0])
				err := w.routes.CreateRoute(t.Context(), "", "", podRoute("n2", "10.244.1.0/24"))
				require.Len(t, w.sim.Routers()[0].Routes, 1)
				assert.Equal(t, !seen, len(w.pairs("n1")) == 1)
				if seen {
					require.NoError(t, err)
					assert.Equal(t, []string{"10.244.1.0/24 n2 false"}, w.showsAddress())
					assert.Len(t, w.pairs("n2"), 1)
					return
				}
				require.ErrorContains(t, err, "which is not a node of this cluster")
			})
		})
	}
}

// TestPairsGoWithTheirRoute: a port that somebody else changed since it was read loses the pod range all the same.
func TestPairsGoWithTheirRoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := routed(t)
		require.NoError(t, w.routes.CreateRoute(t.Context(), "", "", podRoute("n1", "10.244.1.0/24")))
		w.showsAddress()
		for _, p := range w.sim.Ports() {
			if providerIDPrefix+"/"+p.DeviceID == w.nodes[0].Spec.ProviderID {
				w.sim.ChangePort(p.ID, func(p *openstacksim.Port) { p.SecurityGroups = []string{} })
			}
		}
		require.NoError(t, w.routes.DeleteRoute(t.Context(), "", podRoute("n1", "10.244.1.0/24")))
		assert.Empty(t, w.pairs("n1"))
	})
}

package azure

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

// podNode is a Node with networks for its pods, of both families.
func (w *world) podNode(name string, n int) *v1.Node {
	w.Helper()
	node := w.join(name)
	node.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:10:244:%x::/64", n)}
	return node
}

// route makes the routes of nodes that are missing and deletes those that are too many, as the framework does: all at the same time.
func (w *world) route(nodes ...*v1.Node) (problems []error) {
	w.Helper()
	shown, err := w.cloud.RouteAPI.ListRoutes(w.Context(), clusterName)
	require.NoError(w, err)
	have := map[string]*cloudprovider.Route{}
	for _, r := range shown {
		have[string(r.TargetNode)+" "+r.DestinationCIDR] = r
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	do := func(work func() error) {
		all.Go(func() {
			if err := work(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, err)
			}
		})
	}
	for _, n := range nodes {
		for _, cidr := range n.Spec.PodCIDRs {
			key := n.Name + " " + cidr
			if have[key] == nil {
				do(func() error {
					wanted := &cloudprovider.Route{TargetNode: types.NodeName(n.Name), DestinationCIDR: cidr}
					return w.cloud.RouteAPI.CreateRoute(w.Context(), clusterName, "", wanted)
				})
			}
			delete(have, key)
		}
	}
	for _, r := range have {
		do(func() error { return w.cloud.RouteAPI.DeleteRoute(w.Context(), clusterName, r) })
	}
	all.Wait()
	return problems
}

func tableID() string { return azuresim.ID("Microsoft.Network/routeTables", azuresim.RouteTable) }

// routed are the routes of the table: name, network and next hop.
func (w *world) routed() (list []string) {
	for _, r := range docs(w.sim.Shown(tableID()), "properties", "routes") {
		list = append(list, str(r, "name")+" "+str(r, "properties", "addressPrefix")+" "+str(r, "properties", "nextHopIpAddress"))
	}
	return list
}

func leftRoute(name, cidr, hop string) doc {
	return part(name, doc{"addressPrefix": cidr, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop})
}

func (w *world) leaveTable(routes ...any) {
	w.sim.Leave(tableID(), doc{"location": azuresim.Location, "properties": doc{"routes": routes}})
}

// TestRoutesAreWrittenTogether: the routes of all nodes are one write of a table that is made with them, and has the configured tags.
func TestRoutesAreWrittenTogether(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.set(map[string]any{"tags": "team=net"})
		nodes := []*v1.Node{w.podNode("node-1", 1), w.podNode("node-10", 2), w.podNode("node-11", 3)}
		w.server.ResetCalls()
		require.Empty(t, w.route(nodes...))
		calls := w.server.Calls()
		assert.Equal(t, 1, calls.Writes, "%v", calls.ByOperation)
		assert.LessOrEqual(t, calls.Reads, 12, "%v", calls.ByOperation)
		assert.Len(t, w.routed(), 6)
		assert.Contains(t, w.routed(), "node-1____102441024 10.244.1.0/24 "+internalIP(nodes[0], false))
		assert.Contains(t, w.routed(), "node-10____fd0010244264 fd00:10:244:2::/64 "+internalIP(nodes[1], true))
		assert.Equal(t, doc{"team": "net"}, w.sim.Shown(tableID())["tags"])

		w.restart()
		w.server.ResetCalls()
		require.Empty(t, w.route(nodes...))
		assert.Zero(t, w.server.Calls().Writes, "the routes are there")

		w.server.ResetCalls()
		require.NoError(t, w.shown.Delete(nodes[0]))
		require.Empty(t, w.route(nodes[1:]...))
		assert.Len(t, w.routed(), 4, "node-10 and node-11 keep theirs")
		assert.Equal(t, 1, w.server.Calls().Writes)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestRouteTakeover: routes as Azure's own controller leaves them cost no write, and those of others are neither shown nor changed.
func TestRouteTakeover(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n := w.podNode("node-1", 1)
		foreign := []any{
			leftRoute("to-firewall", "0.0.0.0/0", "10.240.9.9"), leftRoute("vpn", "10.244.200.0/24", "10.240.9.8"),
			part("internet____1024420124", doc{"addressPrefix": "10.244.201.0/24", "nextHopType": "Internet"}),
		}
		w.leaveTable(append(foreign, leftRoute("node-1____102441024", "10.244.1.0/24", internalIP(n, false)),
			leftRoute("node-1____fd0010244164", "fd00:10:244:1::/64", internalIP(n, true)))...)
		before := w.routed()
		for range 2 {
			w.server.ResetCalls()
			require.Empty(t, w.route(n))
			assert.Zero(t, w.server.Calls().Writes)
			w.restart()
		}
		list, err := w.cloud.RouteAPI.ListRoutes(w.Context(), clusterName)
		require.NoError(t, err)
		assert.Len(t, list, 2)
		assert.Equal(t, before, w.routed())
		require.Empty(t, w.route(), "nobody wants them any more")
		assert.Equal(t, before[:3], w.routed())
	})
}

// TestRouteOfUnknownNode: a route that leads to a machine which never was a node here may be another cluster's, and stays. Once the
// machine is gone, it leads nowhere.
func TestRouteOfUnknownNode(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n := w.podNode("node-1", 1)
		require.NoError(t, w.shown.Delete(n))
		w.leaveTable(leftRoute("node-1____102441024", "10.244.1.0/24", internalIP(n, false)))
		w.known = nil
		w.restart()
		require.Empty(t, w.route())
		assert.Len(t, w.routed(), 1)
		require.NoError(t, w.sim.RemoveByID(n.Spec.ProviderID))
		time.Sleep(11 * time.Minute)
		require.Empty(t, w.route())
		assert.Empty(t, w.routed())
	})
}

// TestRouteFollowsItsNode: a node that was made again under its name has another address, and a route that was named after the node
// alone makes way for one with the name of now.
func TestRouteFollowsItsNode(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n := w.podNode("node-1", 1)
		n.Spec.PodCIDRs = n.Spec.PodCIDRs[:1]
		for _, old := range []doc{leftRoute("node-1____102441024", "10.244.1.0/24", "10.240.99.99"), leftRoute("node-1", "10.244.1.0/24", internalIP(n, false))} {
			w.leaveTable(old)
			w.restart()
			require.Empty(t, w.route(n))
			assert.Equal(t, []string{"node-1____102441024 10.244.1.0/24 " + internalIP(n, false)}, w.routed())
		}
	})
}

// TestRouteConflicts: a network that somebody else has in the table is refused, with words about what to do.
func TestRouteConflicts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n, other := w.podNode("node-1", 1), w.podNode("node-2", 1)
		n.Spec.PodCIDRs, other.Spec.PodCIDRs = n.Spec.PodCIDRs[:1], other.Spec.PodCIDRs[:1]
		w.leaveTable(leftRoute("vpn", "10.244.1.0/24", "10.240.9.8"))
		problems := w.route(n)
		require.Len(t, problems, 1)
		require.ErrorContains(t, problems[0], "route vpn, which no controller made, is there for it; remove that route")
		w.leaveTable(leftRoute("node-2____102441024", "10.244.1.0/24", internalIP(other, false)))
		w.restart()
		problems = w.route(n, other)
		require.Len(t, problems, 1)
		require.ErrorContains(t, problems[0], "node node-2 has the same network")
	})
}

// TestRefusedRouteIsTold: a write that fails is an error, and the next one makes the route.
func TestRefusedRouteIsTold(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n := w.podNode("node-1", 1)
		n.Spec.PodCIDRs = n.Spec.PodCIDRs[:1]
		w.sim.Fail("Microsoft.Network/routeTables", "RouteTableLimit", "there are too many routes")
		problems := w.route(n)
		require.NotEmpty(t, problems)
		require.ErrorContains(t, problems[0], "too many routes")
		require.Empty(t, w.route(n))
		assert.Len(t, w.routed(), 1)
	})
}

// TestRoutesOfUnmanagedNodes are the business of whoever brought those nodes: nothing is written.
func TestRoutesOfUnmanagedNodes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		n := node("far", "")
		n.Labels[labelManaged] = "false"
		n.Spec.PodCIDRs = []string{"10.244.1.0/24"}
		w.show(n)
		w.server.ResetCalls()
		require.Empty(t, w.route(n))
		list, err := w.cloud.RouteAPI.ListRoutes(w.Context(), clusterName)
		require.NoError(t, err)
		require.Len(t, list, 1, "the framework need not ask again")
		require.NoError(t, w.cloud.RouteAPI.DeleteRoute(w.Context(), clusterName, list[0]))
		list, err = w.cloud.RouteAPI.ListRoutes(w.Context(), clusterName)
		require.NoError(t, err)
		assert.Empty(t, list)
		assert.Zero(t, w.server.Calls().Writes)
	})
}

package gce

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const testCluster = "prod"

// podUID is the UID of the nth node.
func podUID(n int) string { return fmt.Sprintf("5a7e0000-495b-4884-9a69-%012d", n) }

// podNode is a node with a pod network.
func (w *world) podNode(name string, n int, more ...string) *v1.Node {
	w.T.Helper()
	time.Sleep(2 * time.Minute) // later than the last read of instances
	return w.withPods(w.addNode(gcesim.Spec{Name: firstLabel(name)}), name, n, more...)
}

// withPods sets a node's name, which may include a domain, and its pod networks.
func (w *world) withPods(node *v1.Node, name string, n int, more ...string) *v1.Node {
	w.T.Helper()
	w.Unregister(node)
	node.Name = name
	node.UID, node.Spec.PodCIDRs = types.UID(podUID(n)), append([]string{fmt.Sprintf("10.244.%d.0/24", n)}, more...)
	w.Register(node)
	return node
}

// route creates missing routes and deletes superfluous ones concurrently, like the framework.
func (w *world) route(nodes ...*v1.Node) (problems []error) {
	w.T.Helper()
	shown := w.listRoutes()
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
					return w.RouteAPI.CreateRoute(w.T.Context(), testCluster, string(n.UID), wanted)
				})
			}
			delete(have, key)
		}
	}
	for _, r := range have {
		do(func() error { return w.RouteAPI.DeleteRoute(w.T.Context(), testCluster, r) })
	}
	all.Wait()
	return problems
}

func (w *world) listRoutes() []*cloudprovider.Route {
	w.T.Helper()
	shown, err := w.RouteAPI.ListRoutes(w.T.Context(), testCluster)
	require.NoError(w.T, err)
	return shown
}

// routed returns the network's routes: name, network and next hop.
func (w *world) routed() (list []string) {
	for _, r := range w.sim.Objects("routes") {
		list = append(list, fmt.Sprint(r["name"], " ", r["destRange"], " ", strings.TrimPrefix(fmt.Sprint(r["nextHopInstance"]), "https://www.googleapis.com/compute/v1/")))
	}
	return list
}

func hopTo(name string) string { return "projects/my-project/zones/us-central1-a/instances/" + name }

// leaveRoute creates a route as Google's own controller leaves it.
func (w *world) leaveRoute(name, cidr, instance string, change ...string) {
	route := map[string]any{
		"destRange": cidr, "nextHopInstance": hopTo(instance), "network": "global/networks/cluster", "priority": 1000, "description": "k8s-node-route",
	}
	for i := 0; i < len(change); i += 2 {
		route[change[i]] = change[i+1]
		if change[i+1] == "" {
			delete(route, change[i])
		}
	}
	w.sim.Put("global/routes/"+name, route)
}

// routeTo is a route to node n1 as the framework requests it.
func routeTo(cidr string) *cloudprovider.Route {
	return &cloudprovider.Route{TargetNode: "n1", DestinationCIDR: cidr}
}

// TestRoutes: each node gets one static route with one write, like Google's own controller's. All queries share one listing, and existing
// routes cost no write, also after a restart.
func TestRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		nodes := []*v1.Node{w.podNode("n1", 1), w.podNode("n2.c.my-project.internal", 2), w.podNode("n3", 3)}
		w.server.ResetCalls()
		require.Empty(t, w.route(nodes...))
		calls := w.server.Calls()
		assert.Equal(t, 3, calls.ByOperation["POST routes"])
		assert.Equal(t, 3, calls.Writes, "%v", calls.ByOperation)
		assert.Equal(t, 1, calls.ByOperation["GET routes"])
		first := w.sim.Objects("routes")[0]
		for key, value := range map[string]any{
			"name": "prod-" + podUID(1), "destRange": "10.244.1.0/24", "priority": 1000.0, "description": "k8s-node-route",
			"network":         "https://www.googleapis.com/compute/v1/projects/my-project/global/networks/cluster",
			"nextHopInstance": "https://www.googleapis.com/compute/v1/" + hopTo("n1"),
		} {
			assert.EqualValues(t, value, first[key], key)
		}
		assert.Contains(t, w.routed(), "prod-"+podUID(2)+" 10.244.2.0/24 "+hopTo("n2"))

		for range 2 {
			w.restart()
			w.server.ResetCalls()
			require.Empty(t, w.route(nodes...))
			assert.Zero(t, w.server.Calls().Writes, "the routes are there")
		}
		require.Empty(t, w.route(nodes[1:]...))
		assert.Len(t, w.routed(), 2)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestRoutesOfBothFamilies: a node with two networks gets two routes, whichever has the usual name.
func TestRoutesOfBothFamilies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		n := w.podNode("n1", 1, "fd00:10:244:1::/64")
		plain, short := "prod-"+podUID(1), "prod-"+strings.ReplaceAll(podUID(1), "-", "")
		require.Empty(t, w.route(n))
		both := []string{plain + " 10.244.1.0/24 " + hopTo("n1"), short + "-6 fd00:10:244:1::/64 " + hopTo("n1")}
		assert.ElementsMatch(t, both, w.routed())
		w.restart()
		assert.Len(t, w.listRoutes(), 2)
		require.Empty(t, w.route(), "nobody wants them any more")
		assert.Empty(t, w.routed())

		w.leaveRoute(plain, "fd00:10:244:1::/64", "n1")
		w.restart()
		w.server.ResetCalls()
		require.Empty(t, w.route(n))
		assert.ElementsMatch(t, []string{plain + " fd00:10:244:1::/64 " + hopTo("n1"), short + "-4 10.244.1.0/24 " + hopTo("n1")}, w.routed())
		assert.Equal(t, 1, w.server.Calls().Writes)
	})
}

// TestRouteTakeover: routes of Google's own controller cost no write, and foreign ones are neither shown nor changed.
func TestRouteTakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		n := w.podNode("n1", 1)
		w.sim.AddInstance(gcesim.Spec{Name: "other"})
		w.leaveRoute("prod-"+podUID(1), "10.244.1.0/24", "n1")
		w.leaveRoute("prod-2-"+podUID(2), "10.244.2.0/24", "other")
		w.leaveRoute("prod-"+podUID(3), "10.244.3.0/24", "other", "description", "by hand")
		w.leaveRoute("prod-"+podUID(4), "10.244.4.0/24", "other", "nextHopInstance", "", "nextHopIp", "10.128.0.9")
		w.leaveRoute("prod-"+podUID(5), "10.244.5.0/24", "other") // a node of another cluster of this name
		gone := w.sim.AddInstance(gcesim.Spec{Name: "gone"})
		w.leaveRoute("prod-2-"+podUID(6), "10.244.6.0/24", "gone") // only the name shows the owner
		w.sim.RemoveInstanceByID(gone)
		before := w.routed()
		w.server.ResetCalls()
		for range 2 {
			require.Empty(t, w.route(n))
			require.NoError(t, w.RouteAPI.CreateRoute(t.Context(), testCluster, podUID(1), routeTo("10.244.1.0/24")))
			assert.Len(t, w.listRoutes(), 1)
			w.restart()
		}
		assert.Zero(t, w.server.Calls().Writes)
		require.Empty(t, w.route(n))
		require.Empty(t, w.route(), "nobody wants the route any more")
		assert.Equal(t, slices.Delete(before, 2, 3), w.routed(), "all but that of the node")
	})
}

// TestRouteOfAnInstanceThatIsGone: the route is deleted once the API proves that the instance is gone.
func TestRouteOfAnInstanceThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		id := w.sim.AddInstance(gcesim.Spec{Name: "old"})
		w.leaveRoute("prod-"+podUID(7), "10.244.1.0/24", "old")
		require.Empty(t, w.route())
		assert.Len(t, w.routed(), 1)
		w.sim.RemoveInstanceByID(id)
		time.Sleep(11 * time.Minute)
		w.sim.SetUnreachable("us-central1-a", true)
		_, err := w.RouteAPI.ListRoutes(t.Context(), testCluster)
		require.Error(t, err)
		w.sim.SetUnreachable("us-central1-a", false)
		n := w.podNode("n1", 1)
		time.Sleep(11 * time.Minute)
		list := w.listRoutes()
		require.Len(t, list, 1)
		assert.True(t, list[0].Blackhole)
		assert.NotEqual(t, types.NodeName("old"), list[0].TargetNode, "a node of that name may be there again, and has no route then")
		require.Empty(t, w.route(n), "a new node has its network")
		assert.Equal(t, []string{"prod-" + podUID(1) + " 10.244.1.0/24 " + hopTo("n1")}, w.routed())
	})
}

// TestRouteOfANodeThatLeftBeforeTheStart: the new process does not know whose a route was while its instance is there: it may be another
// cluster's, and stays. Once the instance is gone it is deleted. If the instance went before the start, too, it is deleted at once.
func TestRouteOfANodeThatLeftBeforeTheStart(t *testing.T) {
	for _, stays := range []bool{true, false} {
		t.Run(fmt.Sprintf("its instance stays: %t", stays), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				left, kept := w.podNode("n1", 1), w.podNode("n2", 2)
				require.Empty(t, w.route(left, kept))
				w.Unregister(left)
				leave := func() { require.NoError(t, w.sim.RemoveInstance("n1")) }
				if !stays {
					leave()
				}
				time.Sleep(11 * time.Minute)
				w.restart()
				if stays {
					before := w.routed()
					require.Empty(t, w.route(kept))
					assert.Equal(t, before, w.routed())
					late := w.podNode("n3", 3)
					late.Spec.PodCIDRs = left.Spec.PodCIDRs
					refused := w.route(kept, late)
					require.Len(t, refused, 1, "the new node has its network")
					require.ErrorContains(t, refused[0], "which is no node of this cluster; remove that route")
					w.Unregister(late)
					leave()
					time.Sleep(11 * time.Minute)
				}
				require.Empty(t, w.route(kept))
				assert.Equal(t, []string{"prod-" + podUID(2) + " 10.244.2.0/24 " + hopTo("n2")}, w.routed())
			})
		})
	}
}

// TestWrongRouteIsReplaced: a node's route to another instance or to its former network is replaced.
func TestWrongRouteIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		n := w.podNode("n1", 1)
		w.sim.AddInstance(gcesim.Spec{Name: "n1", Zone: "us-central1-b"})
		right := []string{"prod-" + podUID(1) + " 10.244.1.0/24 " + hopTo("n1")}
		for _, change := range [][]string{
			{"nextHopInstance", "zones/us-central1-b/instances/n1"},
			{"destRange", "10.244.99.0/24"},
		} {
			w.sim.Edit("routes", "prod-"+podUID(1), nil)
			w.leaveRoute("prod-"+podUID(1), "10.244.1.0/24", "n1", change...)
			w.restart()
			require.NoError(t, w.RouteAPI.CreateRoute(t.Context(), testCluster, podUID(1), routeTo("10.244.1.0/24")))
			assert.Equal(t, right, w.routed(), change)
			require.Empty(t, w.route(n))
			assert.Equal(t, right, w.routed(), change)
		}
	})
}

// TestRouteConflicts: foreign routes to the same network are never taken over, and the error says how to resolve the conflict.
func TestRouteConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(w *world)
		words string
	}{
		"a user's route": {func(w *world) {
			w.leaveRoute("vpn", "10.244.1.0/24", "other", "description", "by hand")
		}, "route vpn, which this controller did not make, is there for it"},
		"a route of a cluster of the same name": {func(w *world) {
			w.leaveRoute("prod-"+podUID(9), "10.244.1.0/24", "other")
		}, "which is no node of this cluster; remove that route"},
		"a node with the same network": {func(w *world) {
			w.podNode("n2", 1).UID = types.UID(podUID(2))
			w.leaveRoute("prod-"+podUID(2), "10.244.1.0/24", "n2")
		}, "node n2 has the same network"},
		"the name is taken": {func(w *world) {
			w.leaveRoute("prod-"+podUID(1), "10.244.50.0/24", "other", "description", "by hand")
		}, "no controller made it; remove that route"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.podNode("n1", 1)
				w.sim.AddInstance(gcesim.Spec{Name: "other"})
				c.leave(w)
				before := w.routed()
				err := w.RouteAPI.CreateRoute(t.Context(), testCluster, podUID(1), routeTo("10.244.1.0/24"))
				require.ErrorContains(t, err, c.words)
				assert.Equal(t, before, w.routed())
			})
		})
	}
}

// TestRouteThatFails: a refusal that shows only in the operation is an error, and a lost response never leads to two routes.
func TestRouteThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		n := w.podNode("n1", 1)
		require.ErrorContains(t,
			w.RouteAPI.CreateRoute(t.Context(), "Prod", podUID(1), routeTo("10.244.1.0/24")),
			"--cluster-name must begin with a lower-case letter")
		require.ErrorContains(t,
			w.RouteAPI.CreateRoute(t.Context(), testCluster, podUID(1), routeTo("10.128.0.0/24")),
			"is within the subnetwork")
		w.sim.Deny("POST routes", true)
		problems := w.route(n)
		require.Len(t, problems, 1)
		require.ErrorContains(t, problems[0], "compute.routes.create")
		w.sim.Deny("POST routes", false)
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultCut, Operation: "POST routes", Count: 1})
		require.NoError(t, err)
		for began := time.Now(); len(w.route(n)) > 0; time.Sleep(10 * time.Second) {
			require.Less(t, time.Since(began), 5*time.Minute)
			w.restart()
		}
		assert.Len(t, w.routed(), 1)
	})
}

// TestRouteThatDoesNotEnd: an operation that never ends does not block other routes.
func TestRouteThatDoesNotEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		nodes := []*v1.Node{w.podNode("n1", 1), w.podNode("n2", 2), w.podNode("n3", 3)}
		w.sim.Stick("delete routes", true)
		require.Empty(t, w.route(nodes[:2]...))
		var stuck sync.WaitGroup
		stuck.Go(func() { _ = w.route(nodes[1]) })
		time.Sleep(time.Second)
		began := time.Now()
		require.Empty(t, w.route(nodes...))
		assert.Less(t, time.Since(began), time.Minute)
		assert.Len(t, w.routed(), 3)
		w.sim.Stick("delete routes", false)
		stuck.Wait()
		assert.Len(t, w.routed(), 2)
	})
}

// TestRoutesInASharedNetwork: routes are in the network's project, and lead to the cluster's instances.
func TestRoutesInASharedNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, strings.Replace(usual, "subnetwork-name = nodes\n", "network-project-id = host-project\n", 1))
		w.sim.AddNetwork(gcesim.HostProject, "cluster", "nodes", "10.130.0.0/20")
		on := gcesim.Interface{IP: "10.130.0.9", Network: "projects/host-project/global/networks/cluster"}
		require.Empty(t, w.route(w.withPods(w.addNode(gcesim.Spec{Name: "n1", Interfaces: []gcesim.Interface{on}}), "n1", 1)))
		link := fmt.Sprint(w.sim.Objects("routes")[0]["selfLink"])
		assert.Contains(t, link, "projects/host-project/global/routes/prod-")
		assert.Equal(t, "prod-"+podUID(1)+" 10.244.1.0/24 "+hopTo("n1"), w.routed()[0])
	})
}

// TestNoRoutesWithoutNetworks: without --cluster-cidr there is nothing to route.
func TestNoRoutesWithoutNetworks(t *testing.T) {
	in := testInputs(usual, nil)
	in.ClusterCIDR = ""
	c, err := newCloud(in)
	require.NoError(t, err)
	_, routes := c.Routes()
	assert.False(t, routes)
	assert.False(t, Description().Routes(in))
}

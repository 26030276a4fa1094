package nsx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

const routesPath = nsxsim.Tier1 + "/static-routes"

// routed adds a node with a range of Pods.
func (w *testWorld) routed(number int) *v1.Node {
	n := w.addNode(fmt.Sprintf("n%d", number), fmt.Sprintf("10.0.0.%d", number))
	n.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", number)}
	return n
}

func (w *testWorld) makeRoute(n *v1.Node) error {
	return w.routes.CreateRoute(w.T.Context(), w.cluster, string(n.UID), &cloudprovider.Route{
		TargetNode: types.NodeName(n.Name), DestinationCIDR: n.Spec.PodCIDRs[0], TargetNodeAddresses: n.Status.Addresses,
	})
}

func (w *testWorld) listRoutes() []*cloudprovider.Route {
	w.T.Helper()
	list, err := w.routes.ListRoutes(w.T.Context(), w.cluster)
	require.NoError(w.T, err)
	return list
}

// originalRoute is a route as the cloud's own controller leaves it.
func originalRoute(w *testWorld, n *v1.Node, cluster string) string {
	at := routesPath + "/" + string(n.UID) + "_" + strings.ReplaceAll(n.Spec.PodCIDRs[0], "/", "_")
	w.sim.Add(at, fields{
		"display_name": cluster + "_" + n.Name + "_" + n.Spec.PodCIDRs[0], "network": n.Spec.PodCIDRs[0],
		"next_hops": []any{fields{"ip_address": n.Status.Addresses[0].Address, "admin_distance": 1}},
		"tags":      []any{fields{"scope": "vsphere.k8s.io/cluster-name", "tag": cluster}, fields{"scope": "vsphere.k8s.io/node-name", "tag": n.Name}},
	})
	return at
}

func TestRouteIsMade(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: 3 * time.Second}, nil, func(w *testWorld) {
		n := w.routed(1)
		require.NoError(w.T, w.makeRoute(n))
		made := w.sim.Objects(routesPath)
		require.Len(w.T, made, 1)
		assert.Equal(w.T, "uid-of-n1_10.244.1.0_24", made[0].ID())
		assert.Equal(w.T, "kubernetes_n1_10.244.1.0/24", made[0].Text("display_name"))
		assert.Equal(w.T, "10.244.1.0/24", made[0].Text("network"))
		assert.Equal(w.T, []any{fields{"ip_address": "10.0.0.1"}}, made[0].Fields["next_hops"])
		assert.Equal(w.T, "kubernetes", made[0].Tag("vsphere.k8s.io/cluster-name"))
		assert.Equal(w.T, "n1", made[0].Tag("vsphere.k8s.io/node-name"))
		shown := w.listRoutes()
		require.Len(w.T, shown, 1)
		assert.Equal(w.T, "uid-of-n1_10.244.1.0_24", shown[0].Name)
		require.NoError(w.T, w.routes.DeleteRoute(w.T.Context(), w.cluster, shown[0]))
		assert.Empty(w.T, w.sim.Objects(routesPath))
		w.requireNothingRefused()
	})
}

func TestTakeoverOfRoutesWritesNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		for i := range 2 {
			n := w.routed(i + 1)
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: "RouteCreated"}}
			originalRoute(w, n, w.cluster)
		}
		w.server.ResetCalls()
		for range 2 {
			w.restart()
			assert.Len(w.T, w.listRoutes(), 2)
			for _, n := range w.nodes {
				require.NoError(w.T, w.makeRoute(n))
			}
		}
		assert.Empty(w.T, w.writes())
		assert.Equal(w.T, 6, w.server.Calls().Total, "one listing after each start, and the state of each route that is made again")
		w.requireNoKubeWrites()
	})
}

// The way back: the cloud's own controller finds its routes by the tags of cluster and node, knows one by its ID, and makes none of the
// same ID again.
func TestRollbackOfRoutes(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		n := w.routed(1)
		require.NoError(w.T, w.makeRoute(n))
		made := w.sim.Objects(routesPath)
		require.Len(w.T, made, 1)
		want := w.sim.Get(made[0].Path)
		w.sim.Remove(made[0].Path)
		assert.Equal(w.T, made[0].Path, originalRoute(w, n, w.cluster), "its ID")
		theirs := w.sim.Get(made[0].Path)
		for _, field := range []string{"display_name", "network"} {
			assert.Equal(w.T, theirs.Text(field), want.Text(field))
		}
		for _, scope := range []string{"vsphere.k8s.io/cluster-name", "vsphere.k8s.io/node-name"} {
			assert.Equal(w.T, theirs.Tag(scope), want.Tag(scope))
		}
	})
}

func TestAllRoutesAreListed(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		for i := range 1500 {
			n := &v1.Node{}
			n.Name, n.UID = fmt.Sprintf("gone-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
			n.Spec.PodCIDRs = []string{fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)}
			n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}
			originalRoute(w, n, w.cluster)
		}
		assert.Len(w.T, w.listRoutes(), 1500)
		assert.Equal(w.T, 2, w.server.Calls().Total, "two pages")
	})
}

// Names of clusters that resemble ours, other routers, other people and other clusters of our name keep theirs.
func TestOtherRoutesAreLeftAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		n := w.routed(1)
		at := originalRoute(w, n, "Kubernetes")
		w.sim.Add(routesPath+"/by-hand", fields{"network": "10.9.0.0/16", "next_hops": []any{fields{"ip_address": "10.0.0.9"}}})
		marked := originalRoute(w, w.routed(2), w.cluster)
		w.sim.Change(marked, func(f map[string]any) {
			f["tags"] = append(f["tags"].([]any), fields{"scope": "anyccm", "tag": "anyccm:another"})
		})
		w.sim.Add(nsxsim.OtherTier1+"/static-routes/x", fields{
			"network": "10.8.0.0/24", "next_hops": []any{fields{"ip_address": "10.0.0.9"}}, "tags": w.sim.Get(at).Fields["tags"],
		})
		assert.Empty(w.T, w.listRoutes())
		for _, o := range w.sim.Objects(routesPath) {
			require.NoError(w.T, w.routes.DeleteRoute(w.T.Context(), w.cluster, &cloudprovider.Route{
				Name: o.ID(), TargetNode: "n1", DestinationCIDR: o.Text("network"),
			}))
		}
		require.ErrorContains(w.T, w.makeRoute(n), "is not this cluster's")
		assert.Empty(w.T, w.writes())
	})
}

// A node got another address: its route is corrected where it is.
// A route of somebody else to the same network would take a part of the Pods' traffic.
func TestNetworkThatIsTaken(t *testing.T) {
	t.Parallel()
	for name, tags := range map[string][]any{
		"by hand":              {},
		"of another cluster":   {fields{"scope": "vsphere.k8s.io/cluster-name", "tag": "another"}, fields{"scope": "vsphere.k8s.io/node-name", "tag": "n1"}},
		"of a rebuilt cluster": {fields{"scope": "vsphere.k8s.io/cluster-name", "tag": "kubernetes"}, fields{"scope": "anyccm", "tag": "anyccm:another"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
				n := w.routed(1)
				at := routesPath + "/taken"
				w.sim.Add(at, fields{"network": n.Spec.PodCIDRs[0], "next_hops": []any{fields{"ip_address": "10.0.0.9"}}, "tags": tags})
				require.ErrorContains(w.T, w.makeRoute(n), "static route taken of "+routesPath+" leads to 10.244.1.0/24 as well")
				assert.Empty(w.T, w.writes())
				w.sim.Remove(at)
				w.restart()
				require.NoError(w.T, w.makeRoute(n))
			})
		})
	}
}

func TestRouteFollowsTheNode(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		n := w.routed(1)
		at := originalRoute(w, n, w.cluster)
		n = n.DeepCopy()
		n.Status.Addresses[0].Address = "10.0.0.77"
		w.Register(n)
		assert.Empty(w.T, w.listRoutes(), "the framework makes it again")
		require.NoError(w.T, w.makeRoute(n))
		assert.Equal(w.T, []any{fields{"ip_address": "10.0.0.77", "admin_distance": 1.0}}, w.sim.Get(at).Fields["next_hops"])
		assert.Len(w.T, w.sim.Objects(routesPath), 1)
		assert.Len(w.T, w.listRoutes(), 1)
		n.Status.Addresses = nil
		w.Register(n)
		assert.Len(w.T, w.listRoutes(), 1, "a node without addresses says nothing")
	})
}

// What others wrote on a route stays when it is corrected.
func TestCorrectedRouteKeepsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		n := w.routed(1)
		at := originalRoute(w, n, w.cluster)
		w.sim.Change(at, func(f fields) {
			f["display_name"], f["description"], f["enabled_on_secondary"] = "renamed", "by hand", true
			f["tags"] = append(f["tags"].([]any), fields{"scope": "team", "tag": "network"})
		})
		n = n.DeepCopy()
		n.Status.Addresses[0].Address = "10.0.0.77"
		w.Register(n)
		require.NoError(w.T, w.makeRoute(n))
		r := w.sim.Get(at)
		assert.Equal(w.T, []any{fields{"ip_address": "10.0.0.77", "admin_distance": 1.0}}, r.Fields["next_hops"])
		assert.Equal(w.T, []string{"renamed", "by hand", "network", "anyccm:test-cluster"},
			[]string{r.Text("display_name"), r.Text("description"), r.Tag("team"), r.Tag(scopeMark)})
		assert.Equal(w.T, true, r.Fields["enabled_on_secondary"])
	})
}

func TestRouteThatCannotBeRealized(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		w.sim.Break(routesPath, "the next hop is not reachable")
		n := w.routed(1)
		require.ErrorContains(w.T, w.makeRoute(n), "the next hop is not reachable")
		assert.Contains(w.T, strings.Join(w.Events(), "\n"), "Warning "+eventRouteNotRealized)
		assert.Empty(w.T, w.listRoutes(), "it is not in force")
		w.sim.Break(routesPath, "")
		w.server.ResetCalls()
		require.NoError(w.T, w.makeRoute(n))
		assert.Empty(w.T, w.writes())
		assert.Len(w.T, w.listRoutes(), 1)
	})
}

func TestRouteTakesTooLong(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: time.Minute}, nil, func(w *testWorld) {
		n := w.routed(1)
		require.ErrorContains(w.T, w.makeRoute(n), "waiting for static route "+routesPath)
		time.Sleep(time.Minute)
		require.NoError(w.T, w.makeRoute(n))
		assert.Len(w.T, w.listRoutes(), 1)
	})
}

func TestHopOf(t *testing.T) {
	t.Parallel()
	addresses := []v1.NodeAddress{
		{Type: v1.NodeHostName, Address: "n"}, {Type: v1.NodeExternalIP, Address: "192.0.2.1"}, {Type: v1.NodeInternalIP, Address: "fd00::1"},
	}
	for destination, want := range map[string]string{"10.244.0.0/24": "192.0.2.1", "fd01::/64": "fd00::1"} {
		hop, err := hopOf("n", addresses, destination)
		require.NoError(t, err)
		assert.Equal(t, want, hop)
	}
	_, err := hopOf("n", nil, "10.244.0.0/24")
	require.EqualError(t, err, "node n has no address to route to")
	_, err = hopOf("n", addresses[2:], "10.244.0.0/24")
	require.EqualError(t, err, "node n has no address of IPv4 to route to, only fd00::1")
}

// A tier-0 gateway is not taken for a tier-1 gateway of the same name.
func TestRouterPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/infra/tier-1s/t1": "t1", "/infra/tier-1s/t1/": "t1", "t1": "t1"} {
		id, err := routeConfig{RouterPath: path}.tier1()
		require.NoError(t, err)
		assert.Equal(t, want, id)
	}
	for _, path := range []string{"/infra/tier-0s/t0", "/orgs/default/projects/p/infra/tier-1s/t1", "/infra/tier-1s/", "/"} {
		_, err := routeConfig{RouterPath: path}.tier1()
		require.ErrorContains(t, err, "is not the path of a tier-1 gateway", path)
	}
}

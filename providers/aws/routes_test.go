package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

const clusterTable = "rtb-0000000000000000b"

func routeTo(n *v1.Node, cidr string) *cloudprovider.Route {
	return &cloudprovider.Route{TargetNode: types.NodeName(n.Name), DestinationCIDR: cidr}
}

func shownRoutes(t *testing.T, w *world) map[string]string {
	t.Helper()
	list, err := w.routes.ListRoutes(t.Context(), "kubernetes")
	require.NoError(t, err)
	shown := map[string]string{}
	for _, r := range list {
		assert.Equal(t, "kubernetes-"+r.DestinationCIDR, r.Name)
		shown[r.DestinationCIDR] = string(r.TargetNode)
		if r.Blackhole {
			shown[r.DestinationCIDR] = "blackhole"
		}
	}
	return shown
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	one := w.addNode(awssim.Spec{Name: "one"})
	two := w.addNode(awssim.Spec{Name: "two", Interfaces: []*awssim.Interface{{PrivateIPs: []string{"10.1.0.8"}}, {PrivateIPs: []string{"10.1.0.9"}}}})
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(one, "10.244.1.0/24")))
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(two, "10.244.2.0/24")), "AWS does not choose among interfaces")
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(one, "fd00:1::/64")))
	assert.Equal(t, map[string]string{"10.244.1.0/24": "one", "10.244.2.0/24": "two", "fd00:1::/64": "one"}, shownRoutes(t, w))
	for _, i := range w.sim.List() {
		assert.False(t, i.Interfaces[0].SourceDest, "packets of pods pass")
	}
	w.server.ResetCalls()
	require.NoError(t, w.routes.DeleteRoute(t.Context(), "kubernetes", routeTo(one, "fd00:1::/64")))
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(one, "fd00:1::/64")))
	assert.Zero(t, w.server.Calls().ByOperation["EC2 ModifyInstanceAttribute"], "the check is switched off once")

	// What is a node no more, and what never was one.
	foreign := w.sim.AddInstance(awssim.Spec{Name: "nat", Untagged: true})
	w.sim.ChangeTable(clusterTable, func(table *awssim.RouteTable) {
		table.Routes = append(table.Routes, &awssim.Route{CIDR: "10.99.0.0/16", Instance: foreign}, &awssim.Route{CIDR: "10.98.0.0/16", Gateway: "nat-1"})
	})
	w.sim.Remove(instanceOf(two))
	w.Unregister(two)
	w.restart()
	assert.Equal(t, map[string]string{"10.244.1.0/24": "one", "10.244.2.0/24": "blackhole", "fd00:1::/64": "one"}, shownRoutes(t, w), "somebody else's route is not shown, and fails nothing")

	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(one, "10.244.2.0/24")), "a black hole makes way")
	require.NoError(t, w.routes.DeleteRoute(t.Context(), "kubernetes", routeTo(one, "10.244.2.0/24")))
	require.NoError(t, w.routes.DeleteRoute(t.Context(), "kubernetes", routeTo(one, "10.244.2.0/24")), "what is gone is no error")
	require.Error(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(two, "10.244.2.0/24")))
	err := w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(one, "10.99.0.0/16"))
	require.ErrorContains(t, err, "not this cluster's")
	require.NoError(t, w.routes.DeleteRoute(t.Context(), "kubernetes", routeTo(one, "10.99.0.0/16")))
	assert.Equal(t, foreign, shownTable(w)["10.99.0.0/16"], "the route of somebody else stays, whoever asks")
	assert.Empty(t, w.server.Calls().Refused)
}

// shownTable returns the targets in the cluster's route table other than gateways, by network.
func shownTable(w *world) map[string]string {
	shown := map[string]string{}
	for _, r := range w.sim.Routes() {
		shown[r.CIDR+r.CIDRv6] = r.Instance
	}
	return shown
}

// TestRoutesOfDeletedNodes: a Node was deleted and its instance lives. Its route goes, and does not keep the next Node from
// having the network; with the permission for it, by one call.
func TestRoutesOfDeletedNodes(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	gone, next := w.addNode(awssim.Spec{Name: "gone"}), w.addNode(awssim.Spec{Name: "next"})
	for _, cidr := range []string{"10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"} {
		require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(gone, cidr)))
	}
	gone.Spec.PodCIDRs = []string{"10.244.1.0/24"}
	w.Unregister(gone)
	w.restart()
	assert.Equal(t, "gone", shownRoutes(t, w)["10.244.1.0/24"], "the framework deletes the route of a Node that it does not know")

	w.server.ResetCalls()
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(next, "10.244.1.0/24")))
	assert.Equal(t, 1, w.server.Calls().ByOperation["EC2 ReplaceRoute"])
	assert.Equal(t, instanceOf(next), shownTable(w)["10.244.1.0/24"])
	w.sim.Deny("ReplaceRoute", true)
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(next, "10.244.2.0/24")), "AWS's own controller does not need the permission")
	assert.Equal(t, instanceOf(next), shownTable(w)["10.244.2.0/24"])
	require.NoError(t, w.routes.DeleteRoute(t.Context(), "kubernetes", routeTo(gone, "10.244.3.0/24")))
	assert.NotContains(t, shownTable(w), "10.244.3.0/24")

	w.Register(gone)
	gone.Spec.PodCIDRs = []string{"10.244.4.0/24"}
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(gone, "10.244.4.0/24")))
	require.ErrorContains(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(next, "10.244.4.0/24")), "leads to node gone, which has the same network")
}

// TestRoutesCost: one listing, whoever asks.
func TestRoutesCost(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	w.addNodes(40)
	require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(w.nodes[0], "10.244.1.0/24")))
	w.server.ResetCalls()
	for range 10 {
		shownRoutes(t, w)
	}
	assert.Equal(t, map[string]int{"EC2 DescribeRouteTables": 1}, w.server.Calls().ByOperation)
}

// TestRouteTable: exactly one table is managed.
func TestRouteTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file    string
		prepare func(*awssim.Sim)
		want    string
	}{
		"by tag": {"", func(*awssim.Sim) {}, ""},
		"by ID":  {"RouteTableID = " + awssim.PublicTable + "\n", func(*awssim.Sim) {}, ""},
		"wrong":  {"RouteTableID = rtb-none\n", func(*awssim.Sim) {}, "there is no route table rtb-none"},
		"none":   {"", func(s *awssim.Sim) { s.ChangeTable(clusterTable, func(t *awssim.RouteTable) { t.Tags = nil }) }, "tag the route table of the nodes with kubernetes.io/cluster/simulated"},
		"two": {"", func(s *awssim.Sim) {
			s.ChangeTable(awssim.PublicTable, func(t *awssim.RouteTable) { t.Tags = awssim.Tags{"KubernetesCluster": awssim.ClusterID} })
		}, "several route tables have the tag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestWorld(t, c.file, awssim.Options{})
			c.prepare(w.sim)
			_, err := w.routes.ListRoutes(t.Context(), "kubernetes")
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestRoutesAreOffered where the network of the pods is known: without it the framework would end the program.
func TestRoutesAreOffered(t *testing.T) {
	t.Parallel()
	sim, _ := awssim.New(newRegion(awssim.Options{}))
	in := testInputs(sim, "http://127.0.0.1:1", "", nil)
	c, err := newCloud(in)
	require.NoError(t, err)
	_, ok := c.Routes()
	assert.True(t, ok)
	in.ClusterCIDR = ""
	c, err = newCloud(in)
	require.NoError(t, err)
	_, ok = c.Routes()
	assert.False(t, ok)
	assert.False(t, Description().Routes(in))
}

// TestRoutesOfStoppedInstances: a route to an instance that is stopped is a black hole to EC2. A Node's stays its route, and the one
// of somebody else's instance stays theirs; without its Node it goes.
func TestRoutesOfStoppedInstances(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	one, gone := w.addNode(awssim.Spec{Name: "one"}), w.addNode(awssim.Spec{Name: "gone"})
	routes := map[string]*cloudprovider.Route{"10.244.1.0/24": routeTo(one, "10.244.1.0/24"), "10.244.2.0/24": routeTo(gone, "10.244.2.0/24")}
	for _, r := range routes {
		require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", r))
	}
	vpn := w.sim.AddInstance(awssim.Spec{Name: "vpn", Untagged: true})
	w.sim.ChangeTable(clusterTable, func(table *awssim.RouteTable) {
		table.Routes = append(table.Routes, &awssim.Route{CIDR: "10.244.9.0/24", Instance: vpn})
	})
	for _, id := range []string{instanceOf(one), instanceOf(gone), vpn} {
		require.NoError(t, w.sim.SetStatus(id, "stopped"))
	}
	w.Unregister(gone)
	w.restart()
	w.server.ResetCalls()
	for range 3 {
		list, err := w.routes.ListRoutes(t.Context(), "kubernetes")
		require.NoError(t, err)
		shown := map[string]bool{}
		for _, r := range list {
			shown[r.DestinationCIDR] = r.Blackhole
		}
		assert.Equal(t, map[string]bool{"10.244.1.0/24": false, "10.244.2.0/24": true}, shown)
		require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routes["10.244.1.0/24"]))
		w.network.tables.InvalidateAll()
	}
	assert.Zero(t, w.server.Calls().Writes)
	assert.Equal(t, vpn, shownTable(w)["10.244.9.0/24"])
	require.ErrorContains(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(one, "10.244.9.0/24")), "not this cluster's")
}

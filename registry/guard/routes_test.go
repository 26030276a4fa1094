package guard

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
)

// router is a cloud that keeps routes.
type router struct {
	verifier

	routes           []*cloudprovider.Route
	created, deleted []string
	informed         informers.SharedInformerFactory
	itself           func(netip.Prefix) bool
}

func (r *router) RoutesItself(network netip.Prefix) bool { return r.itself != nil && r.itself(network) }

func (r *router) Routes() (cloudprovider.Routes, bool) { return r, true }

func (r *router) ListRoutes(context.Context, string) ([]*cloudprovider.Route, error) {
	return r.routes, nil
}

func (r *router) CreateRoute(_ context.Context, _, _ string, route *cloudprovider.Route) error {
	r.created = append(r.created, string(route.TargetNode)+" "+route.DestinationCIDR)
	return nil
}

func (r *router) DeleteRoute(_ context.Context, _ string, route *cloudprovider.Route) error {
	r.deleted = append(r.deleted, string(route.TargetNode)+" "+route.DestinationCIDR)
	return nil
}

func (r *router) SetInformers(f informers.SharedInformerFactory) { r.informed = f }

func routed(name, providerID string, age time.Duration, ranges ...string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
		Spec:       v1.NodeSpec{ProviderID: providerID, PodCIDRs: ranges},
	}
}

func routing(t *testing.T, p Policy, nodes ...*v1.Node) (*router, cloudprovider.Routes, *record.FakeRecorder) {
	t.Helper()
	inner := &router{}
	g := Wrap(inner, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, ClusterCIDR: "10.2.0.0/16, fd00:2::/48", Policy: p})
	recorder := record.NewFakeRecorder(20)
	g.reports.setRecorder(recorder)
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
	g.SetInformers(factory)
	for _, n := range nodes {
		require.NoError(t, factory.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	routes, ok := g.Routes()
	require.True(t, ok)
	return inner, routes, recorder
}

func routeTo(node, cidr string) *cloudprovider.Route {
	return &cloudprovider.Route{Name: node + cidr, TargetNode: types.NodeName(node), DestinationCIDR: cidr}
}

func TestRoutesStayInsideTheCluster(t *testing.T) {
	t.Parallel()
	nodes := []*v1.Node{
		routed("old", "alpha://1", 3*time.Hour, "10.2.1.0/24", "fd00:2::1:0/112"),
		routed("outside", "alpha://2", 2*time.Hour, "0.0.0.0/1"),
		routed("wide", "alpha://3", time.Hour, "10.2.0.0/16"),
		routed("thief", "alpha://4", time.Minute, "10.2.1.128/25"),
		routed("nonsense", "alpha://5", time.Minute, "10.2.9.0"),
		routed("new", "alpha://6", time.Second, "10.2.7.0/24"),
		routed("elsewhere", "beta://1", 4*time.Hour, "10.2.8.0/24"),
		routed("clash", "alpha://7", time.Second, "10.2.8.0/25"),
	}
	for name, c := range map[string]struct{ cidr, refused string }{
		"old":      {"10.2.1.0/24", ""},
		"outside":  {"0.0.0.0/1", "is not inside --cluster-cidr"},
		"wide":     {"10.2.0.0/16", "its pod range 10.2.0.0/16 overlaps that of node"},
		"thief":    {"10.2.1.128/25", "overlaps that of node old, which is older"},
		"nonsense": {"10.2.9.0", "is not a network"},
		"new":      {"10.2.7.0/24", ""}, // what was refused to others takes nothing from it
		"clash":    {"10.2.8.0/25", "overlaps that of node elsewhere"},
	} {
		inner, routes, recorder := routing(t, DefaultPolicy(), nodes...)
		err := routes.CreateRoute(t.Context(), "c", "hint", routeTo(name, c.cidr))
		if c.refused == "" {
			require.NoError(t, err, name)
			assert.Equal(t, []string{name + " " + c.cidr}, inner.created)
			continue
		}
		require.ErrorContains(t, err, c.refused, name)
		assert.Empty(t, inner.created, name)
		assert.Contains(t, <-recorder.Events, "Warning "+EventRouteRefused+" the Node gets no route", name)
	}
	inner, routes, _ := routing(t, DefaultPolicy(), nodes...)
	require.NoError(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("old", "fd00:2::1:0/112")))
	require.NoError(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("elsewhere", "10.2.8.0/24")), "not ours to make, and no failure")
	assert.Equal(t, []string{"old fd00:2::1:0/112"}, inner.created)
}

// TestRangesThatTheCloudRoutesItself: they lie where the cloud has them, and belong to one Node alone all the same.
func TestRangesThatTheCloudRoutesItself(t *testing.T) {
	t.Parallel()
	nodes := []*v1.Node{
		routed("old", "alpha://1", time.Hour, "10.2.1.0/24", "2001:db8:1::/112"),
		routed("thief", "alpha://2", time.Minute, "10.2.2.0/24", "2001:db8:1::/120"),
		routed("outside", "alpha://3", time.Minute, "192.0.2.0/24"),
	}
	_, routes, _ := routing(t, DefaultPolicy(), nodes...)
	require.ErrorContains(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("old", "2001:db8:1::/112")), "is not inside --cluster-cidr")

	inner, routes, _ := routing(t, DefaultPolicy(), nodes...)
	inner.itself = func(network netip.Prefix) bool { return network.Addr().Is6() }
	require.NoError(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("old", "2001:db8:1::/112")))
	assert.Equal(t, []string{"old 2001:db8:1::/112"}, inner.created)
	require.ErrorContains(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("thief", "2001:db8:1::/120")), "overlaps that of node old")
	require.ErrorContains(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("outside", "192.0.2.0/24")), "is not inside --cluster-cidr")

	inner.routes = []*cloudprovider.Route{routeTo("old", "2001:db8:1::/112")}
	list, err := routes.ListRoutes(t.Context(), "c")
	require.NoError(t, err)
	assert.Equal(t, inner.routes, list, "and stays")
	assert.Empty(t, inner.deleted)
}

func TestRefusedRoutesAreRemoved(t *testing.T) {
	t.Parallel()
	inner, routes, recorder := routing(t, DefaultPolicy(),
		routed("old", "alpha://1", time.Hour, "10.2.1.0/24"), routed("thief", "alpha://2", time.Minute, "10.2.1.0/25"),
		routed("outside", "alpha://3", time.Minute, "192.0.2.0/24"), routed("elsewhere", "beta://1", time.Hour, "10.2.8.0/24"))
	byHand := routeTo("old", "198.51.100.0/24") // a route that somebody made to a node, and no range of it
	inner.routes = []*cloudprovider.Route{
		routeTo("old", "10.2.1.0/24"), routeTo("thief", "10.2.1.0/25"), routeTo("outside", "192.0.2.0/24"), routeTo("elsewhere", "10.2.8.0/24"),
		routeTo("", "10.2.8.0/24"), byHand,
		{DestinationCIDR: "10.2.99.0/24", Blackhole: true},
	}
	list, err := routes.ListRoutes(t.Context(), "c")
	require.NoError(t, err)
	assert.Equal(t, []string{"thief 10.2.1.0/25", "outside 192.0.2.0/24"}, inner.deleted)
	assert.Len(t, recorder.Events, 2)
	assert.Equal(t, []*cloudprovider.Route{inner.routes[0], byHand, inner.routes[6]}, list, "routes of other clouds' Nodes are not shown")
}

func TestOnlyVerifiedNodesBecomeNextHops(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.VerifyInstances = true
	inner, routes, recorder := routing(t, p, routed("good", "alpha://1", time.Hour, "10.2.1.0/24"), routed("bad", "alpha://2", time.Hour, "10.2.2.0/24"))
	inner.refused = map[string]string{"alpha://2": "its name is db-1"}
	require.NoError(t, routes.CreateRoute(t.Context(), "c", "", routeTo("good", "10.2.1.0/24")))
	require.ErrorContains(t, routes.CreateRoute(t.Context(), "c", "", routeTo("bad", "10.2.2.0/24")), "its name is db-1")
	assert.Equal(t, []string{"good 10.2.1.0/24"}, inner.created)
	assert.NotEmpty(t, recorder.Events)
	inner.routes = []*cloudprovider.Route{routeTo("bad", "10.2.2.0/24")}
	list, err := routes.ListRoutes(t.Context(), "c")
	require.NoError(t, err)
	assert.Empty(t, list)
	assert.Equal(t, []string{"bad 10.2.2.0/24"}, inner.deleted)
}

func TestProvidersSeeOurNodesAlone(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.NodeSelector = "pool=ours"
	labelled := func(n *v1.Node) *v1.Node { n.Labels = map[string]string{"pool": "ours"}; return n }
	inner, _, _ := routing(
		t, p, labelled(routed("a", "alpha://1", 0)), routed("b", "alpha://2", 0), labelled(routed("c", "beta://3", 0)),
		labelled(routed("d", "", 0)),
	)
	nodes := inner.informed.Core().V1().Nodes()
	for _, lister := range []interface{ ListKeys() []string }{
		nodes.Informer().GetIndexer(), nodes.Informer().GetStore(), nodes.TypedInformer().GetIndexer(),
	} {
		assert.ElementsMatch(t, []string{"a", "d"}, lister.ListKeys())
	}
	all, err := nodes.Lister().List(everything)
	require.NoError(t, err)
	assert.Len(t, all, 2)
	_, err = nodes.Lister().Get("b")
	require.Error(t, err)
	_, err = nodes.Lister().Get("a")
	require.NoError(t, err)
}

func TestHandlersHearOfOurNodesAlone(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 10)
	ours := func(n *v1.Node) bool { return n.Spec.ProviderID != "beta://" }
	h := ownNodesView(ours).Handler(hears{heard})
	h.OnAdd(routed("a", "alpha://1", 0), true)
	h.OnAdd(routed("b", "beta://", 0), true)
	h.OnUpdate(routed("c", "", 0), routed("c", "beta://", 0))
	h.OnUpdate(routed("d", "beta://", 0), routed("d", "", 0))
	h.OnUpdate(routed("a", "alpha://1", 0), routed("a", "alpha://1", 0))
	h.OnDelete(routed("b", "beta://", 0))
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "b", Obj: routed("b", "beta://", 0)})
	h.OnDelete(routed("a", "alpha://1", 0))
	close(heard)
	var all []string
	for one := range heard {
		all = append(all, one)
	}
	assert.Equal(t, []string{"+a", "-c", "+d", "~a", "-a"}, all)
}

// TestRoutesOfNewNodes: the list of all Nodes is a second old at times; a Node that is not on it gets no route unseen.
func TestRoutesOfNewNodes(t *testing.T) {
	t.Parallel()
	inner, routes, _ := routing(t, DefaultPolicy(), routed("old", "alpha://1", time.Hour, "10.2.1.0/24"))
	require.NoError(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("old", "10.2.1.0/24")))
	synctest.Test(t, func(t *testing.T) {
		require.Error(t, routes.CreateRoute(t.Context(), "c", "hint", routeTo("unknown", "192.0.2.0/24")))
	})
	assert.Len(t, inner.created, 1)
}

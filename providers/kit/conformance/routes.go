package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// runRoutes plays the framework's route controller: it lists the routes, and makes and removes what differs.
func runRoutes(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "life cycle", func(t *testing.T) { runRouteLifeCycle(t, newFixture(t)) })
	faults := []simkit.Fault{
		{Kind: simkit.FaultStatus, Status: 401},
		{Kind: simkit.FaultStatus, Status: 403},
		{Kind: simkit.FaultStatus, Status: 404},
		{Kind: simkit.FaultStatus, Status: 500},
		{Kind: simkit.FaultReset},
		{Kind: simkit.FaultCut},
		{Kind: simkit.FaultHTML},
		{Kind: simkit.FaultHTML, Status: 404},
	}
	for _, fault := range faults {
		virtual(t, fmt.Sprintf("a listing that fails is no empty one: %s %d", fault.Kind, fault.Status), func(t *testing.T) {
			w := newRoutesWorld(t, newFixture(t))
			for _, node := range w.nodes {
				w.makeRoute(t.Context(), node, nil)
			}
			w.restart()
			w.failCalls(fault)
			list, err := w.routes().ListRoutes(t.Context(), clusterName)
			w.requireNoCrash(err)
			assert.True(t, err != nil || len(list) == len(w.nodes), "%d routes are shown", len(list))
		})
	}
	var calls []simkit.Call
	synctest.Test(t, func(t *testing.T) { calls = interruptedRoutes(t, newFixture(t), brokenLife{}) })
	require.NotEmpty(t, calls)
	lives := breakWrites(calls)
	if triesAll(t, newFixture) {
		lives = breakEveryCall(calls)
	}
	for _, life := range lives {
		virtual(t, life.name, func(t *testing.T) { interruptedRoutes(t, newFixture(t), life) })
	}
}

func (w *world) routes() cloudprovider.Routes {
	r, ok := w.cloud.Routes()
	require.True(w.t, ok)
	return r
}

// newRoutesWorld returns a world with two nodes and their pod ranges.
func newRoutesWorld(t *testing.T, f *Fixture) *world {
	t.Helper()
	f.Routes()
	w := newWorld(t, f)
	for i := range 2 {
		node := w.addNode(t.Context(), fmt.Sprintf("worker-%d", i+1), nil)
		node.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", i+1)}
		node.UID = types.UID(fmt.Sprintf("3b0e0000-495b-4884-9a69-%012d", i+1))
	}
	w.shown = w.nodes
	w.restart()
	return w
}

// listRoutes are the routes that the provider shows, in order.
func (w *world) listRoutes(ctx context.Context, onError func()) []*cloudprovider.Route {
	var list []*cloudprovider.Route
	w.untilDone(onError, func() (err error) {
		list, err = w.routes().ListRoutes(ctx, clusterName)
		return err
	})
	slices.SortFunc(list, func(a, b *cloudprovider.Route) int { return strings.Compare(a.DestinationCIDR, b.DestinationCIDR) })
	return list
}

// untilDone tries again as the route controller does.
func (w *world) untilDone(onError func(), try func() error) {
	for began := time.Now(); ; time.Sleep(kubeletWrites) {
		err := try()
		if err == nil {
			return
		}
		require.NotNil(w.t, onError, "%v", err)
		require.Less(w.t, time.Since(began), patience, "%v", err)
		onError()
	}
}

func (w *world) makeRoute(ctx context.Context, node *v1.Node, onError func()) {
	w.untilDone(onError, func() error {
		return w.routes().CreateRoute(ctx, clusterName, string(node.UID), &cloudprovider.Route{
			TargetNode: types.NodeName(node.Name), DestinationCIDR: node.Spec.PodCIDRs[0], TargetNodeAddresses: node.Status.Addresses,
		})
	})
}

func (w *world) requireRoutes(ctx context.Context, onError func(), nodes ...*v1.Node) []*cloudprovider.Route {
	w.t.Helper()
	list := w.listRoutes(ctx, onError)
	var shown, wanted []string
	for _, r := range list {
		assert.False(w.t, r.Blackhole)
		shown = append(shown, string(r.TargetNode)+" "+r.DestinationCIDR)
	}
	for _, n := range nodes {
		wanted = append(wanted, n.Name+" "+n.Spec.PodCIDRs[0])
	}
	require.Equal(w.t, wanted, shown)
	return list
}

func runRouteLifeCycle(t *testing.T, f *Fixture) {
	t.Helper()
	ctx := t.Context()
	w := newRoutesWorld(t, f)
	w.requireRoutes(ctx, nil)
	for _, node := range w.nodes {
		w.makeRoute(ctx, node, nil)
	}
	w.restart()
	list := w.requireRoutes(ctx, nil, w.nodes...)
	w.Sim.ResetCalls()
	for _, node := range w.nodes {
		w.makeRoute(ctx, node, nil)
	}
	w.requireNoWrites("the routes are there")
	for range 2 {
		require.NoError(t, w.routes().DeleteRoute(ctx, clusterName, list[0]), "what is gone is gone")
		w.restart()
		w.requireRoutes(ctx, nil, w.nodes[1])
	}
	require.NoError(t, w.routes().DeleteRoute(ctx, clusterName, list[1]))
	w.restart()
	w.requireRoutes(ctx, nil)
	w.requireNothingRefused()
}

// interruptedRoutes makes two routes and removes one while a call is broken.
func interruptedRoutes(t *testing.T, f *Fixture, life brokenLife) (calls []simkit.Call) {
	t.Helper()
	ctx := t.Context()
	w := newRoutesWorld(t, f)
	w.Sim.ResetCalls()
	if life.fault.Kind != "" {
		w.failCalls(life.fault)
	}
	onError := func() {
		if life.restart {
			w.restart()
		}
	}
	w.listRoutes(ctx, onError)
	for _, node := range w.nodes {
		w.makeRoute(ctx, node, onError)
	}
	list := w.requireRoutes(ctx, onError, w.nodes...)
	w.untilDone(onError, func() error { return w.routes().DeleteRoute(ctx, clusterName, list[0]) })
	calls = w.Sim.Calls().Latest
	w.Sim.ClearFaults()
	w.restart()
	w.requireRoutes(ctx, nil, w.nodes[1])
	w.requireNothingRefused()
	return calls
}

package nsx

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// TestDeletionGoesOnAfterARestart: what a former process deleted still counts as a user for a while. Nobody hears of that.
func TestDeletionGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: 3 * time.Second, SlowReferences: true}, nil, func(w *testWorld) {
		s := serving(w, webService())
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "DELETE " + infra + "/lb-services/{id}"})
		require.NoError(w.T, err)
		require.Error(w.T, w.loadBalancers.EnsureLoadBalancerDeleted(w.T.Context(), w.cluster, w.Current(s)))
		w.server.ClearFaults()
		assert.Empty(w.T, w.sim.Objects(pathServers))
		assert.Len(w.T, w.sim.Objects(pathPools), 1)
		w.restart()
		require.NoError(w.T, w.loadBalancers.EnsureLoadBalancerDeleted(w.T.Context(), w.cluster, w.Current(s)))
		assert.Empty(w.T, w.sim.Paths())
	})
}

// TestServiceReturnsAfterARestart: what is made in the place of what a former process deleted waits, and the pool is not said to be empty.
func TestServiceReturnsAfterARestart(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: 3 * time.Second}, nil, func(w *testWorld) {
		s := serving(w, webService())
		require.NoError(w.T, w.loadBalancers.EnsureLoadBalancerDeleted(w.T.Context(), w.cluster, w.Current(s)))
		w.restart()
		_, err := w.try(s)
		require.ErrorContains(w.T, err, "getting deleted")
		assert.NotContains(w.T, strings.Join(w.Events(), "\n"), eventNoAddress)
		time.Sleep(3 * time.Second)
		w.ensure(s)
	})
}

// TestRouteOfAFormerProcessIsAwaited: a route that is written and not in force counts as missing until its Node shows it.
func TestRouteOfAFormerProcessIsAwaited(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: 20 * time.Second}, nil, func(w *testWorld) {
		n := w.routed(1)
		require.Error(w.T, w.makeRoute(n), "it takes too long")
		assert.Empty(w.T, w.listRoutes())
		w.restart()
		assert.Empty(w.T, w.listRoutes(), "it is not in force yet")
		time.Sleep(20 * time.Second)
		require.NoError(w.T, w.makeRoute(n))
		assert.Len(w.T, w.listRoutes(), 1)
	})
}

// TestRoutesAreAskedForOnce: whether a route is in force is asked once, although its Node never shows it, as one without an address for
// another range of Pods.
func TestRoutesAreAskedForOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		for i := range 5 {
			require.NoError(w.T, w.makeRoute(w.routed(i+1)))
		}
		w.restart()
		w.server.ResetCalls()
		for range 3 {
			assert.Len(w.T, w.listRoutes(), 5)
		}
		assert.Equal(w.T, 1+5, w.server.Calls().Total, "a listing, and the state of each route")
	})
}

// TestRouteOfUnknownStateKeepsNoOtherBack: a failure to read one route's state concerns its Node alone.
func TestRouteOfUnknownStateKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{}, nil, func(w *testWorld) {
		for i := range 2 {
			require.NoError(w.T, w.makeRoute(w.routed(i+1)))
		}
		w.restart()
		_, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: 403, Operation: "GET " + infra + "/realized-state/realized-entities", Count: 1,
		})
		require.NoError(w.T, err)
		list := w.listRoutes()
		require.Len(w.T, list, 1)
		assert.Equal(w.T, "n2", string(list[0].TargetNode))
		assert.Len(w.T, w.listRoutes(), 2)
	})
}

// TestPluginDoesNotSayThatARouteIsInForce: network plugins clear the same condition of a Node. Only the framework's reason counts, and not
// for what was written since.
func TestPluginDoesNotSayThatARouteIsInForce(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: 20 * time.Second}, nil, func(w *testWorld) {
		n := w.routed(1)
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: "RouteCreated"}}
		require.Error(w.T, w.makeRoute(n), "it takes too long")
		assert.Empty(w.T, w.listRoutes(), "this process wrote it")
		n.Status.Conditions[0].Reason = "CalicoIsUp"
		w.restart()
		assert.Empty(w.T, w.listRoutes(), "a plugin says nothing about it")
	})
}

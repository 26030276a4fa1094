package azure

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestBoundAddressIsNotForgotten: a public address that cannot be deleted yet is an error, until it is gone.
func TestBoundAddressIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		w.sim.Refuse("DELETE Microsoft.Network/publicIPAddresses", http.StatusBadRequest, "PublicIPAddressCannotBeDeleted",
			"Public IP address can not be deleted since it is still allocated to resource x.")
		require.ErrorContains(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, w.Current(s)), "still allocated")
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), clusterName, w.Current(s))
		require.NoError(w, err)
		assert.True(w, exists, "the framework asks whether anything is left")
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestDeletionWithoutRights: a credential that may not look, or not delete, is an error that says so, and nothing is taken for gone.
func TestDeletionWithoutRights(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{
		"GET Microsoft.Network/loadBalancers", "GET Microsoft.Network/publicIPAddresses", "DELETE Microsoft.Network/loadBalancers/{name}",
		"DELETE Microsoft.Network/publicIPAddresses/{name}", "PUT Microsoft.Network/networkSecurityGroups/{name}",
	} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			s := webService(nil)
			withNode(t, s, func(w *world) {
				w.ensure(s)
				w.restart()
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: operation})
				require.NoError(w, err)
				require.Error(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, w.Current(s)))
				w.server.ClearFaults()
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}

// removeByHand deletes the load balancers and the public address of the Service default/web, as somebody does by hand.
func (w *world) removeByHand() {
	w.Helper()
	w.sim.RemoveLoadBalancers()
	require.NoError(w, w.cloud.reconciler.resources.api.remove(w.Context(), webPIP, pipID(webPIP), networkVersion, ""))
	waitFor(2 * observeMaxAge)
}

// TestRulesThatAreLeftAlone: where a load balancer and its address were deleted by hand, the rules of the security group are what is left
// of a Service, and go with it.
func TestRulesThatAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{
		"public":            nil,
		"networks":          {annotationAllowedRanges: "192.0.2.0/24", annotationDenyAll: "true"},
		"node ports":        {annotationNoFloating: "true"},
		"internal":          {annotationInternal: "true", annotationAllowedRanges: "192.0.2.0/24"},
		"a further address": {annotationAdditional: "203.0.113.7"},
	} {
		for _, isRestarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarted %t", name, isRestarted), func(t *testing.T) {
				t.Parallel()
				s := webService(annotations)
				withNode(t, s, func(w *world) {
					w.ensure(s)
					w.removeByHand()
					if isRestarted {
						w.restart()
					}
					require.NotEmpty(w, w.securityRules())
					_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), clusterName, w.Current(s))
					require.NoError(w, err)
					assert.True(w, exists)
					w.remove(s)
					assert.Empty(w, w.sim.Snapshot())
				})
			})
		}
	}
}

// TestNothingIsLeft: a Service that never had anything, beside one that has the same port, is gone at the cost of one read of the security
// group, which all share.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		waitFor(2 * observeMaxAge)
		w.server.ResetCalls()
		for i := range 3 {
			gone := webNumber(i+1, nil)
			w.Apply(gone)
			_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), clusterName, gone)
			require.NoError(w, err)
			assert.False(w, exists)
		}
		calls := w.server.Calls()
		assert.Zero(w, calls.Writes)
		assert.Equal(w, map[string]int{
			"GET Microsoft.Network/loadBalancers": 1, "GET Microsoft.Network/publicIPAddresses": 1, "GET Microsoft.Network/networkSecurityGroups/{name}": 1,
		}, calls.ByOperation)
	})
}

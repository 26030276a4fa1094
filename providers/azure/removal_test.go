package azure

import (
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

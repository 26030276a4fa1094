package openstack

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestGroupOfAnOrphan: the security group of a Service that went without clean-up goes before its load balancer, also where the option
// is off by now: while the group cannot be deleted, the load balancer is found again.
func TestGroupOfAnOrphan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, file := range []string{"manage-security-groups = true\n", ""} {
			w, s := newServedWorld(t, "manage-security-groups = true\n", web(nil))
			w.vanish(s)
			w.file = file
			w.restart()
			lb := w.sim.LoadBalancers()[0]
			o := contract.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name}
			id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "DELETE /networking/v2.0/security-groups/{id}"})
			require.NoError(t, err)
			require.Error(t, w.DeleteOrphan(t.Context(), o))
			assert.Len(t, w.sim.LoadBalancers(), 1)
			assert.Len(t, w.sim.FloatingIPs(), 1)
			found, err := w.Orphans(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, found, 1)
			w.server.RemoveFault(id)
			require.NoError(t, w.DeleteOrphan(t.Context(), o))
			assert.Empty(t, w.sim.SecurityGroups())
			assert.Empty(t, w.sim.LoadBalancers())
			assert.Empty(t, w.sim.FloatingIPs())
		}
	})
}

// TestEachPortIsClosed: when a Service goes, its security group is taken off all ports that allow it, and the load balancer stays until
// none has it.
func TestEachPortIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "manage-security-groups = true\n", web(nil))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "PUT /networking/v2.0/ports/{id}", Count: 1})
		require.NoError(t, err)
		require.Error(t, w.remove(s))
		having := 0
		for _, p := range w.sim.Ports() {
			having += len(p.SecurityGroups)
		}
		assert.Equal(t, 1, having, "the other one is closed")
		assert.Len(t, w.sim.LoadBalancers(), 1)
		require.NoError(t, w.remove(s))
		assert.Empty(t, w.sim.SecurityGroups())
		assert.Empty(t, w.sim.LoadBalancers())
	})
}

// TestErrorWithoutCascade: of a load balancer in ERROR no part can be deleted alone, so that it goes as a whole.
func TestErrorWithoutCascade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "cascade-delete = false\n", web(nil))
		w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.ProvisioningStatus = statusError })
		w.restart()
		require.NoError(t, w.remove(s))
		assert.Empty(t, w.sim.LoadBalancers())
	})
}

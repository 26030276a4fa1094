package openstack

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestLoadBalancersMadeAtTheSameTime: of what two processes made at the same time one serves, and all goes with the Service.
func TestLoadBalancersMadeAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "manage-security-groups = true\n", web(nil))
		mine := w.sim.LoadBalancers()[0]
		twin := w.sim.AddLoadBalancer(mine.Name, firstSubnet)
		w.sim.ChangeLoadBalancer(twin.ID, func(lb *openstacksim.LoadBalancer) { lb.Tags = slices.Clone(mine.Tags) })
		err := w.reconciler.securityGroups.create(t.Context(), s)
		require.NoError(t, err)
		now := w.Current(s)
		delete(now.Annotations, annotationID)
		delete(now.Annotations, annotationMade)
		w.Apply(now)
		w.restart()
		now, _ = w.ensure(now)
		assert.Equal(t, mine.ID, w.Current(now).Annotations[annotationID], "the one that serves")
		assert.Len(t, w.sim.SecurityGroups(), 1)
		require.NoError(t, w.remove(now))
		assert.Empty(t, w.sim.LoadBalancers())
		assert.Empty(t, w.sim.FloatingIPs())
		assert.Empty(t, w.sim.SecurityGroups())
	})
}

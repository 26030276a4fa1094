package ibm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestAdoptedStays: a load balancer of somebody else that the operator lets a Service adopt is never deleted.
func TestAdoptedStays(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		w.in.Adopt = registry.AdoptAny
		w.restart()
		w.sim.AddLoadBalancer("theirs", ibmsim.VPC)
		s := web(annotationName, "theirs")
		w.mustEnsure(s)
		w.mustEnsure(s)
		w.restart()
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		require.Len(w.t, w.sim.LoadBalancers(), 1)
	})
}

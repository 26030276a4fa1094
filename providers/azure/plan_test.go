package azure

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// ensureAsPlanned serves a Service, and holds that what plan says are the writes that follow, all of them.
func (w *world) ensureAsPlanned(s *v1.Service) {
	w.Helper()
	plan, err := w.cloud.loadBalancers.PlanLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes)
	require.NoError(w, err)
	w.server.ResetCalls()
	w.ensure(s)
	writes := slices.DeleteFunc(w.server.Calls().Latest, func(c simkit.Call) bool { return !c.Write })
	for _, c := range plan.Changes {
		at := slices.IndexFunc(writes, func(call simkit.Call) bool {
			path, _, _ := strings.Cut(call.URL, "?")
			return (call.Method == http.MethodDelete) == (c.Action == contract.PlanDelete) && slices.Contains(strings.Fields(c.Object), nameOf(path))
		})
		require.GreaterOrEqual(w, at, 0, "%s does not follow: %+v", c.Object, writes)
		writes = slices.Delete(writes, at, at+1)
	}
	assert.Empty(w, writes)
}

// TestPlanSaysAllWrites of what needs more than a look at the load balancer to be known.
func TestPlanSaysAllWrites(t *testing.T) {
	t.Parallel()
	basicWorld(t, nil, func(w *world, s *v1.Service) { w.ensureAsPlanned(s) })
	withNode(t, webService(nil), func(w *world) {
		require.NoError(w, w.sim.SetPower(w.join("stopped").Spec.ProviderID, "deallocated"))
		w.joinAs("alone", w.sim.AddMachine("alone"))
		waitFor(time.Minute)
		w.ensureAsPlanned(webService(nil))
	})
	withNode(t, linked(nil), func(w *world) {
		s := linked(nil)
		w.ensureAsPlanned(s)
		w.sim.Connect(linkID("pls-"+base), "endpoint-1")
		w.restart()
		w.change(s, func(s *v1.Service) {
			delete(s.Annotations, annotationInternal)
			delete(s.Annotations, annotationPrivateLink)
		})
		w.ensureAsPlanned(s)
	})
}

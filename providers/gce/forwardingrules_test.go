package gce

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

// TestForwardingRulesShowTheirCluster: the API takes labels only in a separate call. Objects of Google's own controller, and those of an
// interrupted creation, are marked at their next change.
func TestForwardingRulesShowTheirCluster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		mark, err := w.loadBalancers.reconciler.identity.Mark(t.Context())
		require.NoError(t, err)
		uid, _ := ownership.Marked([]string{mark})
		labels := map[string]any{labelCluster: uid}
		for _, s := range []*v1.Service{testService("web", conformance.Port("a", 80, 30080)), internalService("within")} {
			s, _ = w.ensure(w.apply(s))
			assert.Equal(t, labels, w.rule()["labels"])
			w.sim.Edit("forwardingRules", loadBalancerName("", s), func(d map[string]any) {
				d["labels"], d["labelFingerprint"] = map[string]any{"team": "blue"}, "another="
			})
			w.restart()
			w.server.ResetCalls()
			w.ensure(s)
			assert.Zero(t, w.server.Calls().Writes, "nothing else has to change")
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			s, _ = w.ensure(w.write(s))
			assert.Equal(t, map[string]any{"team": "blue", labelCluster: labels[labelCluster]}, w.rule()["labels"])
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		}
		w.restart()
		w.sim.Deny("POST forwardingRules/setLabels", true)
		s, _ := w.ensure(w.apply(testService("poor", conformance.Port("a", 80, 30080))))
		w.ensure(s)
		assert.NotContains(t, w.rule(), "labels", "the load balancer works without the right to mark it")
	})
}

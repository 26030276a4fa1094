package gce

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestNotEmptied: nodes without provider ID and instance are unknown and do not empty a load balancer; nodes without a provider ID are
// found by name.
func TestNotEmptied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, kind := range []string{"", "Internal"} {
			w := newTestWorld(t, usual)
			w.addNode(gcesim.Spec{Name: "n1"})
			s := testService("web", conformance.Port("a", 80, 30080))
			s.Annotations[annotationType] = kind
			s, _ = w.ensure(w.apply(s))
			instances := func() int {
				if kind == "" {
					return len(w.sim.Objects("targetPools")[0]["instances"].([]any))
				}
				return len(w.members())
			}
			for _, nodes := range [][]*v1.Node{nil, {nodeNamed("other", "")}, {nodeNamed("far", "gce://my-project/europe-west1-b/n1")}} {
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, nodes)
				require.Error(t, err)
				require.Error(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nodes))
				assert.Equal(t, 1, instances())
			}
			time.Sleep(time.Minute)
			w.sim.AddInstance(gcesim.Spec{Name: "n2"})
			nodes := append([]*v1.Node{nodeNamed("n2.c.my-project.internal", "")}, w.nodes...)
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nodes))
			assert.Equal(t, 2, instances(), "it is known by its name, as Google's own controller knows it")
		}
	})
}

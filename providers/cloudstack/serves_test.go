package cloudstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestServes: where the simulated cloud says that ports lead is what the Service wants, and a port that its firewall shuts leads nowhere.
func TestServes(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		s := conformance.Service("web", nil, conformance.Port("http", 80, 30080), conformance.Port("https", 443, 30443))
		w.Apply(s)
		w.ensure(s)
		assert.Equal(w.T, map[string][]string{
			"tcp/80": {"node-1:30080", "node-2:30080"}, "tcp/443": {"node-1:30443", "node-2:30443"},
		}, w.sim.Serves())
		w.nodes = w.nodes[:1]
		w.alter(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
		w.ensure(s)
		assert.Equal(w.T, map[string][]string{"tcp/80": {"node-1:30080"}}, w.sim.Serves())
		for _, r := range w.sim.Rules() {
			w.sim.EditRule(r.ID, func(r *cloudstacksim.Rule) { r.PublicPort = 81 })
		}
		assert.Equal(w.T, map[string][]string{"tcp/81": nil}, w.sim.Serves())
		w.sim.RemoveRules()
		assert.Empty(w.T, w.sim.Serves())
	})
}

package ibm

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
)

// TestServes: where the simulated cloud says that ports of either kind of load balancer lead is what the Service wants, and a port that
// no security group opens leads nowhere.
func TestServes(t *testing.T) {
	t.Parallel()
	for _, feature := range []string{featureALB, featureNLB} {
		inWorld(t, 2, 0, nil, func(w *world) {
			s := web(annotationFeatures, feature)
			w.mustEnsure(s)
			assert.Equal(w.t, map[string][]string{
				"tcp/80": {"worker-1:30080", "worker-2:30080"}, "tcp/443": {"worker-1:30443", "worker-2:30443"},
			}, w.sim.Serves())
			s.Spec.Ports, w.nodes = s.Spec.Ports[:1], w.nodes[:1]
			w.mustEnsure(s)
			assert.Equal(w.t, map[string][]string{"tcp/80": {"worker-1:30080"}}, w.sim.Serves())
			name, groups := w.sim.LoadBalancers()[0].Name, w.sim.SecurityGroups()
			user := slices.IndexFunc(groups, func(g ibmsim.SecurityGroup) bool { return g.Name == ibmsim.WebGroup })
			assert.NoError(w.t, w.sim.EditLoadBalancer(name, func(lb *ibmsim.LoadBalancer) { lb.Groups = []string{groups[user].ID} }))
			assert.Equal(w.t, map[string][]string{"tcp/80": {"worker-1:30080"}}, w.sim.Serves(), "the group lets in to port 80")
			assert.NoError(w.t, w.sim.EditSecurityGroup(ibmsim.WebGroup, func(g *ibmsim.SecurityGroup) { g.Rules[0].PortMin = 81 }))
			assert.Equal(w.t, map[string][]string{"tcp/80": nil}, w.sim.Serves())
			assert.NoError(w.t, w.sim.EditSecurityGroup(ibmsim.WebGroup, func(g *ibmsim.SecurityGroup) { g.Rules[0].PortMin = 0 }))
			assert.NoError(w.t, w.sim.EditLoadBalancer(name, func(lb *ibmsim.LoadBalancer) { lb.Pools = nil }))
			assert.Equal(w.t, map[string][]string{"tcp/80": nil}, w.sim.Serves())
			w.sim.RemoveLoadBalancers()
			assert.Empty(w.t, w.sim.Serves())
		})
	}
}

package aws

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestServes: the simulated ports lead where the Service wants, in both generations. Instances closed by their security groups get no
// traffic.
func TestServes(t *testing.T) {
	t.Parallel()
	for _, build := range []func(string, map[string]string, ...v1.ServicePort) *v1.Service{service, nlb} {
		w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
		w.addNode(awssim.Spec{Name: "n2"})
		s := build("web", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443))
		w.Apply(s)
		s = w.ensure(s)
		at := func(port int) (all []string) {
			for _, n := range w.nodes {
				all = append(all, simkit.Backend(instanceOf(n), port))
			}
			return slices.Sorted(slices.Values(all))
		}
		assert.Equal(t, map[string][]string{"tcp/80": at(30080), "tcp/443": at(30443)}, w.sim.Serves())
		s = w.change(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
		w.nodes = w.nodes[:1]
		w.ensure(s)
		assert.Equal(t, map[string][]string{"tcp/80": at(30080)}, w.sim.Serves())
		w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = nil })
		assert.Equal(t, map[string][]string{"tcp/80": nil}, w.sim.Serves())
		w.sim.RemoveLoadBalancers()
		assert.Empty(t, w.sim.Serves())
	}
}

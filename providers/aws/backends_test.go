package aws

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestTargetsStayWhileNoInstanceIsShown: targets stay while EC2 shows no instance of a node, or none with the cluster's tag, and the
// Service gets an event. A Service whose labels select no node has no targets.
func TestTargetsStayWhileNoInstanceIsShown(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"network", "classic"} {
		for _, cause := range []string{"account", "tags"} {
			w := startWorld(t, "", awssim.Options{})
			w.addNode(awssim.Spec{Name: "n2"})
			s := service("web", nil, servicePort("http", 80, 30080))
			if kind == "network" {
				s.Annotations[annotationType] = typeNLB
			}
			w.Apply(s)
			w.ensure(s)
			count := func() int {
				if kind == "network" {
					return len(w.sim.TargetGroups()[0].Targets)
				}
				return len(w.sim.Classics()[0].Instances)
			}
			require.Equal(t, 2, count())
			before := rules(w.group("nodes"))
			if cause == "account" {
				w.sim.Blind()
			} else {
				for _, n := range w.nodes {
					w.sim.Edit(instanceOf(n), func(i *awssim.Instance) { i.Tags = awssim.Tags{} })
				}
			}
			w.restart()
			w.Events()
			_ = w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
			assert.Equal(t, 2, count(), "%s %s: update", kind, cause)
			_, _ = w.try(s)
			assert.Equal(t, 2, count(), "%s %s: ensure", kind, cause)
			assert.Contains(t, strings.Join(w.Events(), "\n"), eventTargetsKept)
			assert.Equal(t, before, rules(w.group("nodes")))
		}
	}
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationNodeLabels] = "pool=none" })
	w.ensure(s)
	assert.Empty(t, w.sim.TargetGroups()[0].Targets)
}

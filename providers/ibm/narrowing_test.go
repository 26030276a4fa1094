package ibm

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestFormerClientsAreShutOut although something else of the Service is refused.
func TestFormerClientsAreShutOut(t *testing.T) {
	t.Parallel()
	const former, inside, beside = "198.51.0.0/16", "198.51.100.0/24", "192.0.2.0/24"
	lets := func(list ...string) (rules []string) {
		for _, network := range list {
			rules = append(rules, "tcp 80-80 "+network)
		}
		return rules
	}
	narrowings := map[string]struct{ from, to, refused, asked []string }{
		"from everybody": {nil, []string{inside, beside}, lets(beside, inside), lets(beside, inside)},
		"to a part":      {[]string{former}, []string{inside, beside}, lets(inside), lets(beside, inside)},
		"to others":      {[]string{former}, []string{beside}, nil, lets(beside)},
		"one is left":    {[]string{former, beside}, []string{beside, "203.0.113.0/24"}, lets(beside), lets(beside, "203.0.113.0/24")},
	}
	hindrances := map[string]struct {
		hinder  func(*world, *v1.Service)
		refused bool
	}{
		"an annotation": {func(_ *world, s *v1.Service) { s.Annotations[annotationCheckDelay] = "nonsense" }, true},
		"no node":       {func(w *world, _ *v1.Service) { w.nodes = nil }, false},
		"another write": {func(w *world, s *v1.Service) {
			s.Spec.Ports[0].NodePort = 30099
			_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: "pools", Writes: true})
			require.NoError(w.t, err)
		}, false},
	}
	for what, h := range hindrances {
		for name, n := range narrowings {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				inWorld(t, 1, 30*time.Second, nil, func(w *world) {
					openDefaultGroup(w.t, w.sim)
					s := ranged("web", n.from...)
					w.mustEnsure(s)
					s.Spec.LoadBalancerSourceRanges = n.to
					h.hinder(w, s)
					err := w.ensure(s)
					require.Error(w.t, err)
					want := map[bool][]string{true: n.refused, false: n.asked}[h.refused]
					assert.Equal(w.t, want, w.lets(), "may connect; the answer was: %v", err)
					assert.Equal(w.t, []string{groupName(ibmsim.Cluster, s)}, w.groups())
				})
			})
		}
	}
}

// TestNarrowingIsNotHeldUpByARefusedRule: each is tried, and an error names what failed.
func TestNarrowingIsNotHeldUpByARefusedRule(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := ranged("web", "198.51.0.0/16", "192.0.2.0/24")
		w.mustEnsure(s)
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: postRule, Writes: true})
		require.NoError(w.t, err)
		err = w.ensure(s)
		require.ErrorContains(w.t, err, "changing security group")
		assert.Empty(w.t, w.lets(), "may connect")
	})
}

// TestOwnGroupIsNarrowedUntilOthersCome: while a Service may not have the groups that it names, its ranges narrow the group that it has.
func TestOwnGroupIsNarrowedUntilOthersCome(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := ranged("web", "198.51.0.0/16")
		w.mustEnsure(s)
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		s.Annotations[annotationGroups] = ibmsim.WebGroup
		before := w.groups()
		require.ErrorContains(w.t, w.ensure(s), annotationGroups)
		assert.Equal(w.t, []string{"tcp 80-80 198.51.100.0/24"}, w.lets())
		assert.Equal(w.t, before, w.groups())
	})
}

// TestOpeningThatFailsOnce: a refused Service lets those in that it asks for, as soon as the cloud takes the rule for them.
func TestOpeningThatFailsOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := ranged("web", "198.51.0.0/16", "192.0.2.0/24")
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("more", 81, 30081))
		w.mustEnsure(s)
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		s.Annotations[annotationCheckDelay] = "nonsense"
		_, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: postRule, Writes: true, Count: 1,
		})
		require.NoError(w.t, err)
		require.Error(w.t, w.ensure(s))
		assert.Equal(w.t, []string{"tcp 80-80 192.0.2.0/24", "tcp 80-80 198.51.0.0/16", "tcp 81-81 198.51.100.0/24"}, w.lets())
		require.Error(w.t, w.ensure(s))
		assert.Equal(w.t, []string{"tcp 80-80 198.51.100.0/24", "tcp 81-81 198.51.100.0/24"}, w.lets())
	})
}

// TestFormerPortIsServed: where ports and source ranges change together, those who are still asked for reach the former port until it goes.
func TestFormerPortIsServed(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := ranged("web", "198.51.0.0/16")
		w.mustEnsure(s)
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		s.Spec.Ports[0].Port = 8080
		w.nodes = nil
		require.Error(w.t, w.ensure(s))
		assert.Equal(w.t, []string{"tcp 80-80 198.51.100.0/24"}, w.lets())
	})
}

// TestFormerPortWithoutAGroup: where the first source ranges come with other ports, those who are asked for reach the former port until it
// goes, and nobody else does.
func TestFormerPortWithoutAGroup(t *testing.T) {
	t.Parallel()
	const inside = "198.51.100.0/24"
	served := []string{"tcp 80-80 " + inside, "tcp 8080-8080 " + inside}
	refused := func(_ *world, s *v1.Service) { s.Annotations[annotationCheckDelay] = "nonsense" }
	for name, c := range map[string]struct {
		hinder func(*world, *v1.Service)
		want   []string
	}{
		"no node":       {func(w *world, _ *v1.Service) { w.nodes = nil }, served},
		"an annotation": {refused, served},
		"listeners that cannot be read, too": {func(w *world, s *v1.Service) {
			refused(w, s)
			w.cloud.loadBalancers.Reconciler.(*reconciler).parts.InvalidateAll()
			_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "listeners"})
			require.NoError(w.t, err)
		}, []string{"tcp 0-0 " + inside, "tcp 8080-8080 " + inside, "udp 0-0 " + inside}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 30*time.Second, nil, func(w *world) {
				openDefaultGroup(w.t, w.sim)
				s := ranged("web")
				w.mustEnsure(s)
				nodes := w.nodes
				s.Spec.LoadBalancerSourceRanges = []string{inside}
				s.Spec.Ports[0].Port = 8080
				c.hinder(w, s)
				for range 2 {
					err := w.ensure(s)
					require.Error(w.t, err)
					assert.Equal(w.t, c.want, w.lets(), "may connect; the answer was: %v", err)
					assert.Equal(w.t, []string{groupName(ibmsim.Cluster, s)}, w.groups())
				}
				w.server.ClearFaults()
				delete(s.Annotations, annotationCheckDelay)
				w.nodes = nodes
				w.mustEnsure(s)
				assert.Equal(w.t, served[1:], w.lets())
			})
		})
	}
}

// TestGroupWithoutItsRulesIsNotBound: it would shut out everybody.
func TestGroupWithoutItsRulesIsNotBound(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		openDefaultGroup(w.t, w.sim)
		s := ranged("web")
		w.mustEnsure(s)
		before := w.groups()
		s.Annotations[annotationCheckDelay] = "nonsense"
		fail := func(operation, ranges string) {
			w.server.ClearFaults()
			_, err := w.server.AddFault(simkit.Fault{
				Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: operation, Writes: true,
			})
			require.NoError(w.t, err)
			s.Spec.LoadBalancerSourceRanges = []string{ranges}
			require.Error(w.t, w.ensure(s))
			assert.Equal(w.t, before, w.groups())
		}
		fail("targets", "198.51.100.0/24")
		fail(postRule, "192.0.2.0/24")
	})
}

// TestNothingIsNarrowed where groups of the user decide, or nothing that is asked for can be read.
func TestNothingIsNarrowed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *v1.Service){
		"the user's groups":           func(s *v1.Service) { s.Annotations[annotationGroups] = ibmsim.WebGroup },
		"ranges that cannot be read":  func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"} },
		"nothing restricts who may":   func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = nil },
		"the same ranges, other form": func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.7/24"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := ranged("web", "192.0.2.0/24")
				s.Spec.Ports = []v1.ServicePort{conformance.Port("http", 80, 30080)}
				w.mustEnsure(s)
				w.writes()
				change(s)
				require.NoError(w.t, w.cloud.loadBalancers.NarrowLoadBalancer(w.t.Context(), "", s))
				assert.Empty(w.t, w.writes())
			})
		})
	}
}

package openstack

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestUnreadableRangesOpenNothing: with ovn the security group is what holds the source ranges. Ranges that cannot be read are refused, and
// who lies in none that can be is shut out; a node that joins afterwards becomes a member, and changes nothing of who may connect.
func TestUnreadableRangesOpenNothing(t *testing.T) {
	t.Parallel()
	const open = "tcp 30080 198.51.100.0/24"
	for name, c := range map[string]struct {
		change  func(*v1.Service)
		refused string
		want    []string
	}{
		"one": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"} }, `"010.0.0.0/8" is not a network`, []string{open}},
		"one of several": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "010.0.0.0/8", "192.0.2.0/24"}
		}, `"010.0.0.0/8" is not a network`, []string{open}},
		"an annotation": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = nil
			s.Annotations = map[string]string{annotationSourceRanges: "198.51.100.0/24,192.0.2.7"}
		}, `holds "192.0.2.7", which is not a network`, []string{open}},
		"an annotation of commas": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = nil
			s.Annotations = map[string]string{annotationSourceRanges: ","}
		}, "holds no network", []string{open}},
		"a part of one": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.0.0/16", "010.0.0.0/8"}
		}, `"010.0.0.0/8" is not a network`, []string{open}},
		"one inside": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.128/25", "010.0.0.0/8"}
		}, `"010.0.0.0/8" is not a network`, []string{"tcp 30080 198.51.100.128/25"}},
		"a port more": {func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "010.0.0.0/8"}
			s.Spec.Ports = append(s.Spec.Ports, servicePort("more", 81, 30081))
		}, `"010.0.0.0/8" is not a network`, []string{open}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := web(nil)
				s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
				w, s := newServedWorld(t, "lb-provider = ovn\nmanage-security-groups = true\n", s)
				require.Equal(t, []string{open}, groupRules(w))
				s = w.Current(s)
				c.change(s)
				w.Apply(s)
				_, err := w.try(s)
				require.ErrorContains(t, err, c.refused)
				require.ElementsMatch(t, c.want, groupRules(w))
				w.addNode(openstacksim.Spec{Name: "late"})
				require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
				assert.ElementsMatch(t, c.want, groupRules(w))
				assert.Len(t, w.sim.Pools()[0].BackendMembers(), len(w.nodes), "members follow the nodes all the same")
			})
		})
	}
}

// TestFormerNodePortOfUnreadableRanges: with ovn, a node port that neither the Service nor its pools have any more closes although a range
// cannot be read.
func TestFormerNodePortOfUnreadableRanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := web(nil)
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		w, s := newServedWorld(t, "lb-provider = ovn\nmanage-security-groups = true\n", s)
		s = w.Current(s)
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, "010.0.0.0/8")
		s.Spec.Ports[0].NodePort = 30099
		w.Apply(s)
		_, err := w.try(s)
		require.Error(t, err)
		assert.Equal(t, []string{"tcp 30080 198.51.100.0/24"}, groupRules(w), "it is served")
		for range 2 {
			require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
		}
		for _, m := range w.sim.Pools()[0].BackendMembers() {
			assert.Equal(t, 30099, m.ProtocolPort)
		}
		assert.Empty(t, groupRules(w), "nothing widens, and nobody asks for the former port")
	})
}

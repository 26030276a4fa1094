package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestTagsOfControllers: no Service gives a load balancer, or its security group, tags by which other controllers find what is theirs.
func TestTagsOfControllers(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"karpenter.sh/discovery", "elbv2.k8s.aws/cluster", "service.k8s.aws/stack", "ingress.k8s.aws/stack", "eks:cluster-name", "topology.kubernetes.io/zone",
		"sigs.k8s.io/cluster-api-provider-aws/cluster/simulated", "k8s.io/cluster-autoscaler/enabled", "K8s.io/role/node",
	} {
		s := service("web", map[string]string{annotationTags: key + "=simulated,team=web"}, servicePort("http", 80, 30080))
		parsed, warnings, err := parseSettings(s, Config{})
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "web"}, parsed.tags, key)
		require.ErrorContains(t, warnings, key)
	}
	parsed, warnings, _ := parseSettings(service("web", map[string]string{annotationTags: "example.com/k8s.io=1,mykubernetes.io/team=web"}, servicePort("http", 80, 30080)), Config{})
	assert.Len(t, parsed.tags, 2)
	require.NoError(t, warnings)
}

// TestReservedTags: a Service cannot say whose a load balancer is.
func TestReservedTags(t *testing.T) {
	t.Parallel()
	for _, s := range []*v1.Service{
		service("classic", map[string]string{annotationTags: "team=web,kubernetes.io/cluster/two=owned,KubernetesCluster=two"}, servicePort("http", 80, 30080)),
		nlb("network", map[string]string{annotationTags: "team=web,kubernetes.io/service-name=a/b,anyccm.io/x=y,AWS:x=y"}, servicePort("http", 80, 30080)),
	} {
		w := startWorld(t, "", awssim.Options{})
		w.Apply(s)
		s = w.ensure(s)
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationTags] += ",kubernetes.io/cluster/simulated=shared" })
		w.ensure(s)
		want := awssim.Tags{"kubernetes.io/cluster/simulated": "owned", serviceTag: serviceName(s), "team": "web"}
		for _, lb := range w.sim.Classics() {
			assert.Equal(t, want, lb.Tags)
		}
		for _, lb := range w.sim.Networks() {
			assert.Equal(t, want, lb.Tags)
		}
		events := w.Events()
		require.NotEmpty(t, events)
		assert.Contains(t, events[0], eventIgnored)
		assert.Contains(t, events[0], "which is left out")
		_, warnings, err := parseSettings(s, Config{})
		require.NoError(t, err)
		require.ErrorContains(t, warnings, "kubernetes.io/cluster/simulated")
	}
}

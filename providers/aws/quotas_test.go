package aws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// manyPorts is a Service of a network load balancer with n ports.
func manyPorts(name string, n int32) *v1.Service {
	ports := make([]v1.ServicePort, n)
	for i := range n {
		ports[i] = servicePort(fmt.Sprint("p", i), 8000+i, 30000+i)
	}
	return nlb(name, nil, ports...)
}

// TestListenerQuota: a Service with more ports than a network load balancer may have listeners is told so; nodes go on joining those
// that there are, and with the Service goes all that was made for it.
func TestListenerQuota(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{GroupRules: 1000})
	s := manyPorts("web", 51)
	w.Apply(s)
	for range 3 {
		_, err := w.try(s)
		require.ErrorContains(t, err, "quota exceeded")
		require.ErrorContains(t, err, "maximum number of listeners")
	}
	require.Len(t, w.sim.Networks(), 1)
	assert.Len(t, w.sim.Listeners(), 50)
	w.addNode(awssim.Spec{Name: "late"})
	require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
	for _, group := range w.sim.TargetGroups()[:50] {
		assert.Len(t, group.Targets, len(w.nodes), group.Name)
	}
	require.NoError(t, w.remove(w.Current(s)))
	assert.Empty(t, w.sim.Networks())
	assert.Empty(t, w.sim.TargetGroups())
	assert.Empty(t, rules(w.group("nodes")))
}

// TestLoadBalancerQuota: where a region has all the load balancers that it may, nothing is left of a Service that got none.
func TestLoadBalancerQuota(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	for i := range 50 {
		w.sim.AddNetwork(fmt.Sprint("theirs-", i), "network", nil)
	}
	before := snapshot(w.sim)
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	for range 3 {
		_, err := w.try(s)
		require.ErrorContains(t, err, "quota exceeded")
	}
	require.NoError(t, w.remove(w.Current(s)))
	assert.Equal(t, before, snapshot(w.sim))
}

// TestDrainingTargets: a node that leaves is drained for as long as its target group says, and is no backend meanwhile: it costs no
// write, keeps nothing from being deleted, and may come back at any time.
func TestDrainingTargets(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	w.addNode(awssim.Spec{Name: "leaves"})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	s = w.ensure(s)
	all := w.nodes
	require.Greater(t, len(all), 1)
	for _, restart := range []bool{false, true} {
		w.nodes = all[:1]
		w.update(s)
		require.Len(t, w.sim.Draining(), len(all)-1)
		if restart {
			w.restart()
		}
		w.unchanged(s, "what is drained is no backend")
		w.nodes = all
		w.update(s)
		assert.Empty(t, w.sim.Draining(), "they came back")
		assert.Len(t, w.sim.TargetGroups()[0].Targets, len(all))
	}
	w.nodes = all[:1]
	w.update(s)
	require.NotEmpty(t, w.sim.Draining())
	other := nlb("other", nil, servicePort("http", 80, 30080))
	other.UID = types.UID(strings.Repeat("b", 36))
	w.Apply(other)
	w.ensure(other)
	require.NoError(t, w.remove(s))
	require.NoError(t, w.remove(other))
	assert.Empty(t, w.sim.TargetGroups())
	assert.Empty(t, w.server.Calls().Refused)
}

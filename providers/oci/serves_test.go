package oci

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestServes: where the simulated cloud says that ports of either kind of load balancer lead is what the Services want, and what
// no security list opens leads nowhere.
func TestServes(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web(), conformance.Port("https", 443, 30443))
		w.requireServed(s, nodes)
		assert.Equal(w, map[string][]string{"tcp/80": nil, "tcp/443": nil}, w.sim.Serves())
		w.sim.OpenByHand()
		dns := conformance.Service("dns", ofNetwork(annotationRuleMode, modeNone), conformance.Port("tcp", 53, 30053), udp(53, 30053))
		dns.UID = "4c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a2"
		w.requireServed(dns, nodes)
		targets := []string{mustID(w, nodes[0]) + ":30053", mustID(w, nodes[1]) + ":30053"}
		assert.Equal(w, map[string][]string{
			"tcp/80": {"10.0.1.1:30080", "10.0.1.2:30080"}, "tcp/443": {"10.0.1.1:30443", "10.0.1.2:30443"}, "tcp/53": targets, "udp/53": targets,
		}, w.sim.Serves())
		s.Spec.Ports = s.Spec.Ports[:1]
		w.requireServed(s, nodes[:1])
		w.sim.RemoveNetworkLoadBalancers()
		assert.Equal(w, map[string][]string{"tcp/80": {"10.0.1.1:30080"}}, w.sim.Serves())
		w.sim.RemoveLoadBalancers()
		assert.Empty(w, w.sim.Serves())
	})
}

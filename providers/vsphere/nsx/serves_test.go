package nsx

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// TestServes: where the simulated NSX says that ports lead is what the Service wants.
func TestServes(t *testing.T) {
	t.Parallel()
	inWorld(t, nsxsim.Options{Activation: time.Second}, nil, func(w *testWorld) {
		w.addNode("n1", "10.0.0.1")
		w.addNode("n2", "10.0.0.2")
		udp := port("dns", 53, 30053)
		udp.Protocol = v1.ProtocolUDP
		s := service("web", nil, port("http", 80, 30080), udp)
		w.Apply(s)
		s = w.ensure(s)
		time.Sleep(time.Second)
		assert.Equal(w.T, map[string][]string{
			"tcp/80": {"10.0.0.1:30080", "10.0.0.2:30080"}, "udp/53": {"10.0.0.1:30053", "10.0.0.2:30053"},
		}, w.sim.Serves())
		s = w.change(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
		w.nodes = w.nodes[:1]
		w.ensure(s)
		assert.Equal(w.T, map[string][]string{"tcp/80": {"10.0.0.1:30080"}}, w.sim.Serves())
		w.sim.RemoveLoadBalancers()
		assert.Empty(w.T, w.sim.Serves())
	})
}

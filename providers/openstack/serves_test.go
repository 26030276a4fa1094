package openstack

import (
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestServes: where the simulated cloud says that ports lead is what the Service wants, and a node port that
// no security group opens leads nowhere.
func TestServes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dns := servicePort("dns", 53, 30053)
		dns.Protocol = v1.ProtocolUDP
		w, s := newServedWorld(t, "", service("web", nil, servicePort("http", 80, 30080), dns))
		at := func(port string) (all []string) {
			for _, n := range w.nodes {
				all = append(all, net.JoinHostPort(n.Status.Addresses[0].Address, port))
			}
			return all
		}
		assert.Equal(t, map[string][]string{"tcp/80": at("30080"), "udp/53": at("30053")}, w.sim.Serves())
		w.addNode(openstacksim.Spec{Name: "n3"})
		w.update(s)
		w.changed(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
		assert.Equal(t, map[string][]string{"tcp/80": at("30080")}, w.sim.Serves())
		w.sim.CloseNodePorts()
		assert.Equal(t, map[string][]string{"tcp/80": nil}, w.sim.Serves())
		w.file = "manage-security-groups = true\n"
		w.restart()
		w.ensure(s)
		assert.Equal(t, map[string][]string{"tcp/80": at("30080")}, w.sim.Serves())
		w.sim.RemoveLoadBalancers()
		assert.Empty(t, w.sim.Serves())
	})
}

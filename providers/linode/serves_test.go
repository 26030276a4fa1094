package linode

import (
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// TestServes: where the simulated cloud says that ports lead is what the Service wants, and a port that its firewall shuts leads
// nowhere.
func TestServes(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 2)
	udp := port("b", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := service("web", nil, port("a", 80, 30080), udp)
	w.Apply(s)
	s, _ = w.ensure(s)
	at := func(port string) (all []string) {
		for _, n := range w.nodes {
			i := slices.IndexFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP })
			all = append(all, net.JoinHostPort(n.Status.Addresses[i].Address, port))
		}
		return all
	}
	assert.Equal(t, map[string][]string{"tcp/80": at("30080"), "udp/53": at("30053")}, w.sim.Serves())
	s.Spec.Ports, w.nodes = s.Spec.Ports[:1], w.nodes[:1]
	w.Apply(s)
	w.ensure(s)
	assert.Equal(t, map[string][]string{"tcp/80": at("30080")}, w.sim.Serves())
	firewall := w.sim.AddFirewall("shut", w.sim.NodeBalancers()[0].ID)
	assert.Equal(t, map[string][]string{"tcp/80": nil}, w.sim.Serves())
	rule := linodesim.Rule{Protocol: "TCP", Action: "DROP", Addresses: linodesim.Addresses{IPv4: &[]string{"0.0.0.0/0"}}}
	for ports, open := range map[string]bool{"22,80": false, "8000-8010": true, "": false, "79-81": false} {
		rule.Ports = ports
		w.sim.ChangeFirewall(firewall, func(f *linodesim.Firewall) {
			f.Rules.Inbound, f.Rules.InboundPolicy = []linodesim.Rule{rule}, "ACCEPT"
		})
		assert.Equal(t, open, len(w.sim.Serves()["tcp/80"]) > 0, ports)
	}
	rule.Ports, rule.Action, rule.Addresses.IPv4 = "80", "ACCEPT", &[]string{"192.0.2.0/24"}
	w.sim.ChangeFirewall(firewall, func(f *linodesim.Firewall) {
		f.Rules.Inbound, f.Rules.InboundPolicy = []linodesim.Rule{rule}, "DROP"
	})
	assert.Equal(t, map[string][]string{"tcp/80": at("30080")}, w.sim.Serves())
	w.sim.RemoveLoadBalancers()
	assert.Empty(t, w.sim.Serves())
}

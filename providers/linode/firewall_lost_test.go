package linode

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestLostAnswersAboutFirewalls: while the firewall of a NodeBalancer is changed, each write in turn takes effect without an answer, or
// fails before. The NodeBalancer ends with the one firewall that the Service asks for, attached once, and lets go of it when the
// Service asks for none any more.
func TestLostAnswersAboutFirewalls(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"none", "another", "allow"} {
		for _, kind := range []string{simkit.FaultLost, simkit.FaultReset} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("from %s, %s, restart %t", from, kind, restart), func(t *testing.T) {
					t.Parallel()
					for k := 1; lostAnswer(t, from, simkit.Fault{Kind: kind, Writes: true, From: k, Count: 1}, restart); k++ {
						require.Less(t, k, 10)
					}
				})
			}
		}
	}
}

// lostAnswer attaches a user's firewall while a call fails, and detaches it again. It reports whether the fault was met.
func lostAnswer(t *testing.T, from string, fault simkit.Fault, restart bool) bool {
	t.Helper()
	w := lbWorld(t, 1)
	users, another := w.sim.AddFirewall("users"), w.sim.AddFirewall("another")
	s := service("web", map[string]string{}, port("http", 80, 30080))
	switch from {
	case "another":
		s.Annotations[annotationFirewallID] = strconv.Itoa(another)
	case "allow":
		s.Annotations[annotationFirewallACL] = allowACL
	}
	w.Apply(s)
	s, _ = w.ensure(s)
	devices := func() map[int]int {
		n := map[int]int{}
		for _, f := range w.sim.Firewalls() {
			n[f.ID] = len(f.Devices())
		}
		return n
	}
	change := func(to string) (failed bool) {
		s = w.Current(s)
		delete(s.Annotations, annotationFirewallACL)
		delete(s.Annotations, annotationFirewallID)
		if to != "" {
			s.Annotations[annotationFirewallID] = to
		}
		w.Apply(s)
		_, err := w.server.AddFault(fault)
		require.NoError(t, err)
		_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
		w.server.ClearFaults()
		if restart {
			w.restart()
		}
		s, _ = w.ensure(s)
		return err != nil
	}
	first := change(strconv.Itoa(users))
	assert.Equal(t, map[int]int{users: 1, another: 0}, devices(), "write %d: the one that is asked for", fault.From)
	assert.Equal(t, []int{users}, notedFirewalls(w.sim.NodeBalancers()[0].Tags), "write %d: it is noted who attached it", fault.From)
	second := change("")
	assert.Equal(t, map[int]int{users: 0, another: 0}, devices(), "write %d: none is asked for", fault.From)
	assert.Empty(t, notedFirewalls(w.sim.NodeBalancers()[0].Tags), "write %d", fault.From)
	return first || second
}

// TestPortsByHand: a port that somebody adds to a Service's NodeBalancer goes at the next reconciliation, as with Linode's own
// controller; one that the Service asks for by then becomes its own, and none outlives the Service.
func TestPortsByHand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		protocol string
		number   int
		change   func(*v1.Service)
		want     []int
	}{
		"nobody asks for it": {protocolTCP, 5432, func(*v1.Service) {}, []int{80}},
		"the Service asks for it before it is seen": {protocolTCP, 8080, func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081))
		}, []int{80, 8080}},
		"the Service asks for the number with another protocol": {protocolUDP, 8080, func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081))
		}, []int{80, 8080}},
		"the number of the Service's own port": {protocolUDP, 80, func(*v1.Service) {}, []int{80}},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", name, restart), func(t *testing.T) {
				t.Parallel()
				w := lbWorld(t, 2)
				s := service("web", nil, port("http", 80, 30080))
				w.Apply(s)
				s, _ = w.ensure(s)
				fields := configFields{
					Port: c.number, Protocol: c.protocol, Algorithm: "roundrobin", Check: "none", CheckInterval: 5, CheckTimeout: 3, CheckAttempts: 2,
				}
				if c.protocol == protocolUDP {
					fields.UDPCheckPort = 80
				}
				_, err := w.api.createConfig(t.Context(), w.sim.NodeBalancers()[0].ID, fields)
				require.NoError(t, err)
				if restart {
					w.restart()
				} else {
					w.loadBalancers.details.Invalidate(w.sim.NodeBalancers()[0].ID) // as when what is remembered is too old
				}
				c.change(s)
				w.Apply(s)
				s, _ = w.ensure(s)
				var ports []int
				for _, config := range w.sim.NodeBalancers()[0].Configs() {
					ports = append(ports, config.Port)
					assert.Len(t, config.Nodes(), 2)
					assert.Equal(t, protocolTCP, config.Protocol)
				}
				slices.Sort(ports)
				assert.Equal(t, c.want, ports)
				require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
				assert.Empty(t, w.sim.NodeBalancers())
			})
		}
	}
}

package cloudstack

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// mayConnect are the networks that reach port 80 by the filter of the network.
func (w *world) mayConnect() (networks []string) {
	for _, f := range w.sim.Firewalls() {
		if f.Start == 80 && !slices.Equal(f.CIDRs, []string{noClients}) {
			networks = append(networks, f.CIDRs...)
		}
	}
	for _, i := range w.sim.ACLItems() {
		if i.Reason != "" && i.Start == 80 {
			networks = append(networks, i.CIDRs...)
		}
	}
	slices.Sort(networks)
	return networks
}

// TestFormerClientsAreShutOut although something else of the Service is refused.
func TestFormerClientsAreShutOut(t *testing.T) {
	const former, inside, beside = "198.51.0.0/16", "198.51.100.0/24", "192.0.2.0/24"
	narrowings := map[string]struct{ from, to, refused, asked []string }{
		"from everybody": {nil, []string{inside, beside}, []string{beside, inside}, []string{beside, inside}},
		"to a part":      {[]string{former}, []string{inside, beside}, []string{inside}, []string{beside, inside}},
		"to others":      {[]string{former}, []string{beside}, nil, []string{beside}},
		"one is left":    {[]string{former, beside}, []string{beside, inside}, []string{beside, inside}, []string{beside, inside}},
	}
	hindrances := map[string]struct {
		hinder  func(*world, *v1.Service)
		refused bool
	}{
		"an annotation": {func(w *world, s *v1.Service) {
			w.alter(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationStickiness: "nonsense"} })
		}, true},
		"virtual machines that cannot be read": {func(w *world, _ *v1.Service) {
			w.restart()
			_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "listVirtualMachines"})
			require.NoError(w.T, err)
		}, false},
	}
	for kind, prepare := range networkKinds {
		for what, h := range hindrances {
			for name, n := range narrowings {
				t.Run(kind+", "+name+", "+what, func(t *testing.T) {
					inWorld(t, prepare, func(w *world) {
						s := service("web", nil, port("http", 80, 30080))
						s.Spec.LoadBalancerSourceRanges = n.from
						w.Apply(s)
						w.ensure(s)
						w.alter(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = n.to })
						h.hinder(w, s)
						_, err := w.try(s)
						require.Error(w.T, err)
						assert.Equal(w.T, map[bool][]string{true: n.refused, false: n.asked}[h.refused], w.mayConnect(), "may connect; the answer was: %v", err)
						time.Sleep(time.Minute)
						before := w.writes()
						_, err = w.try(s)
						require.Error(w.T, err)
						assert.Equal(w.T, before, w.writes(), "it is narrowed once")
					})
				})
			}
		}
	}
}

// TestRulesAreNarrowed: the networks of the rules themselves, where CloudStack changes them in place.
func TestRulesAreNarrowed(t *testing.T) {
	for text, want := range map[string]string{"10.1.0.0/16": "10.1.0.0/16", "192.168.0.0/16": noClients, "10.0.0.0/8,192.168.0.0/16": "10.0.0.0/8"} {
		t.Run(text, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				s := service("web", map[string]string{annotationSourceCIDRs: "10.0.0.0/8"}, port("http", 80, 30080))
				w.Apply(s)
				w.ensure(s)
				w.alter(s, func(s *v1.Service) {
					s.Annotations[annotationSourceCIDRs], s.Annotations[annotationStickiness] = text, "nonsense"
				})
				_, err := w.try(s)
				require.Error(w.T, err)
				assert.Equal(w.T, want, w.sim.Rules()[0].CIDRs, "may connect; the answer was: %v", err)
			})
		})
	}
}

// TestEachRuleIsMadeAgainForItsNetworks: before 4.22 a change of the networks makes rules again, and a port whose
// rule cannot be deleted keeps no former clients in at another one.
func TestEachRuleIsMadeAgainForItsNetworks(t *testing.T) {
	inWorld(t, func(s *cloudstacksim.Sim) { s.SetVersion(cloudstacksim.V420) }, func(w *world) {
		s := service("web", map[string]string{annotationSourceCIDRs: "10.0.0.0/8"}, port("http", 80, 30080), port("https", 443, 30443))
		w.Apply(s)
		w.ensure(s)
		w.alter(s, func(s *v1.Service) { s.Annotations[annotationSourceCIDRs] = "10.1.0.0/16" })
		w.sim.FailJobs(cloudstacksim.Failure{Command: "deleteLoadBalancerRule", Code: 530, Text: "the router is down"})
		_, err := w.try(s)
		require.ErrorContains(w.T, err, "the router is down")
		assert.Equal(w.T, "10.1.0.0/16", w.rule(nameOf(s, "-tcp-443")).CIDRs)
		time.Sleep(time.Minute)
		w.ensure(s)
		for _, r := range w.sim.Rules() {
			assert.Equal(w.T, "10.1.0.0/16", r.CIDRs)
			assert.Len(w.T, r.Members, 2)
		}
		w.requireNoWrites(s)
	})
}

// TestProcessThatEndsBeforeItLetsBackIn: a firewall rule goes before another one for a part of its networks can be made. Where the process
// ends in between, the next one makes it, although something else of the Service is refused by then. Whom the Service no longer lets in,
// and ports that it has no more, stay closed.
func TestProcessThatEndsBeforeItLetsBackIn(t *testing.T) {
	const former, inside = "192.0.2.0/24", "198.51.100.0/24"
	for name, c := range map[string]struct {
		ranges []string
		port   int32
		want   []string
	}{
		"part":       {[]string{inside}, 80, []string{inside}},
		"unreadable": {[]string{"010.0.0.0/8"}, 80, nil},
		"everybody":  {nil, 80, []string{everybody}},
		"other port": {[]string{inside}, 81, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				s := service("web", nil, port("http", 80, 30080))
				s.Spec.LoadBalancerSourceRanges = []string{former, inside}
				w.Apply(s)
				w.ensure(s)
				w.alter(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{inside} })
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "createFirewallRule"})
				require.NoError(w.T, err)
				_, err = w.try(s)
				require.Error(w.T, err)
				require.Empty(w.T, w.mayConnect())
				w.server.ClearFaults()
				time.Sleep(time.Minute)
				w.restart()
				w.alter(s, func(s *v1.Service) {
					s.Annotations = map[string]string{annotationStickiness: "nonsense"}
					s.Spec.LoadBalancerSourceRanges, s.Spec.Ports[0].Port = c.ranges, c.port
				})
				_, err = w.try(s)
				require.Error(w.T, err)
				assert.Equal(w.T, c.want, w.mayConnect(), "may connect; the answer was: %v", err)
				time.Sleep(time.Minute)
				before := w.writes()
				_, err = w.try(s)
				require.Error(w.T, err)
				assert.Equal(w.T, before, w.writes(), "once")
			})
		})
	}
}

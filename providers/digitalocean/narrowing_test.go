package digitalocean

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// mayConnect are the rules of the only load balancer.
func (w *world) mayConnect() digitaloceansim.Firewall {
	f := w.sim.LoadBalancers()[0].Firewall
	slices.Sort(f.Allow)
	slices.Sort(f.Deny)
	return f
}

// TestFormerClientsAreShutOut although something else of the Service is refused.
func TestFormerClientsAreShutOut(t *testing.T) {
	t.Parallel()
	const former, inside, beside = "198.51.0.0/16", "198.51.100.0/24", "203.0.113.0/24"
	ranges := func(list ...string) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = list }
	}
	rules := func(key, text string) func(*v1.Service) { return func(s *v1.Service) { s.Annotations[key] = text } }
	allow := func(list ...string) digitaloceansim.Firewall {
		return digitaloceansim.Firewall{Allow: list, Deny: []string{}}
	}
	narrowings := map[string]struct {
		from, to       func(*v1.Service)
		refused, asked digitaloceansim.Firewall
	}{
		"from everybody": {ranges(), ranges(inside, beside), allow("cidr:"+inside, "cidr:"+beside), allow("cidr:"+inside, "cidr:"+beside)},
		"to a part":      {ranges(former), ranges(inside, beside), allow("cidr:" + inside), allow("cidr:"+inside, "cidr:"+beside)},
		"to others":      {ranges(former), ranges(beside), allow(nobody), allow("cidr:" + beside)},
		"one is left":    {ranges(former, beside), ranges(beside, "192.0.2.0/24"), allow("cidr:" + beside), allow("cidr:192.0.2.0/24", "cidr:"+beside)},
		"by allow rules": {
			ranges(), rules(annotationAllowRules, "ip:192.0.2.7, cidr:"+inside), allow("cidr:192.0.2.7/32", "cidr:"+inside), allow("cidr:"+inside, "ip:192.0.2.7"),
		},
		"some are denied": {
			ranges(former), func(s *v1.Service) { s.Annotations[annotationDenyRules] = "ip:198.51.0.7" },
			digitaloceansim.Firewall{Allow: []string{"cidr:" + former}, Deny: []string{"ip:198.51.0.7"}},
			digitaloceansim.Firewall{Allow: []string{"cidr:" + former}, Deny: []string{"ip:198.51.0.7"}},
		},
	}
	for name, n := range narrowings {
		for what, h := range hindrances() {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				w := lbWorld(t)
				s := service("web", map[string]string{}, port("http", 80, 30080))
				n.from(s)
				w.Apply(s)
				s = w.SetStatus(w.ensure(s))
				n.to(s)
				h.hinder(w, s)
				w.Apply(s)
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
				require.Error(t, err)
				want := map[bool]digitaloceansim.Firewall{true: n.refused, false: n.asked}[h.refused]
				assert.Equal(t, want, w.mayConnect(), "may connect; the answer was: %v", err)
				w.server.ResetCalls()
				_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
				require.Error(t, err)
				assert.Zero(t, w.server.Calls().Writes, "it is narrowed once")
			})
		}
	}
}

type hindrance struct {
	hinder  func(*world, *v1.Service)
	refused bool
}

// hindrances keep a Service from being served; refused is set if that is the Service's fault.
func hindrances() map[string]hindrance {
	return map[string]hindrance{
		"an annotation": {func(_ *world, s *v1.Service) { s.Annotations[annotationCheckInterval] = "nonsense" }, true},
		"no node":       {func(w *world, _ *v1.Service) { w.nodes = nil }, false},
		"Droplets that cannot be read": {func(w *world, _ *v1.Service) {
			w.restart()
			_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "/droplets$"})
			require.NoError(w.T, err)
		}, false},
	}
}

// TestNarrowingLeavesTheRest of a load balancer as it is, also what the Service asks for otherwise.
func TestNarrowingLeavesTheRest(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := service("web", map[string]string{annotationSizeUnit: "2", annotationCheckPath: "/ready"}, port("http", 80, 30080))
	w.Apply(s)
	s = w.SetStatus(w.ensure(s))
	before := w.sim.LoadBalancers()[0]
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	s.Annotations[annotationSizeUnit], s.Annotations[annotationCheckPath], s.Annotations[annotationCheckInterval] = "3", "/live", "nonsense"
	w.Apply(s)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
	require.Error(t, err)
	after := w.sim.LoadBalancers()[0]
	assert.Equal(t, []string{"cidr:192.0.2.0/24"}, after.Firewall.Allow)
	after.Firewall = before.Firewall
	assert.Equal(t, before, after)
}

// TestDisownedIsNotNarrowed: of a Service that is disowned nothing is written.
func TestDisownedIsNotNarrowed(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := service("web", map[string]string{}, port("http", 80, 30080))
	w.Apply(s)
	s = w.SetStatus(w.ensure(s))
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	narrow := func() []string {
		w.Apply(s)
		require.NoError(t, w.loadBalancers.NarrowLoadBalancer(t.Context(), "kubernetes", w.Current(s)))
		return w.mayConnect().Allow
	}
	s.Annotations[annotationDisown] = "true"
	assert.Empty(t, narrow())
	delete(s.Annotations, annotationDisown)
	assert.Equal(t, []string{"cidr:192.0.2.0/24"}, narrow())
}

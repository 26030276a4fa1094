package linode

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/linode/linodego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// mayConnect are the policy and the rules of the only firewall that is attached; "everybody" where there is none.
func (w *world) mayConnect() string {
	for _, f := range w.sim.Firewalls() {
		if len(f.Devices()) > 0 {
			texts := []string{f.Rules.InboundPolicy}
			for _, r := range f.Rules.Inbound {
				for _, list := range []*[]string{r.Addresses.IPv4, r.Addresses.IPv6} {
					for _, network := range *cmp.Or(list, &[]string{}) {
						texts = append(texts, r.Action+" "+r.Ports+" "+network)
					}
				}
			}
			slices.Sort(texts[1:])
			return strings.Join(texts, ", ")
		}
	}
	return "everybody"
}

func (w *world) fault(status int, operation string, writes bool) {
	w.T.Helper()
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: status, Operation: operation, Writes: writes})
	require.NoError(w.T, err)
}

func ranges(list ...string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = list }
}

func accessList(text string) func(*v1.Service) {
	return func(s *v1.Service) { s.Annotations[annotationFirewallACL] = text }
}

// TestFormerClientsAreShutOut although something else of the Service is refused.
func TestFormerClientsAreShutOut(t *testing.T) {
	t.Parallel()
	const (
		former, inside, beside = "198.51.0.0/16", "198.51.100.0/24", "192.0.2.0/24"
		deny                   = `{"denyList": {"ipv4": ["` + inside + `"]}}`
		allow                  = `{"allowList": {"ipv4": ["` + former + `"]}}`
		both                   = "DROP, ACCEPT 80 " + beside + ", ACCEPT 80 " + inside
		denied                 = "ACCEPT, DROP 80 " + inside
		all                    = "1-65535" // where those of the NodeBalancer are not read
	)
	narrowings := map[string]struct {
		from, to func(*v1.Service)
		// refused lists the clients that may connect while the Service is refused; asked, where only another write or a node is.
		refused, asked string
	}{
		"from everybody":        {ranges(), ranges(inside, beside), "DROP, ACCEPT " + all + " " + beside + ", ACCEPT " + all + " " + inside, both},
		"to a part":             {ranges(former), ranges(inside, beside), "DROP, ACCEPT 80 " + inside, both},
		"to others":             {ranges(former), ranges(beside), "DROP", "DROP, ACCEPT 80 " + beside},
		"some deny":             {ranges(), accessList(deny), "ACCEPT, DROP " + all + " " + inside, denied},
		"more are denied":       {accessList(denyACL), accessList(deny), "ACCEPT, DROP 80 192.0.2.0/24, DROP 80 " + inside + ", DROP 80 2001:db8::/48", denied},
		"a list instead of one": {accessList(deny), accessList(allow), "DROP, ACCEPT 80 " + former + ", DROP 80 " + inside, "DROP, ACCEPT 80 " + former},
	}
	hindrances := map[string]struct {
		hinder  func(*world, *v1.Service)
		refused bool
	}{
		"an annotation": {func(_ *world, s *v1.Service) { s.Annotations[annotationCheckInterval] = "nonsense" }, true},
		"no node":       {func(w *world, _ *v1.Service) { w.nodes = nil }, false},
		"no port is read": {func(w *world, _ *v1.Service) {
			w.loadBalancers.details.InvalidateAll()
			w.fault(http.StatusForbidden, "configs", false)
		}, true},
		"another write": {func(w *world, s *v1.Service) {
			s.Annotations[annotationAlgorithm] = "source"
			w.fault(http.StatusBadRequest, "configs", true)
		}, false},
	}
	for what, h := range hindrances {
		for name, n := range narrowings {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				w := lbWorld(t, 1)
				s := service("web", nil, port("http", 80, 30080))
				n.from(s)
				w.Apply(s)
				s, _ = w.ensure(s)
				n.to(s)
				h.hinder(w, s)
				w.Apply(s)
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
				require.Error(t, err)
				assert.Equal(t, map[bool]string{true: n.refused, false: n.asked}[h.refused], w.mayConnect(), "may connect; the answer was: %v", err)
				w.server.ResetCalls()
				_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
				require.Error(t, err)
				assert.Zero(t, w.server.Calls().ByOperation["PUT /v4/networking/firewalls/{id}/rules"], "it is narrowed once")
			})
		}
	}
}

// TestFormerPortIsServed: where ports and source ranges change together, those who are still asked for reach the former port until it goes,
// by its protocol.
func TestFormerPortIsServed(t *testing.T) {
	t.Parallel()
	const former, inside = "198.51.0.0/16", "198.51.100.0/24"
	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	ranges(former)(s)
	w.Apply(s)
	s, _ = w.ensure(s)
	w.sim.ChangeFirewall(w.sim.Firewalls()[0].ID, func(f *linodesim.Firewall) { f.Rules.Inbound[0].Protocol = string(linodego.UDP) })
	w.loadBalancers.firewalls.InvalidateAll()
	ranges(inside)(s)
	s.Spec.Ports[0].Port = 8080
	w.Apply(s)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), nil)
	require.Error(t, err, "there is no node")
	assert.Equal(t, "DROP, ACCEPT 80 "+inside, w.mayConnect())
	assert.EqualValues(t, linodego.UDP, w.sim.Firewalls()[0].Rules.Inbound[0].Protocol)
}

// TestFormerPortWithoutAFirewall: where the first source ranges come with other ports, those who are asked for reach the former port until
// it goes, and nobody else does.
func TestFormerPortWithoutAFirewall(t *testing.T) {
	t.Parallel()
	const inside = "198.51.100.0/24"
	for name, c := range map[string]struct {
		hinder func(*world, *v1.Service)
		want   string
	}{
		"no node":       {func(w *world, _ *v1.Service) { w.nodes = nil }, "DROP, ACCEPT 8080,80 " + inside},
		"an annotation": {func(_ *world, s *v1.Service) { s.Annotations[annotationCheckInterval] = "nonsense" }, "DROP, ACCEPT 1-65535 " + inside},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			nodes := w.nodes
			ranges(inside)(s)
			s.Spec.Ports[0].Port = 8080
			c.hinder(w, s)
			w.Apply(s)
			for range 2 {
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
				require.Error(t, err)
				assert.Equal(t, c.want, w.mayConnect())
			}
			s = w.Current(s)
			delete(s.Annotations, annotationCheckInterval)
			w.nodes = nodes
			w.Apply(s)
			w.ensure(s)
			assert.Equal(t, "DROP, ACCEPT 8080 "+inside, w.mayConnect())
		})
	}
}

// TestOthersFirewallsStay: a firewall that is not the Service's own decides by itself, and nothing is narrowed by what cannot be read.
func TestOthersFirewallsStay(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, s *v1.Service){
		"nobody's": func(w *world, s *v1.Service) {
			w.sim.AddFirewall("users", idOf(s.Annotations[annotationRecord]))
			w.restart()
		},
		"a firewall that cannot be read": func(_ *world, s *v1.Service) { s.Annotations[annotationFirewallID] = "x" },
		"ranges that cannot be read":     func(_ *world, s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"} },
		"a list that cannot be read":     func(_ *world, s *v1.Service) { s.Annotations[annotationFirewallACL] = `{"allowList": {"ipv4": ["x"]}}` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			change(w, s)
			w.Apply(s)
			w.server.ResetCalls()
			require.NoError(t, w.loadBalancers.NarrowLoadBalancer(t.Context(), "kubernetes", w.Current(s)))
			assert.Zero(t, w.server.Calls().Writes)
		})
	}
}

// TestOwnFirewallIsNarrowedBesideAMisspeltOne: until the named firewall is attached, the one that the Service has decides, and is narrowed.
func TestOwnFirewallIsNarrowedBesideAMisspeltOne(t *testing.T) {
	t.Parallel()
	for id, says := range map[string]string{"x": annotationFirewallID, "999": "attaching firewall 999"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", nil, port("http", 80, 30080))
			ranges("198.51.0.0/16")(s)
			w.Apply(s)
			s, _ = w.ensure(s)
			ranges("198.51.100.0/24", "192.0.2.0/24")(s)
			s.Annotations[annotationFirewallID] = id
			w.Apply(s)
			for range 2 {
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
				require.ErrorContains(t, err, says)
				assert.Equal(t, "DROP, ACCEPT 80 198.51.100.0/24", w.mayConnect())
			}
		})
	}
}

// TestNarrowingReadsNothingOfNodes: neither ports nor Linodes are read for it.
func TestNarrowingReadsNothingOfNodes(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	w.Apply(s)
	w.restart()
	w.server.ResetCalls()
	require.NoError(t, w.loadBalancers.NarrowLoadBalancer(t.Context(), "kubernetes", w.Current(s)))
	calls := w.server.Calls()
	assert.Equal(t, "DROP, ACCEPT 1-65535 192.0.2.0/24", w.mayConnect())
	assert.Equal(t, 4, calls.Total, "%v", calls.ByOperation)
}

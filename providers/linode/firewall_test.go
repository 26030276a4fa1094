package linode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodelimits"
)

// TestPlanTellsOfFirewalls, and what it tells is what is then done.
func TestPlanTellsOfFirewalls(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	users := strconv.Itoa(w.sim.AddFirewall("users"))
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	nb := w.sim.NodeBalancers()[0].ID
	for _, c := range []struct {
		acl, id string
		want    []string
	}{
		{"", "", nil},
		{allowACL, "", []string{"create firewall ccm-3c1f6b527a66", fmt.Sprintf("change NodeBalancer %d", nb)}},
		{denyACL, "", []string{"change firewall OWN"}},
		{"", users, []string{fmt.Sprintf("change NodeBalancer %d", nb), "delete firewall OWN"}},
		{"", "", []string{fmt.Sprintf("change NodeBalancer %d", nb)}},
	} {
		s.Annotations[annotationFirewallACL], s.Annotations[annotationFirewallID] = c.acl, c.id
		w.Apply(s)
		own := "0"
		if all := w.sim.Firewalls(); len(all) > 1 {
			own = strconv.Itoa(all[1].ID)
		}
		w.server.ResetCalls()
		plan, err := w.PlanLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.NoError(t, err)
		planned := plan.Changes
		assert.Zero(t, w.server.Calls().Writes)
		var told []string
		for _, p := range planned {
			told = append(told, strings.ReplaceAll(p.Action+" "+p.Object, "firewall "+own, "firewall OWN"))
		}
		assert.Equal(t, c.want, told, "%v", c)
		s, _ = w.ensure(s)
		plan, err = w.PlanLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.NoError(t, err)
		planned = plan.Changes
		assert.Empty(t, planned, "%v: it is done", c)
	}
	fresh := service("fresh", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30081))
	fresh.UID = "9c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"
	plan, err := w.PlanLoadBalancer(t.Context(), "kubernetes", fresh, w.nodes)
	require.NoError(t, err)
	planned := plan.Changes
	require.Len(t, planned, 2)
	assert.Equal(t, "firewall ccm-9c1f6b527a66", planned[0].Object)
}

// TestPlanReturnsFindings: what Ensure would tell the Service in events, plan returns, and writes none.
func TestPlanReturnsFindings(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	id, _ := strconv.Atoi(s.Annotations[annotationRecord])
	w.sim.AddFirewall("users", id)
	w.restart()
	s.Annotations[annotationFirewallACL], s.Annotations[annotationType], s.Annotations[annotationThrottle] = allowACL, "premium", "5"
	w.Apply(s)
	w.Events()
	plan, err := w.PlanLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.NoError(t, err)
	reasons := []string{}
	for _, f := range plan.Findings {
		reasons = append(reasons, f.Reason)
	}
	assert.Equal(t, []string{eventIgnored, services.EventFixed}, reasons)
	assert.Empty(t, w.Events())
	require.Len(t, plan.Changes, 1)
	assert.Equal(t, "update: client_conn_throttle", plan.Changes[0].Detail)

	s.Annotations[annotationProtocol] = "carrier pigeon"
	plan, err = w.PlanLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.ErrorContains(t, err, annotationProtocol)
	require.Len(t, plan.Findings, 1)
	assert.Equal(t, eventConfigError, plan.Findings[0].Reason)
	assert.Empty(t, w.Events())
	assert.Zero(t, w.server.Calls().Refused)
}

const (
	allowACL = `{"allowList": {"ipv4": ["198.51.100.0/24"]}}`
	denyACL  = `{"denyList": {"ipv4": ["192.0.2.0/24"], "ipv6": ["2001:db8::/48"]}}`
)

// TestFirewallTransitions: from each state to each other, with a firewall of the user's that always stays.
func TestFirewallTransitions(t *testing.T) {
	t.Parallel()
	states := []string{"none", "id", "other-id", "allow", "deny"}
	for _, from := range states {
		for _, to := range states {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				w := lbWorld(t, 1)
				ids := map[string]int{"id": w.sim.AddFirewall("users-one"), "other-id": w.sim.AddFirewall("users-two")}
				s := service("web", nil, port("http", 80, 30080), port("alt", 8080, 30081))
				ask := func(state string) {
					delete(s.Annotations, annotationFirewallID)
					delete(s.Annotations, annotationFirewallACL)
					switch state {
					case "id", "other-id":
						s.Annotations[annotationFirewallID] = strconv.Itoa(ids[state])
					case "allow":
						s.Annotations[annotationFirewallACL] = allowACL
					case "deny":
						s.Annotations[annotationFirewallACL] = denyACL
					}
				}
				for _, state := range []string{from, to} {
					ask(state)
					w.Apply(s)
					s, _ = w.ensure(s)
					s, _ = w.ensure(s)
					w.server.ResetCalls()
					s, _ = w.ensure(s)
					assert.Zero(t, w.server.Calls().Writes, "%s: it is so already", state)
				}
				attached := []string{}
				for _, f := range w.sim.Firewalls() {
					if len(f.Devices()) > 0 {
						policy := f.Rules.InboundPolicy
						if len(f.Rules.Inbound) > 0 {
							policy += " " + f.Rules.Inbound[0].Action + " " + f.Rules.Inbound[0].Ports
						}
						attached = append(attached, map[bool]string{true: f.Label, false: policy}[strings.HasPrefix(f.Label, "users")])
					}
				}
				want := map[string][]string{
					"none": {}, "id": {"users-one"}, "other-id": {"users-two"}, "allow": {"DROP ACCEPT 80,8080"}, "deny": {"ACCEPT DROP 80,8080"},
				}[to]
				assert.Equal(t, want, attached)
				ours := 0
				if to == "allow" || to == "deny" {
					ours = 1
				}
				assert.Len(t, w.sim.Firewalls(), 2+ours, "nothing of ours is left, and nothing of the user's is gone")
				assert.Empty(t, w.server.Calls().Refused)
			})
		}
	}
}

// TestSourceRanges become an access list where no annotation names a firewall, each family for itself.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	allow := func(v4, v6 []string) *acl { return &acl{Allow: &addressList{IPv4: v4, IPv6: v6}} }
	for _, c := range []struct {
		ranges []string
		want   *acl
	}{
		{nil, nil},
		{[]string{"198.51.100.7/24", " 2001:db8::1/48"}, allow([]string{"198.51.100.0/24"}, []string{"2001:db8::/48"})},
		{[]string{"10.0.0.0/8"}, allow([]string{"10.0.0.0/8"}, nil)},
		{[]string{"2001:db8::/48"}, allow(nil, []string{"2001:db8::/48"})},
		{[]string{"10.0.0.0/8", "::/0"}, allow([]string{"10.0.0.0/8"}, []string{"::/0"})},
		{[]string{"::/0", "10.0.0.0/8", "2001:db8::/48"}, allow([]string{"10.0.0.0/8"}, []string{"::/0"})},
		{[]string{"0.0.0.0/0", "2001:db8::/48"}, allow([]string{"0.0.0.0/0"}, []string{"2001:db8::/48"})},
		{[]string{"0.0.0.0/0"}, allow([]string{"0.0.0.0/0"}, nil)},
		{[]string{"::/0", "0.0.0.0/0", "10.0.0.0/8"}, nil},
	} {
		got, err := sourceRanges(c.ranges)
		require.NoError(t, err, c.ranges)
		assert.Equal(t, c.want, got, "%v", c.ranges)
	}

	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.7/24", "::/0"}
	w.Apply(s)
	s, _ = w.ensure(s)
	rules := w.sim.Firewalls()[0].Rules
	assert.Equal(t, "DROP", rules.InboundPolicy)
	assert.Equal(t, []string{"198.51.100.0/24"}, *rules.Inbound[0].Addresses.IPv4)
	assert.Equal(t, []string{"::/0"}, *rules.Inbound[0].Addresses.IPv6)
	s.Spec.LoadBalancerSourceRanges = []string{"0.0.0.0/0", "::/0"}
	w.Apply(s)
	s, _ = w.ensure(s)
	assert.Empty(t, w.sim.Firewalls(), "everybody may come in")
	s.Spec.LoadBalancerSourceRanges = []string{"nonsense"}
	w.Apply(s)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.ErrorContains(t, err, `spec.loadBalancerSourceRanges: "nonsense" is not a network`)
}

// TestFirewallOfSomebodyElse is neither changed nor deleted, with or without an access list, and holds nothing else up.
func TestFirewallOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked func(*v1.Service)
		told  string
	}{
		"access list":   {func(s *v1.Service) { s.Annotations[annotationFirewallACL] = allowACL }, "Warning LoadBalancerAnnotationIgnored annotation " + annotationFirewallACL},
		"source ranges": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"} }, "Warning LoadBalancerSourceRangesIgnored spec.loadBalancerSourceRanges"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			id, _ := strconv.Atoi(s.Annotations[annotationRecord])
			w.sim.AddFirewall("users", id)
			w.restart()
			s, _ = w.ensure(s)
			require.Len(t, w.sim.Firewalls(), 1)
			c.asked(s)
			s.Spec.Ports = append(s.Spec.Ports, port("https", 443, 30443))
			w.Apply(s)
			w.ensure(s)
			require.Len(t, w.sim.Firewalls(), 1)
			assert.Empty(t, w.sim.Firewalls()[0].Rules.Inbound)
			assert.Equal(t, []int{id}, w.sim.Firewalls()[0].Devices())
			assert.Len(t, w.sim.NodeBalancers()[0].Configs(), 2, "everything else goes on")
			assert.Contains(t, strings.Join(w.Events(), "\n"), c.told)
		})
	}
}

// TestFirewallOfAnotherService is not taken over by a Service that has itself attached to it, nor deleted with it.
func TestFirewallOfAnotherService(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	victim := service("victim", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
	w.Apply(victim)
	victim, _ = w.ensure(victim)
	theirs := w.sim.Firewalls()[0]
	s := service("web", map[string]string{annotationFirewallID: strconv.Itoa(theirs.ID)}, port("http", 80, 30081))
	s.UID = "9c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"
	w.Apply(s)
	s, _ = w.ensure(s)
	delete(s.Annotations, annotationFirewallID)
	s.Annotations[annotationFirewallACL] = `{"denyList": {"ipv4": ["192.0.2.0/24"]}}`
	w.Apply(s)
	s, _ = w.ensure(s)
	all := w.sim.Firewalls()
	require.Len(t, all, 2)
	assert.Equal(t, theirs.Rules, all[0].Rules, "its rules stay")
	assert.Len(t, all[0].Devices(), 1, "and it protects its own NodeBalancer alone")
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	require.Len(t, w.sim.Firewalls(), 1)
	assert.Equal(t, theirs.ID, w.sim.Firewalls()[0].ID)
	w.Current(victim)
}

// TestFirewallRules: how access lists are split, and what is the same.
func TestFirewallRules(t *testing.T) {
	t.Parallel()
	many := func(n int, format string) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(format, i/256, i%256)
		}
		return list
	}
	s := service(strings.Repeat("long", 20), nil, port("http", 80, 30080))
	rules := func(v4, v6 int) (int, error) {
		set, err := firewallRules(&acl{Allow: &addressList{IPv4: many(v4, "10.%d.%d.0/24"), IPv6: many(v6, "2001:db8:%x:%x::/64")}}, s, "ccm-0123456789ab")
		for _, r := range set.Inbound {
			assert.LessOrEqual(t, len(r.Label), linodelimits.RuleLabel.Max)
			assert.LessOrEqual(t, len(r.Description), linodelimits.RuleDescription.Max)
			assert.False(t, r.Addresses.IPv4 != nil && len(*r.Addresses.IPv4) == 0)
			assert.False(t, r.Addresses.IPv4 == nil && r.Addresses.IPv6 == nil, "no rule without a network")
		}
		return len(set.Inbound), err
	}
	for _, c := range [][3]int{{1, 0, 1}, {200, 55, 1}, {400, 300, 4}, {300, 0, 2}, {0, 300, 2}, {255 * 25, 0, 25}} {
		n, err := rules(c[0], c[1])
		require.NoError(t, err)
		assert.Equal(t, c[2], n, "%v", c)
	}
	_, err := rules(255*25+1, 0)
	require.ErrorContains(t, err, "too many networks")
	for i := range int32(16) {
		s.Spec.Ports = append(s.Spec.Ports, port("p", 1000+i, 31000+i))
	}
	n, err := rules(1, 0)
	require.NoError(t, err)
	assert.Equal(t, 2, n, "17 ports")
}

// TestSourcesOfUDP: firewalls of NodeBalancers filter TCP alone, so that a Service with ports of UDP is told that its sources do not hold
// for them.
func TestSourcesOfUDP(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(*v1.Service)
		event   string
	}{
		"source ranges": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"} }, "Warning " + eventRangesIgnored},
		"an access list": {func(s *v1.Service) {
			s.Annotations[annotationFirewallACL] = `{"allowList": {"ipv4": ["198.51.100.0/24"]}}`
		}, "Warning " + eventIgnored},
		"sources are everybody": {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"0.0.0.0/0", "::/0"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			udp := port("dns", 53, 30053)
			udp.Protocol = v1.ProtocolUDP
			s := service("dns", nil, port("http", 80, 30080), udp)
			c.prepare(s)
			w.Apply(s)
			w.ensure(s)
			events := strings.Join(w.Events(), "\n")
			if c.event == "" {
				assert.Empty(t, events)
				return
			}
			assert.Contains(t, events, c.event)
			assert.Contains(t, events, "everybody may reach port 53")
		})
	}
}

// TestRangesBesideAnnotations: source ranges that count for nothing, because an annotation says who may connect, are told.
func TestRangesBesideAnnotations(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{annotationFirewallID: "7", annotationFirewallACL: allowACL, annotationTags: "team-a"} {
		s := service("web", map[string]string{key: value}, port("http", 80, 30080))
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		_, warnings, err := parseSettings(s, Config{})
		require.NoError(t, err)
		if key == annotationTags {
			assert.NoError(t, warnings)
			continue
		}
		assert.ErrorContains(t, warnings, "spec.loadBalancerSourceRanges: has no effect beside the annotation "+key)
	}
}

// manyNetworks are so many networks.
func manyNetworks(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
	}
	return list
}

// TestRepeatedNetworksCountOnce: networks that are said again need no room in a firewall, in source ranges as in an access list.
func TestRepeatedNetworksCountOnce(t *testing.T) {
	t.Parallel()
	most := manyNetworks(maxNetworks())
	more := slices.Concat(most, most[:200])
	text, err := json.Marshal(acl{Allow: &addressList{IPv4: more}})
	require.NoError(t, err)
	ranges := service("web", nil, port("http", 80, 30080))
	ranges.Spec.LoadBalancerSourceRanges = more
	for what, s := range map[string]*v1.Service{
		"source ranges":  ranges,
		"an access list": service("web", map[string]string{annotationFirewallACL: string(text)}, port("http", 80, 30080)),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			w.Apply(s)
			w.ensure(s)
			var sent []string
			for _, r := range w.sim.Firewalls()[0].Rules.Inbound {
				sent = append(sent, *r.Addresses.IPv4...)
			}
			assert.ElementsMatch(t, most, sent)
		})
	}
}

// TestManyPortsWithRanges: a rule has 15 ports, and a firewall more rules than one. What does not fit is refused by the words of what the
// Service says.
func TestManyPortsWithRanges(t *testing.T) {
	t.Parallel()
	s := service("web", nil)
	for i := range int32(31) {
		s.Spec.Ports = append(s.Spec.Ports, port(fmt.Sprint("p", i), 9000+2*i, 30000+i))
	}
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	w := lbWorld(t, 1)
	w.Apply(s)
	w.ensure(s)
	var ports []int
	for _, r := range w.sim.Firewalls()[0].Rules.Inbound {
		ports = append(ports, strings.Count(r.Ports, ",")+1)
	}
	assert.Equal(t, []int{15, 15, 1}, ports)
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes)
	var networks []string
	for i := range 255 * 9 {
		networks = append(networks, fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))
	}
	_, err := firewallRules(&acl{Allow: &addressList{IPv4: networks}}, s, "")
	require.ErrorContains(t, err, "spec.loadBalancerSourceRanges: too many networks for so many ports")
}

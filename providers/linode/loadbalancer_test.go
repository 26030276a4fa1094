package linode

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/linode/linodego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

func lbWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := newTestWorld(t, nil, func(s *linodesim.Sim) { s.Reserve(reservedIP) })
	for i := range nodes {
		w.addNode(linodesim.Spec{Label: fmt.Sprint("worker-", i+1), Private: true})
	}
	return w
}

// TestChangesOfNodes: one call for each port where one node comes or goes, a rebuild that keeps the others where more do.
func TestChangesOfNodes(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 4)
	all := w.nodes
	w.nodes = all[:2]
	s := service("web", nil, port("a", 80, 30080), port("b", 81, 30081))
	w.Apply(s)
	s, _ = w.ensure(s)
	s, _ = w.ensure(s)
	ids := func() map[string]int {
		byAddress := map[string]int{}
		for _, c := range w.sim.NodeBalancers()[0].Configs() {
			for _, n := range c.Nodes() {
				byAddress[n.Address] = n.ID
			}
		}
		return byAddress
	}
	before := ids()
	update := func(nodes []*v1.Node) map[string]int {
		w.server.ResetCalls()
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nodes))
		return w.server.Calls().ByOperation
	}
	assert.Equal(t, map[string]int{"POST /v4/nodebalancers/{id}/configs/{id}/nodes": 2}, update(all[:3]), "one node joins")
	assert.Empty(t, update(all[:3]))
	assert.Equal(t, map[string]int{"DELETE /v4/nodebalancers/{id}/configs/{id}/nodes/{id}": 2}, update(all[:2]), "one node leaves")
	assert.Equal(t, map[string]int{"POST /v4/nodebalancers/{id}/configs/{id}/rebuild": 2, "GET /v4/nodebalancers/{id}/configs/{id}/nodes": 2}, update(all), "two nodes join")
	s.Annotations[annotationCheckType] = "tea"
	assert.Equal(t, map[string]int{"DELETE /v4/nodebalancers/{id}/configs/{id}/nodes/{id}": 2}, update(all[:3]), "a fault in another annotation holds no node up")
	assert.Equal(t, map[string]int{"POST /v4/nodebalancers/{id}/configs/{id}/nodes": 2}, update(all))
	judged := 0
	for _, key := range backendAnnotations() {
		if key == annotationPort {
			key += "80"
		}
		faulty := s.DeepCopy()
		faulty.Annotations[key] = "\x00"
		if _, _, err := parseSettings(faulty, w.config); concerning(err, key) == nil {
			continue // any text will do
		}
		w.server.ResetCalls()
		require.ErrorContains(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", faulty, all[:1]), key)
		assert.Zero(t, w.server.Calls().Total)
		judged++
	}
	assert.GreaterOrEqual(t, judged, 4)
	for address, id := range before {
		assert.Equal(t, id, ids()[address], "connections to nodes that stay survive")
	}
	assert.Len(t, ids(), 8)
	require.ErrorIs(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nil), errNoBackends)
	assert.Empty(t, w.server.Calls().Refused)
}

// TestPortsOfTwoProtocols: TCP and UDP on one number are two configs, and neither is taken for the other.
func TestPortsOfTwoProtocols(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	udp := port("quic", 443, 30444)
	udp.Protocol = v1.ProtocolUDP
	s := service("web", nil, port("https", 443, 30443), udp)
	w.Apply(s)
	s, _ = w.ensure(s)
	s, _ = w.ensure(s)
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes)
	s.Spec.Ports = s.Spec.Ports[1:]
	w.Apply(s)
	w.ensure(s)
	configs := w.sim.NodeBalancers()[0].Configs()
	require.Len(t, configs, 1)
	assert.Equal(t, "udp", configs[0].Protocol)
	assert.Equal(t, "none", configs[0].Nodes()[0].Mode)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	nb := &nodeBalancer{Hostname: "h.example", IPv4: "198.19.0.1", IPv6: "2001:db8::1"}
	v4, v6 := v1.LoadBalancerIngress{Hostname: "h.example", IP: "198.19.0.1"}, v1.LoadBalancerIngress{Hostname: "h.example", IP: "2001:db8::1"}
	for name, c := range map[string]struct {
		config      Config
		annotations map[string]string
		want        []v1.LoadBalancerIngress
	}{
		"default":              {Config{}, nil, []v1.LoadBalancerIngress{v4}},
		"hostname":             {Config{}, map[string]string{annotationHostnameOnly: "true"}, []v1.LoadBalancerIngress{{Hostname: "h.example"}}},
		"hostname by option":   {Config{HostnameOnly: true}, nil, []v1.LoadBalancerIngress{{Hostname: "h.example"}}},
		"hostname against it":  {Config{HostnameOnly: true}, map[string]string{annotationHostnameOnly: "false"}, []v1.LoadBalancerIngress{v4}},
		"IPv6":                 {Config{}, map[string]string{annotationIPv6Ingress: "1"}, []v1.LoadBalancerIngress{v4, v6}},
		"IPv6 by option":       {Config{IPv6Ingress: true}, nil, []v1.LoadBalancerIngress{v4, v6}},
		"IPv6 against it":      {Config{IPv6Ingress: true}, map[string]string{annotationIPv6Ingress: "false"}, []v1.LoadBalancerIngress{v4}},
		"illegal is the usual": {Config{IPv6Ingress: true}, map[string]string{annotationIPv6Ingress: "maybe"}, []v1.LoadBalancerIngress{v4}},
	} {
		s, _, err := parseSettings(service("web", c.annotations), c.config)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, status(nb, s).Ingress, name)
	}
}

// TestMoves: a Service names another NodeBalancer, and back; what we made goes, what the user made stays.
func TestMoves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotation, value string
		kept              bool
	}{
		"the old one goes": {annotationPreserve, "false", false}, "the old one is preserved": {annotationPreserve, "true", true},
		"the old one is retained": {guard.AnnotationRetain, "true", true}, "the old one is protected": {guard.AnnotationProtect, "true", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", map[string]string{c.annotation: c.value}, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			first := s.Annotations[annotationRecord]
			users := w.users("users-own")
			w.serves(users, 30080)
			s.Annotations[annotationID] = strconv.Itoa(users)
			w.Apply(s)
			s, status := w.ensure(s)
			assert.Equal(t, strconv.Itoa(users), s.Annotations[annotationRecord])
			balancers := w.sim.NodeBalancers()
			assert.Equal(t, balancers[len(balancers)-1].IPv4, status.Ingress[0].IP)
			require.Len(t, balancers, map[bool]int{false: 1, true: 2}[c.kept])
			if c.kept {
				assert.Equal(t, first, strconv.Itoa(balancers[0].ID))
				return
			}
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			require.Len(t, w.sim.NodeBalancers(), 1, "the user made it")
			assert.Contains(t, strings.Join(w.Events(), "\n"), "is kept: nothing that only a controller can write")
		})
	}
	t.Run("an ID that leads nowhere", func(t *testing.T) {
		t.Parallel()
		w := lbWorld(t, 1)
		s := service("web", map[string]string{annotationID: "99999"}, port("http", 80, 30080))
		w.Apply(s)
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.ErrorContains(t, err, `nodebalancer-id: "99999" is not the ID of a NodeBalancer that the token may read`)
		assert.Empty(t, w.sim.NodeBalancers(), "none is made in its place")
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning LoadBalancerConfigError annotation "+annotationID)
	})
}

// TestDeletion: what is ours goes, and all that is the user's stays.
func TestDeletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		prepare     func(w *world, nb int)
		balancers   int
		firewalls   int
		reserved    bool
		refused     string
	}{
		"all of it":                  {map[string]string{annotationFirewallACL: allowACL, annotationReservedIPv4: reservedIP}, nil, 0, 0, true, ""},
		"with its address":           {map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, mayGo, 0, 0, false, ""},
		"with the operator's":        {map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, nil, 0, 0, true, ""},
		"preserved":                  {map[string]string{annotationPreserve: "true", annotationFirewallACL: allowACL}, nil, 1, 1, true, ""},
		"preserved or not":           {map[string]string{annotationPreserve: "yes"}, nil, 1, 0, true, annotationPreserve},
		"released or not":            {map[string]string{annotationRetainReservedIPv4: "yes"}, nil, 1, 0, true, annotationRetainReservedIPv4},
		"a fault in another place":   {map[string]string{annotationPreserve: "false", annotationCheckType: "tea"}, nil, 0, 0, true, ""},
		"the user's firewall":        {nil, func(w *world, nb int) { w.sim.AddFirewall("users", nb) }, 0, 1, true, ""},
		"deleted behind our back":    {map[string]string{annotationFirewallACL: allowACL}, func(w *world, nb int) { _ = w.api.deleteNodeBalancer(w.T.Context(), nb) }, 0, 0, true, ""},
		"an address of another kind": {map[string]string{annotationRetainReservedIPv4: "false"}, nil, 0, 0, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			annotations := maps.Clone(c.annotations)
			if annotations == nil {
				annotations = map[string]string{}
			}
			if c.refused != "" {
				delete(annotations, c.refused)
			}
			delete(annotations, annotationCheckType) // a fault comes after the creation
			s := service("web", annotations, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			maps.Copy(s.Annotations, c.annotations)
			if c.prepare != nil {
				c.prepare(w, w.sim.NodeBalancers()[0].ID)
			}
			w.restart()
			err := w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused, "in doubt nothing is deleted")
			} else {
				require.NoError(t, err)
			}
			assert.Len(t, w.sim.NodeBalancers(), c.balancers)
			assert.Len(t, w.sim.Firewalls(), c.firewalls)
			assert.Equal(t, c.reserved, w.sim.Reserved(reservedIP))
		})
	}
}

// mayGo marks the reserved address as one that may go with its Service.
func mayGo(w *world, _ int) { w.sim.Reserve(reservedIP, "anyccm:test-cluster") }

// TestReleaseIsNotForgotten: while a release fails the NodeBalancer stays, for nothing else leads to the address.
func TestReleaseIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	mayGo(w, 0)
	s := service("web", map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	for _, operation := range []string{"DELETE /v4/networking/reserved/ips/{id}", "DELETE /v4/nodebalancers/{id}"} {
		id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: operation})
		require.NoError(t, err)
		require.Error(t, w.Remove(w.loadBalancers, "kubernetes", s))
		assert.Len(t, w.sim.NodeBalancers(), 1)
		w.server.RemoveFault(id)
		w.restart()
	}
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	assert.Empty(t, w.sim.NodeBalancers())
	assert.False(t, w.sim.Reserved(reservedIP))

	// An address that the operator keeps for others stays, and the Service tells so.
	w = lbWorld(t, 1)
	s = service("web", map[string]string{annotationReservedIPv4: reservedIP, annotationRetainReservedIPv4: "false"}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	assert.True(t, w.sim.Reserved(reservedIP))
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Normal LoadBalancerRetained the address "+reservedIP+" stays reserved: no controller reserved it")
}

// users makes a NodeBalancer that no controller made.
func (w *world) users(label string) int {
	w.T.Helper()
	nb, err := w.api.createNodeBalancer(w.T.Context(), &nodeBalancerRequest{Label: label, Region: linodesim.Region, Type: "common", Tags: []string{}, Configs: []configFields{}})
	require.NoError(w.T, err)
	return nb.ID
}

// serves makes the NodeBalancer of a user send its traffic to the first node at a node port.
func (w *world) serves(id, nodePort int) {
	w.T.Helper()
	c, err := w.api.createConfig(w.T.Context(), id, configFields{Port: 80, Protocol: "tcp", Algorithm: "roundrobin", Check: "none", CheckInterval: 5, CheckTimeout: 3, CheckAttempts: 2})
	require.NoError(w.T, err)
	private := ""
	for _, a := range w.nodes[0].Status.Addresses {
		if strings.HasPrefix(a.Address, "192.168.") {
			private = a.Address
		}
	}
	_, err = w.api.addNode(w.T.Context(), id, c.ID, nodeOptions{Address: fmt.Sprintf("%s:%d", private, nodePort), Label: "one", Weight: 100, Mode: modeAccept})
	require.NoError(w.T, err)
}

// TestUsersNodeBalancer outlives the annotation that names it, whether that goes or names another one.
func TestUsersNodeBalancer(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{true, false} {
		w := lbWorld(t, 1)
		x, y := w.users("mine-x"), w.users("mine-y")
		w.serves(x, 30080)
		w.serves(y, 30080)
		s := service("web", map[string]string{annotationID: strconv.Itoa(x)}, port("http", 80, 30080))
		w.Apply(s)
		s, _ = w.ensure(s)
		if moved {
			s.Annotations[annotationID] = strconv.Itoa(y)
		} else {
			delete(s.Annotations, annotationID)
		}
		w.Apply(s)
		s, _ = w.ensure(s)
		require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
		left := []int{}
		for _, nb := range w.sim.NodeBalancers() {
			left = append(left, nb.ID)
		}
		assert.Equal(t, []int{x, y}, left, "moved: %v", moved)
	}
}

// TestNothingIsDeletedOnAnOldPicture: what became somebody else's since the last look stays.
func TestNothingIsDeletedOnAnOldPicture(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	nb, f := w.sim.NodeBalancers()[0], w.sim.Firewalls()[0]
	w.sim.ChangeNodeBalancer(nb.ID, func(nb *linodesim.NodeBalancer) { nb.Tags = []string{"anyccm:another"} })
	require.Error(t, w.loadBalancers.remove(t.Context(), s, settings{}, &nodeBalancer{ID: nb.ID}))
	assert.Len(t, w.sim.NodeBalancers(), 1)
	w.sim.ChangeFirewall(f.ID, func(f *linodesim.Firewall) { f.Tags = []string{"anyccm:another"} })
	require.NoError(t, w.loadBalancers.deleteUnusedFirewall(t.Context(), s, f.ID, nb.ID))
	assert.Len(t, w.sim.Firewalls(), 1)

	// What was listed as an orphan, and got another name, another cluster, another use or a Service since, stays.
	for name, c := range map[string]struct {
		prepare func(w *world, nb, f int, s *v1.Service)
		left    int
	}{
		"nothing happened": {func(*world, int, int, *v1.Service) {}, 0},
		"of another cluster": {func(w *world, nb, f int, _ *v1.Service) {
			w.sim.ChangeNodeBalancer(nb, func(nb *linodesim.NodeBalancer) { nb.Tags = []string{"anyccm:another"} })
			w.sim.ChangeFirewall(f, func(f *linodesim.Firewall) { f.Tags = []string{"anyccm:another"} })
		}, 2},
		"with another label": {func(w *world, nb, f int, _ *v1.Service) {
			w.sim.ChangeNodeBalancer(nb, func(nb *linodesim.NodeBalancer) { nb.Label = "kept" })
			w.sim.ChangeFirewall(f, func(f *linodesim.Firewall) { f.Label = "kept" })
		}, 2},
		"of a Service": {func(w *world, _, _ int, s *v1.Service) {
			_, err := w.Kube.CoreV1().Services(s.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})
			require.NoError(w.T, err)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			nb, f := w.sim.NodeBalancers()[0].ID, w.sim.Firewalls()[0].ID
			w.Withdraw(s)
			require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
			devices, _, err := listAll[linodego.FirewallDevice](t.Context(), w.api, "devices", fmt.Sprintf("networking/firewalls/%d/devices", f), "")
			require.NoError(t, err)
			require.NoError(t, w.api.sdk.DeleteFirewallDevice(t.Context(), f, devices[0].ID))
			w.restart()
			orphans, err := w.Orphans(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, orphans, 2)
			s.ResourceVersion = ""
			c.prepare(w, nb, f, s)
			for _, o := range orphans {
				err := w.DeleteOrphan(t.Context(), o)
				if c.left == 0 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, errChanged)
				}
			}
			assert.Len(t, w.sim.NodeBalancers(), c.left/2)
			assert.Len(t, w.sim.Firewalls(), c.left/2)
		})
	}
}

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
				wish := func(state string) {
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
					wish(state)
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
				want := map[string][]string{"none": {}, "id": {"users-one"}, "other-id": {"users-two"}, "allow": {"DROP ACCEPT 80,8080"}, "deny": {"ACCEPT DROP 80,8080"}}[to]
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

// TestTheWayBack: what Linode's own controller sends for a Service that we made changes nothing, and it finds it.
func TestTheWayBack(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 2)
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := service("web", map[string]string{annotationTags: "one", annotationPort + "80": `{"protocol": "http"}`, annotationCheckType: "http"}, port("http", 80, 30080), port("tcp", 443, 30443), udp)
	w.Apply(s)
	s, status := w.ensure(s)
	found, _, err := listAll[*nodeBalancer](t.Context(), w.api, "NodeBalancers", "nodebalancers", body(map[string]string{"ipv4": status.Ingress[0].IP}))
	require.NoError(t, err)
	require.Len(t, found, 1, "by the address in the status")
	assert.Regexp(t, "^ccm-[0-9a-f]{12}$", found[0].Label)
	assert.Subset(t, found[0].Tags, []string{"kubernetes", "one"})

	before := snapshot(t, w.sim)
	d, err := w.api.details(t.Context(), found[0].ID)
	require.NoError(t, err)
	for _, c := range d.configs {
		fields := map[string]any{"port": c.Port, "algorithm": "roundrobin", "check_interval": 5, "check_timeout": 3, "check_attempts": 2, "proxy_protocol": "none"}
		switch c.Port {
		case 80:
			fields["protocol"], fields["stickiness"], fields["check"], fields["check_path"], fields["check_passive"] = "http", "table", "http", "/", true
		case 443:
			fields["protocol"], fields["check"], fields["check_path"], fields["check_passive"] = "tcp", "http", "/", true
		case 53:
			fields["protocol"], fields["stickiness"], fields["check"], fields["check_path"], fields["check_passive"], fields["udp_check_port"] = "udp", "session", "http", "/", false, 80
		}
		nodes := []map[string]any{}
		for _, n := range c.nodes {
			one := map[string]any{"id": n.ID, "address": n.Address, "label": n.Label, "weight": 100}
			if c.Port != 53 {
				one["mode"] = "accept"
			}
			nodes = append(nodes, one)
		}
		fields["nodes"] = nodes
		_, err := w.api.sendConfig(t.Context(), "rebuilding", http.MethodPost, fmt.Sprintf("nodebalancers/%d/configs/%d/rebuild", found[0].ID, c.ID), fields)
		require.NoError(t, err)
	}
	assert.Equal(t, before, snapshot(t, w.sim))
	w.restart()
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes, "and back again")
}

// TestFirewallOfSomebodyElse is neither changed nor deleted, with or without an access list, and holds nothing else up.
func TestFirewallOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wish func(*v1.Service)
		told string
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
			c.wish(s)
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
			assert.LessOrEqual(t, len(r.Label), mostRuleLabel)
			assert.LessOrEqual(t, len(r.Description), mostDescription)
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
	_, err = rules(1, 0)
	require.ErrorContains(t, err, "at most 15 ports")
}

// TestVPCOptions: what a NodeBalancer is attached to.
func TestVPCOptions(t *testing.T) {
	t.Parallel()
	var ids []int
	for name, c := range map[string]struct {
		flags, annotations map[string]string
		backend            string
		frontend           string
		refused            string
	}{
		"the first subnet":       {nil, nil, `[{"subnet_id":S0}]`, "null", ""},
		"a range":                {nil, map[string]string{annotationBackendRange: "10.0.8.0/30"}, `[{"subnet_id":S0,"ipv4_range":"10.0.8.0/30"}]`, "null", ""},
		"a range outside":        {map[string]string{"nodebalancer-backend-ipv4-subnet": "10.0.4.0/22"}, map[string]string{annotationBackendRange: "10.0.8.0/30"}, "", "", "is not inside --nodebalancer-backend-ipv4-subnet"},
		"a range that is wider":  {map[string]string{"nodebalancer-backend-ipv4-subnet": "10.0.4.0/22"}, map[string]string{annotationBackendRange: "10.0.4.0/20"}, "", "", "is not inside"},
		"a subnet by name":       {nil, map[string]string{annotationBackendSubnet: "spare"}, `[{"subnet_id":S1}]`, "null", ""},
		"an unknown subnet":      {nil, map[string]string{annotationBackendSubnet: "x"}, "", "", `VPC "cluster" has no subnet "x"`},
		"an unknown VPC":         {nil, map[string]string{annotationBackendVPC: "x"}, "", "", `no VPC has the label "x"`},
		"a subnet by ID":         {nil, map[string]string{annotationBackendSubnetID: "S1"}, `[{"subnet_id":S1}]`, "null", ""},
		"an option with an ID":   {map[string]string{"nodebalancer-backend-ipv4-subnet-id": "S1"}, nil, `[{"subnet_id":S1}]`, "null", ""},
		"an option with a label": {map[string]string{"nodebalancer-backend-ipv4-subnet-name": "spare"}, nil, `[{"subnet_id":S1}]`, "null", ""},
		"an option with a range": {map[string]string{"nodebalancer-backend-ipv4-subnet": "10.0.4.0/22"}, nil, `[{"subnet_id":S0,"ipv4_range":"10.0.4.0/22","ipv4_range_auto_assign":true}]`, "null", ""},
		"switched off":           {map[string]string{"disable-nodebalancer-vpc-backends": "true"}, nil, "null", "null", ""},
		"IPv6 backends":          {nil, map[string]string{annotationIPv6Backends: "true"}, "null", "null", ""},
		"a private frontend":     {nil, map[string]string{annotationFrontendSubnetID: "S1", annotationFrontendRangeV4: "10.1.0.0/30"}, `[{"subnet_id":S0}]`, `[{"subnet_id":S1,"ipv4_range":"10.1.0.0/30"}]`, ""},
		"a frontend by names":    {nil, map[string]string{annotationFrontendVPC: "cluster", annotationFrontendSubnet: "spare"}, `[{"subnet_id":S0}]`, `[{"subnet_id":S1}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			put := func(text string) string {
				return strings.NewReplacer("S0", strconv.Itoa(ids[0]), "S1", strconv.Itoa(ids[1])).Replace(text)
			}
			flags := map[string]string{"vpc-names": "cluster"}
			var sim *linodesim.Sim
			w := newTestWorld(t, flags, func(s *linodesim.Sim) {
				s.AddVPC("other", [2]string{"default", "10.9.0.0/16"})
				_, ids = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"}, [2]string{"spare", "10.1.0.0/16"})
				sim = s
			})
			require.NotNil(t, sim)
			for k, v := range c.flags {
				w.flags[k] = put(v)
			}
			w.restart()
			w.addNode(linodesim.Spec{Label: "worker", SubnetID: ids[0], Private: true})
			annotations := map[string]string{}
			for k, v := range c.annotations {
				annotations[k] = put(v)
			}
			s := service("web", annotations, port("http", 80, 30080))
			w.Apply(s)
			settings, err := w.loadBalancers.settings(s)
			require.NoError(t, err)
			backend, err := w.loadBalancers.backendVPCs(t.Context(), settings)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
				require.Error(t, err)
				assert.Empty(t, w.sim.NodeBalancers())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, put(c.backend), body(backend))
			frontend, err := w.loadBalancers.frontendVPCs(t.Context(), settings)
			require.NoError(t, err)
			assert.Equal(t, put(c.frontend), body(frontend))
		})
	}
}

// TestReservedAddress: it goes into the creation, and a later wish is an event.
func TestReservedAddress(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", map[string]string{annotationReservedIPv4: reservedIP}, port("http", 80, 30080))
	w.Apply(s)
	s, status := w.ensure(s)
	assert.Equal(t, reservedIP, status.Ingress[0].IP)
	s.Annotations[annotationReservedIPv4] = "198.19.200.8"
	s.Annotations[annotationType] = "premium"
	w.Apply(s)
	w.server.ResetCalls()
	_, again := w.ensure(s)
	assert.Equal(t, status, again)
	assert.Zero(t, w.server.Calls().Writes)
	told := strings.Join(w.Events(), "\n")
	assert.Contains(t, told, "Warning NodeBalancerIPChangeIgnored IPv4 annotation changed to 198.19.200.8, but NodeBalancer (")
	assert.Contains(t, told, `Warning LoadBalancerAnnotationFixed annotation `+annotationType+`: "premium" has no effect, it stays "common"`)

	other := service("other", map[string]string{annotationReservedIPv4: "198.19.200.9"}, port("http", 80, 30090))
	other.UID = "9c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"
	w.Apply(other)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", other, w.nodes)
	require.ErrorContains(t, err, "IPv4 address is not reserved")
}

// TestOneBadNodeHoldsNobodyUp: a node without an address that a NodeBalancer can use is left out.
func TestOneBadNodeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	w.sim.AddLinode(linodesim.Spec{Label: "public-only"})
	w.nodes = append(w.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "public-only"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "no-linode"}})
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	assert.Len(t, w.sim.NodeBalancers()[0].Configs()[0].Nodes(), 1)

	id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET /v4/linode/instances"})
	require.NoError(t, err)
	w.restart()
	require.Error(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes), "doubt never takes a backend out")
	w.server.RemoveFault(id)
}

// TestAddressesThatALinodeDoesNotHave: what a kubelet writes on its Node leads no traffic elsewhere.
func TestAddressesThatALinodeDoesNotHave(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	var subnets []int
	vw := newTestWorld(t, map[string]string{"vpc-names": "cluster"}, func(s *linodesim.Sim) {
		_, subnets = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"})
	})
	vw.addNode(linodesim.Spec{Label: "in-vpc", SubnetID: subnets[0]})
	for _, c := range []struct {
		w    *world
		with map[string]string
	}{{w, nil}, {w, map[string]string{annotationIPv6Backends: "true"}}, {vw, nil}} {
		clean := c.w.nodes[0].DeepCopy()
		s, _, err := parseSettings(service("web", c.with, port("http", 80, 30080)), c.w.config)
		require.NoError(t, err)
		want, err := c.w.loadBalancers.backends(t.Context(), s, []*v1.Node{clean})
		require.NoError(t, err)
		require.Len(t, want, 1)
		liar := clean.DeepCopy()
		liar.Annotations = map[string]string{annotationPrivateIP: "192.168.200.200", annotationPublicIPv6: "2001:db8:666::1/128"}
		liar.Status.Addresses = append([]v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.200.200"}, {Type: v1.NodeInternalIP, Address: "192.168.200.201"}}, liar.Status.Addresses...)
		got, err := c.w.loadBalancers.backends(t.Context(), s, []*v1.Node{liar})
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	// Among several addresses that it has, the Node chooses.
	id, err := parseProviderID(w.nodes[0].Spec.ProviderID)
	require.NoError(t, err)
	w.sim.ChangeLinode(id, func(l *linodesim.Linode) { l.IPv4 = append(l.IPv4, "192.168.140.9") })
	w.restart()
	chooses := w.nodes[0].DeepCopy()
	chooses.Annotations = map[string]string{annotationPrivateIP: "192.168.140.9"}
	got, err := w.loadBalancers.backends(t.Context(), settings{}, []*v1.Node{chooses})
	require.NoError(t, err)
	assert.Equal(t, "192.168.140.9", got[0].address.String())
}

// TestListingsThatLag: what a listing does not show yet is not made twice, and what it still shows is not there.
func TestListingsThatLag(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 2)
	s := service("web", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
	w.Apply(s)
	w.sim.FreezeListings()
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultLost, Operation: "POST /v4/nodebalancers", Count: 1})
	require.NoError(t, err)
	for range 3 { // the answer to the creation was lost, and no listing shows it
		_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.Error(t, err)
	}
	w.sim.ThawListings()
	w.restart()
	s, _ = w.ensure(s)
	assert.Len(t, w.sim.NodeBalancers(), 1)
	assert.Len(t, w.sim.Firewalls(), 1)

	w.sim.FreezeListings()
	w.restart()
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	for range 2 {
		require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s), "nothing is there, whatever the listing says")
		w.restart()
	}
	assert.Empty(t, w.sim.NodeBalancers())
	assert.Empty(t, w.sim.Firewalls())
}

// TestTakeover: the label says nothing about the Service, and nothing of ours is there: it is found by its address.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 2)
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := service("web", map[string]string{annotationTags: "one", annotationThrottle: "3", annotationFirewallACL: allowACL}, port("http", 80, 30080), udp)
	w.Apply(s)
	s, _ = w.ensure(s)
	// What Linode's own controller would have made differs in labels and tags alone.
	id, _ := strconv.Atoi(s.Annotations[annotationRecord])
	w.sim.ChangeNodeBalancer(id, func(nb *linodesim.NodeBalancer) { nb.Label, nb.Tags = "ccm-0f0f0f0f0f0f", nb.Tags[:2] })
	f := w.sim.Firewalls()[0]
	w.sim.ChangeFirewall(f.ID, func(f *linodesim.Firewall) { f.Label, f.Tags = "ccm-1f1f1f1f1f1f", f.Tags[:2] })
	delete(s.Annotations, annotationRecord)
	w.Apply(s)
	w.restart()
	w.server.ResetCalls()
	before := s.Status
	s, status := w.ensure(s)
	assert.Equal(t, before.LoadBalancer, *status)
	assert.Zero(t, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
	assert.Equal(t, strconv.Itoa(id), s.Annotations[annotationRecord])

	// Its firewall goes with it, though nothing leads from the Service to it once the NodeBalancer is gone.
	require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
	assert.Empty(t, w.sim.NodeBalancers())
	assert.Empty(t, w.sim.Firewalls())
}

// TestCreationIsIdempotent: the label is the same at every try, so that a lost answer makes no second one, and a label
// that somebody else has is not taken over.
func TestCreationIsIdempotent(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultLost, Operation: "POST /v4/nodebalancers", Count: 1})
	require.NoError(t, err)
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.Error(t, err)
	w.ensure(s)
	assert.Len(t, w.sim.NodeBalancers(), 1)
	assert.Equal(t, 1, w.server.Calls().ByOperation[http.MethodPost+" /v4/nodebalancers"])
	assert.Equal(t, "ccm-3c1f6b527a66", w.sim.NodeBalancers()[0].Label)

	w.sim.ChangeNodeBalancer(w.sim.NodeBalancers()[0].ID, func(nb *linodesim.NodeBalancer) { nb.Tags = []string{"anyccm:another"} })
	w.restart()
	other := service("other", nil, port("http", 80, 30080))
	w.Apply(other)
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", other, w.nodes)
	require.ErrorContains(t, err, "belongs to another cluster")
}

package gce

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestHealthChecksReachNewNodes: health check rules get a joining node's tag, as client rules do. Otherwise the node would be in the load
// balancer without traffic.
func TestHealthChecksReachNewNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, c := range cases() {
			w := newTestWorld(t, strings.Replace(usual, "node-tags = node\n", "", 1))
			w.addNode(gcesim.Spec{Name: "gke-a-1", Tags: []string{"gke-a"}})
			s, _ := w.ensure(w.apply(c.Service))
			time.Sleep(5 * time.Minute)
			w.addNode(gcesim.Spec{Name: "pool-b-1", Tags: []string{"pool-b"}})
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
			firewalls := w.sim.Objects("firewalls")
			assert.Len(t, firewalls, 2, name)
			for _, f := range firewalls {
				assert.Equal(t, []any{"gke-a", "pool-b"}, f["targetTags"], "%s: %s", name, f["name"])
			}
		}
	})
}

// TestFirewallWithoutTags: Google's own controller creates a rule for all instances of the network while there are no nodes. It is narrowed
// to the nodes.
func TestFirewallWithoutTags(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(internalService("web")))
		for _, f := range w.sim.Objects("firewalls") {
			w.sim.Edit("firewalls", fmt.Sprint(f["name"]), func(d map[string]any) { delete(d, "targetTags") })
		}
		w.restart()
		w.ensure(s)
		for _, f := range w.sim.Objects("firewalls") {
			assert.Equal(t, []any{"node"}, f["targetTags"], f["name"])
		}
	})
}

// TestDenyRule: the rule for clients keeps precedence over a deny rule of Google's own controller, nothing is written, and both are deleted
// with the Service.
func TestDenyRule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		lb := loadBalancerName("", s)
		w.sim.Edit("firewalls", "k8s-fw-"+lb, func(d map[string]any) { d["priority"] = 999.0 })
		w.sim.Put("global/firewalls/k8s-fw-"+lb+"-deny", map[string]any{
			"description": firewallDescription("default/web", ip), "network": "global/networks/cluster", "sourceRanges": []any{"0.0.0.0/0"},
			"destinationRanges": []any{ip}, "denied": []any{map[string]any{"IPProtocol": "all"}}, "priority": 1000.0, "targetTags": []any{"node"},
		})
		w.restart()
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		s, _ = w.ensure(w.write(s))
		w.holds("firewalls", "k8s-fw-"+lb, map[string]any{"priority": 999.0, "sourceRanges": []any{"192.0.2.0/24"}})
		s.Annotations = map[string]string{annotationTier: "Standard"}
		s, other := w.ensure(w.write(s))
		assert.NotEqual(t, ip, other)
		assert.Len(t, w.sim.Objects("firewalls"), 2, "what denies the former address is gone")
		w.sim.Put("global/firewalls/k8s-fw-"+lb+"-deny", map[string]any{
			"network": "global/networks/cluster", "destinationRanges": []any{other}, "denied": []any{map[string]any{"IPProtocol": "all"}}, "priority": 1000.0,
		})
		w.restart()
		require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		assert.Empty(t, w.sim.Objects("firewalls"))
	})
}

// TestSharedRuleSurvivesItsLastService: while the last load balancer is deleted, another one is created. In any order, the firewall rule of
// health checks exists afterwards.
func TestSharedRuleSurvivesItsLastService(t *testing.T) {
	for _, kind := range []string{"", "Internal"} {
		for tenths := range 60 {
			t.Run(fmt.Sprint(kind, tenths), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newTestWorld(t, usual)
					w.withIdentity()
					w.addNode(gcesim.Spec{Name: "n1"})
					two := manyServices(2)
					two[0].Annotations[annotationType], two[1].Annotations[annotationType] = kind, kind
					two[0], _ = w.ensure(w.apply(two[0]))
					w.apply(two[1])
					done := make(chan error)
					go func() { done <- w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", two[0]) }()
					time.Sleep(time.Duration(tenths) * 250 * time.Millisecond)
					w.ensure(two[1])
					require.NoError(t, <-done)
					var names []string
					for _, f := range w.sim.Objects("firewalls") {
						names = append(names, fmt.Sprint(f["name"]))
					}
					name := "k8s-0123456789abcdef-node-http-hc"
					if kind != "" {
						name = "k8s-0123456789abcdef-node-hc"
					}
					assert.Contains(t, names, name)
				})
			})
		}
	}
}

// TestPortWithinTheRange: a port between existing ones changes only the firewall rule.
func TestPortWithinTheRange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))))
		w.server.ResetCalls()
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("c", 81, 30081))
		w.ensure(w.write(s))
		calls := w.server.Calls()
		assert.Equal(t, 1, calls.Writes, "%v", calls.ByOperation)
		w.holds("firewalls", "k8s-fw-"+testLB, map[string]any{"allowed": allowTCP("80-81", "443")})
	})
}

// TestSourceRanges: a change of networks changes only the firewall rule. IPv6 networks are refused, but networks no longer listed are still
// removed.
func TestSourceRanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.7/24", "198.51.100.0/24"}
		w.server.ResetCalls()
		s, _ = w.ensure(w.write(s))
		assert.Equal(t, 1, w.server.Calls().Writes)
		w.holds("firewalls", "k8s-fw-"+testLB, map[string]any{"sourceRanges": []any{"192.0.2.0/24", "198.51.100.0/24"}})
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "2001:db8::/64"}
		w.server.ResetCalls()
		require.ErrorContains(t, w.refuse(s), "is not an IPv4 network")
		assert.Equal(t, 1, w.server.Calls().Writes)
		w.holds("firewalls", "k8s-fw-"+testLB, map[string]any{"sourceRanges": []any{"192.0.2.0/24"}})
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning LoadBalancerConfigError")
	})
}

// TestTagsOfNewNodes: the firewall rules have the tags of all nodes, including later ones. If a node's tags are unknown, the error names
// the setting, and no rule without tags is created.
func TestTagsOfNewNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, strings.Replace(usual, "node-tags = node\n", "", 1))
		w.addNode(gcesim.Spec{Name: "gke-a-1", Tags: []string{"gke-a", "other"}})
		for _, s := range []string{"web", "within"} {
			service := testService(s, conformance.Port("a", 80, 30080))
			if s == "within" {
				service.Annotations[annotationType] = "Internal"
				service.UID = "b4c1f6b5-27a6-64b5-88b4-b0a61c1f9e0a"
			}
			w.ensure(w.apply(service))
		}
		tags := func() (all []any) {
			for _, f := range w.sim.Objects("firewalls") {
				all = append(all, f["targetTags"])
			}
			return all
		}
		for _, list := range tags() {
			assert.Equal(t, []any{"gke-a"}, list)
		}
		time.Sleep(5 * time.Minute)
		w.addNode(gcesim.Spec{Name: "pool-b-1", Tags: []string{"pool-b"}})
		for _, name := range []string{"web", "within"} {
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(testService(name)), w.nodes))
		}
		traffic := 0
		for _, f := range w.sim.Objects("firewalls") {
			if !strings.Contains(fmt.Sprint(f["name"]), "-hc") {
				traffic++
				assert.Equal(t, []any{"gke-a", "pool-b"}, f["targetTags"], f["name"])
			}
		}
		assert.Equal(t, 2, traffic)

		w = newTestWorld(t, strings.Replace(usual, "node-tags = node\n", "", 1))
		w.addNode(gcesim.Spec{Name: "n1", Tags: []string{"another"}})
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.apply(testService("web", conformance.Port("a", 80, 30080))), w.nodes)
		require.Error(t, err)
		assert.Contains(t, strings.Join(w.Events(), "\n"), "node-tags")
		assert.Empty(t, w.sim.Objects("firewalls"))
	})
}

package gce

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// rule is the only forwarding rule.
func (w *world) rule() map[string]any {
	w.T.Helper()
	rules := w.sim.Objects("forwardingRules")
	require.Len(w.T, rules, 1)
	return rules[0]
}

// reserve makes a user's address.
func (w *world) reserve(name string, fields map[string]any) {
	w.sim.Put("regions/us-central1/addresses/"+name, fields)
}

// refuse reconciles a Service that cannot be served, and returns why.
func (w *world) refuse(s *v1.Service) error {
	w.T.Helper()
	_, err := w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.write(s), w.nodes)
	require.Error(w.T, err)
	return err
}

// TestForwardingRulesShowTheirCluster: the API takes labels in a call of their own alone. What Google's own controller made is marked
// with the first change that is made in any case, also where a creation was cut off before the mark.
func TestForwardingRulesShowTheirCluster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		mark, err := w.loadBalancers.reconciler.identity.Mark(t.Context())
		require.NoError(t, err)
		labels := map[string]any{labelCluster: strings.TrimPrefix(mark, markPrefix)}
		for _, s := range []*v1.Service{testService("web", conformance.Port("a", 80, 30080)), internalService("within")} {
			s, _ = w.ensure(w.apply(s))
			assert.Equal(t, labels, w.rule()["labels"])
			w.sim.Edit("forwardingRules", loadBalancerName("", s), func(d map[string]any) {
				d["labels"], d["labelFingerprint"] = map[string]any{"team": "blue"}, "another="
			})
			w.restart()
			w.server.ResetCalls()
			w.ensure(s)
			assert.Zero(t, w.server.Calls().Writes, "nothing else has to change")
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			s, _ = w.ensure(w.write(s))
			assert.Equal(t, map[string]any{"team": "blue", labelCluster: labels[labelCluster]}, w.rule()["labels"])
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		}
		w.restart()
		w.sim.Deny("POST forwardingRules/setLabels", true)
		s, _ := w.ensure(w.apply(testService("poor", conformance.Port("a", 80, 30080))))
		w.ensure(s)
		assert.NotContains(t, w.rule(), "labels", "the load balancer works without the right to mark it")
	})
}

// TestHealthChecksReachNewNodes: the rules of health checks get the tag of a joining node as those of clients do. Without it the node would
// be in the load balancer, and get nothing.
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

// TestFirewallWithoutTags: a rule for all instances of the network, which Google's own controller makes while there are no nodes, is
// narrowed to the nodes.
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

// TestReservedAddressStays: the address that a user reserved stays that of the load balancer when spec.loadBalancerIP is taken away, and
// whatever makes the forwarding rule again afterwards; it is never released.
func TestReservedAddressStays(t *testing.T) {
	for name, c := range map[string]struct {
		service func(string) *v1.Service
		address map[string]any
	}{
		"external": {
			func(name string) *v1.Service { return testService(name, conformance.Port("a", 80, 30080)) }, map[string]any{"address": "203.0.113.200"},
		},
		"internal": {internalService, map[string]any{
			"address": "10.128.0.200", "addressType": "INTERNAL", "subnetwork": "projects/my-project/regions/us-central1/subnetworks/nodes",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				w.reserve("mine", c.address)
				s := c.service("web")
				s.Spec.LoadBalancerIP = fmt.Sprint(c.address["address"])
				s, _ = w.ensure(w.apply(s))
				s.Spec.LoadBalancerIP = ""
				s, _ = w.ensure(w.write(s))
				for range 2 {
					s.Spec.Ports = append(s.Spec.Ports, conformance.Port(fmt.Sprint("p", len(s.Spec.Ports)), 9000+int32(len(s.Spec.Ports)), 30999))
					var ip string
					s, ip = w.ensure(w.write(s))
					assert.Equal(t, c.address["address"], ip)
				}
				require.Len(t, w.sim.Objects("addresses"), 1)
				assert.Equal(t, "mine", w.sim.Objects("addresses")[0]["name"])
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestAskedForItsOwnAddress: a Service that asks for the address that the cloud gave it keeps it when its forwarding rule is made again.
func TestAskedForItsOwnAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for _, s := range []*v1.Service{testService("web", conformance.Port("a", 80, 30080)), internalService("within")} {
			s, ip := w.ensure(w.apply(s))
			s.Spec.LoadBalancerIP = ip
			s.Spec.Ports = append(s.Spec.Ports, conformance.Port("p", 9000, 30999))
			s, after := w.ensure(w.write(s))
			assert.Equal(t, ip, after)
			assert.Empty(t, w.sim.Objects("addresses"))
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		}
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestNothingGoesForWhatIsRefused: an address or a subnet that the cloud refuses leaves the load balancer as it is, with its address.
func TestNothingGoesForWhatIsRefused(t *testing.T) {
	external := func() *v1.Service { return testService("web", conformance.Port("a", 80, 30080)) }
	within := func() *v1.Service { return internalService("web") }
	for name, c := range map[string]struct {
		service func() *v1.Service
		prepare func(w *world)
		change  func(s *v1.Service)
		says    string
	}{
		"of another load balancer": {external, func(w *world) {
			w.reserve("theirs", map[string]any{"address": "203.0.113.200"})
			w.sim.Put("regions/us-central1/targetPools/theirs", map[string]any{})
			w.sim.Put("regions/us-central1/forwardingRules/theirs", map[string]any{
				"IPAddress": "203.0.113.200", "portRange": "80-90", "target": "regions/us-central1/targetPools/theirs",
			})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.200" }, "is in use by forwarding rule theirs"},
		"of an instance": {external, func(w *world) {
			w.sim.AddInstance(gcesim.Spec{Name: "vm", Interfaces: []gcesim.Interface{{IP: "10.128.0.77", NAT: []string{"203.0.113.200"}}}})
			w.reserve("theirs", map[string]any{"address": "203.0.113.200"})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.200" }, "is in use by instance vm"},
		"an internal one": {external, func(w *world) {
			w.reserve("theirs", map[string]any{"address": "10.128.0.200", "addressType": "INTERNAL"})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.128.0.200" }, "is an internal address"},
		"outside of the subnet": {within, nil, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.99.0.9" }, "not within the range"},
		"of an instance of the subnet": {within, func(w *world) {
			w.sim.AddInstance(gcesim.Spec{Name: "vm", Interfaces: []gcesim.Interface{{IP: "10.128.0.77"}}})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.128.0.77" }, "in use by vm"},
		"a subnet that is not there": {within, nil, func(s *v1.Service) { s.Annotations[annotationSubnet] = "none" }, "subnetworks/none' was not found"},
		"of another subnet": {within, func(w *world) {
			w.sim.AddNetwork(gcesim.Project, "cluster", "backend", "10.140.0.0/20")
			w.reserve("theirs", map[string]any{
				"address": "10.140.0.9", "addressType": "INTERNAL", "subnetwork": "projects/my-project/regions/us-central1/subnetworks/backend",
			})
		}, func(s *v1.Service) { s.Spec.LoadBalancerIP = "10.140.0.9" }, "is an address of subnet backend"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				s, ip := w.ensure(w.apply(c.service()))
				if c.prepare != nil {
					c.prepare(w)
				}
				time.Sleep(time.Minute)
				c.change(s)
				require.ErrorContains(t, w.refuse(s), c.says)
				found := false
				for _, r := range w.sim.Objects("forwardingRules") {
					found = found || r["IPAddress"] == ip
				}
				assert.True(t, found, "the load balancer goes on with its address")
				for _, a := range w.sim.Objects("addresses") {
					assert.Equal(t, "theirs", a["name"])
				}
			})
		})
	}
}

// TestTwoServicesOfOneAddress: two load balancers may have one reserved address on different ports or protocols.
func TestTwoServicesOfOneAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		w.reserve("mine", map[string]any{"address": "203.0.113.200"})
		two := manyServices(2)
		two[1].Spec.Ports[0].Port = 443
		for i, s := range two {
			s.Spec.LoadBalancerIP = "203.0.113.200"
			two[i], _ = w.ensure(w.apply(s))
		}
		two[1].Spec.Ports[0].Protocol = v1.ProtocolUDP
		_, ip := w.ensure(w.write(two[1]))
		assert.Equal(t, "203.0.113.200", ip)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestLeftoverOfAnotherAddress: an address that Google's own controller left reserved for the load balancer, and that it does not have, is
// released; the load balancer keeps its own.
func TestLeftoverOfAnotherAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		w.reserve(loadBalancerName("", s), map[string]any{"address": "203.0.113.240"})
		w.sim.Edit("addresses", loadBalancerName("", s), func(d map[string]any) { d["description"] = serviceDescription("default/web") })
		w.restart()
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		_, after := w.ensure(w.write(s))
		assert.Equal(t, ip, after)
		assert.Empty(t, w.sim.Objects("addresses"))
	})
}

// TestTiers: another tier is another address, and the old one is free; without the annotation, what is there stays.
func TestTiers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		s.Annotations = map[string]string{annotationTier: "Standard"}
		s, other := w.ensure(w.write(s))
		assert.NotEqual(t, ip, other)
		assert.Equal(t, "STANDARD", w.rule()["networkTier"])
		assert.Empty(t, w.sim.Objects("addresses"))
		delete(s.Annotations, annotationTier)
		s = w.write(s)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		s, after := w.ensure(w.write(s))
		assert.Equal(t, other, after)
		w.reserve("premium", map[string]any{"address": "203.0.113.200"})
		time.Sleep(time.Minute)
		s.Annotations, s.Spec.LoadBalancerIP = map[string]string{annotationTier: "Standard"}, "203.0.113.200"
		require.ErrorContains(t, w.refuse(s), "belongs to the PREMIUM network tier; expected STANDARD")
		s.Spec.LoadBalancerIP = "203.0.113.201"
		require.ErrorContains(t, w.refuse(s), "is neither static nor assigned to the LB")
		assert.Equal(t, other, w.rule()["IPAddress"])
		delete(s.Annotations, annotationTier)
		s.Spec.LoadBalancerIP = "203.0.113.200"
		s, after = w.ensure(w.write(s))
		assert.Equal(t, "203.0.113.200", after)
		require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		assert.Len(t, w.sim.Objects("addresses"), 1, "a user's address is never released")
	})
}

// TestNotEmptied: nodes that nothing is known of, as where they have no provider ID and no instance, do not empty a load balancer; nodes
// without a provider ID are known by their names.
func TestNotEmptied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, kind := range []string{"", "Internal"} {
			w := newTestWorld(t, usual)
			w.addNode(gcesim.Spec{Name: "n1"})
			s := testService("web", conformance.Port("a", 80, 30080))
			s.Annotations[annotationType] = kind
			s, _ = w.ensure(w.apply(s))
			instances := func() int {
				if kind == "" {
					return len(w.sim.Objects("targetPools")[0]["instances"].([]any))
				}
				return len(w.members())
			}
			for _, nodes := range [][]*v1.Node{nil, {nodeNamed("other", "")}, {nodeNamed("far", "gce://my-project/europe-west1-b/n1")}} {
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, nodes)
				require.Error(t, err)
				require.Error(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nodes))
				assert.Equal(t, 1, instances())
			}
			time.Sleep(time.Minute)
			w.sim.AddInstance(gcesim.Spec{Name: "n2"})
			nodes := append([]*v1.Node{nodeNamed("n2.c.my-project.internal", "")}, w.nodes...)
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nodes))
			assert.Equal(t, 2, instances(), "it is known by its name, as Google's own controller knows it")
		}
	})
}

// TestDenyRule: where Google's own controller made a rule that denies all else, the rule that lets clients in stays before it, nothing is
// written, and both go with the Service.
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

// TestOrphanWithoutForwardingRule: what is left of a load balancer of either kind goes, also where its forwarding rule is gone already.
func TestOrphanWithoutForwardingRule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for name, c := range cases() {
			s, _ := w.ensure(w.apply(c.Service))
			lb := loadBalancerName("", s)
			w.sim.Edit("forwardingRules", lb, nil)
			require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
			w.restart()
			time.Sleep(time.Hour)
			found, err := w.Orphans(t.Context(), nil)
			require.NoError(t, err)
			if len(c.Service.Spec.LoadBalancerSourceRanges) > 0 { // its own health check is no proof whose it is
				assert.Empty(t, found, name)
				require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
				continue
			}
			require.Len(t, found, 1, name)
			require.NoError(t, w.DeleteOrphan(t.Context(), guard.Orphan{Kind: kindLoadBalancer, ID: lb, Name: found[0].Name}), name)
			for _, kind := range snapshotKinds {
				assert.Empty(t, w.sim.Objects(kind), "%s: %s", name, kind)
			}
		}
	})
}

// TestSharedRuleSurvivesItsLastService: while the last load balancer goes, another one is made. Whatever the order, the rule by which
// health checks reach the nodes is there afterwards.
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

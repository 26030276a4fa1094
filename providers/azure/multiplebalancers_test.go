package azure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// lbs is the configuration of several load balancers: that of the cluster, whose scale set is the usual one, and more.
func lbs(more ...map[string]any) map[string]any {
	list := []any{map[string]any{"name": "kubernetes", "primaryVMSet": azuresim.ScaleSet}}
	for _, m := range more {
		list = append(list, m)
	}
	return map[string]any{"loadBalancerBackendPoolConfigurationType": "nodeIP", "multipleStandardLoadBalancerConfigurations": list}
}

func lb2(more ...any) map[string]any {
	m := map[string]any{"name": "lb2", "primaryVMSet": "second"}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// severalWorld has two load balancers, two scale sets, and a node in each.
func severalWorld(t *testing.T, second map[string]any, test func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.sim.AddScaleSet("second", "Uniform", "", nil)
		w.set(lbs(second))
		w.join("n1")
		w.joinAs("m1", w.sim.AddInstanceTo("second", "m1"))
		test(w)
		assert.Empty(w, w.server.Calls().Refused)
	})
}

// onLB is the load balancer whose rules serve a Service.
func (w *world) onLB(s *v1.Service) (names []string) {
	for _, lb := range []string{"kubernetes", "lb2", "kubernetes-internal", "lb2-internal"} {
		if hasPart(parsed[loadBalancer](w.sim.Shown(lbID(lb))), baseName(s)) {
			names = append(names, lb)
		}
	}
	return names
}

func (w *world) poolAt(lb, name string) (list []string) {
	for _, a := range docs(byName(w.parts(lb, "backendAddressPools"), name), "properties", "loadBalancerBackendAddresses") {
		list = append(list, str(a, "name"))
	}
	return list
}

// TestServicesSpreadOverLoadBalancers: a new Service goes where none is, stays there, and an annotation moves it with its address.
func TestServicesSpreadOverLoadBalancers(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		first, second, third := webService(nil), webNumber(1, nil), webNumber(2, map[string]string{annotationInternal: "true"})
		w.Apply(first, second, third)
		w.ensure(first)
		w.ensure(second)
		w.ensure(third)
		assert.Equal(w, []string{"kubernetes"}, w.onLB(first))
		assert.Equal(w, []string{"lb2"}, w.onLB(second))
		assert.Equal(w, []string{"kubernetes-internal"}, w.onLB(third))
		assert.Equal(w, []string{"n1"}, w.poolAt("kubernetes", "kubernetes"))
		assert.Equal(w, []string{"m1"}, w.poolAt("lb2", "kubernetes"))
		w.restart()
		w.server.ResetCalls()
		for _, s := range []*v1.Service{first, second, third} {
			w.ensure(s)
		}
		assert.Zero(w, w.server.Calls().Writes)

		ip := w.Current(second).Status.LoadBalancer.Ingress
		w.change(second, func(s *v1.Service) { s.Annotations[annotationConfigs] = " Kubernetes , other" })
		assert.Equal(w, ip, w.ensure(second).Status.LoadBalancer.Ingress, "the address moves with it")
		assert.Equal(w, []string{"kubernetes"}, w.onLB(second))
		assert.Nil(w, w.sim.Shown(lbID("lb2")), "nothing is left there")
		inside := w.Current(third).Status.LoadBalancer.Ingress
		w.change(third, func(s *v1.Service) { s.Annotations[annotationConfigs] = "lb2" })
		assert.Equal(w, inside, w.ensure(third).Status.LoadBalancer.Ingress, "an internal one as well")
		assert.Equal(w, []string{"lb2-internal"}, w.onLB(third))
		w.change(third, func(s *v1.Service) { s.Annotations[annotationConfigs] = "nowhere,else" })
		require.ErrorContains(w, w.refuse(third), `service "default/web-2" selects 2 load balancers by annotation, but none of them is defined`)
		for _, s := range []*v1.Service{first, second, third} {
			w.remove(s)
		}
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestLoadBalancersForSomeServices: selectors by labels of Services and namespaces, and load balancers that are closed.
func TestLoadBalancersForSomeServices(t *testing.T) {
	t.Parallel()
	byLabel := map[string]any{"matchLabels": map[string]any{"team": "web"}}
	exists := map[string]any{"matchExpressions": []any{map[string]any{"key": "team", "operator": "Exists"}}}
	tenant := map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "default"}}
	for name, c := range map[string]struct {
		second map[string]any
		labels map[string]string
		want   string
	}{
		"label":                     {lb2("serviceLabelSelector", byLabel), map[string]string{"team": "web"}, "lb2"},
		"other label":               {lb2("serviceLabelSelector", byLabel), nil, "kubernetes"},
		"namespace":                 {lb2("serviceNamespaceSelector", tenant), nil, "lb2"},
		"namespace, but not label":  {lb2("serviceNamespaceSelector", tenant, "serviceLabelSelector", byLabel), nil, "kubernetes"},
		"closed":                    {lb2("allowServicePlacement", false, "serviceNamespaceSelector", tenant), nil, "kubernetes"},
		"key in another case":       {lb2("ServiceLabelSelector", byLabel), map[string]string{"team": "web"}, "lb2"},
		"labels of a namespace":     {lb2("serviceNamespaceSelector", map[string]any{"matchLabels": map[string]any{"tier": "gold"}}), nil, "lb2"},
		"others of a namespace":     {lb2("serviceNamespaceSelector", map[string]any{"matchLabels": map[string]any{"tier": "lead"}}), nil, "kubernetes"},
		"an expression":             {lb2("serviceLabelSelector", exists), map[string]string{"team": "x"}, "lb2"},
		"an empty selector is none": {lb2("serviceLabelSelector", map[string]any{}, "allowServicePlacement", false), nil, "kubernetes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			severalWorld(t, c.second, func(w *world) {
				_, err := w.Kube.CoreV1().Namespaces().Create(w.Context(), &v1.Namespace{
					ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"tier": "gold"}},
				}, metav1.CreateOptions{})
				require.NoError(w, err)
				s := webService(nil, func(s *v1.Service) { s.Labels = c.labels })
				w.Apply(s)
				w.ensure(s)
				assert.Equal(w, []string{c.want}, w.onLB(s))
			})
		})
	}
}

// TestConfigurationsWithoutThem: the annotation is told to have no effect where there is one load balancer.
func TestConfigurationsWithoutThem(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationConfigs: "lb2"})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		assert.Contains(w, strings.Join(w.Events(), "\n"), "multipleStandardLoadBalancerConfigurations is not set")
	})
}

// TestClosedLoadBalancerKeepsItsServices: what is there already stays.
func TestClosedLoadBalancerKeepsItsServices(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		s := webService(map[string]string{annotationConfigs: "lb2"})
		w.Apply(s)
		w.ensure(s)
		w.set(lbs(lb2("allowServicePlacement", false)))
		w.server.ResetCalls()
		w.ensure(s)
		assert.Equal(w, []string{"lb2"}, w.onLB(s))
		assert.Zero(w, w.server.Calls().Writes)
	})
}

// TestNamedAddressDecides: a Service that names another's address goes to its load balancer, or is told why it cannot.
func TestNamedAddressDecides(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		s := webService(map[string]string{annotationConfigs: "lb2"})
		w.Apply(s)
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		second := webNumber(1, map[string]string{annotationIPv4: ip}, func(s *v1.Service) { s.Spec.Ports[0].Port = 81 })
		w.Apply(second)
		w.ensure(second)
		assert.Equal(w, []string{"lb2"}, w.onLB(second))
		w.change(second, func(s *v1.Service) { s.Annotations[annotationConfigs] = "kubernetes" })
		require.ErrorContains(w, w.refuse(second), `service "default/web-1" has conflicting load balancer configuration`)
		w.change(second, func(s *v1.Service) { delete(s.Annotations, annotationConfigs) })
		w.change(s, func(s *v1.Service) { s.Annotations[annotationConfigs] = "kubernetes" })
		require.ErrorContains(w, w.refuse(s), `cannot migrate from load balancer "lb2" to "kubernetes" because frontend IP "`+base+`" is also referenced by other resources`)
		w.set(lbs(lb2("allowServicePlacement", false, "serviceLabelSelector", map[string]any{"matchLabels": map[string]any{"a": "b"}})))
		w.change(s, func(s *v1.Service) { s.Annotations = map[string]string{}; s.Labels = map[string]string{"a": "b"} })
		third := webNumber(2, map[string]string{annotationIPv4: ip}, func(s *v1.Service) { s.Spec.Ports[0].Port = 82 })
		w.Apply(third)
		require.ErrorContains(w, w.refuse(third), `specifies an IP that resides on load balancer "lb2", which is not in the eligible set`)
	})
}

// TestClusterNeedsALoadBalancer: one of the configurations has the name of the cluster.
func TestClusterNeedsALoadBalancer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		config := lbs(lb2())
		config["multipleStandardLoadBalancerConfigurations"] = config["multipleStandardLoadBalancerConfigurations"].([]any)[1:]
		w.set(config)
		s := webService(nil)
		w.Apply(s)
		w.server.ResetCalls()
		require.ErrorContains(w, w.refuse(s), `multiple standard load balancers are enabled but no configuration named "kubernetes" is found`)
		assert.Zero(w, w.server.Calls().Total)
	})
}

// TestNodesArePlaced: by scale set, by label, where they are, and else where the fewest are; one that changes leaves its old pool.
func TestNodesArePlaced(t *testing.T) {
	t.Parallel()
	gpu := map[string]any{"matchLabels": map[string]any{"gpu": "yes"}}
	severalWorld(t, lb2("nodeSelector", gpu), func(w *world) {
		first, second := webService(map[string]string{annotationConfigs: "kubernetes"}), webNumber(1, map[string]string{annotationConfigs: "lb2"})
		w.Apply(first, second)
		labelled := w.joinAs("alone", w.sim.AddMachine("alone"))
		labelled.Labels["gpu"] = "yes"
		plain := w.joinAs("plain", w.sim.AddMachine("plain"))
		w.ensure(first)
		w.ensure(second)
		assert.ElementsMatch(w, []string{"n1", "plain"}, w.poolAt("kubernetes", "kubernetes"))
		assert.ElementsMatch(w, []string{"m1", "alone"}, w.poolAt("lb2", "kubernetes"))
		delete(labelled.Labels, "gpu")
		plain.Labels["gpu"] = "yes"
		for _, s := range []*v1.Service{first, second} {
			w.update(s)
		}
		assert.ElementsMatch(w, []string{"n1", "alone"}, w.poolAt("kubernetes", "kubernetes"))
		assert.ElementsMatch(w, []string{"m1", "plain"}, w.poolAt("lb2", "kubernetes"))
		w.server.ResetCalls()
		for _, s := range []*v1.Service{first, second} {
			w.update(s)
			w.ensure(s)
		}
		assert.Zero(w, w.server.Calls().Writes)
	})
}

// TestNodesSpreadEvenly: those that nothing places go where the fewest are, and stay there.
func TestNodesSpreadEvenly(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		first, second := webService(nil), webNumber(1, nil)
		w.Apply(first, second)
		w.ensure(first)
		w.ensure(second)
		for i := range 4 {
			w.joinAs(fmt.Sprintf("x%d", i), w.sim.AddMachine(fmt.Sprintf("x%d", i)))
		}
		w.update(first)
		w.update(second)
		assert.ElementsMatch(w, []string{"n1", "x0", "x2"}, w.poolAt("kubernetes", "kubernetes"))
		assert.ElementsMatch(w, []string{"m1", "x1", "x3"}, w.poolAt("lb2", "kubernetes"))
		w.nodes = w.nodes[1:] // n1 is gone, and x1 has more room on the other side
		w.update(first)
		w.update(second)
		assert.ElementsMatch(w, []string{"x0", "x2"}, w.poolAt("kubernetes", "kubernetes"))
		assert.ElementsMatch(w, []string{"m1", "x1", "x3"}, w.poolAt("lb2", "kubernetes"), "a node stays where it is")
	})
}

// TestNodeWithoutALoadBalancer: an event tells of a node that is behind none.
func TestNodeWithoutALoadBalancer(t *testing.T) {
	t.Parallel()
	none := map[string]any{"matchLabels": map[string]any{"never": "there"}}
	inWorld(t, func(w *world) {
		config := lbs()
		config["multipleStandardLoadBalancerConfigurations"].([]any)[0].(map[string]any)["nodeSelector"] = none
		w.set(config)
		w.join("n1")
		w.joinAs("alone", w.sim.AddMachine("alone"))
		s := webService(nil)
		w.Apply(s)
		w.ensure(s)
		assert.Equal(w, []string{"n1"}, w.poolAt("kubernetes", "kubernetes"))
		assert.Contains(w, strings.Join(w.Events(), "\n"), "FailedToFindLoadBalancerForNode nodes alone are behind no load balancer")
	})
}

// endpointsOn are the EndpointSlices of the Service default/web, with an endpoint on each node.
func endpointsOn(nodes ...string) []*discovery.EndpointSlice {
	s := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-1", Labels: map[string]string{discovery.LabelServiceName: "web"},
	}}
	for _, n := range nodes {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{NodeName: &n})
	}
	return []*discovery.EndpointSlice{s}
}

// TestPoolOfAServiceAlone: where traffic stays on its node, a Service has the nodes with an endpoint, of whichever load balancer.
func TestPoolOfAServiceAlone(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		s := webService(nil, localTraffic, bothFamilies)
		w.Apply(s)
		require.ErrorContains(w, w.refuse(s), "EndpointSlices of the cluster are not known yet")
		w.slices = endpointsOn("m1")
		w.ensure(s)
		assert.Equal(w, []string{"m1"}, w.poolAt("kubernetes", "default-web"))
		assert.Equal(w, []string{"m1"}, w.poolAt("kubernetes", "default-web-ipv6"))
		assert.Equal(w, "default-web", nameOf(str(byName(w.parts("kubernetes", "loadBalancingRules"), webRule), "properties", "backendAddressPool", "id")))
		w.slices = endpointsOn("m1", "n1", "unknown")
		w.Events()
		w.server.ResetCalls()
		require.NoError(w, w.cloud.localPools(w.Context()))
		assert.ElementsMatch(w, []string{"m1", "n1"}, w.poolAt("kubernetes", "default-web"))
		assert.Equal(w, 1, w.server.Calls().Writes)
		assert.Contains(w, strings.Join(w.Events(), "\n"), "LoadBalancerBackendPoolUpdated")
		w.change(s, func(s *v1.Service) { s.Annotations = map[string]string{contract.AnnotationDisown: "true"} })
		w.slices = endpointsOn("m1")
		w.server.ResetCalls()
		require.NoError(w, w.cloud.localPools(w.Context()))
		assert.Zero(w, w.server.Calls().Writes, "it is disowned")
		w.change(s, func(s *v1.Service) { s.Annotations = nil })
		w.change(s, func(s *v1.Service) { s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = "Cluster", 0 })
		w.ensure(s)
		assert.ElementsMatch(w, []string{"kubernetes", "kubernetes-IPv6"}, namesOf(w.parts("kubernetes", "backendAddressPools")), "its own pools are gone")
		assert.Equal(w, []string{"n1"}, w.poolAt("kubernetes", "kubernetes"))
		w.change(s, localTraffic)
		w.ensure(s)
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestMoveInterrupted: a Service that moves to another load balancer gets there whichever call fails, and however. The fast tier breaks
// the writes.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	move := func(t *testing.T, fault *simkit.Fault, restart bool) (state string, calls []simkit.Call) {
		t.Helper()
		severalWorld(t, lb2(), func(w *world) {
			w.slices = endpointsOn("n1")
			s, other := webService(nil, localTraffic), webNumber(1, nil)
			w.Apply(s, other)
			w.ensure(s)
			w.ensure(other)
			w.change(s, func(s *v1.Service) { s.Annotations[annotationConfigs] = "lb2" })
			w.restart()
			w.server.ResetCalls()
			if fault != nil {
				_, err := w.server.AddFault(*fault)
				require.NoError(w, err)
			}
			_, err := w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes)
			calls = w.server.Calls().Latest
			if fault == nil {
				require.NoError(w, err)
			}
			w.server.ClearFaults()
			if restart {
				w.restart()
			}
			time.Sleep(2 * time.Minute)
			w.ensure(s)
			assert.Equal(w, []string{"lb2"}, w.onLB(s))
			state = w.sim.Snapshot()
			w.remove(s)
			w.remove(other)
			assert.Empty(w, w.sim.Snapshot())
		})
		return state, calls
	}
	want, calls := move(t, nil, false)
	require.Greater(t, len(calls), 8)
	for i, broken := range calls {
		if !broken.Write && !tier.All() {
			continue
		}
		call := i + 1
		for _, kind := range []string{simkit.FaultStatus, simkit.FaultStatusAfter} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("call %d, %s, restart %t", call, kind, restart), func(t *testing.T) {
					t.Parallel()
					got, _ := move(t, &simkit.Fault{Kind: kind, From: call, Count: 1}, restart)
					assert.Equal(t, want, got)
				})
			}
		}
	}
}

// slicesOf makes the EndpointSlices of the world those that a selector asks for, as the informer's lister does.
func (w *world) slicesOf(list ...*discovery.EndpointSlice) {
	w.slices = list
	w.cloud.reconciler.endpoints.list = func(sel labels.Selector) (list []*discovery.EndpointSlice, _ error) {
		for _, s := range w.slices {
			if sel.Matches(labels.Set(s.Labels)) {
				list = append(list, s)
			}
		}
		return list, nil
	}
}

func endpointSlice(namespace, service, node string) *discovery.EndpointSlice {
	return &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-x", Labels: map[string]string{discovery.LabelServiceName: service}},
		Endpoints:  []discovery.Endpoint{{NodeName: &node}},
	}
}

// poolsOfRules are the pools that the rules of a Service lead to.
func (w *world) poolsOfRules(s *v1.Service) (list []string) {
	for _, r := range w.parts("kubernetes", "loadBalancingRules") {
		if ownedBy(baseName(s), str(r, "name")) {
			list = append(list, nameOf(str(r, "properties", "backendAddressPool", "id")))
		}
	}
	return list
}

// TestPoolsOfLikeNames: Services whose names come to one name of a pool have pools of their own, whichever is served first.
func TestPoolsOfLikeNames(t *testing.T) {
	t.Parallel()
	type name struct{ namespace, name string }
	for title, c := range map[string][2]name{
		"one begins like the other": {{"default", "web"}, {"default", "web-1"}},
		"the dash is elsewhere":     {{"a-b", "c"}, {"a", "b-c"}},
		"one ends like a family":    {{"default", "web"}, {"default", "web-ipv6"}},
	} {
		for order, first := range map[string]int{"": 0, ", the younger first": 1} {
			t.Run(title+order, func(t *testing.T) {
				t.Parallel()
				severalWorld(t, lb2(), func(w *world) {
					w.slicesOf(endpointSlice(c[0].namespace, c[0].name, "n1"), endpointSlice(c[1].namespace, c[1].name, "m1"))
					var both []*v1.Service
					for n := range 2 {
						both = append(both, webNumber(n, map[string]string{annotationConfigs: "kubernetes"}, localTraffic, bothFamilies, func(s *v1.Service) {
							s.Namespace, s.Name = c[n].namespace, c[n].name
							s.Spec.HealthCheckNodePort += int32(n)
						}))
					}
					check := func(list ...int) {
						for _, n := range list {
							for _, p := range w.poolsOfRules(both[n]) {
								assert.NotContains(w, w.poolsOfRules(both[1-n]), p, "a pool for two")
								assert.Equal(w, [][]string{{"n1"}, {"m1"}}[n], w.poolAt("kubernetes", p), p)
							}
						}
					}
					w.Apply(both[first])
					w.ensure(both[first])
					w.Apply(both[1-first])
					w.ensure(both[1-first])
					w.ensure(both[first])
					check(0, 1)
					w.server.ResetCalls()
					time.Sleep(time.Minute)
					w.ensure(both[0])
					w.ensure(both[1])
					assert.Zero(w, w.server.Calls().Writes)
					w.remove(both[first])
					w.ensure(both[1-first])
					check(1 - first)
					w.remove(both[1-first])
					assert.Empty(w, w.sim.Snapshot())
				})
			})
		}
	}
}

// TestPoolsThatTwoServicesShared: where Azure's own controller gave two Services one pool, the one keeps it and the other gets its own.
func TestPoolsThatTwoServicesShared(t *testing.T) {
	t.Parallel()
	named := func(namespace, name string, uid types.UID) *v1.Service {
		return webService(nil, localTraffic, func(s *v1.Service) { s.Namespace, s.Name, s.UID = namespace, name, uid })
	}
	a, b := named("a-b", "c", "0000000a-0000-4000-8000-000000000000"), named("a", "b-c", "0000000b-0000-4000-8000-000000000000")
	c := &Config{standardLBs: []standardLB{{Name: "kubernetes"}}}
	rule := func(s *v1.Service) *lbRule {
		pool := subresource{ID: lbID("kubernetes") + "/backendAddressPools/a-b-c"}
		return &lbRule{subresource{Name: baseName(s) + "-TCP-80"}, lbRuleProperties{Pool: pool}}
	}
	known := []*v1.Service{a, b}
	for name, want := range map[string]struct {
		rules    []*lbRule
		ofA, ofB string
	}{
		"neither has it": {nil, joinedName(a), baseName(b)},
		"the first":      {[]*lbRule{rule(a)}, joinedName(a), baseName(b)},
		"the second":     {[]*lbRule{rule(b)}, baseName(a), joinedName(b)},
		"both":           {[]*lbRule{rule(a), rule(b)}, joinedName(a), baseName(b)},
	} {
		lb := &loadBalancer{}
		lb.Properties.Rules = want.rules
		lbs := []*loadBalancer{lb}
		assert.Equal(t, want.ofA, c.choosePools(a, known, lbs), name)
		assert.Equal(t, want.ofB, c.choosePools(b, known, lbs), name)
	}
}

// TestLongNamesOfPools: Azure takes 80 characters.
func TestLongNamesOfPools(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		namespace, name := strings.Repeat("n", 45), strings.Repeat("s", 50)
		w.slicesOf(endpointSlice(namespace, name, "n1"))
		s := webService(nil, localTraffic, bothFamilies, func(s *v1.Service) { s.Namespace, s.Name = namespace, name })
		w.Apply(s)
		w.ensure(s)
		for _, p := range w.poolsOfRules(s) {
			assert.Equal(w, []string{"n1"}, w.poolAt("kubernetes", p))
		}
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestLoadBalancerThatServesIsNotEmptied: a load balancer to which the configuration gives no node keeps the members that it has, and an
// event says so.
func TestLoadBalancerThatServesIsNotEmptied(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		s := webService(map[string]string{annotationConfigs: "lb2"})
		w.Apply(s)
		w.ensure(s)
		require.Equal(w, []string{"m1"}, w.poolAt("lb2", "kubernetes"))
		w.set(lbs(lb2("primaryVMSet", "misspelt", "nodeSelector", map[string]any{"matchLabels": map[string]any{"pool": "none"}})))
		w.server.ResetCalls()
		w.ensure(s)
		w.update(s)
		assert.Zero(w, w.server.Calls().Writes)
		assert.Equal(w, []string{"m1"}, w.poolAt("lb2", "kubernetes"))
		assert.Contains(w, strings.Join(w.Events(), "\n"), "no node is behind load balancer lb2")
	})
}

// TestPlanTellsARemovalOnce: a part that a Service left on another load balancer of its kind goes by one change, and first of all.
func TestPlanTellsARemovalOnce(t *testing.T) {
	t.Parallel()
	severalWorld(t, lb2(), func(w *world) {
		s := webService(map[string]string{annotationInternal: "true", annotationConfigs: "kubernetes"})
		w.Apply(s)
		s = w.ensure(s)
		front := w.parts("kubernetes-internal", "frontendIPConfigurations")[0]
		second := doc{"location": azuresim.Location, "sku": doc{"name": "Standard"}, "properties": doc{"frontendIPConfigurations": []any{doc{
			"name": str(front, "name"), "properties": doc{"subnet": value(front, "properties", "subnet"), "privateIPAllocationMethod": "Dynamic"},
		}}}}
		require.NoError(w, w.cloud.reconciler.resources.api.put(w.Context(), "lb2", lbID("lb2-internal"), networkVersion, second, ""))
		w.restart()
		plan, err := w.cloud.loadBalancers.PlanLoadBalancer(w.Context(), clusterName, s, w.nodes)
		require.NoError(w, err)
		require.Len(w, plan.Changes, 1)
		assert.Equal(w, "load balancer lb2-internal", plan.Changes[0].Object)
		w.ensure(s)
		assert.Equal(w, []string{"kubernetes-internal"}, w.onLB(s))
	})
}

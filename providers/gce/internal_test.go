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
	"github.com/anyccm/cloud-controller-manager/registry"
)

// originalsInternal creates an internal load balancer's objects as Google's own controller leaves them.
func originalsInternal(w *world, cluster, subnet string) {
	originalsBehind(w, cluster, subnet, testLB, `{"kubernetes.io/service-name":"default/web"}`)
}

// originalsBehind creates them with a backend service of this name.
func originalsBehind(w *world, cluster, subnet, backend, description string) {
	shared, groups := "k8s-"+cluster+"-node", "k8s-ig--"+cluster
	if cluster == "" {
		groups = "k8s-ig"
	}
	w.sim.Put("global/healthChecks/"+shared, map[string]any{
		"type": "HTTP", "httpHealthCheck": map[string]any{"port": 10256, "requestPath": "/healthz"}, "checkIntervalSec": 8, "timeoutSec": 1,
		"healthyThreshold": 1, "unhealthyThreshold": 3,
	})
	w.sim.Put("global/firewalls/"+shared+"-hc", map[string]any{
		"network": "global/networks/cluster", "targetTags": []any{"node"},
		"sourceRanges": []any{"130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"},
		"allowed":      []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"10256"}}},
	})
	w.sim.Put("zones/us-central1-a/instanceGroups/"+groups, map[string]any{})
	w.sim.Edit("instanceGroups", groups, func(d map[string]any) {
		d["members"], d["size"] = []any{"https://www.googleapis.com/compute/v1/projects/my-project/zones/us-central1-a/instances/n1"}, 1
	})
	w.sim.Put("regions/us-central1/backendServices/"+backend, map[string]any{
		"description": description, "protocol": "TCP", "loadBalancingScheme": "INTERNAL",
		"healthChecks": []any{"https://www.googleapis.com/compute/beta/projects/my-project/global/healthChecks/" + shared},
		"backends":     []any{map[string]any{"group": "zones/us-central1-a/instanceGroups/" + groups}},
	})
	w.sim.Put("regions/us-central1/forwardingRules/"+testLB, map[string]any{
		"description": `{"kubernetes.io/service-name":"default/web"}`, "IPProtocol": "TCP", "ports": []any{"80", "443"}, "loadBalancingScheme": "INTERNAL",
		"backendService": "regions/us-central1/backendServices/" + backend, "network": "global/networks/cluster", "subnetwork": subnet,
	})
	ip := w.sim.Objects("forwardingRules")[0]["IPAddress"]
	w.sim.Put("global/firewalls/k8s-fw-"+testLB, map[string]any{
		"description": fmt.Sprintf(`{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"%v"}`, ip), "network": "global/networks/cluster",
		"targetTags": []any{"node"}, "sourceRanges": []any{"0.0.0.0/0"}, "destinationRanges": []any{ip},
		"allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"80", "443"}}},
	})
}

// write changes a Service as a user does.
func (w *world) write(s *v1.Service) *v1.Service {
	w.T.Helper()
	_, err := w.Kube.CoreV1().Services(s.Namespace).Update(w.T.Context(), s, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	return s
}

// TestInternalTakeover: an internal load balancer of Google's own controller is taken over without a write, whatever the notation of the
// subnet.
func TestInternalTakeover(t *testing.T) {
	for _, subnet := range []string{
		"nodes", "regions/us-central1/subnetworks/nodes", "https://compute.googleapis.com/compute/v1/projects/my-project/regions/us-central1/subnetworks/nodes", "",
	} {
		t.Run(subnet, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, "[global]\nproject-id = my-project\nnetwork-name = cluster\nsubnetwork-name = "+subnet+
					"\nlocal-zone = us-central1-a\nregional = true\nnode-tags = node\n")
				w.withIdentity()
				w.addNode(gcesim.Spec{Name: "n1"})
				originalsInternal(w, usualID, "regions/us-central1/subnetworks/nodes")
				s := testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
				s.Annotations[annotationType] = "Internal"
				s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup", finalizerILB}
				w.apply(s)
				w.Kube.ClearActions()
				w.server.ResetCalls()
				for range 2 {
					status, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
					require.NoError(t, err)
					assert.Equal(t, w.sim.Objects("forwardingRules")[0]["IPAddress"], status.Ingress[0].IP)
					require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes))
					w.restart()
				}
				assert.Zero(t, w.server.Calls().Writes)
				for _, a := range w.Kube.Actions() {
					assert.Contains(t, []string{"get", "list"}, a.GetVerb())
				}
			})
		})
	}
}

// TestInternalAddressStays: the address survives every replacement of the forwarding rule, and no reservation remains.
func TestInternalAddressStays(t *testing.T) {
	for name, change := range map[string]func(*v1.Service){
		"six ports": func(s *v1.Service) {
			for i := range int32(5) {
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port(fmt.Sprint("p", i), 9000+i, 31000+i))
			}
		},
		"another protocol": func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP },
		"affinity":         func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
		"global access":    func(s *v1.Service) { s.Annotations[annotationGlobalAccess] = "true" },
		"local traffic": func(s *v1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30777
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.addNode(gcesim.Spec{Name: "n1"})
				s, ip := w.ensure(w.apply(internalService("web")))
				before := s.DeepCopy()
				for _, to := range []func(*v1.Service){change, func(s *v1.Service) { s.Spec, s.Annotations = before.Spec, before.Annotations }} {
					to(s)
					var after string
					s, after = w.ensure(w.write(s))
					assert.Equal(t, ip, after)
					assert.Empty(t, w.sim.Objects("addresses"))
					assert.Len(t, w.sim.Objects("healthChecks"), 1, "the other health check is gone")
					assert.Len(t, w.sim.Objects("firewalls"), 2)
				}
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestInternalSubnetGivesAnotherAddress: a Service that names a subnet gets its address there.
func TestInternalSubnetGivesAnotherAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.sim.AddNetwork(gcesim.Project, "cluster", "backend", "10.140.0.0/20")
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(internalService("web")))
		s.Annotations[annotationSubnet] = "backend"
		_, ip := w.ensure(w.write(s))
		assert.Contains(t, ip, "10.140.")
		assert.Len(t, w.sim.Objects("forwardingRules"), 1)
	})
}

// TestInternalDrainingSurvivesANodeEvent: user settings of the backend service stay.
func TestInternalDrainingSurvivesANodeEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(internalService("web")))
		name := fmt.Sprint(w.sim.Objects("backendServices")[0]["name"])
		w.sim.Edit("backendServices", name, func(d map[string]any) { d["connectionDraining"] = map[string]any{"drainingTimeoutSec": 77.0} })
		w.addNode(gcesim.Spec{Name: "n2", Zone: "us-central1-b"})
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
		s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		w.ensure(w.write(s))
		backend := w.sim.Objects("backendServices")[0]
		assert.Len(t, backend["backends"], 2)
		assert.Equal(t, "CLIENT_IP", backend["sessionAffinity"])
		assert.Equal(t, map[string]any{"drainingTimeoutSec": 77.0}, backend["connectionDraining"])
	})
}

// TestInternalZoneLosesItsLastNode: the zone's group leaves every backend service, and is then deleted.
func TestInternalZoneLosesItsLastNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		time.Sleep(time.Minute)
		w.addNode(gcesim.Spec{Name: "n2", Zone: "us-central1-b"})
		two := manyServices(2)
		for i, s := range two {
			s.Annotations[annotationType] = "Internal"
			two[i], _ = w.ensure(w.apply(s))
		}
		assert.Len(t, w.sim.Objects("instanceGroups"), 2)
		for i, s := range two {
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes[:1]))
			assert.Len(t, w.sim.Objects("instanceGroups"), 2-i)
		}
		for _, b := range w.sim.Objects("backendServices") {
			assert.Len(t, b["backends"], 1)
		}
	})
}

// TestInternalLostInstance: a Node without an instance does not block changes, and its zone's group leaves the load balancer.
func TestInternalLostInstance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		time.Sleep(time.Minute)
		lost := w.addNode(gcesim.Spec{Name: "n2", Zone: "us-central1-b"})
		s, ip := w.ensure(w.apply(internalService("web")))
		w.sim.RemoveInstanceByID(lost.Spec.ProviderID)
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		s, after := w.ensure(w.write(s))
		assert.Equal(t, ip, after)
		time.Sleep(2 * time.Minute)
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
		assert.Len(t, w.sim.Objects("backendServices")[0]["backends"], 1)
		assert.Len(t, w.sim.Objects("instanceGroups"), 1)
	})
}

// TestInternalNodeWithoutZoneLabel: the instance determines the zone, so the node stays in its group.
func TestInternalNodeWithoutZoneLabel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		node := w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(internalService("web")))
		delete(node.Labels, v1.LabelTopologyZone)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
	})
}

// TestPlanOfLeftovers: objects left by an internal load balancer are deleted, and the external one keeps its address.
func TestPlanOfLeftovers(t *testing.T) {
	for name, served := range map[string]bool{"an external load balancer": true, "a new Service": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.withIdentity()
				w.addNode(gcesim.Spec{Name: "n1"})
				s := w.apply(testService("web", conformance.Port("http", 80, 30080)))
				if served {
					s, _ = w.ensure(s)
				}
				w.sim.Put("global/healthChecks/"+sharedCheckName(usualID), map[string]any{
					"type": "HTTP", "httpHealthCheck": map[string]any{"port": 10256, "requestPath": "/healthz"},
				})
				s.Finalizers = append(s.Finalizers, finalizerILB)
				w.restart()
				plan, err := w.loadBalancers.PlanLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
				require.NoError(t, err)
				assert.Contains(t, fmt.Sprint(plan.Changes), "health check "+sharedCheckName(usualID))
				assert.NotContains(t, fmt.Sprint(plan.Findings), "with another address")
			})
		})
	}
}

// TestSchemeChanges: all objects of the former kind are deleted; a deletion together with the change leaves nothing.
func TestSchemeChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, _ := w.ensure(w.apply(internalService("web")))
		nothingLeft := func(kinds ...string) {
			for _, kind := range kinds {
				assert.Empty(t, w.sim.Objects(kind), kind)
			}
		}
		planSays := func(what string) {
			plan, err := w.loadBalancers.PlanLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			require.NoError(t, err)
			assert.Contains(t, fmt.Sprint(plan.Findings), what+" load balancer is made, with another address; the plan does not show it")
		}
		delete(s.Annotations, annotationType)
		planSays("an external")
		s, _ = w.ensure(w.write(s))
		nothingLeft("backendServices", "healthChecks", "instanceGroups", "addresses")
		assert.Equal(t, "EXTERNAL", w.sim.Objects("forwardingRules")[0]["loadBalancingScheme"])
		assert.NotContains(t, s.Finalizers, finalizerILB)

		s.Annotations = map[string]string{annotationType: "Internal"}
		planSays("an internal")
		s, _ = w.ensure(w.write(s))
		nothingLeft("targetPools", "httpHealthChecks", "addresses")
		delete(s.Annotations, annotationType)
		require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		nothingLeft("forwardingRules", "firewalls", "backendServices", "healthChecks", "instanceGroups", "addresses")
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestInternalCosts: with 20 Services a second reconciliation writes nothing and shares its reads; a joining node costs one write.
func TestInternalCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		list := manyServices(20)
		for i, s := range list {
			s.Annotations[annotationType] = "Internal"
			list[i], _ = w.ensure(w.apply(s))
		}
		time.Sleep(time.Hour)
		w.server.ResetCalls()
		for _, s := range list {
			w.ensure(s)
		}
		calls := w.server.Calls()
		assert.Zero(t, calls.Writes)
		assert.LessOrEqual(t, calls.Total, 9, "one listing of each kind, two reads of the group, the instances, and a token: %v", calls.ByOperation)
		w.addNode(gcesim.Spec{Name: "n2"})
		w.server.ResetCalls()
		for _, s := range list {
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
		}
		assert.Equal(t, 1, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
	})
}

// TestTheClustersSubnet: without subnetwork-name the subnet is found once for all Services. In an auto mode network it is the region's
// automatic one, whatever users added.
func TestTheClustersSubnet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, strings.Replace(usual, "subnetwork-name = nodes\n", "", 1))
		w.addNode(gcesim.Spec{Name: "n1"})
		w.sim.AddNetwork(gcesim.Project, "cluster", "backend", "172.16.0.0/20")
		const base = "https://www.googleapis.com/compute/v1/projects/my-project/regions/us-central1/subnetworks/"
		w.sim.Edit("networks", "cluster", func(d map[string]any) { d["subnetworks"] = []any{base + "backend", base + "nodes"} })
		s := w.apply(internalService("web"))
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.ErrorContains(t, err, "network cluster has 2 subnets in region us-central1 of which one could be the cluster's; name it by subnetwork-name")
		w.sim.Edit("networks", "cluster", func(d map[string]any) { d["autoCreateSubnetworks"] = true })
		time.Sleep(time.Hour)
		list := manyServices(20)
		for i, s := range list {
			s.Annotations[annotationType] = "Internal"
			var ip string
			list[i], ip = w.ensure(w.apply(s))
			assert.Contains(t, ip, "10.128.")
		}
		time.Sleep(time.Hour)
		w.server.ResetCalls()
		for _, s := range list {
			w.ensure(s)
		}
		calls := w.server.Calls()
		assert.Zero(t, calls.Writes)
		assert.Equal(t, 1, calls.ByOperation["GET networks/{name}"], "%v", calls.ByOperation)
	})
}

// TestBackendServiceOfIngress: an external forwarding rule with a backend service belongs to ingress-gce, whatever the Service says.
func TestBackendServiceOfIngress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		w.sim.Put("global/healthChecks/theirs", map[string]any{"type": "HTTP", "httpHealthCheck": map[string]any{"port": 80.0}})
		w.sim.Put("regions/us-central1/backendServices/theirs", map[string]any{
			"loadBalancingScheme": "EXTERNAL", "protocol": "TCP", "healthChecks": []any{"global/healthChecks/theirs"},
		})
		w.sim.Put("regions/us-central1/forwardingRules/"+testLB, map[string]any{
			"IPProtocol": "TCP", "ports": []any{"80"}, "backendService": "regions/us-central1/backendServices/theirs",
		})
		s := w.apply(testService("web", conformance.Port("a", 80, 30080)))
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.Error(t, err)
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
		require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
		assert.Zero(t, w.server.Calls().Writes)
	})
}

// TestStaleFingerprint: a write after a concurrent change of the backend service is refused, and repeated on the new content.
func TestStaleFingerprint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(internalService("web")))
		w.sim.Edit("backendServices", loadBalancerName("", s), func(d map[string]any) {
			d["fingerprint"], d["connectionDraining"] = "another=", map[string]any{"drainingTimeoutSec": 42}
		})
		s.Spec.SessionAffinity = "ClientIP"
		s = w.write(s)
		status, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		for range 3 {
			if err == nil {
				break
			}
			time.Sleep(15 * time.Second)
			status, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		}
		require.NoError(t, err)
		assert.Equal(t, ip, status.Ingress[0].IP)
		backend := w.sim.Objects("backendServices")[0]
		assert.Equal(t, "CLIENT_IP", backend["sessionAffinity"])
		assert.EqualValues(t, 42, backend["connectionDraining"].(map[string]any)["drainingTimeoutSec"])
	})
}

// TestInstanceInAnotherGroup: the API refuses an instance in another load balancer's group, and the error quotes it.
func TestInstanceInAnotherGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		const group = "zones/us-central1-a/instanceGroups/theirs"
		w.sim.Put(group, map[string]any{})
		w.sim.Edit("instanceGroups", "theirs", func(d map[string]any) {
			d["members"] = []any{"https://www.googleapis.com/compute/v1/" + hopTo("n1")}
		})
		w.sim.Put("global/healthChecks/theirs", map[string]any{"type": "HTTP", "httpHealthCheck": map[string]any{"port": 80.0}})
		w.sim.Put("regions/us-central1/backendServices/theirs", map[string]any{
			"loadBalancingScheme": "INTERNAL", "protocol": "TCP", "healthChecks": []any{"global/healthChecks/theirs"},
			"backends": []any{map[string]any{"group": group}},
		})
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.apply(internalService("web")), w.nodes)
		require.ErrorContains(t, err, "instance may belong to at most one load-balanced instance group")
		for _, g := range w.sim.Objects("instanceGroups") {
			if g["name"] == "theirs" {
				assert.Len(t, g["members"], 1, "it is not taken away from the other one")
			}
		}
	})
}

// TestSharedBackendTakeover: internal load balancers with a shared backend service are taken over without a write, keep it until the last
// one is deleted, and leave nothing.
func TestSharedBackendTakeover(t *testing.T) {
	for _, key := range []string{annotationShare, annotationAlphaShare} {
		t.Run(key, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTestWorld(t, usual)
				w.withIdentity()
				w.addNode(gcesim.Spec{Name: "n1"})
				name := "k8s-" + usualID + "-internal-tcp-nmv1-6eef6648406c333a"
				originalsBehind(w, usualID, "regions/us-central1/subnetworks/nodes", name, "")
				web := testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
				web.Annotations[annotationType], web.Annotations[key] = "Internal", "true"
				web.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup", finalizerILB}
				w.apply(web)
				w.server.ResetCalls()
				for range 2 {
					_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(web), w.nodes)
					require.NoError(t, err)
					require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(web), w.nodes))
					w.restart()
				}
				assert.Zero(t, w.server.Calls().Writes)

				other := manyServices(1)[0]
				other.Annotations = map[string]string{annotationType: "Internal", key: "true"}
				other, _ = w.ensure(w.apply(other))
				assert.Len(t, w.sim.Objects("backendServices"), 1)
				time.Sleep(time.Minute) // an earlier process may have created something until then
				w.server.ResetCalls()
				delete(other.Annotations, key)
				w.Current(w.write(other)) // its forwarding rule is unchanged
				require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", web))
				assert.Zero(t, w.server.Calls().ByOperation["DELETE backendServices/{name}"], "another load balancer has it")
				w.holds("backendServices", name, map[string]any{"protocol": "TCP"})
				assert.Len(t, w.sim.Objects("instanceGroups"), 1)
				other, _ = w.ensure(other)
				require.Len(t, w.sim.Objects("backendServices"), 1)
				assert.Equal(t, loadBalancerName("", other), w.sim.Objects("backendServices")[0]["name"], "it has one of its own, and nobody the shared one")
				require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", other))
				w.holdsNothing()
			})
		})
	}
}

// TestAnnotationsOfTheOtherKind: an annotation that only internal load balancers know is told of on an external one, and the reverse.
func TestAnnotationsOfTheOtherKind(t *testing.T) {
	t.Parallel()
	for kind, told := range map[string][]string{
		typeExternal: {annotationGlobalAccess, annotationSubnet, annotationShare}, "Internal": {annotationTier},
	} {
		warnings, err := checkService(registry.Inputs{}, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				annotationType: kind, annotationGlobalAccess: "true", annotationSubnet: "other", annotationShare: "true", annotationTier: "Premium",
			}},
			Spec: v1.ServiceSpec{Ports: []v1.ServicePort{{Port: 80, NodePort: 30080, Protocol: v1.ProtocolTCP}}},
		})
		require.NoError(t, err)
		var want []string
		for _, key := range told {
			condition := map[bool]string{true: "where", false: "unless"}[key == annotationTier]
			want = append(want, "annotation "+key+": has no effect "+condition+" "+annotationType+` is "internal"`)
		}
		require.Error(t, warnings)
		assert.Equal(t, strings.Join(want, "\n"), warnings.Error())
	}
}

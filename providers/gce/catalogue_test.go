package gce

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// crowd adds many instances with their nodes, in the first zone.
func (w *world) crowd(from, to int) {
	w.T.Helper()
	for i := from; i < to; i++ {
		name := fmt.Sprintf("n%04d", i)
		node := nodeNamed(name, w.sim.AddInstance(gcesim.Spec{Name: name}))
		w.nodes = append(w.nodes, node)
		w.Register(node)
	}
}

// TestManyMembers: a pool is made with as many instances as the call takes, and the rest follow in large steps.
func TestManyMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.crowd(0, 250)
		s, _ := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		calls := w.server.Calls()
		assert.Equal(t, 1, calls.ByOperation["POST targetPools"])
		assert.Equal(t, 1, calls.ByOperation["POST targetPools/{name}/addInstance"])
		assert.Len(t, w.sim.Objects("targetPools")[0]["instances"], 250)
		w.crowd(250, 2550)
		time.Sleep(5 * time.Minute)
		w.server.ResetCalls()
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes))
		calls = w.server.Calls()
		assert.Equal(t, 3, calls.ByOperation["POST targetPools/{name}/addInstance"])
		assert.Equal(t, 3, calls.Writes)
		assert.Len(t, w.sim.Objects("targetPools")[0]["instances"], 2550)
		assert.Empty(t, calls.Refused)
	})
}

// TestTagsOfNewNodes: the firewall rules name the tags of all nodes, also of those that join later; nodes whose tags cannot be told say
// which setting helps, and no rule without tags is made.
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

// TestRuleThatVanished: a forwarding rule that was deleted by hand keeps nothing else from being deleted.
func TestRuleThatVanished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for name, service := range cases() {
			s, _ := w.ensure(w.apply(service.Service))
			w.sim.Edit("forwardingRules", loadBalancerName("", s), nil)
			w.restart()
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s), name)
			for _, kind := range snapshotKinds {
				assert.Empty(t, w.sim.Objects(kind), "%s: %s", name, kind)
			}
		}
	})
}

// TestStaleFingerprint: somebody else changes the backend service between our look and our write; the write is refused, and made again
// on what is there by then.
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

// TestInstanceInAnotherGroup: an instance that another load balancer's group has is refused by the API, whose words the error has.
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

const (
	wayRoot    = "https://www.googleapis.com/compute/v1/projects/my-project/"
	wayShared  = "k8s-0123456789abcdef-node"
	wayService = `{"kubernetes.io/service-name":"default/web"}`
)

// holds compares fields of an object in the cloud.
func (w *world) holds(collection, name string, want map[string]any) {
	w.T.Helper()
	for _, o := range w.sim.Objects(collection) {
		if o["name"] != name {
			continue
		}
		for key, value := range want {
			assert.EqualValues(w.T, value, o[key], "%s %s: %s", collection, name, key)
		}
		return
	}
	assert.Fail(w.T, "missing", "%s %s", collection, name)
}

func allowTCP(ports ...any) []any { return []any{map[string]any{"IPProtocol": "tcp", "ports": ports}} }

func probes() []any {
	return []any{"130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"}
}

func wayTraffic(ip string) map[string]any {
	return map[string]any{
		"description": `{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"` + ip + `"}`, "allowed": allowTCP("80", "443"),
		"sourceRanges": []any{"0.0.0.0/0"}, "destinationRanges": []any{ip}, "targetTags": []any{"node"},
		"network": wayRoot + "global/networks/cluster", "priority": 1000.0,
	}
}

// wayCheck is a health check with the usual numbers.
func wayCheck(more map[string]any) map[string]any {
	all := map[string]any{"checkIntervalSec": 8.0, "timeoutSec": 1.0, "healthyThreshold": 1.0, "unhealthyThreshold": 3.0}
	maps.Copy(all, more)
	return all
}

// wayWorld has one node and the ID of the cluster, and a Service.
func wayWorld(t *testing.T) (*world, *v1.Service) {
	t.Helper()
	w := newTestWorld(t, usual)
	w.withIdentity()
	w.addNode(gcesim.Spec{Name: "n1"})
	return w, testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
}

// TestRollback: what is made for a Service is what Google's own controller compares with, field by field, so that it changes nothing when
// it comes back.
func TestRollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, s := wayWorld(t)
		s, ip := w.ensure(w.apply(s))
		w.holds("forwardingRules", testLB, map[string]any{
			"description": wayService, "IPAddress": ip, "IPProtocol": "TCP", "portRange": "80-443", "loadBalancingScheme": "EXTERNAL",
			"target": wayRoot + "regions/us-central1/targetPools/" + testLB, "networkTier": "PREMIUM",
		})
		w.holds("targetPools", testLB, map[string]any{
			"description": wayService, "sessionAffinity": "NONE", "healthChecks": []any{wayRoot + "global/httpHealthChecks/" + wayShared},
			"instances": []any{wayRoot + "zones/us-central1-a/instances/n1"},
		})
		w.holds("httpHealthChecks", wayShared, wayCheck(map[string]any{
			"description": `{"kubernetes.io/service-name":"` + wayShared + `"}`, "port": 10256.0, "requestPath": "/healthz",
		}))
		w.holds("firewalls", "k8s-fw-"+testLB, wayTraffic(ip))
		w.holds("firewalls", wayShared+"-http-hc", map[string]any{
			"description": `{"kubernetes.io/cluster-id":"0123456789abcdef"}`, "allowed": allowTCP("10256"), "sourceRanges": probes(), "priority": 1000.0,
		})
		assert.Empty(t, w.sim.Objects("addresses"))
		assert.Contains(t, s.Finalizers, finalizerNetLB)
	})
}

// TestRollbackInternal: the same of an internal load balancer.
func TestRollbackInternal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, s := wayWorld(t)
		s.Annotations[annotationType] = "Internal"
		s, ip := w.ensure(w.apply(s))
		w.holds("forwardingRules", testLB, map[string]any{
			"description": wayService, "IPProtocol": "TCP", "ports": []any{"80", "443"}, "loadBalancingScheme": "INTERNAL", "allowGlobalAccess": nil,
			"backendService": wayRoot + "regions/us-central1/backendServices/" + testLB, "network": wayRoot + "global/networks/cluster",
			"subnetwork": wayRoot + "regions/us-central1/subnetworks/nodes",
		})
		group := "zones/us-central1-a/instanceGroups/k8s-ig--0123456789abcdef"
		w.holds("backendServices", testLB, map[string]any{
			"description": wayService, "protocol": "TCP", "sessionAffinity": "NONE", "loadBalancingScheme": "INTERNAL",
			"healthChecks": []any{wayRoot + "global/healthChecks/" + wayShared},
			"backends":     []any{map[string]any{"group": wayRoot + group, "balancingMode": "CONNECTION"}},
		})
		w.holds("healthChecks", wayShared, wayCheck(map[string]any{
			"type": "HTTP", "httpHealthCheck": map[string]any{"port": 10256.0, "requestPath": "/healthz", "proxyHeader": "NONE"}, "description": nil,
		}))
		w.holds("firewalls", "k8s-fw-"+testLB, wayTraffic(ip))
		w.holds("firewalls", wayShared+"-hc", map[string]any{
			"allowed": allowTCP("10256"), "sourceRanges": probes(), "description": "", "targetTags": []any{"node"},
		})
		assert.Contains(t, s.Finalizers, finalizerILB)
	})
}

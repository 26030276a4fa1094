package gce

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

const (
	rollbackRoot        = "https://www.googleapis.com/compute/v1/projects/my-project/"
	sharedCheck         = "k8s-0123456789abcdef-node"
	rollbackDescription = `{"kubernetes.io/service-name":"default/web"}`
)

func allowTCP(ports ...any) []any { return []any{map[string]any{"IPProtocol": "tcp", "ports": ports}} }

func probes() []any {
	return []any{"130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"}
}

func trafficRule(ip string) map[string]any {
	return map[string]any{
		"description": `{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"` + ip + `"}`, "allowed": allowTCP("80", "443"),
		"sourceRanges": []any{"0.0.0.0/0"}, "destinationRanges": []any{ip}, "targetTags": []any{"node"},
		"network": rollbackRoot + "global/networks/cluster", "priority": 1000.0,
	}
}

// healthCheck returns a health check with the default numbers.
func healthCheck(more map[string]any) map[string]any {
	all := map[string]any{"checkIntervalSec": 8.0, "timeoutSec": 1.0, "healthyThreshold": 1.0, "unhealthyThreshold": 3.0}
	maps.Copy(all, more)
	return all
}

// newRollbackWorld has one node, the cluster's ID, and a Service.
func newRollbackWorld(t *testing.T) (*world, *v1.Service) {
	t.Helper()
	w := newTestWorld(t, usual)
	w.withIdentity()
	w.addNode(gcesim.Spec{Name: "n1"})
	return w, testService("web", conformance.Port("a", 80, 30080), conformance.Port("b", 443, 30443))
}

// TestRollback: created objects match Google's own controller's, field by field, so that it changes nothing after a rollback.
func TestRollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, s := newRollbackWorld(t)
		s, ip := w.ensure(w.apply(s))
		w.holds("forwardingRules", testLB, map[string]any{
			"description": rollbackDescription, "IPAddress": ip, "IPProtocol": "TCP", "portRange": "80-443", "loadBalancingScheme": "EXTERNAL",
			"target": rollbackRoot + "regions/us-central1/targetPools/" + testLB, "networkTier": "PREMIUM",
		})
		w.holds("targetPools", testLB, map[string]any{
			"description": rollbackDescription, "sessionAffinity": "NONE", "healthChecks": []any{rollbackRoot + "global/httpHealthChecks/" + sharedCheck},
			"instances": []any{rollbackRoot + "zones/us-central1-a/instances/n1"},
		})
		w.holds("httpHealthChecks", sharedCheck, healthCheck(map[string]any{
			"description": `{"kubernetes.io/service-name":"` + sharedCheck + `"}`, "port": 10256.0, "requestPath": "/healthz",
		}))
		w.holds("firewalls", "k8s-fw-"+testLB, trafficRule(ip))
		w.holds("firewalls", sharedCheck+"-http-hc", map[string]any{
			"description": `{"kubernetes.io/cluster-id":"0123456789abcdef"}`, "allowed": allowTCP("10256"), "sourceRanges": probes(), "priority": 1000.0,
		})
		assert.Empty(t, w.sim.Objects("addresses"))
		assert.Contains(t, s.Finalizers, finalizerNetLB)
	})
}

// TestRollbackInternal: the same for an internal load balancer.
func TestRollbackInternal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, s := newRollbackWorld(t)
		s.Annotations[annotationType] = "Internal"
		s, ip := w.ensure(w.apply(s))
		w.holds("forwardingRules", testLB, map[string]any{
			"description": rollbackDescription, "IPProtocol": "TCP", "ports": []any{"80", "443"}, "loadBalancingScheme": "INTERNAL", "allowGlobalAccess": nil,
			"backendService": rollbackRoot + "regions/us-central1/backendServices/" + testLB, "network": rollbackRoot + "global/networks/cluster",
			"subnetwork": rollbackRoot + "regions/us-central1/subnetworks/nodes",
		})
		group := "zones/us-central1-a/instanceGroups/k8s-ig--0123456789abcdef"
		w.holds("backendServices", testLB, map[string]any{
			"description": rollbackDescription, "protocol": "TCP", "sessionAffinity": "NONE", "loadBalancingScheme": "INTERNAL",
			"healthChecks": []any{rollbackRoot + "global/healthChecks/" + sharedCheck},
			"backends":     []any{map[string]any{"group": rollbackRoot + group, "balancingMode": "CONNECTION"}},
		})
		w.holds("healthChecks", sharedCheck, healthCheck(map[string]any{
			"type": "HTTP", "httpHealthCheck": map[string]any{"port": 10256.0, "requestPath": "/healthz", "proxyHeader": "NONE"}, "description": nil,
		}))
		w.holds("firewalls", "k8s-fw-"+testLB, trafficRule(ip))
		w.holds("firewalls", sharedCheck+"-hc", map[string]any{
			"allowed": allowTCP("10256"), "sourceRanges": probes(), "description": "", "targetTags": []any{"node"},
		})
		assert.Contains(t, s.Finalizers, finalizerILB)
	})
}

package gce

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestTokenBodyIsNeverShown: whatever prints the configuration leaves the secret out.
func TestTokenBodyIsNeverShown(t *testing.T) {
	t.Parallel()
	c, _, err := parseConfig(testInputs(usual+"token-url = https://tokens.example.com/\ntoken-body = \"the-secret\"\n", nil))
	require.NoError(t, err)
	assert.Equal(t, "the-secret", c.TokenBody.Reveal())
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v %s", c, c, c, c.TokenBody), "the-secret")
}

// TestEndpointWithoutFinalSlash: the SDK would cut off what follows the last slash.
func TestEndpointWithoutFinalSlash(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"https://compute.example.com/compute/v1", "https://compute.example.com/compute/v1/"} {
		c, warnings, err := parseConfig(testInputs(usual+"api-endpoint = "+text+"\n", nil))
		require.NoError(t, err)
		require.NoError(t, warnings)
		assert.Equal(t, "https://compute.example.com/compute/v1/", c.Endpoint)
	}
}

// TestPortWithinTheRange: a port between those that are there changes the firewall rule alone.
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

// TestSourceRanges: other networks are a change of the firewall rule alone; an IPv6 network among them is refused, and what is asked for no
// longer closes all the same.
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

// TestSharedCheckInUse: what another process's load balancer uses stays when our last one goes, and that is no failure.
func TestSharedCheckInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, kind := range []string{"", "Internal"} {
			w := newTestWorld(t, usual)
			w.withIdentity()
			w.addNode(gcesim.Spec{Name: "n1"})
			s := testService("web", conformance.Port("a", 80, 30080))
			s.Annotations[annotationType] = kind
			s, _ = w.ensure(w.apply(s))
			if kind == "" {
				w.sim.Put("regions/us-central1/targetPools/theirs", map[string]any{"healthChecks": []any{"global/httpHealthChecks/" + wayShared}})
			} else {
				w.sim.Put("regions/us-central1/backendServices/theirs", map[string]any{
					"loadBalancingScheme": "INTERNAL", "protocol": "TCP", "healthChecks": []any{"global/healthChecks/" + wayShared},
					"backends": []any{map[string]any{"group": "zones/us-central1-a/instanceGroups/k8s-ig--0123456789abcdef"}},
				})
			}
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			assert.Len(t, append(w.sim.Objects("httpHealthChecks"), w.sim.Objects("healthChecks")...), 1)
			firewalls := w.sim.Objects("firewalls")
			require.Len(t, firewalls, 1, "its firewall rule stays with it")
			assert.Contains(t, firewalls[0]["name"], wayShared)
			assert.Empty(t, w.sim.Objects("forwardingRules"))
			if kind != "" {
				assert.Len(t, w.members(), 1, "the other one's instances stay")
			}
			_, exists, err := w.loadBalancers.GetLoadBalancer(t.Context(), "kubernetes", w.Current(s))
			require.NoError(t, err)
			assert.False(t, exists)
		}
	})
}

// TestBackendServiceOfIngress: an external forwarding rule with a backend service is ingress-gce's, whatever the Service says.
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

// TestLocalTrafficThenClusterIP: a Service with local traffic that is no load balancer any more has lost what told of its own health
// check; that goes all the same.
func TestLocalTrafficThenClusterIP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for _, c := range []string{"rich", "withinRich"} {
			s, _ := w.ensure(w.apply(cases()[c].Service))
			s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceTypeClusterIP, "", 0
			w.restart()
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			for _, kind := range snapshotKinds {
				assert.Empty(t, w.sim.Objects(kind), "%s: %s", c, kind)
			}
		}
	})
}

// TestRateLimitAsksNobody: a firewall rule of a shared network that is refused for the limit of a minute is made in the next one, and no
// administrator is asked for it.
func TestRateLimitAsksNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, strings.Replace(usual, "subnetwork-name = nodes\n", "network-project-id = host-project\n", 1))
		w.sim.AddNetwork(gcesim.HostProject, "cluster", "nodes", "10.130.0.0/20")
		w.addNode(gcesim.Spec{Name: "n1"})
		w.sim.Throttle("POST firewalls", 3)
		began := time.Now()
		w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		assert.Less(t, time.Since(began), 10*time.Minute)
		assert.Len(t, w.sim.Objects("firewalls"), 2)
		assert.NotContains(t, strings.Join(w.Events(), "\n"), eventByHand)
	})
}

// TestOperationErrors: what shows in the result of an operation alone means what it means in an answer.
func TestOperationErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		status int64
		class  error
	}{
		"RESOURCE_NOT_FOUND":                  {404, cloudapi.ErrNotFound},
		"RESOURCE_ALREADY_EXISTS":             {409, cloudapi.ErrConflict},
		"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": {400, cloudapi.ErrConflict},
		"RESOURCE_NOT_READY":                  {400, cloudapi.ErrConflict},
		"CONDITION_NOT_MET":                   {412, cloudapi.ErrConflict},
		"QUOTA_EXCEEDED":                      {403, cloudapi.ErrQuota},
		"RATE_LIMIT_EXCEEDED":                 {403, cloudapi.ErrRateLimited},
		"INVALID_FIELD_VALUE":                 {400, cloudapi.ErrInvalid},
		"SOMETHING_NEW":                       {503, cloudapi.ErrTransient},
		"WITHOUT_A_STATUS":                    {0, cloudapi.ErrTransient},
	} {
		o := &compute.Operation{Status: statusDone, HttpErrorStatusCode: want.status, Error: &compute.OperationError{
			Errors: []*compute.OperationErrorErrors{{Code: code, Message: "the words of the cloud"}},
		}}
		err := operationError(o, "doing it")
		require.ErrorIs(t, err, want.class, code)
		require.ErrorContains(t, err, code+" - the words of the cloud")
	}
	require.NoError(t, operationError(&compute.Operation{Status: statusDone}, "doing it"))
}

// TestFinalizerThatIsForbidden: the error names the right that is missing.
func TestFinalizerThatIsForbidden(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		w.Kube.PrependReactor("patch", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource("services/status"), "web", errors.New("no"))
		})
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.apply(testService("web", conformance.Port("a", 80, 30080))), w.nodes)
		require.ErrorContains(t, err, "grant patch on services/status")
	})
}

// TestUsersAddressOfItsName: a user's address that has the name of the load balancer is neither taken nor released, and the load balancer
// does not lose its own for it.
func TestUsersAddressOfItsName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		s, ip := w.ensure(w.apply(testService("web", conformance.Port("a", 80, 30080))))
		w.reserve(testLB, map[string]any{"address": "203.0.113.200", "description": "mine"})
		time.Sleep(time.Minute)
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(t, w.server.Calls().Writes)
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
		require.ErrorContains(t, w.refuse(s), "delete or rename address "+testLB)
		assert.Equal(t, ip, w.rule()["IPAddress"])
		require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", w.Current(s)))
		assert.Len(t, w.sim.Objects("addresses"), 1)
	})
}

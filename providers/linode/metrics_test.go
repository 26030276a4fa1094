package linode

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/testutil"

	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// TestEveryCallHasItsOldName: the calls of a Service's life are all counted under the names of Linode's own controller.
func TestEveryCallHasItsOldName(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil, nil)
	w.addNode(linodesim.Spec{Label: "worker", Private: true})
	s := service("web", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	w.ensure(s)
	require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
	for operation := range w.server.Calls().ByOperation {
		assert.NotEmpty(t, methodOf(operation), operation)
	}
	created, err := testutil.GetCounterMetricValue(requestsTotal.WithLabelValues("CreateNodeBalancer", "ok"))
	require.NoError(t, err)
	assert.Positive(t, created)
	assert.Empty(t, methodOf("GET /v4/unknown"))
	for _, path := range []string{
		"/v4/nodebalancers/7/../../account", "/v4/unknown/x", "/", "/v4/nodebalancers/x", "/V4/nodebalancers",
		"/" + strings.Repeat("v", 99) + "/nodebalancers",
	} {
		assert.Equal(t, "other", operation(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}}), path)
	}
	assert.Equal(t, "GET /v4/networking/reserved/ips/{id}", operation(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/v4/networking/reserved/ips/198.51.100.7"}}))
	assert.True(t, strings.HasPrefix(methodOf("GET /v4beta/nodebalancers/{id}"), "Get"))
}

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// endpoint says how a monitor scrapes.
type endpoint struct {
	Scheme, Path, Port string
	TLSConfig          struct{ InsecureSkipVerify bool } `json:"tlsConfig"`
	Authorization      struct {
		Type        string
		Credentials struct{ Name, Key string }
	}
}

// TestMonitors: with what a ServiceMonitor and a PodMonitor of the chart contain, and nothing else, the metrics can be scraped; without
// a token, or by an account that may not, they cannot. The account that scrapes may do nothing else.
func TestMonitors(t *testing.T) {
	c := newCluster(t, "--instances=1")
	values := harness.Values{}.Set("metrics.serviceMonitor.enabled", true).Set("metrics.podMonitor.enabled", true)
	chart, err := c.ChartValues(t.Context())
	require.NoError(t, err)
	objects, err := c.Render(t.Context(), "cloud-controller-manager", chart.Set("metrics", values["metrics"]))
	require.NoError(t, err)
	monitors := map[string]*unstructured.Unstructured{}
	var known []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == "ServiceMonitor" || o.GetKind() == "PodMonitor" {
			monitors[o.GetKind()] = o
			continue
		}
		known = append(known, o)
	}
	require.Len(t, monitors, 2)
	require.NoError(t, c.Apply(t.Context(), known))
	m := startRelease(t, c, values, nil, nil)
	for kind, list := range map[string]string{"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"} {
		e := endpointOf(t, monitors[kind], list)
		assert.Equal(t, "https", e.Port, "the name of the port in the Service and in the pods")
		namespace := monitors[kind].GetNamespace()
		token := tokenOf(t, c, namespace, e.Authorization.Credentials.Name, e.Authorization.Credentials.Key)
		code, text := scrape(t, m, e, token)
		assert.Equal(t, http.StatusOK, code, "%s: %s", kind, text)
		assert.Contains(t, text, "anyccm_build_info{", kind)
		code, _ = scrape(t, m, e, "")
		assert.Equal(t, http.StatusForbidden, code, "nobody reads the metrics without a token")
	}
	roles, err := c.Kube.RbacV1().ClusterRoles().Get(t.Context(), "kube-system:cloud-controller-manager:metrics", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, roles.Rules)
}

func endpointOf(t *testing.T, monitor *unstructured.Unstructured, list string) endpoint {
	t.Helper()
	all, found, err := unstructured.NestedSlice(monitor.Object, "spec", list)
	require.NoError(t, err)
	require.True(t, found)
	require.Len(t, all, 1)
	content, ok := all[0].(map[string]any)
	require.True(t, ok)
	assert.NotContains(t, content, "bearerTokenFile", "the operator refuses it where it keeps Prometheus' own files to itself")
	var e endpoint
	text, err := json.Marshal(content)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &e))
	return e
}

// tokenOf plays the controller that writes the token of a ServiceAccount into a Secret for it, which no controller does here.
func tokenOf(t *testing.T, c *harness.Cluster, namespace, name, key string) string {
	t.Helper()
	secret, err := c.Kube.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, v1.SecretTypeServiceAccountToken, secret.Type)
	require.Equal(t, v1.ServiceAccountTokenKey, key)
	hour := int64(3600)
	token, err := c.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), secret.Annotations[v1.ServiceAccountNameKey],
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return token.Status.Token
}

// scrape reads the metrics as Prometheus does by an endpoint.
func scrape(t *testing.T, m *harness.CCM, e endpoint, token string) (code int, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: e.TLSConfig.InsecureSkipVerify},
	}}
	defer client.CloseIdleConnections()
	ask := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://127.0.0.1:%d%s", e.Scheme, m.Port, e.Path), nil)
		if err != nil {
			return err
		}
		if token != "" {
			r.Header.Set("Authorization", e.Authorization.Type+" "+token)
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		code, text = resp.StatusCode, string(body)
		if err == nil && token != "" && code != http.StatusOK {
			err = fmt.Errorf("HTTP %d: %s", code, text) // the authorizer hears of a new role a moment later
		}
		return err
	}
	require.NoError(t, harness.Eventually(t.Context(), patience, "a scrape", ask))
	return code, text
}

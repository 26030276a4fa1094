package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// ask sends a request to the program's own server with a token, or with none.
func ask(t *testing.T, m *harness.CCM, method, path, token, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, m.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp.StatusCode
}

// requireNoPiece: neither a text nor what a dump of it in lines of 16 bytes would show is in the log.
func requireNoPiece(t *testing.T, log, secret, what string) {
	t.Helper()
	const piece = 10
	require.Greater(t, len(secret), piece)
	for i := range len(secret) - piece + 1 {
		if strings.Contains(log, secret[i:i+piece]) {
			require.Fail(t, "the log holds a piece of "+what)
		}
	}
}

// TestNoTokenOrKeyInTheLog: at the highest verbosity, from the start or set while the program runs, the token of whoever asks
// for metrics and the private key of a TLS Secret that is served stay out of the log.
func TestNoTokenOrKeyInTheLog(t *testing.T) {
	t.Parallel()
	for name, level := range map[string]string{"from the start": "-v=10", "while it runs": "-v=2"} {
		t.Run(name, func(t *testing.T) {
			c := newClusterOn(t, "linode", "--instances=1")
			values := harness.Values{"readSecrets": true}
			_, err := c.Install(t.Context(), "cloud-controller-manager", values)
			require.NoError(t, err)
			m := startRelease(t, c, values, []string{level, "--profiling=true"}, nil)
			require.Equal(t, http.StatusOK, ask(t, m, http.MethodPut, "/debug/flags/v", c.API.Token, "10"))
			joinNodes(t, c, 1)

			certificate, err := os.ReadFile(filepath.Join(c.API.Dir, "server.crt"))
			require.NoError(t, err)
			key, err := os.ReadFile(filepath.Join(c.API.Dir, "server.key"))
			require.NoError(t, err)
			_, err = c.Kube.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), &v1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "web-tls"}, Type: v1.SecretTypeTLS, Data: map[string][]byte{
					v1.TLSCertKey: certificate, v1.TLSPrivateKeyKey: key,
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			_, err = c.CreateService(t.Context(), "web", map[string]string{"service.beta.kubernetes.io/linode-loadbalancer-port-80": `{"protocol": "https", "tls-secret-name": "web-tls"}`})
			require.NoError(t, err)
			_, err = c.WaitServed(t.Context(), "web", patience)
			require.NoError(t, err)

			token := tokenThatIsRefused
			require.Equal(t, http.StatusUnauthorized, ask(t, m, http.MethodGet, "/metrics", token, ""))
			require.Equal(t, http.StatusOK, ask(t, m, http.MethodGet, "/metrics", c.API.Token, ""))
			text, err := os.ReadFile(m.Log)
			require.NoError(t, err)
			log := string(text)
			for _, kind := range []string{"Request", "Response"} {
				if !strings.Contains(log, `"`+kind+` Body" body="not logged, `) { // the log itself would be a long message
					assert.Fail(t, "the log is not at that verbosity, or has the body of a "+kind)
				}
			}
			requireNoPiece(t, log, c.API.Token, "the token of an administrator")
			requireNoPiece(t, log, token, "a refused token")
			requireNoPiece(t, log, testToken, "the cloud's token")
			lines := strings.Split(strings.TrimSpace(string(key)), "\n")
			requireNoPiece(t, log, strings.Join(lines[1:len(lines)-1], `\n`), "a private key")
			requireNoPiece(t, log, base64.StdEncoding.EncodeToString(key), "a private key in base64")
		})
	}
}

// tokenThatIsRefused may be one that is valid elsewhere.
const tokenThatIsRefused = "wr0ng-t0k3n-0f-s0m3b0dy-3ls3-9f8e7d6c"

// TestMetricsNeedAToken: health is open to kubelet, and everything else wants a token with the right to read it.
func TestMetricsNeedAToken(t *testing.T) {
	c := newCluster(t, "--instances=1")
	m := startCCM(t, c, []string{"--profiling=true"}, nil)
	assert.Equal(t, http.StatusOK, ask(t, m, http.MethodGet, "/healthz", "", ""))
	for _, path := range []string{"/metrics", "/configz", "/debug/flags/v", "/debug/pprof/cmdline"} {
		assert.Equal(t, http.StatusForbidden, ask(t, m, http.MethodGet, path, "", ""), path)
		assert.Equal(t, http.StatusUnauthorized, ask(t, m, http.MethodGet, path, tokenThatIsRefused, ""), path)
	}
	assert.Equal(t, http.StatusOK, ask(t, m, http.MethodGet, "/metrics", c.API.Token, ""))
	assert.Equal(t, http.StatusForbidden, ask(t, m, http.MethodPut, "/debug/flags/v", "", "10"))
}

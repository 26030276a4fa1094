package digitalocean

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHealthPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, status := 0, error(nil)
		page := &healthPage{check: func(context.Context) error { calls++; return status }}
		probe := func() (int, string) {
			answer := httptest.NewRecorder()
			page.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
			return answer.Code, answer.Body.String()
		}
		for range 3 {
			code, body := probe()
			assert.Equal(t, http.StatusOK, code)
			assert.Empty(t, body)
			time.Sleep(9 * time.Second)
		}
		assert.Equal(t, 1, calls, "probes every few seconds do not use the account's calls up")
		status = errors.New("reading the account: not authorized")
		time.Sleep(9 * time.Second)
		code, body := probe()
		assert.Equal(t, http.StatusInternalServerError, code)
		assert.Contains(t, body, "not authorized")
	})
}

// freeAddress is a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// TestServers: the pages of DigitalOcean's own controller, on the addresses of its options, until the end.
func TestServers(t *testing.T) {
	t.Parallel()
	debug, metrics := freeAddress(t), freeAddress(t)
	w := newTestWorld(t, map[string]string{"DEBUG_ADDR": debug, "METRICS_ADDR": metrics, envFirewallName: "fw", envFirewallTags: "worker"})
	stop := make(chan struct{})
	w.startServers(stop)
	w.firewall()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(url string) (int, string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	code, body, err := get("http://" + debug + "/healthz")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code)
	assert.Empty(t, body)

	f := w.firewall()
	f.services = w.Services()
	require.NoError(t, f.api.createTag(t.Context(), "worker"))
	w.converge(f)
	code, body, err = get("http://" + metrics + "/metrics")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code)
	for _, line := range []string{
		`firewall_api_operations_total{http_response_code="202",operation="create",result="succeeded"}`,
		`firewall_api_operation_duration_seconds_bucket{http_response_code="202",operation="create",result="succeeded",le="5.5"}`,
		`firewall_resource_syncs_total{result="updated"}`,
		`firewall_resource_sync_duration_seconds_bucket{result="updated",le="16"}`,
		`firewall_reconciles_total{error_type="",result="reconciled"}`,
		`firewall_reconcile_duration_seconds_bucket{error_type="",result="reconciled",le="16"}`,
		"anyccm_cloud_api_requests_total",
	} {
		assert.Contains(t, body, line)
	}
	close(stop)
	require.Eventually(t, func() bool {
		_, _, err := get("http://" + debug + "/healthz")
		return err != nil
	}, 10*time.Second, 10*time.Millisecond)
}

func TestOptionsOfServersAndFirewall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env     map[string]string
		refused string
	}{
		"none":               {nil, ""},
		"both":               {map[string]string{envFirewallName: "fw", envFirewallTags: "a, b:c"}, ""},
		"a name alone":       {map[string]string{envFirewallName: "fw"}, "belong together; set both or none"},
		"tags alone":         {map[string]string{envFirewallTags: "a"}, "belong together; set both or none"},
		"an illegal name":    {map[string]string{envFirewallName: "-fw", envFirewallTags: "a"}, `"-fw" is not a firewall name`},
		"an illegal tag":     {map[string]string{envFirewallName: "fw", envFirewallTags: "a,b c"}, `holds "b c", which is not a tag`},
		"too many tags":      {map[string]string{envFirewallName: "fw", envFirewallTags: "a,b,c,d,e,f"}, "must hold 1 to 5 tags"},
		"any interface":      {map[string]string{"METRICS_ADDR": ":9090", "DEBUG_ADDR": "0.0.0.0:8080"}, ""},
		"a port alone":       {map[string]string{"METRICS_ADDR": "9090"}, `environment variable METRICS_ADDR: "9090" is not host:port`},
		"no port":            {map[string]string{"DEBUG_ADDR": "localhost"}, `environment variable DEBUG_ADDR: "localhost" is not host:port`},
		"a port of a name":   {map[string]string{"DEBUG_ADDR": "localhost:http"}, "is not host:port"},
		"a port out of sort": {map[string]string{"DEBUG_ADDR": ":70000"}, "is not host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Description().Validate(testInputs("http://127.0.0.1", c.env))
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refused)
		})
	}
}

package nsx

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// TestSimulatorServesVSpheresController: the simulated NSX takes the sequence of requests by which vSphere's own controller makes a route,
// finds it again and deletes it.
func TestSimulatorServesVSpheresController(t *testing.T) {
	t.Parallel()
	_, server := nsxsim.New(nsxsim.Options{User: "admin", Password: "password"})
	ask := func(method, path string, body any, status int) (answer struct{ Results []map[string]any }) {
		t.Helper()
		data, err := json.Marshal(body)
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), method, nsxsim.API+path, bytes.NewReader(data))
		r.SetBasicAuth("admin", "password")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		require.Equal(t, status, w.Code, "%s %s: %s", method, path, w.Body)
		if status == http.StatusOK && method == http.MethodGet {
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		}
		return answer
	}
	search := func(cluster string) []map[string]any {
		query := `resource_type:StaticRoutes AND tags.scope:vsphere.k8s.io\/cluster-name AND tags.tag:` + cluster
		return ask(http.MethodGet, "/search/query?query="+url.QueryEscape(query), nil, http.StatusOK).Results
	}
	assert.Empty(t, search("c1"))
	for _, cluster := range []string{"c1", "c2"} {
		at := nsxsim.Tier1 + "/static-routes/" + cluster + "_10.96.0.0_24"
		ask(http.MethodPatch, at, map[string]any{
			"display_name": cluster + "_node-1_10.96.0.0/24", "network": "10.96.0.0/24", "next_hops": []any{map[string]any{"ip_address": "10.0.0.4"}},
			"tags": []any{
				map[string]any{"scope": "vsphere.k8s.io/cluster-name", "tag": cluster}, map[string]any{"scope": "vsphere.k8s.io/node-name", "tag": "node-1"},
			},
		}, http.StatusOK)
		realized := ask(http.MethodGet, "/infra/realized-state/realized-entities?intent_path="+url.QueryEscape(at), nil, http.StatusOK).Results
		require.NotEmpty(t, realized)
		assert.Equal(t, "REALIZED", realized[0]["state"])
		assert.Equal(t, []any{at}, realized[0]["intent_paths"])
	}
	found := search("c1")
	require.Len(t, found, 1)
	assert.Equal(t, "c1_10.96.0.0_24", found[0]["id"])
	assert.Equal(t, "10.96.0.0/24", found[0]["network"])
	ask(http.MethodDelete, nsxsim.Tier1+"/static-routes/c1_10.96.0.0_24", nil, http.StatusOK)
	assert.Empty(t, search("c1"))
	for _, query := range []string{"resource_type", "resource_type:StaticRoutes AND tags.scope:a/b", "color:red"} {
		ask(http.MethodGet, "/search/query?query="+url.QueryEscape(query), nil, http.StatusBadRequest)
	}
}

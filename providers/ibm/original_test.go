package ibm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// document is an answer as the API has it.
type document = map[string]any

// send makes a call as IBM's own controller does, and returns the answer.
func send(t testing.TB, server *simkit.Server, token, method, path string, body any, status int) (answer document) {
	t.Helper()
	w := sendAny(t, server, token, method, path, body)
	require.Equal(t, status, w.Code, "%s %s: %s", method, path, w.Body)
	if w.Body.Len() > 0 {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	}
	return answer
}

// sendAny is send whatever the answer is.
func sendAny(t testing.TB, server *simkit.Server, token, method, path string, body any) *httptest.ResponseRecorder {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), method, path+"?version=2026-01-01&generation=2", bytes.NewReader(data))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

// login gets a token for an API key.
func login(t testing.TB, server *simkit.Server) string {
	t.Helper()
	form := url.Values{"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "apikey": {testKey}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/identity/token", bytes.NewBufferString(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	var answer struct {
		Token string `json:"access_token"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer.Token
}

// TestSimulatorServesIBMsController: the simulator takes the sequences of requests that IBM's own controller sends.
func TestSimulatorServesIBMsController(t *testing.T) {
	t.Parallel()
	sim, server := ibmsim.New(testKey, 0)
	token := login(t, server)
	ask := func(method, path string, body any, status int) document {
		return send(t, server, token, method, "/v1"+path, body, status)
	}

	// At its start it asks the region where the API is, and then for its VPC and subnets.
	region := ask(http.MethodGet, "/regions/"+ibmsim.Region, nil, http.StatusOK)
	assert.Equal(t, "http://example.com", region["endpoint"])
	ask(http.MethodGet, "/regions/elsewhere", nil, http.StatusNotFound)
	vpcs := ask(http.MethodGet, "/vpcs", nil, http.StatusOK)["vpcs"].([]any)
	require.Len(t, vpcs, 2)
	vpc := vpcs[0].(document)
	assert.Equal(t, ibmsim.VPC, vpc["name"])
	assert.Equal(t, vpc, ask(http.MethodGet, "/vpcs/"+vpc["id"].(string), nil, http.StatusOK))
	group := ask(http.MethodGet, "/vpcs/"+vpc["id"].(string)+"/default_security_group", nil, http.StatusOK)
	assert.Equal(t, group["id"], vpc["default_security_group"].(document)["id"])
	ask(http.MethodGet, "/vpcs/r006-none", nil, http.StatusNotFound)
	for _, n := range ask(http.MethodGet, "/subnets", nil, http.StatusOK)["subnets"].([]any) {
		assert.Equal(t, n, ask(http.MethodGet, "/subnets/"+n.(document)["id"].(string), nil, http.StatusOK))
	}
	ask(http.MethodGet, "/subnets/0717-none", nil, http.StatusNotFound)

	// A node that joins or leaves is one member of each pool.
	subnets := []any{document{"id": sim.Subnets()[0].ID}}
	lb := "/load_balancers/" + ask(http.MethodPost, "/load_balancers", document{
		"name": "kube-cluster-uid", "is_public": true, "subnets": subnets, "pools": []any{document{
			"name": "tcp-80-30080", "protocol": "tcp", "algorithm": "round_robin",
			"members":        []any{document{"port": 30080, "target": document{"address": "10.0.0.4"}}},
			"health_monitor": document{"type": "tcp", "delay": 5, "max_retries": 2, "timeout": 2, "port": 30080},
		}},
	}, http.StatusCreated)["id"].(string)
	pool := lb + "/pools/" + sim.LoadBalancers()[0].Pools[0].ID
	assert.Equal(t, "tcp-80-30080", ask(http.MethodGet, pool, nil, http.StatusOK)["name"])
	node := document{"port": 30080, "target": document{"address": "10.0.0.5"}}
	member := pool + "/members/" + ask(http.MethodPost, pool+"/members", node, http.StatusCreated)["id"].(string)
	shown := ask(http.MethodGet, member, nil, http.StatusOK)
	assert.Equal(t, node["target"], shown["target"])
	ask(http.MethodPost, pool+"/members", node, http.StatusBadRequest)
	assert.Len(t, ask(http.MethodGet, pool, nil, http.StatusOK)["members"], 2)
	ask(http.MethodDelete, member, nil, http.StatusAccepted)
	ask(http.MethodGet, member, nil, http.StatusNotFound)
	ask(http.MethodDelete, member, nil, http.StatusNotFound)
	left := ask(http.MethodGet, pool+"/members", nil, http.StatusOK)["members"].([]any)
	require.Len(t, left, 1)
	assert.Equal(t, document{"address": "10.0.0.4"}, left[0].(document)["target"])
}

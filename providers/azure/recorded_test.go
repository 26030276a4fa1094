package azure

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// recordedKind is how Azure answers about a kind of resources.
type recordedKind struct {
	Answers map[string]recordedAnswer `json:"answers"`
	Fields  map[string][]string       `json:"fields"`
}

type recordedAnswer struct {
	Headers []string `json:"headers"`
	Code    string   `json:"code"`
	Details []string `json:"details"`
}

// typesOf adds the type of every field of an answer, by its path.
func typesOf(v any, path string, types map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		types[path] = "object"
		for key, inner := range v {
			typesOf(inner, strings.TrimPrefix(path+"."+key, "."), types)
		}
	case []any:
		types[path] = "list"
		for _, inner := range v {
			typesOf(inner, path+"[]", types)
		}
	case string:
		types[path] = "text"
	case bool:
		types[path] = "flag"
	case float64:
		types[path] = "number"
	default:
		types[path] = "null"
	}
}

// TestSimulatorAnswersAsRecorded: the simulator answers the calls of the recordings as Azure did: status, headers, codes, and every field
// of a resource with its type.
func TestSimulatorAnswersAsRecorded(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/recorded.yaml")
	require.NoError(t, err)
	var recorded struct {
		Kinds map[string]recordedKind `json:"kinds"`
	}
	require.NoError(t, yaml.Unmarshal(data, &recorded))
	require.Len(t, recorded.Kinds, 6)
	for kind, want := range recorded.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			replay(t, kind, want)
		})
	}
}

// player makes the calls of a recording.
type player struct {
	testing.TB
	server *simkit.Server
	want   recordedKind
	played []string
}

// play makes a call and holds its answer to the recorded one.
func (p *player) play(method, what, path string, body any, header ...string) doc {
	p.Helper()
	data, err := json.Marshal(body)
	require.NoError(p, err)
	r := httptest.NewRequestWithContext(p.Context(), method, path+"?api-version=2025-05-01", strings.NewReader(string(data)))
	r.Header.Set("Authorization", "Bearer any")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.server.ServeHTTP(w, r)
	step := strings.Join([]string{method, what, http.StatusText(w.Code)}, " ")
	for key := range p.want.Answers {
		if parts := strings.Fields(key); parts[0] == method && parts[1] == what && parts[2] == statusText(w.Code) {
			step = key
		}
	}
	answer, known := p.want.Answers[step]
	require.True(p, known, "%s: Azure never answered so: %s", step, w.Body)
	p.played = append(p.played, step)
	for _, h := range answer.Headers {
		assert.NotEmpty(p, w.Header().Get(h), "%s: header %s", step, h)
	}
	var shown doc
	if w.Body.Len() > 0 {
		require.NoError(p, json.Unmarshal(w.Body.Bytes(), &shown))
	}
	assert.Equal(p, answer.Code, str(shown, "error", "code"), step)
	var details []string
	for _, d := range docs(shown, "error", "details") {
		details = append(details, str(d, "code"))
	}
	assert.Equal(p, answer.Details, details, step)
	return shown
}

func statusText(code int) string {
	data, _ := json.Marshal(code) // a number
	return string(data)
}

// replay makes the calls of the recording of a kind in their order.
func replay(t *testing.T, kind string, want recordedKind) {
	t.Helper()
	sim, server := azuresim.New("", 0)
	sim.AddAddress("public")
	p := &player{TB: t, server: server, want: want}
	id := azuresim.ID(kind, "resource")
	listing := strings.TrimSuffix(id, "/resource")
	body := map[string]doc{
		"Microsoft.Network/loadBalancers": {"sku": doc{"name": "Standard", "tier": "Regional"}, "properties": doc{"frontendIPConfigurations": []any{
			part("front", doc{"publicIPAddress": doc{"id": pipID("public")}}),
		}}},
		"Microsoft.Network/networkInterfaces": {"properties": doc{"ipConfigurations": []any{part("config", doc{"privateIPAllocationMethod": "Dynamic", "subnet": doc{
			"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network, "subnets", azuresim.Subnet),
		}})}}},
		"Microsoft.Network/virtualNetworks": {"properties": doc{
			"addressSpace": doc{"addressPrefixes": []any{"10.0.0.0/16"}}, "subnets": []any{part("subnet", doc{"addressPrefix": "10.0.0.0/24"})},
		}},
	}[kind]
	if body == nil {
		body = doc{}
	}
	body["location"] = azuresim.Location
	p.play(http.MethodPut, "one", id, body)
	shown := p.play(http.MethodGet, "one", id, nil)
	p.play(http.MethodGet, "one", id+"notfound", nil)
	if _, twice := want.Answers["PUT one 200"]; twice {
		p.play(http.MethodPut, "one", id, body)
	}
	if _, outdated := want.Answers["PUT one 412"]; outdated {
		p.play(http.MethodPut, "one", id, body, "If-Match", "invalid")
	}
	list := p.play(http.MethodGet, "listing", listing, nil)
	p.play(http.MethodGet, "listing", strings.Replace(listing, azuresim.Group, "notfound", 1), nil)
	p.play(http.MethodDelete, "one", id, nil)
	for step := range want.Answers {
		assert.Contains(t, p.played, step, "of the recording")
	}
	listed := byName(docs(list, "value"), "resource")
	for _, d := range []doc{shown, listed} {
		types := map[string]string{}
		typesOf(d, "", types)
		for _, kindOf := range sortedKeys(want.Fields) {
			for _, path := range slices.Sorted(slices.Values(want.Fields[kindOf])) {
				assert.Equal(t, kindOf, types[path], path)
			}
		}
	}
}

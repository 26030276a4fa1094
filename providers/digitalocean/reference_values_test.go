package digitalocean

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// legalRequests are bodies that the simulator accepts, with every part that the provider can send.
func legalRequests(sim *digitaloceansim.Sim) map[string]map[string]any {
	droplet := sim.AddDroplet(digitaloceansim.Spec{Name: "node-1"})
	return map[string]map[string]any{
		"/v2/load_balancers": {
			"name": "web", "region": "nyc3", "size_unit": 1, "type": "REGIONAL", "network": "EXTERNAL", "network_stack": "IPV4",
			"algorithm": "round_robin", "tls_cipher_policy": "DEFAULT", "http_idle_timeout_seconds": 60, "droplet_ids": []any{droplet},
			"forwarding_rules": []any{map[string]any{
				"entry_protocol": "https", "entry_port": 443, "target_protocol": "http", "target_port": 30080,
				"certificate_id": sim.AddCertificate("web", "custom"),
			}},
			"health_check": map[string]any{
				"protocol": "http", "port": 30080, "path": "/", "check_interval_seconds": 10, "response_timeout_seconds": 5,
				"healthy_threshold": 5, "unhealthy_threshold": 3,
			},
			"sticky_sessions": map[string]any{"type": "cookies", "cookie_name": "c", "cookie_ttl_seconds": 300},
			"firewall":        map[string]any{"allow": []any{"cidr:10.0.0.0/8"}, "deny": []any{"ip:1.2.3.4"}},
		},
		"/v2/firewalls": {
			"name": "public-access", "droplet_ids": []any{droplet},
			"inbound_rules": []any{map[string]any{
				"protocol": "tcp", "ports": "30080", "sources": map[string]any{"addresses": []any{"0.0.0.0/0"}},
			}},
		},
	}
}

// TestSimulatorIsAsStrictAsTheDescription: every value that DigitalOcean's description forbids is refused by the simulator. A
// simulator that takes more than the real API does hides faults of the provider.
func TestSimulatorIsAsStrictAsTheDescription(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	dir := os.Getenv(referenceVariable)
	if dir == "" {
		t.Skipf("set %s to a folder with digitalocean-openapi.yaml to compare the simulator with the published description", referenceVariable)
	}
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(dir, "digitalocean-openapi.yaml"))
	require.NoError(t, err)
	sim, server := digitaloceansim.New(digitaloceansim.Options{Token: testToken})
	post := func(path string, body any) int {
		data, err := json.Marshal(body)
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(data))
		r.Header.Set("Authorization", "Bearer "+testToken)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		return w.Code
	}
	tried := 0
	for path, legal := range legalRequests(sim) {
		schema := doc.Paths.Find(path).Post.RequestBody.Value.Content.Get("application/json").Schema
		require.Contains(t, []int{http.StatusAccepted, http.StatusCreated}, post(path, legal), "the request that is varied is itself legal: %s", path)
		for where, body := range broken("", legal, legal, schema.Value) {
			tried++
			code := post(path, body)
			assert.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusBadRequest}, code, "%s with %s", path, where)
		}
	}
	assert.Greater(t, tried, 30, "the description names values that are not legal")
}

// broken returns variants of a request, by what is wrong with each, in which one value within part, which is at a path, breaks
// the description.
func broken(path string, root, part any, schema *openapi3.Schema) map[string]any {
	all := map[string]any{}
	for _, s := range alternatives(schema) {
		object, ok := part.(map[string]any)
		if !ok {
			continue
		}
		for field, sub := range s.Properties {
			value, ok := object[field]
			if !ok {
				continue
			}
			for _, bad := range illegal(sub.Value) {
				object[field] = bad
				all[fmt.Sprintf("%s.%s = %v", path, field, bad)] = clone(root)
			}
			object[field] = value
			if list, ok := value.([]any); ok && sub.Value.Items != nil {
				maps.Copy(all, broken(path+"."+field+"[]", root, list[0], sub.Value.Items.Value))
			}
			maps.Copy(all, broken(path+"."+field, root, value, sub.Value))
		}
	}
	return all
}

// alternatives are a schema and those that it is put together from.
func alternatives(s *openapi3.Schema) []*openapi3.Schema {
	list := []*openapi3.Schema{s}
	for _, ref := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf) {
		list = append(list, alternatives(ref.Value)...)
	}
	return list
}

// illegal are values that a schema forbids.
func illegal(s *openapi3.Schema) []any {
	var list []any
	if len(s.Enum) > 0 {
		list = append(list, "smoke")
	}
	if s.Min != nil {
		list = append(list, *s.Min-1)
	}
	if s.Max != nil {
		list = append(list, *s.Max+1)
	}
	if s.Pattern != "" {
		list = append(list, "-")
	}
	switch {
	case s.Type.Is("integer"):
		list = append(list, "text")
	case s.Type.Is("string"), s.Type.Is("boolean"):
		list = append(list, []any{1})
	case s.Type.Is("array"):
		list = append(list, "text")
		if s.MinItems > 0 {
			list = append(list, []any{})
		}
	}
	return list
}

func clone(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and lists of plain values
	}
	var c any
	if err := json.Unmarshal(data, &c); err != nil {
		panic(err)
	}
	return c
}

package digitalocean

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// referenceVariable names a folder with DigitalOcean's published OpenAPI description, digitalocean-openapi.yaml.
const referenceVariable = "ANYCCM_REFERENCE"

// TestReference runs the conformance suite, less its transcripts, with every request of the provider and every answer of the simulator
// checked against DigitalOcean's own description of its API.
func TestReference(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	dir := os.Getenv(referenceVariable)
	if dir == "" {
		t.Skipf("set %s to a folder with digitalocean-openapi.yaml to check requests and answers against the published description", referenceVariable)
	}
	j := newJudge(t, filepath.Join(dir, "digitalocean-openapi.yaml"))
	j.requireStrict(t)
	t.Run("suite", func(t *testing.T) {
		conformance.RunParts(t, func(t testing.TB) *conformance.Fixture {
			return newFixtureBehind(t, func(sim *digitaloceansim.Sim, server http.Handler, faulty func() bool) http.Handler {
				return j.between(server, faulty)
			})
		}, "LoadBalancers")
	})
	t.Run("firewall", func(t *testing.T) {
		w := newTestWorldBehind(t, map[string]string{envFirewallName: "public-access", envFirewallTags: "worker"}, j.between)
		w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker"}})
		f := w.firewall()
		w.converge(f)
		np, web := aged(nodePortService(nil, port("http", 80, 30080)), "np", 1), aged(service("", nil, port("http", 80, 30081)), "web", 2)
		w.Apply(np, web)
		w.ensure(web)
		w.converge(f)
		w.converge(w.firewall())
		require.NoError(t, w.api.account(t.Context()))
		require.NoError(t, w.api.createTag(t.Context(), "k8s:c1"))
	})
	assert.Empty(t, j.faults())
	assert.Greater(t, j.checked, 500, "the suite went through the judge")
	t.Logf("%d requests and answers were checked", j.checked)
}

// judge compares what passes by with the description.
type judge struct {
	router routers.Router

	mu      sync.Mutex
	checked int
	found   map[string]int
}

func newJudge(t *testing.T, path string) *judge {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(path)
	require.NoError(t, err)
	doc.Servers = nil
	// The description knows no address of one's own; DigitalOcean's SDK sends it in this field.
	for _, schema := range doc.Components.Schemas {
		if ip := schema.Value.Properties["ip"]; ip != nil && schema.Value.Properties["forwarding_rules"] != nil {
			ip.Value.ReadOnly = false
		}
		// DigitalOcean's other pages say 200 where this one says 100, so that the provider leaves what lies between to the cloud.
		if units := schema.Value.Properties["size_unit"]; units != nil && schema.Value.Properties["forwarding_rules"] != nil {
			units.Value.Max = new(200.0)
		}
	}
	// Nor does it know load balancers among what can be tagged, on which DigitalOcean's own controller relies.
	resource := doc.Components.Schemas["tags_resource"].Value.Properties["resources"].Value.Items.Value.Properties["resource_type"].Value
	require.Contains(t, resource.Enum, "droplet")
	resource.Enum = append(resource.Enum, "load_balancer")
	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	return &judge{router: router, found: map[string]int{}}
}

// requireStrict proves that the judge finds faults: in a path, in a request, in an answer.
func (j *judge) requireStrict(t *testing.T) {
	t.Helper()
	wrong := j.between(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"load_balancer":{"forwarding_rules":[{"entry_protocol":"smoke"}]}}`)
	}), func() bool { return false })
	for _, r := range []*http.Request{
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/nowhere", nil),
		httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/v2/load_balancers/4de7ac8b-495b-4884-9a69-1050c6793cd6", bytes.NewReader([]byte(`{"region":"nyc3","droplet_ids":[1]}`))),
	} {
		r.Header.Set("Content-Type", "application/json")
		wrong.ServeHTTP(httptest.NewRecorder(), r)
	}
	require.Len(t, j.faults(), 3)
	j.found, j.checked = map[string]int{}, 0
}

func (j *judge) note(what string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.checked++
	if err != nil {
		j.found[what+": "+err.Error()]++
	}
}

func (j *judge) faults() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for text, n := range j.found {
		all = append(all, fmt.Sprintf("%d times: %s", n, text))
	}
	return all
}

// between checks requests before, and answers after the simulator, except where a fault is being simulated.
func (j *judge) between(server http.Handler, faulty func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		route, params, err := j.router.FindRoute(r)
		what := r.Method + " " + r.URL.Path
		if err != nil {
			j.note(what, err)
			server.ServeHTTP(w, r)
			return
		}
		input := &openapi3filter.RequestValidationInput{
			Request: r, PathParams: params, Route: route,
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
		}
		j.note(what, openapi3filter.ValidateRequest(r.Context(), input))
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		if !faulty() {
			j.note(fmt.Sprintf("%s answered %d", what, answer.Code), openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
				RequestValidationInput: input, Status: answer.Code, Header: answer.Header(), Body: io.NopCloser(bytes.NewReader(answer.Body.Bytes())),
				Options: input.Options,
			}))
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // a client that went away is its own affair
	})
}

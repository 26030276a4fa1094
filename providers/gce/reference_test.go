package gce

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// The SDK's module contains the discovery document of the Compute API. It checks every request of the provider, and every response of the
// simulator.

type shape struct {
	Ref                  string            `json:"$ref"`
	Type                 string            `json:"type"`
	Format               string            `json:"format"`
	Enum                 []string          `json:"enum"`
	Pattern              string            `json:"pattern"`
	Items                *shape            `json:"items"`
	Properties           map[string]*shape `json:"properties"`
	AdditionalProperties *shape            `json:"additionalProperties"`
	Required             bool              `json:"required"`
	Location             string            `json:"location"`
	Annotations          struct {
		Required []string `json:"required"`
	} `json:"annotations"`
}

type method struct {
	ID         string            `json:"id"`
	Verb       string            `json:"httpMethod"`
	FlatPath   string            `json:"flatPath"`
	Path       string            `json:"path"`
	Parameters map[string]*shape `json:"parameters"`
	Request    *shape            `json:"request"`
	Response   *shape            `json:"response"`
}

// route is a path segment with the possible next ones. A variable segment has the name "{}".
type route struct {
	next map[string]*route
	// methods are those of the path that ends here, by verb.
	methods map[string]*method
}

type discovery struct {
	Parameters map[string]*shape            `json:"parameters"`
	Schemas    map[string]*shape            `json:"schemas"`
	Resources  map[string]map[string]method `json:"-"`
	routes     route
	methods    int
	// patterns caches compiled patterns.
	patterns sync.Map
	// faultless caches digests of valid bodies and their types, because tests repeat most bodies.
	faultless sync.Map
}

var (
	readDiscovery = sync.OnceValues(loadDiscovery)
	variable      = regexp.MustCompile(`^\{[^}]+\}$`)
	undocumented  = []string{"HttpHealthCheck.proxyHeader"} // undocumented, but in responses of the real API
)

// errNoModule means that there is no description, as opposed to a moved or unreadable one.
var errNoModule = errors.New("the module google.golang.org/api is not found, so that its description of the API judges nothing")

func loadDiscovery() (*discovery, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/api").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoModule, err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "compute", "v1", "compute-api.json"))
	if err != nil {
		return nil, err
	}
	var d struct {
		discovery
		Resources map[string]struct {
			Methods map[string]method `json:"methods"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	for _, r := range d.Resources {
		for _, m := range r.Methods {
			d.add(&m)
		}
	}
	return &d.discovery, nil
}

// apiPath starts the paths of all methods.
const apiPath = "/compute/v1/projects/"

// add registers a method by its path.
func (d *discovery) add(m *method) {
	path := m.FlatPath
	if path == "" {
		path = m.Path
	}
	at := &d.routes
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "projects/"), "/") {
		if variable.MatchString(part) {
			part = "{}"
		}
		if at.next[part] == nil {
			if at.next == nil {
				at.next = map[string]*route{}
			}
			at.next[part] = &route{methods: map[string]*method{}}
		}
		at = at.next[part]
	}
	at.methods[m.Verb] = m
	d.methods++
}

// find returns the method of a path, or nil. Literal segments have precedence over variable ones.
func (r *route) find(verb, path string) *method {
	part, rest, more := strings.Cut(path, "/")
	for _, name := range []string{part, "{}"} {
		next := r.next[name]
		if next == nil || part == "" {
			continue
		}
		found := next.methods[verb]
		if more {
			found = next.find(verb, rest)
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// matches reports whether a pattern matches the whole text.
func (d *discovery) matches(pattern, text string) bool {
	compiled, ok := d.patterns.Load(pattern)
	if !ok {
		compiled, _ = d.patterns.LoadOrStore(pattern, regexp.MustCompile("^(?:"+pattern+")$"))
	}
	return compiled.(*regexp.Regexp).MatchString(text)
}

// judge checks a simulator against the document until the test ends.
func judge(t testing.TB, sim *gcesim.Sim) {
	if !tier.All() {
		return
	}
	d, err := readDiscovery()
	if err != nil {
		return // TestReferenceIsThere reports it
	}
	var mu sync.Mutex
	problems := map[string]bool{}
	sim.Judge = func(r *http.Request, body []byte, status int, answer []byte) {
		if r.Header.Get(conformance.WrongHeader) != "" {
			return
		}
		found := d.judge(r, body, status, answer)
		mu.Lock()
		defer mu.Unlock()
		for _, p := range found {
			problems[p] = true
		}
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		assert.Empty(t, problems, "the description of the API says otherwise")
	})
}

func (d *discovery) judge(r *http.Request, body []byte, status int, answer []byte) (problems []string) {
	path, ok := strings.CutPrefix(r.URL.Path, apiPath)
	m := d.routes.find(r.Method, path)
	if !ok || m == nil {
		return []string{r.Method + " " + r.URL.Path + " is no method of the API"}
	}
	say := func(format string, args ...any) {
		problems = append(problems, m.ID+": "+fmt.Sprintf(format, args...))
	}
	for key, values := range r.URL.Query() {
		p, known := m.Parameters[key]
		if !known {
			p, known = d.Parameters[key]
		}
		if !known {
			say("parameter %s is unknown", key)
			continue
		}
		if p.Pattern != "" && !d.matches(p.Pattern, values[0]) {
			say("parameter %s: %q does not match %s", key, values[0], p.Pattern)
		}
	}
	for key, p := range m.Parameters {
		if p.Required && p.Location == "query" && !r.URL.Query().Has(key) {
			say("parameter %s is missing", key)
		}
	}
	if len(body) > 0 {
		d.judgeBody(m.Request, m.ID, "request", body, true, say)
	} else if m.Request != nil && m.ID != "compute.instanceGroups.listInstances" {
		say("there is no body")
	}
	if status < http.StatusMultipleChoices {
		d.judgeBody(m.Response, m.ID, "answer", answer, false, say)
	}
	return problems
}

func (d *discovery) judgeBody(s *shape, id, what string, body []byte, request bool, say func(string, ...any)) {
	if s == nil {
		say("%s: a body that the API does not have", what)
		return
	}
	key := judged{id, request, sha256.Sum256(body)}
	if _, known := d.faultless.Load(key); known {
		return
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		say("%s: no JSON: %v", what, err)
		return
	}
	faults := 0
	d.judgeValue(s, id, what, v, request, func(format string, args ...any) {
		faults++
		say(format, args...)
	})
	if faults == 0 {
		d.faultless.Store(key, struct{}{})
	}
}

// judged is the body of a method's request or response.
type judged struct {
	method  string
	request bool
	digest  [sha256.Size]byte
}

func (d *discovery) judgeValue(s *shape, id, at string, v any, request bool, say func(string, ...any)) {
	name := at
	if s.Ref != "" {
		name = s.Ref
		if s = d.Schemas[s.Ref]; s == nil {
			say("%s: the API does not say what %s is", at, name)
			return
		}
	}
	switch s.Type {
	case "object":
		object, ok := v.(map[string]any)
		if !ok {
			say("%s is %T, not an object", at, v)
			return
		}
		for key, inner := range object {
			p, known := s.Properties[key]
			switch {
			case known:
				d.judgeValue(p, id, at+"."+key, inner, request, say)
			case s.AdditionalProperties != nil:
				d.judgeValue(s.AdditionalProperties, id, at+"."+key, inner, request, say)
			case !slices.Contains(undocumented, name+"."+key):
				say("%s.%s is unknown (%s)", at, key, name)
			}
		}
		if !request {
			return
		}
		for key, p := range s.Properties {
			if _, given := object[key]; !given && slices.Contains(p.Annotations.Required, id) {
				say("%s.%s is missing", at, key)
			}
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			say("%s is %T, not a list", at, v)
			return
		}
		for _, e := range list {
			d.judgeValue(s.Items, id, at+"[]", e, request, say)
		}
	default:
		d.judgeScalar(s, at, v, request, say)
	}
}

func (d *discovery) judgeScalar(s *shape, at string, v any, request bool, say func(string, ...any)) {
	text, isText := v.(string)
	number, isNumber := v.(float64)
	_, isBool := v.(bool)
	switch {
	case s.Type == "string" && !isText, s.Type == "integer" && (!isNumber || number != float64(int64(number))), s.Type == "number" && !isNumber,
		s.Type == "boolean" && !isBool:
		say("%s is %v, not of type %s", at, v, s.Type)
	case isText && len(s.Enum) > 0 && !slices.Contains(s.Enum, text):
		say("%s: %q is not one of %v", at, text, s.Enum)
	case isText && request && s.Pattern != "" && !d.matches(s.Pattern, text):
		say("%s: %q does not match %s", at, text, s.Pattern)
	}
}

// TestReferenceIsThere shows whether the other tests check against the description of the API.
func TestReferenceIsThere(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	d, err := readDiscovery()
	if errors.Is(err, errNoModule) {
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.Greater(t, d.methods, 500)
	wrong, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/compute/v1/projects/p/regions/r/targetPools/n/addInstance?x=1", nil)
	problems := d.judge(wrong, []byte(`{"instances":[{"instance":1,"name":"a"}]}`), http.StatusOK, []byte(`{"kind":"x","status":"GONE"}`))
	assert.Len(t, problems, 4, "an unknown parameter, a type, an unknown field and a value: %v", problems)
	right := []byte(`{"kind":"compute#operation","status":"DONE"}`)
	for range 2 {
		body := []byte(`{"instances":[{"instance":"zones/z/instances/i"}]}`)
		wrong.URL.RawQuery = ""
		assert.Empty(t, d.judge(wrong, body, http.StatusOK, right), "what was right before")
		assert.Len(t, d.judge(wrong, right, http.StatusOK, right), 2, "is no request: kind and status are unknown")
	}
	for _, path := range []string{"/n/addInstanc", "//addInstance", "/n/addInstance/"} {
		wrong.URL.Path = apiPath + "p/regions/r/targetPools" + path
		assert.Contains(t, d.judge(wrong, nil, http.StatusOK, nil), "POST "+wrong.URL.Path+" is no method of the API")
	}
}

package gce

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// referenceVariable names a folder with gce-recordings: requests to the real API and its responses.
const referenceVariable = "ANYCCM_REFERENCE"

// exchange is a recorded request and its response.
type exchange struct {
	Method   string         `json:"method"`
	Path     string         `json:"path"`
	Request  map[string]any `json:"request"`
	Code     int            `json:"code"`
	Response map[string]any `json:"response"`
}

// TestRecordings sends the recorded requests to the simulator in order, and compares codes, fields and values. Objects that they need and
// cannot create exist beforehand.
func TestRecordings(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	dir := os.Getenv(referenceVariable)
	if dir == "" {
		t.Skipf("set %s to a folder with gce-recordings, made of the files _http.log of the repository GoogleCloudPlatform/k8s-config-connector, "+
			"to compare the simulator with real answers", referenceVariable)
	}
	files, err := filepath.Glob(filepath.Join(dir, "gce-recordings", "*.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	compared, skipped := map[string]int{}, map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		for _, file := range files {
			j := newReplay(t, strings.TrimSuffix(filepath.Base(file), ".jsonl"))
			for _, e := range readExchanges(t, file) {
				if why := j.unfit(e); why != "" {
					skipped[why]++
					continue
				}
				j.compare(e)
				compared[e.Method+" "+j.at(e).kind]++
			}
		}
	})
	total := 0
	for _, n := range compared {
		total += n
	}
	assert.Greater(t, total, 90)
	for _, kind := range []string{
		"POST addresses", "POST backendServices", "POST firewalls", "PATCH firewalls", "POST forwardingRules", "POST healthChecks", "POST instanceGroups",
		"POST instanceGroups/addInstances", "POST instanceGroups/removeInstances", "POST instanceGroups/listInstances", "POST routes", "GET operations",
		"PUT backendServices", "DELETE routes", "GET instances",
	} {
		assert.Positive(t, compared[kind], kind)
	}
	t.Logf("%d exchanges were compared: %v; left out: %v", total, compared, skipped)
}

func readExchanges(t *testing.T, file string) (all []exchange) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		all = append(all, e)
	}
	require.NoError(t, lines.Err())
	return all
}

// replay sends one recording to a new simulator.
type replay struct {
	t    *testing.T
	name string
	sim  *gcesim.Sim
	api  http.Handler
	// operation is the path of the latest one. failed: its request was omitted.
	operation string
	failed    bool
	// made are the paths of existing objects.
	made map[string]bool
}

func newReplay(t *testing.T, name string) *replay {
	t.Helper()
	sim, server := gcesim.New("", activation)
	return &replay{t: t, name: name, sim: sim, api: server, made: map[string]bool{}}
}

// address is a parsed path of the API.
type address struct{ path, scope, collection, name, kind string }

var recordedPath = regexp.MustCompile(`^/compute/v1/projects/[^/]+/(global|regions/[^/]+|zones/[^/]+)/([a-zA-Z]+)(?:/([^/]+))?(?:/([a-zA-Z]+))?$`)

func (*replay) at(e exchange) address {
	bare, _, _ := strings.Cut(translated(e.Path), "?")
	m := recordedPath.FindStringSubmatch(bare)
	if m == nil {
		return address{}
	}
	a := address{scope: m[1], collection: m[2], name: m[3], kind: m[2]}
	if m[4] != "" {
		a.kind += "/" + m[4]
	}
	a.path = m[1] + "/" + m[2]
	if m[3] != "" {
		a.path += "/" + m[3]
	}
	return a
}

// served are the simulator's collections by scope, with the calls that it supports.
var served = map[string]string{
	"addresses": "regions", "backendServices": "regions", "forwardingRules": "regions", "firewalls": "global", "healthChecks": "global",
	"httpHealthChecks": "global", "routes": "global", "instanceGroups": "zones", "instances": "zones", "operations": "",
}

// unfit explains why an exchange cannot be compared; "" if it can.
func (j *replay) unfit(e exchange) string {
	a := j.at(e)
	if a.collection == "operations" && (j.failed || j.operation == "") {
		return "operations of requests that are left out"
	}
	why := unserved(e, a)
	if why == "" {
		why = foreignFeature(e)
	}
	existing := e.Method != http.MethodPost || strings.HasSuffix(a.kind, "/setLabels")
	if why == "" && existing && e.Code < 300 && a.collection != "operations" && !j.made[a.path] {
		why = "objects of requests that are left out"
	}
	if e.Method == http.MethodGet {
		return why
	}
	j.failed = why != ""
	if j.failed && !strings.Contains(a.kind, "/") { // from here on the recorded object differs
		path := a.path
		if e.Method == http.MethodPost {
			path += "/" + translated(fmt.Sprint(e.Request["name"]))
		}
		delete(j.made, path)
		j.sim.Edit(a.collection, path[strings.LastIndex(path, "/")+1:], nil)
	}
	return why
}

// unserved explains why the simulator does not support a request.
func unserved(e exchange, a address) string {
	scope, known := served[a.collection]
	switch {
	case !known || !strings.HasPrefix(a.scope, scope):
		return "collections that the simulator does not serve"
	case a.collection == "instances" && e.Code < 300: // the description of the API judges them
		return "instances, which are the recorders' own mock's: they show the request, and no interface has a name"
	case slices.Contains([]string{"instanceGroups/setNamedPorts", "addresses/setLabels", "instances/setLabels"}, a.kind):
		return "labels of others than forwarding rules, and named ports, which the provider does not change"
	case e.Method == http.MethodPatch && a.collection == "forwardingRules":
		return "changes of forwarding rules in place, which the provider replaces"
	case e.Method == http.MethodPost && a.kind == "backendServices" && e.Request["healthChecks"] == nil:
		return "backend services without a health check, to which the simulator is stricter"
	}
	body, _ := json.Marshal(e.Request)
	changed := e.Method != http.MethodGet && !strings.Contains(string(body), "httpHealthCheck")
	if a.collection == "healthChecks" && (changed || (e.Response["type"] != nil && e.Response["type"] != "HTTP")) {
		return "health checks of other kinds than HTTP"
	}
	return ""
}

// foreignFeature explains which unused feature a body requests.
func foreignFeature(e exchange) string {
	if strings.Contains(e.Path, "uniqueId") {
		return "names that the recorders hid in two ways"
	}
	body, _ := json.Marshal(e.Request)
	for _, word := range []string{
		"_MANAGED", "ipCollection", "serviceAttachments", "targetVpnGateways", "/targetTcpProxies/", "VPC_PEERING", "targetHttpProxies",
	} {
		if strings.Contains(string(body), word) {
			return "features that the provider does not use"
		}
	}
	return ""
}

var (
	placeholder  = regexp.MustCompile(`\$\{([a-zA-Z]+)\}`)
	recordedZone = regexp.MustCompile(`\b(us|europe|australia)-[a-z]+[0-9]-([a-c])\b`)
	recordedArea = regexp.MustCompile(`\b(us|europe|australia)-[a-z]+[0-9]\b`)
)

// translated inserts the simulator's project, region and zones, and names for placeholders.
func translated(text string) string {
	for _, project := range []string{"${projectId}", "example-project-01"} {
		text = strings.ReplaceAll(text, project, gcesim.Project)
	}
	text = placeholder.ReplaceAllStringFunc(text, func(p string) string { return strings.ToLower(strings.Trim(p, "${}")) })
	text = strings.ReplaceAll(text, "/compute/beta/", "/compute/v1/")
	text = recordedZone.ReplaceAllString(text, gcesim.Region+"-$2")
	text = recordedArea.ReplaceAllString(text, gcesim.Region)
	return strings.ReplaceAll(text, gcesim.Project+"/global/regions/", gcesim.Project+"/regions/")
}

func translatedObject(t *testing.T, object map[string]any) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(translated(string(text))), &out))
	return out
}

func (j *replay) send(method, path string, body any) (int, map[string]any) {
	text := ""
	if body != nil {
		raw, err := json.Marshal(body)
		require.NoError(j.t, err)
		text = string(raw)
	}
	r := httptest.NewRequestWithContext(j.t.Context(), method, path, strings.NewReader(text))
	r.Header.Set("Authorization", "Bearer any")
	w := httptest.NewRecorder()
	j.api.ServeHTTP(w, r)
	var answer map[string]any
	require.NoError(j.t, json.Unmarshal(w.Body.Bytes(), &answer), "%s %s", method, path)
	return w.Code, answer
}

// compare sends a recorded request, and compares the response.
func (j *replay) compare(e exchange) {
	a := j.at(e)
	path := translated(e.Path)
	time.Sleep(2 * activation) // recordings omit some waits
	if a.collection == "operations" {
		path = j.operation
	}
	body := j.prepared(a, e, path)
	var sent any
	if e.Request != nil {
		sent = body
	}
	code, answer := j.send(e.Method, path, sent)
	where := j.name + ": " + e.Method + " " + a.kind
	if !assert.Equal(j.t, e.Code, code, "%s: %v", where, answer) {
		return
	}
	if e.Method == http.MethodPost && code < 300 && a.name == "" {
		j.made[a.path+"/"+fmt.Sprint(body["name"])] = true
	}
	if answer["kind"] == "compute#operation" && e.Method != http.MethodGet {
		j.operation = strings.TrimPrefix(fmt.Sprint(answer["selfLink"]), "https://www.googleapis.com")
	}
	recorded := translatedObject(j.t, e.Response)
	if a.collection == "operations" && (recorded["operationType"] != answer["operationType"] || recorded["targetLink"] != answer["targetLink"]) {
		return // the operation of an unrecorded request
	}
	j.requireSame(where, a.collection, recorded, answer)
}

// prepared adapts a recorded body to the simulator, and creates the objects that it refers to.
func (j *replay) prepared(a address, e exchange, path string) map[string]any {
	body := translatedObject(j.t, e.Request)
	if a.collection == "instanceGroups" && body["zone"] != nil { // path parameters that the client repeats in the body
		for _, key := range []string{"project", "instanceGroup", "zone"} {
			delete(body, key)
		}
	}
	if list, _ := body["instances"].([]any); len(list) == 2 { // one name stands for both
		list[1] = map[string]any{"instance": fmt.Sprint(list[1].(map[string]any)["instance"], "-2")}
	}
	if body["IPAddress"] == "8.8.8.8" {
		delete(body, "IPAddress") // the recorders hid another one
	}
	if e.Code < 300 {
		if e.Method == http.MethodPost && a.name == "" {
			j.sim.Edit(a.collection, fmt.Sprint(body["name"]), nil) // the recordings hide that these are several objects
		}
		j.provide(a, body)
	}
	if e.Method == http.MethodPut && body["fingerprint"] != nil {
		_, now := j.send(http.MethodGet, path, nil)
		body["fingerprint"] = now["fingerprint"]
	}
	return body
}

// provide creates the objects that a request refers to, without API calls.
func (j *replay) provide(a address, body map[string]any) {
	text, _ := json.Marshal(body) // it was JSON
	link := regexp.MustCompile(`projects/` + gcesim.Project + `/((global|regions/[^/"]+|zones/[^/"]+)/([a-zA-Z]+)/([^/"]+))`)
	for _, m := range link.FindAllStringSubmatch(string(text), -1) {
		j.put(m[1], m[3])
	}
	if a.collection == "instances" && a.name != "" {
		j.put(a.path, a.collection)
	}
}

func (j *replay) put(path, collection string) {
	if j.made[path] {
		return
	}
	j.made[path] = true
	base := "projects/" + gcesim.Project + "/"
	switch collection {
	case "networks":
		j.sim.Put(path, map[string]any{"autoCreateSubnetworks": false})
	case "subnetworks":
		j.sim.Put(path, map[string]any{"ipCidrRange": "10.2.0.0/16", "network": base + "global/networks/" + gcesim.Network})
	case "healthChecks":
		j.sim.Put(path, map[string]any{"type": "HTTP", "httpHealthCheck": map[string]any{"port": 80.0}})
	case "instanceGroups":
		j.sim.Put(path, map[string]any{})
	case "instances":
		parts := strings.Split(path, "/")
		j.sim.AddInstance(gcesim.Spec{Name: parts[3], Zone: parts[1]})
		j.sim.Edit("instances", parts[3], func(d map[string]any) { // on the recording's network
			for _, i := range d["networkInterfaces"].([]any) {
				i.(map[string]any)["network"] = "https://www.googleapis.com/compute/v1/" + base + "global/networks/networkid"
			}
		})
	case "backendServices":
		j.put("global/healthChecks/any", "healthChecks")
		j.sim.Put(path, map[string]any{
			"loadBalancingScheme": "INTERNAL", "protocol": "TCP", "healthChecks": []any{base + "global/healthChecks/any"},
		})
	}
}

// requireSame compares a response with the recorded one, field by field.
func (j *replay) requireSame(where, collection string, recorded, got any) {
	switch recorded := recorded.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if assert.True(j.t, ok, "%s: %v is no object", where, got) {
			j.sameFields(where, collection, recorded, object)
		}
	case []any:
		list, ok := got.([]any)
		if assert.True(j.t, ok, "%s: %v is no list", where, got) && len(recorded) > 0 && assert.NotEmpty(j.t, list, where) {
			j.requireSame(where+"[]", collection, recorded[0], list[0])
		}
	default:
		if assert.IsType(j.t, recorded, got, where) && !varying(where, recorded) {
			assert.Equal(j.t, plainLink(recorded), plainLink(got), where)
		}
	}
}

func (j *replay) sameFields(where, collection string, recorded, got map[string]any) {
	for key, value := range recorded {
		if slices.Contains(unused, key) || (slices.Contains(moreInRecordings[collection], key) && got[key] == nil) {
			continue
		}
		if assert.Contains(j.t, got, key, "%s: the real answer has %s: %v", where, key, value) {
			j.requireSame(where+"."+key, collection, value, got[key])
		}
	}
	for key, value := range got {
		if !slices.Contains(unused, key) && !slices.Contains(moreInSimulator[collection], key) {
			assert.Contains(j.t, recorded, key, "%s: the real answer has no %s (%v)", where, key, value)
		}
	}
}

// plainLink removes a link's prefix, which some recordings lack.
func plainLink(v any) any {
	text, ok := v.(string)
	if ok && strings.HasPrefix(text, "https://") {
		return resource(text)
	}
	if ok { // the recorders' mock has a single message for all kinds of health check
		return strings.ReplaceAll(text, "/global/httpHealthChecks/", "/global/healthChecks/")
	}
	return v
}

// varying reports values that differ each time or were hidden by the recorders.
func varying(where string, recorded any) bool {
	field := where[strings.LastIndex(where, ".")+1:]
	text, _ := recorded.(string)
	return slices.Contains([]string{
		"id", "creationTimestamp", "insertTime", "startTime", "endTime", "name", "selfLink", "selfLinkWithId", "user", "targetId", "fingerprint",
		"labelFingerprint", "IPAddress", "address", "instance",
	}, field) || strings.Contains(text, "operationid")
}

// moreInRecordings and moreInSimulator are the fields that only one side has, with the reason.
var (
	// unused are fields that the provider does not use.
	unused = []string{"namedPorts", "iap"}

	moreInRecordings = map[string][]string{
		// The name follows from a label that the provider does not set; some recordings omit the calls that wrote labels.
		"forwardingRules": {"serviceName", "labels"},
		"addresses":       {"labels"}, // the provider sets none
	}
	moreInSimulator = map[string][]string{
		"firewalls":      {"description", "logConfig"}, // the recorders' mock returns the request and some defaults
		"instanceGroups": {"subnetwork"},               // the instances of the recordings have none
		// Only the recorded requests omit it.
		"backendServices": {"protocol"},
	}
)

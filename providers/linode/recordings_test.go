package linode

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// referenceVariable names a folder with linode-recordings: requests to the real API and its answers.
const referenceVariable = "ANYCCM_REFERENCE"

// exchange is one recorded request and its answer.
type exchange struct {
	Method   string         `json:"method"`
	Path     string         `json:"path"`
	Request  map[string]any `json:"request"`
	Code     int            `json:"code"`
	Response any            `json:"response"`
}

// TestRecordings sends the recorded requests to the simulator, in their order and with its identifiers in the place of
// the recorded ones, and compares codes, fields and kinds of values.
func TestRecordings(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	dir := os.Getenv(referenceVariable)
	if dir == "" {
		t.Skipf("set %s to a folder with linode-recordings to compare the simulator with real answers", referenceVariable)
	}
	files, err := filepath.Glob(filepath.Join(dir, "linode-recordings", "*.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	compared, skipped := 0, map[string]int{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		j := newReplay(t, name)
		for _, e := range readExchanges(t, file) {
			if why := j.unfit(e); why != "" {
				skipped[why]++
				continue
			}
			j.compare(e)
			compared++
		}
	}
	assert.Greater(t, compared, 200)
	t.Logf("%d exchanges were compared; left out: %v", compared, skipped)
}

func readExchanges(t *testing.T, file string) []exchange {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var all []exchange
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

// replay is one recording against a fresh simulator.
type replay struct {
	t    *testing.T
	name string
	sim  http.Handler
	// ids are the simulator's identifiers by the recorded ones.
	ids map[int]int
}

func newReplay(t *testing.T, name string) *replay {
	t.Helper()
	sim, server := linodesim.New(linodesim.Options{})
	sim.Reserve("192.0.2.0")
	j := &replay{t: t, name: name, sim: server, ids: map[int]int{}}
	return j
}

var pathNumber = regexp.MustCompile(`/([0-9]{2,})(/|$|\?)`)

// unfit tells why an exchange cannot be compared; "" if it can.
func (j *replay) unfit(e exchange) string {
	bare, _, _ := strings.Cut(e.Path, "?")
	switch {
	case !linodesim.Knows(e.Method, bare):
		return "kinds of requests that the simulator does not serve"
	case e.Code == http.StatusTooManyRequests:
		return "rate limits"
	case e.Code == http.StatusUnauthorized:
		return "refused tokens"
	case strings.HasSuffix(bare, "/configs") && strings.Contains(bare, "/instances/"):
		return "boot configurations"
	case strings.Contains(bare, "/reserved/"):
		return "reserved addresses, of which the recordings hide which is which"
	}
	text, _ := json.Marshal(e.Request)
	for _, part := range []string{
		"\"locks\"", "\"ruleset\"", "\"interface_generation\"", "\"network_helper\"", "\"rdma", "\"vpc_type\"", "pl::", "pl:system",
		"\"metadata\"", "\"placement_group\"", "\"maintenance_policy\"", "\"kernel\"", "\"authorized_keys\"", "\"public\":",
		"\"firewall_id\":null", "[{\"range\"", "\"ipv4\":[\"",
	} {
		if strings.Contains(string(text), part) {
			return "features that no cloud controller manager uses"
		}
	}
	// What was made by a request that is left out is unknown here.
	for _, m := range pathNumber.FindAllStringSubmatch(bare, -1) {
		if n, _ := strconv.Atoi(m[1]); j.ids[n] == 0 {
			return "objects of requests that are left out"
		}
	}
	return ""
}

// translate puts the simulator's identifiers and region in.
func (j *replay) translate(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, one := range v {
			if one == nil {
				continue
			}
			out[k] = j.translate(k, one)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = j.translate(key, one)
		}
		return out
	case float64:
		if id, ok := j.ids[int(v)]; ok && (strings.HasSuffix(key, "id") || strings.HasSuffix(key, "s")) {
			return id
		}
	case string:
		// The recordings hide addresses behind one of documentation; a backend has one of the private network.
		if key == "address" && strings.HasPrefix(v, "192.0.2.0:") {
			return strings.Replace(v, "192.0.2.0", "192.168.128.1", 1)
		}
		if key == "region" && v != "" && !strings.Contains(v, "invalid") {
			return linodesim.Region
		}
	}
	return v
}

func (j *replay) compare(e exchange) {
	j.t.Helper()
	address := pathNumber.ReplaceAllStringFunc(e.Path, func(text string) string {
		m := pathNumber.FindStringSubmatch(text)
		n, _ := strconv.Atoi(m[1])
		return "/" + strconv.Itoa(j.ids[n]) + m[2]
	})
	request := j.translate("", e.Request).(map[string]any)
	// A firewall of the recording's setting that no request made, and one that only serves the recording.
	if id, ok := request["firewall_id"].(float64); ok && j.ids[int(id)] == 0 {
		delete(request, "firewall_id")
	}
	var body string
	if e.Method != http.MethodGet && e.Method != http.MethodDelete {
		data, err := json.Marshal(request)
		require.NoError(j.t, err)
		body = string(data)
	}
	r := httptest.NewRequestWithContext(j.t.Context(), e.Method, address, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer any")
	w := httptest.NewRecorder()
	j.sim.ServeHTTP(w, r)
	place := fmt.Sprintf("%s: %s %s", j.name, e.Method, e.Path)
	if !assert.Equal(j.t, e.Code, w.Code, "%s %s: %s", place, body, w.Body.String()) {
		return
	}
	var got map[string]any
	require.NoError(j.t, json.Unmarshal(w.Body.Bytes(), &got), place)
	j.learn(e.Response, got)
	if e.Code == http.StatusOK {
		for _, difference := range shapeDifferences("", e.Response, got) {
			assert.Fail(j.t, difference, place)
		}
	}
}

// learn notes which identifier stands for which.
func (j *replay) learn(recorded, got any) {
	switch r := recorded.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return
		}
		a, aok := r["id"].(float64)
		b, bok := g["id"].(float64)
		if aok && bok {
			j.ids[int(a)] = int(b)
		}
		for k := range r {
			if k != "entities" && k != "linodes" {
				j.learn(r[k], g[k])
			}
		}
	case []any:
		g, ok := got.([]any)
		if ok && len(g) == len(r) {
			for i := range r {
				j.learn(r[i], g[i])
			}
		}
	}
}

// varying fields came and went with features while the recordings were made, or are there for some objects alone.
func varying() []string {
	return []string{
		"frontend_address_type", "frontend_vpc_subnet_id", "ipv6_range", "ipv6_is_public", "ipv6_addresses", "maintenance_policy", "accelerated_devices",
		"interface_generation", "disk_encryption", "capabilities", "locks", "user_alerts", "system_alerts", "parent_entity", "description",
		"ports", "site_type", "vpc_type",
	}
}

// shapeDifferences names the fields that one has and the other has not, and values of another kind. Lists are compared
// by their first items; null stands for any kind.
func shapeDifferences(place string, recorded, got any) []string {
	switch r := recorded.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			return fieldDifferences(place, r, g)
		}
	case []any:
		if g, ok := got.([]any); ok {
			if len(r) > 0 && len(g) > 0 {
				return shapeDifferences(place+"[0]", r[0], g[0])
			}
			return nil
		}
	}
	if fmt.Sprintf("%T", recorded) != fmt.Sprintf("%T", got) {
		return []string{fmt.Sprintf("%s is %T in the recording and %T here", place, recorded, got)}
	}
	return nil
}

func fieldDifferences(place string, recorded, got map[string]any) []string {
	var all []string
	_, vpc := recorded["subnets"]
	for _, k := range slices.Sorted(maps.Keys(recorded)) {
		v, there := got[k]
		switch {
		case vpc && k == "ipv4": // ranges of VPCs are newer than most recordings
		case !there && slices.Contains(varying(), k):
		case !there:
			all = append(all, fmt.Sprintf("%s.%s is missing here", place, k))
		case recorded[k] != nil && v != nil:
			all = append(all, shapeDifferences(place+"."+k, recorded[k], v)...)
		}
	}
	for k := range got {
		if _, there := recorded[k]; !there && !slices.Contains(varying(), k) {
			all = append(all, fmt.Sprintf("%s.%s is not in the recording", place, k))
		}
	}
	return all
}

package simkit

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counter is a cloud that counts: POST adds one, GET tells.
type counter struct{ value atomic.Int64 }

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		c.value.Add(1)
	}
	if r.URL.Path == "/refused" {
		http.Error(w, "malformed", http.StatusUnprocessableEntity)
		return
	}
	_, _ = io.WriteString(w, `{"value":`+strconv.FormatInt(c.value.Load(), 10)+`}`)
}

func (*counter) Operation(r *http.Request) (string, bool) {
	return r.Method + " " + r.URL.Path, r.Method != http.MethodGet
}

func (*counter) WriteError(w http.ResponseWriter, status int, message string) {
	http.Error(w, message, status)
}

func (*counter) RateHeaders(h http.Header, _, remaining int, _ time.Time) {
	h.Set("Remaining", strconv.Itoa(remaining))
}

func (c *counter) State() json.RawMessage {
	return json.RawMessage(strconv.FormatInt(c.value.Load(), 10))
}
func (c *counter) Seed(n int)                           { c.value.Add(int64(n)) }
func (*counter) Instances() []Instance                  { return []Instance{{Name: "a"}} }
func (*counter) RemoveInstance(string) error            { return errors.New("there is none") }
func (*counter) Holdings() []string                     { return []string{} }
func (*counter) Environment(u string) map[string]string { return map[string]string{"URL": u} }
func (*counter) Distort() map[string]Distortion {
	return map[string]Distortion{"zero": func(r *http.Request, _ []byte) ([]byte, bool) {
		return []byte(`{"value":0}`), r.Method == http.MethodGet
	}}
}

func (c *counter) Actions() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{"reset": func(json.RawMessage) error { c.value.Store(0); return nil }}
}

func do(t *testing.T, method, url, body string) (int, string, http.Header, error) {
	t.Helper()
	return doBy(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, method, url, body)
}

func doBy(t *testing.T, client *http.Client, method, url, body string) (int, string, http.Header, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(text)), resp.Header, err
}

func start(t *testing.T) (*counter, *Server, string) {
	t.Helper()
	c := &counter{}
	s := New(c)
	return c, s, s.Start(t)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  Fault
		method string
		status int // 0 means that no answer comes
		body   string
		value  int
	}{
		"status":               {Fault{Kind: FaultStatus, Status: 503}, http.MethodPost, 503, "simulated fault", 0},
		"status after":         {Fault{Kind: FaultStatusAfter}, http.MethodPost, 500, "simulated fault", 1},
		"reset":                {Fault{Kind: FaultReset}, http.MethodPost, 0, "", 0},
		"lost":                 {Fault{Kind: FaultLost}, http.MethodPost, 0, "", 1},
		"cut":                  {Fault{Kind: FaultCut}, http.MethodPost, 0, "", 1},
		"hang":                 {Fault{Kind: FaultHang}, http.MethodPost, 0, "", 0},
		"html":                 {Fault{Kind: FaultHTML}, http.MethodPost, 200, "<!doctype html><title>Please sign in</title>", 0},
		"distortion":           {Fault{Kind: "zero"}, http.MethodGet, 200, `{"value":0}`, 0},
		"distortion elsewhere": {Fault{Kind: "zero"}, http.MethodPost, 200, `{"value":1}`, 1},
		"other operation":      {Fault{Kind: FaultReset, Operation: "DELETE"}, http.MethodPost, 200, `{"value":1}`, 1},
		"writes alone":         {Fault{Kind: FaultReset, Writes: true}, http.MethodGet, 200, `{"value":0}`, 0},
		"second call":          {Fault{Kind: FaultReset, From: 2}, http.MethodPost, 200, `{"value":1}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud, s, url := start(t)
			_, err := s.AddFault(c.fault)
			require.NoError(t, err)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			hangs := c.fault.Kind == FaultHang
			if hangs {
				client = &http.Client{Timeout: 300 * time.Millisecond}
			}
			status, body, _, err := doBy(t, client, c.method, url+"/x", "")
			if c.status == 0 {
				require.Error(t, err)
				var timed interface{ Timeout() bool }
				assert.Equal(t, hangs, errors.As(err, &timed) && timed.Timeout(), "only what hangs times out: %v", err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, c.status, status)
				assert.Equal(t, c.body, body)
			}
			assert.EqualValues(t, c.value, cloud.value.Load())
		})
	}
}

// TestFaultLate: a gateway gives up, and what was behind it goes on.
func TestFaultLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := &counter{}
		s := New(cloud)
		_, err := s.AddFault(Fault{Kind: FaultLate, Late: Duration(time.Minute), Count: 1})
		require.NoError(t, err)
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/x", http.NoBody))
		assert.Equal(t, http.StatusGatewayTimeout, answer.Code)
		time.Sleep(59 * time.Second)
		assert.Zero(t, cloud.value.Load())
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 1, cloud.value.Load())
	})
}

func TestFaultAtTheKthCall(t *testing.T) {
	t.Parallel()
	_, s, url := start(t)
	id, err := s.AddFault(Fault{Kind: FaultStatus, Status: 500, From: 2, Count: 2})
	require.NoError(t, err)
	var got []int
	for range 4 {
		status, _, _, err := do(t, http.MethodGet, url+"/x", "")
		require.NoError(t, err)
		got = append(got, status)
	}
	assert.Equal(t, []int{200, 500, 500, 200}, got)
	s.RemoveFault(id)
	assert.Empty(t, s.Faults())
	_, err = s.AddFault(Fault{Kind: "smoke"})
	require.ErrorContains(t, err, `unknown kind of fault "smoke"; there are zero, status`)
}

func TestCallsAreCounted(t *testing.T) {
	t.Parallel()
	_, s, url := start(t)
	for _, r := range []struct{ method, path string }{{http.MethodGet, "/x"}, {http.MethodPost, "/x"}, {http.MethodPost, "/refused"}} {
		_, _, _, err := do(t, r.method, url+r.path, "payload")
		require.NoError(t, err)
	}
	c := s.Calls()
	assert.Equal(t, []int{3, 1, 2}, []int{c.Total, c.Reads, c.Writes})
	assert.Equal(t, map[string]int{"GET /x": 1, "POST /x": 1, "POST /refused": 1}, c.ByOperation)
	assert.Equal(t, []string{"call 3: malformed"}, c.Refused)
	assert.Equal(t, "payload", c.Latest[1].Body)
	assert.Equal(t, 200, c.Latest[0].Status)
	s.ResetCalls()
	assert.Zero(t, s.Calls().Total)
}

func TestRateLimits(t *testing.T) {
	t.Parallel()
	_, s, url := start(t)
	s.Configure(func(c *Settings) { c.PerMinute, c.PerHour = 2, 10 })
	for left := 9; left >= 8; left-- {
		status, _, h, err := do(t, http.MethodGet, url+"/x", "")
		require.NoError(t, err)
		assert.Equal(t, 200, status)
		assert.Equal(t, strconv.Itoa(left), h.Get("Remaining"))
	}
	status, _, h, err := do(t, http.MethodGet, url+"/x", "")
	require.NoError(t, err)
	assert.Equal(t, 429, status)
	assert.NotEmpty(t, h.Get("Retry-After"), "a burst tells when to come back")

	s.Configure(func(c *Settings) { c.PerMinute, c.PerHour = 0, 2 })
	status, _, h, err = do(t, http.MethodGet, url+"/x", "")
	require.NoError(t, err)
	assert.Equal(t, 429, status)
	assert.Empty(t, h.Get("Retry-After"), "an hour that is used up does not")
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	cloud, s, url := start(t)
	for _, step := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{http.MethodPost, "seed", `{"instances":3}`, 204, ""},
		{http.MethodGet, "state", "", 200, "3"},
		{http.MethodPost, "do/reset", "", 204, ""},
		{http.MethodPost, "do/smoke", "", 404, "unknown action; there are reset"},
		{http.MethodPost, "faults", `{"kind":"reset","writes":true,"for":"1m"}`, 200, `"id": 1`},
		{http.MethodPost, "faults", `{"kind":"smoke"}`, 400, "unknown kind"},
		{http.MethodPost, "faults", `{"knd":"reset"}`, 400, "unknown field"},
		{http.MethodGet, "faults", "", 200, `"for": "1m0s"`},
		{http.MethodDelete, "faults", "", 204, ""},
		{http.MethodPost, "config", `{"latency":"1ms"}`, 200, `"latency": "1ms"`},
		{http.MethodPost, "config", `{"perHour":7}`, 200, `"latency": "1ms"`},
		{http.MethodGet, "calls", "", 200, `"total": 0`},
		{http.MethodGet, "summary", "", 200, `"name": "a"`},
		{http.MethodGet, "env", "", 200, url},
		{http.MethodPost, "remove", `{"name":"x"}`, 404, "there is none"},
		{http.MethodGet, "nowhere", "", 404, ""},
	} {
		status, body, _, err := do(t, step.method, url+AdminPrefix+step.path, step.body)
		require.NoError(t, err)
		assert.Equal(t, step.status, status, step.path)
		assert.Contains(t, body, step.answer, step.path)
	}
	assert.Zero(t, cloud.value.Load())
	assert.Empty(t, s.Faults())
	assert.Zero(t, s.Calls().Total, "the admin path is no call of the API")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	_, s, url := start(t)
	s.Configure(func(c *Settings) { c.Unreachable = true })
	_, _, _, err := do(t, http.MethodGet, url+"/x", "")
	require.Error(t, err)
	assert.Equal(t, 1, s.Calls().Total)
}

// TestNull: the first object of the first list becomes null; in XML, an empty element.
func TestNull(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"links":{},"droplets":[{"id":1},{"id":2}]}`: `{"droplets":[null,{"id":2}],"links":{}}`,
		`{"tags":["a"],"data":[{"id":1}]}`:            `{"data":[null],"tags":["a"]}`,
		`{"data":[]}`:                                 `{"data":[]}`,
		`no JSON`:                                     `no JSON`,
		`<R><set><item><g><item>a</item></g></item><item>b</item></set></R>`:                                           `<R><set><item/><item>b</item></set></R>`,
		`<R><set><item><instancesSet><item><g><item>a</item></g></item><item>b</item></instancesSet></item></set></R>`: `<R><set><item><instancesSet><item/><item>b</item></instancesSet></item></set></R>`,
	} {
		assert.Equal(t, want, string(withNull([]byte(body))))
	}
}

// TestRedirectFault: the client is sent elsewhere, and the call does not take effect.
func TestRedirectFault(t *testing.T) {
	t.Parallel()
	c, s, url := start(t)
	_, err := s.AddFault(Fault{Kind: FaultRedirect})
	require.NoError(t, err)
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	status, _, header, err := doBy(t, stay, http.MethodPost, url+"/x", "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusTemporaryRedirect, status)
	assert.Equal(t, "http://"+ElsewhereHost+"/x", header.Get("Location"))
	assert.Zero(t, c.value.Load())
}

// TestPorts: ports of one number stay apart, and backends come once and in order.
func TestPorts(t *testing.T) {
	t.Parallel()
	ports := Ports{}
	ports.Add("TCP", 80, "", []string{Backend("b", 30080), Backend("a", 30080), "a:30080"})
	ports.Add("tcp", 80, "ipv6", nil)
	ports.Add("tcp", 80, "", []string{"c:1"})
	ports.Add("udp", 80, "", nil)
	assert.Equal(t, Ports{"tcp/80": {"a:30080", "b:30080"}, "tcp/80 ipv6": nil, "tcp/80 another": {"c:1"}, "udp/80": nil}, ports)
}

package cloudstacksim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// client calls the simulator as any client of CloudStack does.
type client struct {
	*testing.T
	sim         *Sim
	server      *simkit.Server
	url         string
	key, secret string
	http        *http.Client
	post        bool
	change      func(url.Values)
}

// run runs a test in virtual time, with a client of the account User.
func run(t *testing.T, o Options, test func(t *testing.T, c *client)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := New(o)
		network := simkit.NewNetwork()
		transport := &http.Transport{DialContext: network.Dial}
		c := &client{
			T: t, sim: sim, server: server, url: network.Serve(t, server), key: APIKey, secret: SecretKey,
			http: &http.Client{Transport: transport},
		}
		t.Cleanup(transport.CloseIdleConnections)
		require.NoError(t, sim.Judge())
		t.Cleanup(func() { assert.Empty(t, sim.Differences(), "the API's own description differs") })
		test(t, c)
	})
}

// withKeys is the client of another account.
func (c *client) withKeys(key, secret string) *client {
	other := *c
	other.key, other.secret = key, secret
	return &other
}

// send sends a command with its parameters, in pairs, and returns the status, the outer name of the answer, and what it holds.
func (c *client) send(command string, pairs ...string) (status int, outer string, inner map[string]any) {
	c.Helper()
	fields := map[string]string{
		"command": command, "apiKey": c.key, "response": "json", "signatureversion": "3",
		"expires": time.Now().Add(10 * time.Minute).UTC().Format("2006-01-02T15:04:05Z"),
	}
	for i := 0; i < len(pairs); i += 2 {
		fields[pairs[i]] = pairs[i+1]
	}
	fields["signature"] = Sign(fields, c.secret)
	form := url.Values{}
	for name, value := range fields {
		form.Set(name, value)
	}
	if c.change != nil {
		c.change(form)
	}
	method, address, body := http.MethodGet, c.url+APIPath+"?"+form.Encode(), io.Reader(http.NoBody)
	if c.post {
		method, address, body = http.MethodPost, c.url+APIPath, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(c.Context(), method, address, body)
	require.NoError(c, err)
	if c.post {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := c.http.Do(r)
	require.NoError(c, err)
	defer answer.Body.Close()
	var document map[string]map[string]any
	text, err := io.ReadAll(answer.Body)
	require.NoError(c, err)
	require.NoError(c, json.Unmarshal(text, &document), "%s", text)
	for name, value := range document {
		outer, inner = name, value
	}
	return answer.StatusCode, outer, inner
}

// do sends a command that is to succeed.
func (c *client) do(command string, pairs ...string) map[string]any {
	c.Helper()
	status, outer, inner := c.send(command, pairs...)
	require.Equal(c, http.StatusOK, status, "%s %v: %v", command, pairs, inner)
	require.Equal(c, strings.ToLower(command)+"response", outer)
	return inner
}

// requireRefusal sends a command that is to be refused with a code and words.
func (c *client) requireRefusal(code int, words, command string, pairs ...string) {
	c.Helper()
	status, _, inner := c.send(command, pairs...)
	assert.Equal(c, code, status, "%s %v: %v", command, pairs, inner)
	assert.EqualValues(c, code, inner["errorcode"], "%s %v", command, pairs)
	assert.Contains(c, inner["errortext"], words, "%s %v", command, pairs)
}

// ended waits for a job and returns its status and its result.
func (c *client) ended(job any) (status int, result map[string]any) {
	c.Helper()
	id, _ := job.(string)
	require.NotEmpty(c, id)
	for range 100 {
		answer := c.do("queryAsyncJobResult", "jobid", id)
		n, _ := answer["jobstatus"].(float64)
		result, _ = answer["jobresult"].(map[string]any)
		if status = int(n); status != jobPending {
			return status, result
		}
		time.Sleep(time.Second)
	}
	c.Fatalf("job %s does not end", id)
	return 0, nil
}

// run carries out a command and its job, and returns the ID of what was made.
func (c *client) run(command string, pairs ...string) string {
	c.Helper()
	answer := c.do(command, pairs...)
	status, result := c.ended(answer["jobid"])
	require.Equal(c, jobDone, status, "%s: %v", command, result)
	id, _ := answer["id"].(string)
	return id
}

// failed carries out a command whose job is to fail.
func (c *client) failed(code int, words, command string, pairs ...string) {
	c.Helper()
	status, result := c.ended(c.do(command, pairs...)["jobid"])
	assert.Equal(c, jobFailed, status, "%s %v", command, pairs)
	assert.EqualValues(c, code, result["errorcode"])
	assert.Contains(c, result["errortext"], words)
}

// list returns what a listing shows.
func (c *client) list(key, command string, pairs ...string) []map[string]any {
	c.Helper()
	answer := c.do(command, pairs...)
	items, _ := answer[key].([]any)
	if len(items) == 0 {
		assert.Empty(c, answer, "an empty listing has neither a count nor a list")
	}
	var all []map[string]any
	for _, item := range items {
		m, _ := item.(map[string]any)
		all = append(all, m)
	}
	return all
}

// only returns the only element of a listing.
func (c *client) only(key, command string, pairs ...string) map[string]any {
	c.Helper()
	all := c.list(key, command, pairs...)
	require.Len(c, all, 1, "%s %v", command, pairs)
	return all[0]
}

// rule makes a load balancer rule for port 80 on a new address; it returns the IDs of both.
func (c *client) rule(pairs ...string) (rule, address string) {
	c.Helper()
	address = c.run("associateIpAddress", "networkid", c.sim.SeedNetwork())
	return c.ruleOn(address, "web-tcp-80", "80", pairs...), address
}

func (c *client) ruleOn(address, name, port string, pairs ...string) string {
	c.Helper()
	return c.run("createLoadBalancerRule", append([]string{
		"algorithm", "roundrobin", "name", name, "privateport", "30080", "publicport", port, "publicipid", address, "openfirewall", "false",
		"networkid", c.sim.SeedNetwork(),
	}, pairs...)...)
}

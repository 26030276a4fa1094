package ovirtsim

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// client speaks to a simulated engine with a token.
type client struct {
	*testing.T
	handler http.Handler
	token   string
}

func newClient(t *testing.T) (*Sim, *client) {
	t.Helper()
	sim, server := New(7)
	c := &client{T: t, handler: server}
	form := url.Values{"grant_type": {"password"}, "scope": {"ovirt-app-api"}, "username": {User}, "password": {Password}}
	r := httptest.NewRequest(http.MethodPost, tokenPath, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, r)
	var said struct {
		Token string `json:"access_token"`
	}
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &said))
	c.token = said.Token
	return sim, c
}

func (c *client) get(path, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, apiRoot+path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", accept)
	answer := httptest.NewRecorder()
	c.handler.ServeHTTP(answer, r)
	return answer
}

// search returns the sorted names of what a query finds.
func (c *client) search(query string) []string {
	c.Helper()
	answer := c.get("/vms?"+query, "application/json")
	require.Equal(c, http.StatusOK, answer.Code, answer.Body)
	var list struct {
		VM []struct {
			Name string `json:"name"`
		} `json:"vm"`
	}
	require.NoError(c, json.Unmarshal(answer.Body.Bytes(), &list))
	names := []string{}
	for _, v := range list.VM {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return names
}

// leaves returns every text in a document with the names that lead to it, but those that only one of the forms has.
func leavesOfXML(t *testing.T, text string) []string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	var path, all []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			path = append(path, token.Name.Local)
			for _, a := range token.Attr {
				all = append(all, strings.Join(append(slices.Clone(path), a.Name.Local), "/")+"="+a.Value)
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.CharData:
			if len(path) > 0 && path[len(path)-1] != "creation_time" && strings.TrimSpace(string(token)) != "" {
				all = append(all, strings.Join(path, "/")+"="+string(token))
			}
		}
	}
}

func leavesOfJSON(value any, path []string, all []string) []string {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			all = leavesOfJSON(v, append(slices.Clone(path), name), all)
		}
	case []any:
		for _, v := range value {
			all = leavesOfJSON(v, path, all)
		}
	case string:
		if value != "" {
			all = append(all, strings.Join(path, "/")+"="+value)
		}
	}
	slices.Sort(all)
	return all
}

func TestBothFormsSayTheSame(t *testing.T) {
	sim, c := newClient(t)
	sim.Add("one", func(v *VM) {
		v.Devices[0].IPs = []string{"10.0.0.5", "2001:db8::1"}
		v.StatusDetail = "a < b & c"
	})
	sim.Add("two", func(v *VM) { v.Status = "down" })
	sim.Add("none", func(v *VM) { v.Status, v.NICs = "", nil })
	for _, path := range []string{"/vms?follow=nics", "/vms", "/clusters", "/datacenters", "/instancetypes", ""} {
		var document any
		require.NoError(t, json.Unmarshal(c.get(path, "application/json").Body.Bytes(), &document))
		text := c.get(path, "application/xml").Body.String()
		root, _, _ := strings.Cut(strings.TrimPrefix(text[strings.Index(text, "?>\n")+3:], "<"), ">")
		inXML := leavesOfXML(t, text)
		require.Greater(t, len(inXML), 2)
		inJSON := leavesOfJSON(document, []string{root}, nil)
		if path == "" { // its time is a number in JSON
			inXML = slices.DeleteFunc(inXML, func(s string) bool { return strings.HasPrefix(s, "api/time=") })
		}
		assert.Equal(t, inXML, inJSON, path)
	}
	assert.JSONEq(t, `{}`, c.get("/vms?search=name%3Dnobody", "application/json").Body.String(), "as the engine writes an empty collection")
}

func TestSearches(t *testing.T) {
	sim, c := newClient(t)
	sim.Add("a", func(v *VM) { v.Tags = []string{"kubernetes"} })
	sim.Add("B", func(v *VM) { v.Status = "down" })
	c1 := sim.Add("c d")
	for query, want := range map[string][]string{
		"": {"B", "a", "c d"}, "search=name=b": {"B"}, "search=name+%3D+b+and+status%3Dup": {}, "search=name=a+or+name=b": {"B", "a"},
		"search=name%3D%22c+d%22": {"c d"}, "search=tag%3Dkubernetes": {"a"}, "search=id=" + c1.ID: {"c d"}, "search=name%3D*": {"B", "a", "c d"},
		"search=name=b&case_sensitive=true": {}, "search=sortby+name+asc+page+2&max=2": {"c d"}, "max=0": {}, "search=cluster=default+and+name!=a": {"B", "c d"},
		"search=fqdn=a.example.com": {"a"}, "search=datacenter=berlin": {"B", "a", "c d"},
	} {
		assert.Equal(t, want, c.search(query), query)
	}
	for _, query := range []string{"search=nonsense=1", "search=tag!=x", "search=name", "unknown=1", "max=x", "search=page+x"} {
		assert.Equal(t, http.StatusBadRequest, c.get("/vms?"+query, "application/json").Code, query)
	}
	sim.Permit(c1.ID)
	assert.Equal(t, []string{}, c.search("search=name=a"))
	assert.Equal(t, []string{"c d"}, c.search("search=name%3Da+sortby+name+asc&max=10"), "a filtered user's search is ignored then")
	assert.NotContains(t, c.get("/vms", "application/json").Body.String(), `"host"`)
}

// TestListingHasWhatTheSDKsRequire: go-ovirt-client refuses a whole listing for one virtual machine that lacks one of these.
func TestListingHasWhatTheSDKsRequire(t *testing.T) {
	sim, c := newClient(t)
	sim.Add("worker")
	text := c.get("/vms", "application/xml").Body.String()
	for _, part := range []string{
		"<name>", "<description>", "<comment>", "<template href=", "<cluster href=", "<os><type>", "<type>server</type>", "<memory>", "<memory_policy>",
		"<cpu>", "<topology><cores>", "<sockets>", "<threads>", "<status>up</status>", "<placement_policy><affinity>",
	} {
		assert.Contains(t, text, part)
	}
}

func TestRefusals(t *testing.T) {
	_, c := newClient(t)
	assert.Equal(t, http.StatusNotFound, c.get("/v3/vms", "application/json").Code, "which is gone")
	assert.Equal(t, http.StatusNotFound, c.get("/vms/nonsense", "application/json").Code)
	assert.Empty(t, c.get("/vms/nonsense", "application/json").Body.String())
	token := c.token
	c.token = "another"
	answer := c.get("/vms", "application/json")
	assert.Equal(t, []string{"401", "text/html;charset=UTF-8"}, []string{"401", answer.Header().Get("Content-Type")})
	c.token = token
	r := httptest.NewRequest(http.MethodPost, apiRoot+"/vms", strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer "+token)
	written := httptest.NewRecorder()
	c.handler.ServeHTTP(written, r)
	assert.Equal(t, http.StatusMethodNotAllowed, written.Code)
}

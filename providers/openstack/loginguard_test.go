package openstack

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestTheLoginStaysAtTheConfiguredHost: neither a redirect nor an address in the list of versions takes the password elsewhere.
func TestTheLoginStaysAtTheConfiguredHost(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(other.Close)
	for name, keystone := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"list of versions": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMultipleChoices)
			fmt.Fprintf(w, `{"versions":{"values":[{"id":"v3.14","status":"stable","links":[{"rel":"self","href":"%s/v3/"}]}]}}`, other.URL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(keystone)
			defer server.Close()
			file := strings.Join([]string{"[Global]", "auth-url=" + server.URL, "user-id=u", "password=hunter2", "tenant-id=t"}, "\n")
			in := registry.Inputs{Version: "test", Sources: schema.Sources{File: []byte(file)}}
			c, _, err := parseConfig(in)
			require.NoError(t, err)
			a, err := newAPI(c, in)
			require.NoError(t, err)
			_, err = a.connected(t.Context())
			require.ErrorContains(t, err, strings.TrimPrefix(other.URL, "http://"))
			assert.NotContains(t, err.Error(), "hunter2")
			assert.Zero(t, reached.Load())
		})
	}
}

package cloudapi

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoRedirectIsFollowed: whoever follows one carries the credential to a host that nobody configured.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect,
	} {
		var reached, asked atomic.Int64
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
		t.Cleanup(other.Close)
		api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, other.URL+"/steal", status)
		}))
		t.Cleanup(api.Close)
		ours := NewClient(Config{
			Provider: "test", Operation: func(*http.Request) string { return "GET things" }, Transport: api.Client().Transport,
			Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") },
		})
		for name, client := range map[string]*http.Client{"ours": ours.Client, "another's": {Transport: NoRedirects(api.Client().Transport)}} {
			asked.Store(0)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/things", nil)
			require.NoError(t, err)
			request.Header.Set("X-Auth-Token", "secret")
			response, err := client.Do(request)
			if err == nil {
				response.Body.Close()
			}
			require.Error(t, err, "%s, %d", name, status)
			require.ErrorIs(t, err, ErrTransient, "a redirect proves nothing about an object")
			assert.ErrorContains(t, err, request.URL.Host+" redirects to "+other.URL)
			assert.Equal(t, int64(1), asked.Load(), "and is not asked again")
		}
		assert.Zero(t, reached.Load())
	}
}

// TestTheCredentialIsForItsHostAlone: whatever makes an SDK call another host, or the same one without TLS.
func TestTheCredentialIsForItsHostAlone(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func(*http.Request) (*http.Response, error){status(http.StatusOK), status(http.StatusOK), status(http.StatusOK)}}
	c := newTestClient(s, func(c *Config) {
		c.Hosts = []string{"https://api.example.com"}
		c.Authorize = func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }
	})
	for address, allowed := range map[string]bool{
		"https://api.example.com/v2/x": true, "http://api.example.com/v2/x": false, "https://evil.example.com/v2/x": false, "https://api.example.com:444/v2/x": false,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		response, err := c.Do(request)
		if allowed {
			require.NoError(t, err)
			response.Body.Close()
			continue
		}
		require.ErrorIs(t, err, ErrInvalid, address)
		require.ErrorIs(t, err, errFinal)
	}
}

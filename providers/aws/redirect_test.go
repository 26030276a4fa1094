package aws

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCredentialsAreNotFetchedByRedirect: the SDK sends the token of the web identity to whatever host a 307 names.
func TestCredentialsAreNotFetchedByRedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var reached atomic.Int64
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
		t.Cleanup(other.Close)
		sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, status) }))
		t.Cleanup(sts.Close)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, sts.URL, strings.NewReader("WebIdentityToken=secret"))
		require.NoError(t, err)
		response, err := credentialsHTTP().Do(request)
		if err == nil {
			response.Body.Close()
			assert.Equal(t, http.StatusFound, status, "the SDK hands this one back")
		} else {
			assert.ErrorContains(t, err, "redirects to "+other.URL)
		}
		assert.Zero(t, reached.Load())
	}
}

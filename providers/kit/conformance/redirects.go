package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Redirects shows that a provider's client, with the SDK that it uses, follows no redirect and sends its credential nowhere else:
// to another host with and without TLS, and to another path of the same one. calls returns calls of the client of an API at a URL;
// they must carry the secret.
func Redirects(t *testing.T, secret string, calls func(t *testing.T, url string) map[string]func(context.Context) error) {
	t.Helper()
	var reached atomic.Int64
	count := func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			reached.Add(1)
		}
	}
	plain, secure := httptest.NewUnstartedServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	for _, s := range []*httptest.Server{plain, secure} {
		s.Config.ConnState = count
		t.Cleanup(s.Close)
	}
	plain.Start()
	secure.StartTLS()
	var status, asked, carried atomic.Int64
	var target atomic.Value
	target.Store("")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") == "Bearer "+secret {
			carried.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", target.Load().(string)+"/elsewhere") //nolint:forcetypeassert // it is stored above and below
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(api.Close)
	ours := calls(t, api.URL)
	require.NotEmpty(t, ours)
	for _, code := range []int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect,
	} {
		for where, url := range map[string]string{"another host": secure.URL, "another host without TLS": plain.URL, "the same host": api.URL} {
			for name, call := range ours {
				title := fmt.Sprintf("%s, %d to %s", name, code, where)
				status.Store(int64(code))
				target.Store(url)
				asked.Store(0)
				carried.Store(0)
				err := call(t.Context())
				require.ErrorContains(t, err, "redirects to "+url, title)
				assert.NotContains(t, err.Error(), secret, title)
				assert.Equal(t, int64(1), asked.Load(), "%s: one call, and none to where it leads", title)
				assert.Equal(t, int64(1), carried.Load(), "%s: it is an ordinary call", title)
			}
		}
	}
	assert.Zero(t, reached.Load(), "no connection to another host")
}

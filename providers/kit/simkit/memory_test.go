package simkit

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, cloud := NewNetwork(), &counter{}
		server := New(cloud)
		url, other := n.Serve(t, server), n.Serve(t, New(&counter{}))
		assert.NotEqual(t, url, other)
		client := &http.Client{Transport: &http.Transport{DialContext: n.Dial}, Timeout: 15 * time.Second}
		get := func(at string) (string, error) {
			_, text, _, err := doBy(t, client, http.MethodGet, at, "")
			return text, err
		}
		cloud.Seed(7)
		text, err := get(url)
		require.NoError(t, err)
		assert.JSONEq(t, `{"value":7}`, text)
		text, err = get(other)
		require.NoError(t, err)
		assert.JSONEq(t, `{"value":0}`, text)

		server.Configure(func(s *Settings) { s.Latency = Duration(10 * time.Second) })
		began := time.Now()
		_, err = get(url)
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(began), "latency costs no real time")
		for _, kind := range []string{FaultHang, FaultReset, FaultLost, FaultCut} {
			_, err := server.AddFault(Fault{Kind: kind})
			require.NoError(t, err)
			_, err = get(url)
			require.Error(t, err, kind)
			server.ClearFaults()
		}
		_, err = get("http://elsewhere.example")
		require.ErrorContains(t, err, "refused")
		assert.Equal(t, []string{"elsewhere.example:80"}, n.Strangers())
		status, _, _, err := doBy(t, client, http.MethodPost, url, strings.Repeat("x", 1<<20))
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status, "bodies larger than any buffer pass")
	})
}

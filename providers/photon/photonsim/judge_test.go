package photonsim

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestSDKReadsTheSimulator: the SDK that Kubernetes used reads the simulator in the interim dialect.
func TestSDKReadsTheSimulator(t *testing.T) {
	t.Parallel()
	sim, handler := New(Interim(), 3)
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	place, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(place.Port())
	require.NoError(t, err)
	sim.Authenticate(place.Hostname(), port)
	sim.SetPassword("plain") // the SDK does not encode all characters
	want := []string{}
	for range 150 {
		v := sim.Add("worker")
		want = append(want, v.ID+" worker STARTED cluster-node")
	}
	var saw struct {
		Status   string
		Listed   []string
		Networks map[string]any
		Missing  string
	}
	require.NoError(t, json.Unmarshal(conformance.Judge(t, "../testdata/judge", server.URL, User, "plain", Project), &saw))
	slices.Sort(saw.Listed)
	assert.Equal(t, want, saw.Listed, "two pages")
	assert.Equal(t, []string{"READY", "404 VmNotFound"}, []string{saw.Status, saw.Missing})
	assert.Len(t, saw.Networks["networkConnections"], 1)
}

package ovirt

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

// TestSDKReadsTheSimulator: the Go client that the project oVirt publishes reads the simulated engine in XML, and refuses what lacks
// anything that a real engine always shows; the provider knows each status that the description of the API has.
func TestSDKReadsTheSimulator(t *testing.T) {
	t.Parallel()
	sim, handler := ovirtsim.New(3)
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	worker := sim.Add("worker", func(v *ovirtsim.VM) { v.Devices[0].IPs = []string{"10.35.1.120", "2001:db8::5"} })
	down := sim.Add("down", func(v *ovirtsim.VM) { v.Status = "down" })
	var saw struct {
		Listed, Searched []string
		ByName           string
		Addresses        map[string][]string
		Missing          bool
		Statuses         []string
	}
	out := conformance.Judge(t, "testdata/judge", sim.Variables(server.URL)[envURL], ovirtsim.User, ovirtsim.Password, "worker")
	require.NoError(t, json.Unmarshal(out, &saw))
	slices.Sort(saw.Listed)
	assert.Equal(t, []string{worker.ID + " worker up", down.ID + " down down"}, saw.Listed)
	assert.Equal(t, []string{"worker"}, saw.Searched)
	assert.Equal(t, worker.ID, saw.ByName)
	assert.Equal(t, map[string][]string{"eth0": {"10.35.1.120", "2001:db8::5"}}, saw.Addresses)
	assert.True(t, saw.Missing)
	assert.Len(t, saw.Statuses, 15)
	for _, s := range saw.Statuses {
		_, known := stateOf(s)
		assert.True(t, known, s)
	}
}

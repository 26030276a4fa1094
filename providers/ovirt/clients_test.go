package ovirt

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

// pythonVariable names a Python that has the modules of testdata/clients.txt.
const pythonVariable = "ANYCCM_PYTHON"

// TestOtherClients: the SDK for Python that the project oVirt publishes reads the simulated engine, and its types, which are made from the
// description of the API, know every element of the simulator's documents, in both forms, and every status that the provider knows.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	python := cmp.Or(os.Getenv(pythonVariable), "python3")
	if text, err := exec.CommandContext(t.Context(), python, "-c", "import ovirtsdk4").CombinedOutput(); err != nil {
		t.Skipf("set %s to a Python with the modules of providers/ovirt/testdata/clients.txt to drive the simulator with other clients: %s", pythonVariable, text)
	}
	sim, handler := ovirtsim.New(3)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	worker := sim.Add("worker", func(v *ovirtsim.VM) {
		v.StatusDetail, v.Devices[0].IPs = "none", []string{"10.35.1.120", "2001:db8::5"}
	})
	down := sim.Add("down", func(v *ovirtsim.VM) { v.Status = "down" })
	sim.Add("illegal", func(v *ovirtsim.VM) { v.Status, v.NICs, v.InstanceType = "", nil, "" })
	env := sim.Variables(server.URL)
	out, err := exec.CommandContext(t.Context(), python, "testdata/clients.py", env[envURL], ovirtsim.User, ovirtsim.Password, "worker").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s", failed.Stderr)
	}
	require.NoError(t, err)
	var saw struct {
		Version                                  int
		Listed, Searched, Addresses, Cluster     []string
		Statuses, Parameters, Unknown, Differing []string
		Missing                                  bool
	}
	require.NoError(t, json.Unmarshal(out, &saw))
	assert.Equal(t, 4, saw.Version)
	assert.Len(t, saw.Listed, 3)
	assert.Subset(t, saw.Listed, []string{worker.ID + " worker up", down.ID + " down down"})
	assert.Equal(t, []string{"worker"}, saw.Searched)
	assert.Equal(t, []string{"10.35.1.120", "2001:db8::5"}, saw.Addresses)
	assert.Equal(t, []string{"Default"}, saw.Cluster)
	assert.True(t, saw.Missing)
	assert.Empty(t, saw.Unknown, "elements that the API does not have")
	assert.Empty(t, saw.Differing, "JSON and XML")
	require.Len(t, saw.Statuses, 15)
	for _, s := range saw.Statuses {
		_, known := stateOf(s)
		assert.True(t, known, s)
	}
	for _, parameter := range []string{"search", "follow"} {
		assert.True(t, slices.Contains(saw.Parameters, parameter), parameter)
	}
	accepted, refused, _ := sim.Logins()
	assert.Equal(t, []int{1, 0}, []int{accepted, refused})
}

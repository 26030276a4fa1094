package gce

import (
	"cmp"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// pythonVariable names a Python with the modules of testdata/clients.txt.
const pythonVariable = "ANYCCM_PYTHON"

// TestOtherClients: Google's Python client and Apache Libcloud work with the simulator, and their requests match the description of the
// API.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	python := cmp.Or(os.Getenv(pythonVariable), "python3")
	if text, err := exec.CommandContext(t.Context(), python, "-c", "import googleapiclient, libcloud").CombinedOutput(); err != nil {
		if os.Getenv(pythonVariable) != "" {
			t.Fatalf("%s=%s: %v: %s", pythonVariable, python, err, text)
		}
		t.Skipf("set %s to a Python with the modules of providers/gce/testdata/clients.txt to drive the simulator with other clients", pythonVariable)
	}
	sim, handler := gcesim.New("", 10*time.Millisecond)
	judge(t, sim)
	for _, name := range []string{"one", "two"} {
		sim.AddInstance(gcesim.Spec{Name: name})
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	text, err := exec.CommandContext(t.Context(), python, "testdata/clients.py", server.URL).CombinedOutput()
	require.NoError(t, err, "%s", text)
	assert.Contains(t, string(text), "both clients are content")
	for _, collection := range []string{"forwardingRules", "targetPools", "backendServices", "firewalls", "routes", "addresses", "healthChecks"} {
		assert.Empty(t, sim.Objects(collection), collection)
	}
}

package ibm

import (
	"cmp"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// pythonVariable names a Python that has the modules of testdata/clients.txt.
const pythonVariable = "ANYCCM_PYTHON"

// TestOtherClients: IBM's own client for Python, which is made of IBM's description of the API and refuses documents that lack a field,
// gets from the simulator what it gets from the real API.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	python := cmp.Or(os.Getenv(pythonVariable), "python3")
	if text, err := exec.CommandContext(t.Context(), python, "-c", "import ibm_vpc").CombinedOutput(); err != nil {
		t.Skipf("set %s to a Python with the modules of providers/ibm/testdata/clients.txt to drive the simulator with IBM's client: %s", pythonVariable, text)
	}
	sim, handler := ibmsim.New(testKey, 0)
	for _, name := range []string{"one", "two"} {
		sim.AddInstance(name)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	text, err := exec.CommandContext(t.Context(), python, "testdata/clients.py", server.URL, testKey).CombinedOutput()
	require.NoError(t, err, "%s", text)
	assert.Contains(t, string(text), "the client is content")
	assert.Empty(t, sim.LoadBalancers())
}

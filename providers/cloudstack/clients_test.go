package cloudstack

import (
	"cmp"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// pythonVariable names a Python that has the modules of testdata/clients.txt.
const pythonVariable = "ANYCCM_PYTHON"

// TestOtherClients: the generic client cs and Apache Libcloud, whose signatures, jobs and pages are nobody's here, get from the simulator
// what they get from a real management server.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	python := cmp.Or(os.Getenv(pythonVariable), "python3")
	if text, err := exec.CommandContext(t.Context(), python, "-c", "import cs, libcloud").CombinedOutput(); err != nil {
		t.Skipf("set %s to a Python with the modules of providers/cloudstack/testdata/clients.txt to drive the simulator with other clients: %s", pythonVariable, text)
	}
	sim, handler := cloudstacksim.New(cloudstacksim.Options{Activation: 10 * time.Millisecond, Seed: 3})
	require.NoError(t, sim.Judge())
	sim.IgnoreUnknown() // Libcloud sends such parameters
	for _, name := range []string{"one", "two"} {
		sim.AddVM(cloudstacksim.Spec{Name: name})
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	text, err := exec.CommandContext(t.Context(), python, "testdata/clients.py", server.URL+cloudstacksim.APIPath,
		cloudstacksim.APIKey, cloudstacksim.SecretKey).CombinedOutput()
	require.NoError(t, err, "%s", text)
	assert.Contains(t, string(text), "all clients are content")
	assert.Empty(t, sim.Rules())
	assert.Empty(t, sim.Firewalls())
	assert.Empty(t, sim.Policies())
	assert.Empty(t, sim.Differences(), "the API's own description differs")
}

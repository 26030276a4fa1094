package oci

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// pythonVariable names a Python that has the modules of testdata/clients.txt.
const pythonVariable = "ANYCCM_PYTHON"

// TestPythonSDKReadsTheSimulator: Oracle's own SDK for Python signs calls that the simulator accepts, and reads what it answers.
func TestPythonSDKReadsTheSimulator(t *testing.T) {
	t.Parallel()
	python := judgePython(t)
	sim, server := ocisim.New(testFingerprint)
	url := server.Start(t)
	for _, name := range []string{"a", "b", "c"} {
		sim.AddInstance(name)
	}
	args := []string{"testdata/judge/judge.py", url, ocisim.Compartment, ocisim.SubnetID(2), judgeConfig(t, sim, url)}
	judge := exec.CommandContext(t.Context(), python, args...)
	judge.Stderr = os.Stderr
	out, err := judge.Output()
	require.NoError(t, err)
	var saw struct {
		Instances                         [][]string
		Missing, Primary, Private, Public []string
		Refusal, Stranger                 []any
	}
	require.NoError(t, json.Unmarshal(out, &saw))
	assert.Equal(t, [][]string{
		{"a", "RUNNING", "Uocm:PHX-AD-2"}, {"b", "RUNNING", "Uocm:PHX-AD-3"}, {"c", "RUNNING", "Uocm:PHX-AD-1"},
	}, saw.Instances)
	assert.Empty(t, saw.Missing)
	assert.Equal(t, []string{"10.0.0.5", "10.0.128.4", "10.0.64.3"}, saw.Primary)
	assert.Equal(t, []string{"10.0.64.3"}, saw.Private)
	assert.Len(t, saw.Public, 1)
	assert.Equal(t, []any{404.0, "NotAuthorizedOrNotFound"}, saw.Refusal)
	assert.Equal(t, []any{401.0, "NotAuthenticated"}, saw.Stranger)
	assert.Empty(t, server.Calls().Refused)
}

// judgePython is a Python that has Oracle's SDK; the test is skipped where there is none.
func judgePython(t *testing.T) string {
	t.Helper()
	tier.Full(t)
	python := cmp.Or(os.Getenv(pythonVariable), "python3")
	if text, err := exec.CommandContext(t.Context(), python, "-c", "import oci").CombinedOutput(); err != nil {
		t.Skipf("set %s to a Python with the modules of providers/oci/testdata/clients.txt to drive the simulator with Oracle's SDK: %s", pythonVariable, text)
	}
	return python
}

// judgeConfig is the configuration of the SDK, as JSON.
func judgeConfig(t *testing.T, sim *ocisim.Sim, url string) string {
	t.Helper()
	var file struct {
		Auth struct{ Tenancy, User, Fingerprint, Key, Region string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(sim.CloudConfig(url)), &file))
	config, err := json.Marshal(map[string]string{
		"tenancy": file.Auth.Tenancy, "user": file.Auth.User, "fingerprint": file.Auth.Fingerprint, "key_content": file.Auth.Key, "region": file.Auth.Region,
	})
	require.NoError(t, err)
	return string(config)
}

// TestPythonSDKUsesLoadBalancers: Oracle's own SDK makes, reads and changes load balancers, security lists and network security
// groups of the simulator, and waits for its work requests.
func TestPythonSDKUsesLoadBalancers(t *testing.T) {
	t.Parallel()
	python := judgePython(t)
	sim, server := ocisim.New(testFingerprint)
	sim.SetWorkTime(200 * time.Millisecond)
	url := server.Start(t)
	secret := newSecret(t, "web")
	judge := exec.CommandContext(t.Context(), python, "testdata/judge/balancers.py", url, ocisim.Compartment, ocisim.VCN, ocisim.BalancerSubnet(),
		ocisim.BalancerList, judgeConfig(t, sim, url), string(secret.Data[v1.TLSCertKey]), string(secret.Data[v1.TLSPrivateKeyKey]))
	judge.Stderr = os.Stderr
	out, err := judge.Output()
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"missing": [], "state": "ACTIVE", "addresses": 1, "policy": "IP_HASH", "rulesets": ["headers"], "outdated": [412, "NoEtagMatch"],
		"used": [400, "InvalidParameter"], "stale": [412, "NoEtagMatch"], "rules": 1, "added": 1, "left": 0
	}`, string(out))
}

package oci

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// TestPythonSDKAndNetworkLoadBalancers: Oracle's own SDK for Python makes, changes and deletes a network load balancer of the simulator,
// and reads what one shows that others have made: each field that Oracle's description demands is there, and each value is one that it
// knows.
func TestPythonSDKAndNetworkLoadBalancers(t *testing.T) {
	t.Parallel()
	python := judgePython(t)
	sim, server := ocisim.New(testFingerprint)
	sim.SetWorkTime(time.Hour)
	// The creation goes on until a change was refused for it, however slow Python is.
	server.Inspect(func(r *http.Request, _ []byte, _ func(*http.Request) *httptest.ResponseRecorder) func() {
		if r.Method != http.MethodPut {
			return nil
		}
		return func() {
			server.Inspect(nil)
			sim.SetWorkTime(300 * time.Millisecond)
			sim.EndWork()
		}
	})
	url := server.Start(t)
	instance := sim.AddInstance("a")
	for _, name := range []string{"one", "two", "three"} {
		sim.AddNetworkLoadBalancer(name, document{"compartmentId": ocisim.Compartment, "subnetId": ocisim.DualSubnet(), "nlbIpVersion": versionBoth})
	}
	args := []string{"testdata/judge/network.py", url, ocisim.Compartment, ocisim.BalancerSubnet(), instance, judgeConfig(t, sim, url)}
	judge := exec.CommandContext(t.Context(), python, args...)
	judge.Stderr = os.Stderr
	out, err := judge.Output()
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"missing": [], "begun": "CREATING", "busy": [409, "IncorrectState"], "work": ["CREATE_NETWORK_LOAD_BALANCER", "SUCCEEDED", ["NetworkLoadBalancer", "VNIC"]],
		"addresses": [[false, "IPV4"], [true, "IPV4"]], "changes": ["SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"],
		"wrong": [[400, "InvalidParameter"], [412, "NoEtagMatch"], [404, "NotAuthorizedOrNotFound"]], "deleted": "DELETE_NETWORK_LOAD_BALANCER",
		"listed": ["default/judged/uid", "one", "three", "two"], "worked": true,
		"listeners": {"TCP-80": ["TCP", 80, true], "UDP-53": ["UDP", 53, false]}, "policies": {"TCP-80": "FIVE_TUPLE", "UDP-53": "THREE_TUPLE"},
		"backends": ["`+instance+`:30053"], "gone": [404, "NotAuthorizedOrNotFound"]
	}`, string(out))
	assert.Len(t, server.Calls().Refused, 2, "what the judge tries that is wrong, and nothing else")
}

package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// call makes a signed call.
func (w *testWorld) call(method, path string, body any) *httptest.ResponseRecorder {
	w.Helper()
	known, err := userKey(w.cloud.loadBalancers.api.config)(w.Context(), credential{})
	require.NoError(w, err)
	data, err := json.Marshal(body)
	require.NoError(w, err)
	r := httptest.NewRequestWithContext(w.Context(), method, path, bytes.NewReader(data))
	require.NoError(w, signHeaders(r, known, time.Now(), []string{"date", "(request-target)", "host"}))
	got := httptest.NewRecorder()
	w.Server.ServeHTTP(got, r)
	return got
}

// asker makes calls as Oracle's own controller does.
func (w *testWorld) asker() func(method, path string, body, answer any) error {
	w.Helper()
	return func(method, path string, body, answer any) error {
		got := w.call(method, "/20160918"+path, body)
		if got.Code >= http.StatusBadRequest {
			return errors.New(got.Body.String())
		}
		if answer != nil {
			require.NoError(w, json.Unmarshal(got.Body.Bytes(), answer))
		}
		return nil
	}
}

// TestSimulatorServesOraclesController: the simulator takes the sequences of requests that Oracle's own controller sends.
func TestSimulatorServesOraclesController(t *testing.T) {
	marking(t, []string{"a", "b", "c"}, func(w *testWorld, _ []*v1.Node, _ *record.FakeRecorder) {
		ask := w.asker()

		// An instance that is not found is looked for in each availability domain.
		var domains []struct{ Name, ID, CompartmentID string }
		require.NoError(w, ask("GET", "/availabilityDomains?compartmentId="+ocisim.Compartment, nil, &domains))
		require.Len(w, domains, 3)
		seen := 0
		for _, d := range domains {
			var some []struct{ AvailabilityDomain string }
			require.NoError(w, ask("GET", "/instances?compartmentId="+ocisim.Compartment+"&availabilityDomain="+d.Name, nil, &some))
			for _, i := range some {
				assert.Equal(w, d.Name, i.AvailabilityDomain)
			}
			seen += len(some)
		}
		assert.Equal(w, 3, seen)
		require.Error(w, ask("GET", "/availabilityDomains", nil, &domains), "a compartment is needed")

		// The rules of a group are read one direction after the other, and those that nobody wants are removed.
		require.NoError(w, w.sim.Actions()["make-group"]([]byte(`{"name": "made by hand"}`)))
		assert.Contains(w, string(w.sim.State()), "made by hand")
		group, members := w.sim.AddGroup("frontend"), w.sim.AddGroup("members")
		options := document{"destinationPortRange": document{"min": 80, "max": 80}}
		require.NoError(w, ask("POST", groupPath(group)+"/actions/addSecurityRules", document{"securityRules": []any{
			document{"direction": "INGRESS", "protocol": "6", "source": everybody, "sourceType": "CIDR_BLOCK", "isStateless": false, "tcpOptions": options},
			document{
				"direction": "EGRESS", "protocol": "6", "destination": members, "destinationType": "NETWORK_SECURITY_GROUP", "isStateless": false, "tcpOptions": options,
			},
		}}, nil))
		for _, direction := range []string{"INGRESS", "EGRESS"} {
			var rules []struct{ Direction, ID string }
			require.NoError(w, ask("GET", groupPath(group)+"/securityRules?direction="+direction, nil, &rules))
			require.Len(w, rules, 1)
			assert.Equal(w, direction, rules[0].Direction)
		}
		require.Error(w, ask("GET", groupPath(group)+"/securityRules?direction=BOTH", nil, nil))

		// spec.loadBalancerIP is an address that somebody has reserved.
		require.NoError(w, w.sim.Actions()["reserve-address"]([]byte(`{"address": "129.146.200.1"}`)))
		require.Error(w, w.sim.Actions()["reserve-address"]([]byte(`{"address": "one"}`)))
		var reserved struct{ ID, LifecycleState string }
		require.NoError(w, ask("POST", "/publicIps/actions/getByIpAddress", document{"ipAddress": "129.146.200.1"}, &reserved))
		assert.Equal(w, "AVAILABLE", reserved.LifecycleState)
		assert.Contains(w, string(w.sim.State()), reserved.ID)
	})
}

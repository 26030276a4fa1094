package ovirt

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

// The faults of the controllers before, each of which is absent here.

func TestFaultDownIsDeleted(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker", func(v *ovirtsim.VM) { v.Status = "down" })
		w.requireExists(nodeOf(v))
	})
}

func TestFaultErrorOfTheListingIsAbsence(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 500})
		_, err := w.metadata(newNode("worker", ""))
		require.ErrorContains(w, err, "HTTP 500")
		assert.NotContains(w, err.Error(), "not found")
	})
}

func TestFaultStatusIsNotLookedAt(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.requireExists(n)
		for status, words := range map[int]string{400: "simulated fault (HTTP 400)", 403: "simulated fault (HTTP 403)", 502: "HTTP 502"} {
			w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: status})
			w.later()
			w.requireDoubt(n, words)
			w.server.ClearFaults()
		}
	})
}

// TestFaultListingPerQuestion, and without an end to the waiting.
func TestFaultListingPerQuestion(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for range 100 {
			w.requireExists(n)
			w.requireMetadata(n)
		}
		assert.LessOrEqual(w, w.calls(ovirtsim.Listing)+w.calls("GET /ovirt-engine/api/vms/{id}"), 2)
		w.later()
		w.fail(simkit.Fault{Kind: simkit.FaultHang})
		began := time.Now()
		_, err := w.exists(n)
		require.Error(w, err)
		assert.Less(w, time.Since(began), time.Minute)
	})
}

func TestFaultNodeNamesAreLookedUp(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("localhost", func(v *ovirtsim.VM) { v.Devices = nil })
		m, err := w.metadata(newNode("localhost", ""))
		require.ErrorContains(w, err, "reports no address", "and none is taken from elsewhere: %v", m)
	})
}

// TestFaultAuthorityOverHTTP: what is on the way would choose whom to trust.
func TestFaultAuthorityOverHTTP(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.env[envURL] = "https://engine.example.com:8443/ovirt-engine/api"
		w.start()
		_, err := w.exists(newNode("worker", providerIDPrefix+someUUID))
		require.Error(w, err)
		for _, address := range w.network.Strangers() {
			assert.Equal(w, "engine.example.com:8443", address, "nobody else is asked")
		}
	})
}

func TestFaultFormIsNotEncoded(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.SetPassword("x&username=admin@internal")
		w.env[envPassword] = "x&username=admin@internal"
		w.start()
		w.requireExists(nodeOf(w.sim.Add("worker")))
	})
}

func TestFaultPasswordInTheAddress(t *testing.T) {
	_, _, err := parseConfig(conformance.Inputs(nil, map[string]string{envURL: "https://admin:hush@engine/api", envPassword: "p"}))
	require.ErrorContains(t, err, "must not hold a user")
	assert.NotContains(t, err.Error(), "hush")
	inWorld(t, func(w *testWorld) {
		w.requireExists(nodeOf(w.sim.Add("worker")))
		for _, c := range w.server.Calls().Latest {
			assert.NotContains(w, c.URL, "password")
		}
	})
}

func TestFaultDeletionByName(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		w.sim.Edit(v, func(v *ovirtsim.VM) { v.Name = "renamed" })
		w.requireExists(nodeOf(v))
		n := newNode("worker", "")
		n.Spec.Taints = nil
		_, err := w.exists(n)
		require.Error(w, err, "no name proves anything")
	})
}

// TestFaultOneIncompleteMachineBreaksAll: the SDK refuses a listing for one machine that lacks a field.
func TestFaultOneIncompleteMachineBreaksAll(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		url := w.network.Serve(w, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			text := `{"access_token":"t","product_info":{"version":{"major":"4"}}}`
			if strings.HasSuffix(r.URL.Path, "/vms") {
				text = `{"vm":[{"id":"` + someUUID + `"},{"id":"5F3AE1C0-7B1D-4E0A-9C55-000000000002","name":"worker","status":"up","later":{"a":["b"]},
					"nics":{"nic":[{"mac":{"address":"` + mac1 + `"},"reported_devices":{"reported_device":[
					{"type":"network","mac":{"address":"` + mac1 + `"},"ips":{"ip":[{"address":"10.0.0.5"}]}}]}}]}}]}`
			}
			_, _ = rw.Write([]byte(text))
		}))
		w.env[envURL] = url
		w.start()
		m := w.requireMetadata(newNode("worker", ""))
		assert.Equal(w, "ovirt://5f3ae1c0-7b1d-4e0a-9c55-000000000002", m.ProviderID)
		assert.Equal(w, "InternalIP 10.0.0.5", shown(m.NodeAddresses))
	})
}

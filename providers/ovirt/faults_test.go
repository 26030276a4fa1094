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
		w.RequireExists(nodeOf(v))
	})
}

func TestFaultErrorOfTheListingIsAbsence(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 500})
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "HTTP 500")
		assert.NotContains(w, err.Error(), "not found")
	})
}

func TestFaultStatusIsNotLookedAt(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.RequireExists(n)
		for status, words := range map[int]string{400: "simulated fault (HTTP 400)", 403: "simulated fault (HTTP 403)", 502: "HTTP 502"} {
			w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: status})
			w.Later()
			w.RequireDoubt(n, words)
			w.Server.ClearFaults()
		}
	})
}

// TestFaultListingPerQuestion, and without an end to the waiting.
func TestFaultListingPerQuestion(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for range 100 {
			w.RequireExists(n)
			w.RequireMetadata(n)
		}
		assert.LessOrEqual(w, w.Calls(ovirtsim.Listing)+w.Calls("GET /ovirt-engine/api/vms/{id}"), 2)
		w.Later()
		w.Fail(simkit.Fault{Kind: simkit.FaultHang})
		began := time.Now()
		_, err := w.Exists(n)
		require.Error(w, err)
		assert.Less(w, time.Since(began), time.Minute)
	})
}

func TestFaultNodeNamesAreLookedUp(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("localhost", func(v *ovirtsim.VM) { v.Devices = nil })
		m, err := w.Metadata(conformance.NewNode("localhost", ""))
		require.ErrorContains(w, err, "reports no address", "and none is taken from elsewhere: %v", m)
	})
}

// TestFaultAuthorityOverHTTP: what is on the way would choose whom to trust.
func TestFaultAuthorityOverHTTP(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.Env[envURL] = "https://engine.example.com:8443/ovirt-engine/api"
		w.start()
		_, err := w.Exists(conformance.NewNode("worker", providerIDPrefix+someUUID))
		require.Error(w, err)
		for _, address := range w.Network.Strangers() {
			assert.Equal(w, "engine.example.com:8443", address, "nobody else is asked")
		}
	})
}

func TestFaultFormIsNotEncoded(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.SetPassword("x&username=admin@internal")
		w.Env[envPassword] = "x&username=admin@internal"
		w.start()
		w.RequireExists(nodeOf(w.sim.Add("worker")))
	})
}

func TestFaultPasswordInTheAddress(t *testing.T) {
	_, _, err := parseConfig(conformance.Inputs(nil, map[string]string{envURL: "https://admin:hush@engine/api", envPassword: "p"}))
	require.ErrorContains(t, err, "must not hold a user")
	assert.NotContains(t, err.Error(), "hush")
	inWorld(t, func(w *testWorld) {
		w.RequireExists(nodeOf(w.sim.Add("worker")))
		for _, c := range w.Server.Calls().Latest {
			assert.NotContains(w, c.URL, "password")
		}
	})
}

func TestFaultDeletionByName(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		w.sim.Edit(v, func(v *ovirtsim.VM) { v.Name = "renamed" })
		w.RequireExists(nodeOf(v))
		n := conformance.NewNode("worker", "")
		n.Spec.Taints = nil
		_, err := w.Exists(n)
		require.Error(w, err, "no name proves anything")
	})
}

// TestFaultOneIncompleteMachineBreaksAll: the SDK refuses a listing for one machine that lacks a field.
func TestFaultOneIncompleteMachineBreaksAll(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		url := w.Network.Serve(w, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			text := `{"access_token":"t","product_info":{"version":{"major":"4"}}}`
			if strings.HasSuffix(r.URL.Path, "/vms") {
				text = `{"vm":[{"id":"` + someUUID + `"},{"id":"5F3AE1C0-7B1D-4E0A-9C55-000000000002","name":"worker","status":"up","later":{"a":["b"]},
					"nics":{"nic":[{"mac":{"address":"` + mac1 + `"},"reported_devices":{"reported_device":[
					{"type":"network","mac":{"address":"` + mac1 + `"},"ips":{"ip":[{"address":"10.0.0.5"}]}}]}}]}}]}`
			}
			_, _ = rw.Write([]byte(text))
		}))
		w.Env[envURL] = url
		w.start()
		m := w.RequireMetadata(conformance.NewNode("worker", ""))
		assert.Equal(w, "ovirt://5f3ae1c0-7b1d-4e0a-9c55-000000000002", m.ProviderID)
		assert.Equal(w, "InternalIP 10.0.0.5", shown(m.NodeAddresses))
	})
}

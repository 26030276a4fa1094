package photon

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/photon/photonsim"
)

// TestIDOfAnotherMachine: a copied cloud config gives a kubelet another machine's ID. The Node gets nothing of that machine, because a
// different one has its name.
func TestIDOfAnotherMachine(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		own, other := w.sim.Add("worker"), w.sim.Add("other")
		n := conformance.NewNode("worker", providerIDPrefix+other.ID)
		n.Spec.Taints = nil
		w.Nodes = append(w.Nodes, n, nodeOf(other))
		w.start()
		words := "virtual machine " + own.ID + " has the name of its Node worker; correct vmID"
		for _, uninitialized := range []bool{true, false} {
			asked := n
			if uninitialized {
				asked = conformance.NewNode("worker", providerIDPrefix+other.ID)
			}
			m, err := w.Metadata(asked)
			require.ErrorContains(w, err, words, "%v", m)
		}
		w.sim.Edit(other.ID, func(v *photonsim.VM) { v.State = "STOPPED" })
		for range 3 {
			_, err := w.cloud.instances.InstanceShutdown(w.Context(), n)
			require.ErrorContains(w, err, words)
			w.Later()
		}
		w.start()
		_, err := w.cloud.instances.InstanceShutdown(w.Context(), n)
		require.ErrorContains(w, err, words, "with nothing in memory")
		w.sim.Remove(other.ID)
		w.Later()
		w.RequireDoubt(n, words)
		w.sim.Remove(own.ID)
		w.Later()
		w.RequireGone(n)
	})
}

// TestRenamedMachineIsTheSameNode, unless another machine has the Node's name.
func TestRenamedMachineIsTheSameNode(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		n := nodeOf(v)
		w.Nodes = append(w.Nodes, n)
		w.start()
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.Name, v.State = "renamed", "STOPPED" })
		w.RequireExists(n)
		assert.True(w, w.ShutDown(n))
		assert.NotEmpty(w, w.RequireMetadata(n).NodeAddresses)
	})
}

// TestMistypedIDOfANodeThatIsNamedAfterItsAddress: the Node's name does not show that the ID is another machine's.
func TestMistypedIDOfANodeThatIsNamedAfterItsAddress(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.Env["PHOTON_OVERRIDE_IP"] = "true"
		v := w.sim.Add("worker", func(v *photonsim.VM) { v.Connections = photonsim.On("00:50:56:00:00:01", "10.9.200.5") })
		other := w.sim.Add("other")
		n := conformance.NewNode("10.9.200.5", providerIDPrefix+"mistyped")
		n.Spec.Taints = nil
		w.Nodes = append(w.Nodes, n)
		w.start()
		w.RequireDoubt(n, "virtual machine "+v.ID+" has the address of its Node 10.9.200.5; correct vmID")
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.Fails = "the host does not answer" })
		time.Sleep(networksMaxAge + time.Minute)
		w.RequireDoubt(n, "nothing is known of address 10.9.200.5")
		wrong := conformance.NewNode("10.9.200.5", providerIDPrefix+other.ID)
		_, err := w.Metadata(wrong)
		require.ErrorContains(w, err, "does not have the address that the Node is named after")
		wrong.Spec.Taints = nil
		assert.Empty(w, w.RequireMetadata(wrong).NodeAddresses, "which stay as they are")
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.Fails = "" })
		w.sim.Remove(v.ID)
		w.Later()
		w.RequireGone(n)
	})
}

// TestWrongIDOfAStoppedMachine: an address-named Node has the ID of a stopped machine. Its own runs, so it is not shut down. The loop over
// addresses learns unknown addresses, not the query.
func TestWrongIDOfAStoppedMachine(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.Env["PHOTON_OVERRIDE_IP"] = "true"
		own, other := w.sim.Add("own"), w.sim.Add("other", func(v *photonsim.VM) { v.State, v.Connections = "STOPPED", nil })
		right := w.sim.Add("right")
		w.sim.Add("without tools", func(v *photonsim.VM) { v.Connections = nil })
		wrong := conformance.InitializedNode("10.9.0.2", providerIDPrefix+other.ID)
		rightly := conformance.InitializedNode("10.9.0.4", providerIDPrefix+right.ID)
		w.Nodes = append(w.Nodes, wrong, rightly)
		w.start()
		ask := func(words string) {
			w.Helper()
			w.RequireExists(rightly)
			down, err := w.cloud.instances.InstanceShutdown(w.Context(), wrong)
			require.ErrorContains(w, err, words)
			assert.False(w, down)
		}
		ask(", whose networks are not known yet, may be that of Node 10.9.0.2")
		w.RequireExists(wrong)
		assert.Zero(w, w.sim.Tasks(), "none for existence")
		assert.Empty(w, w.RequireMetadata(wrong).NodeAddresses)
		w.RequireMetadata(rightly)
		ask("virtual machine " + own.ID + " has the address of its Node 10.9.0.2; correct vmID")
		w.sim.Edit(right.ID, func(v *photonsim.VM) { v.State, v.Connections = "STOPPED", nil })
		time.Sleep(networksMaxAge + time.Minute)
		assert.True(w, w.ShutDown(rightly), "with the ID of its own machine")
		w.RequireMetadata(rightly)
		w.Later()
		assert.True(w, w.ShutDown(rightly), "with addresses that are not known any more")
		w.sim.Remove(own.ID)
		w.Later()
		assert.True(w, w.ShutDown(wrong), "nothing speaks against its ID any more")
	})
}

// TestNothingIsSentElsewhere: no redirect is followed, with a token or with a password.
func TestNothingIsSentElsewhere(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for _, operation := range []string{"POST " + tokenPath, "GET /vms/{id}", listing} {
			w.start()
			w.Fail(simkit.Fault{Kind: simkit.FaultRedirect, Operation: operation})
			_, err := w.cloud.instances.read(w.Context(), strings.TrimPrefix(n.Spec.ProviderID, providerIDPrefix))
			if operation == listing {
				err = w.cloud.instances.CheckAPI(w.Context())
			}
			require.ErrorContains(w, err, "redirects to", operation)
			w.Server.ClearFaults()
			w.Later()
		}
		assert.Empty(w, w.Network.Strangers())
	})
}

// TestOutageOfLightwaveIsNoRefusal: a retry comes sooner than after a refusal, but the password is not sent continuously.
func TestOutageOfLightwaveIsNoRefusal(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		down, asked := true, 0
		place, err := url.Parse(w.Network.ServeTLS(w, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if asked++; down {
				rw.Header().Set("Content-Type", "application/json")
				rw.WriteHeader(http.StatusServiceUnavailable)
				_, _ = rw.Write([]byte(`{"error":"temporarily_unavailable","error_description":"the directory is away"}`))
				return
			}
			w.sim.ServeHTTP(rw, r)
		})))
		require.NoError(w, err)
		port, err := strconv.Atoi(place.Port())
		require.NoError(w, err)
		w.sim.Authenticate(place.Hostname(), port)
		for range 60 {
			w.RequireDoubt(n, "the directory is away")
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(w, asked, 5, "in a minute")
		down = false
		time.Sleep(time.Minute)
		w.RequireExists(n)
	})
}

// TestTokenIsWanted by an API that the configuration says needs none.
func TestTokenIsWanted(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.Env["PHOTON_AUTHENTICATION"] = "false"
		w.start()
		w.RequireDoubt(n, "set authentication = true")
		w.requireLogins(0, 0, 0)
	})
}

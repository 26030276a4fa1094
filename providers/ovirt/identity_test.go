package ovirt

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

// TestGuestThatReportsTheNameOfANode: a guest chooses its FQDN. Where that is the name of a Node of which another machine has the first
// label as its name, either may be it.
func TestGuestThatReportsTheNameOfANode(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		own := w.sim.Add("worker", func(v *ovirtsim.VM) { v.FQDN = "" }) // whose guest agent is not up yet
		guest := w.sim.Add("stranger", func(v *ovirtsim.VM) { v.FQDN = "worker.example.org" })
		_, err := w.Metadata(conformance.NewNode("worker.example.org", ""))
		require.ErrorContains(w, err, own.ID)
		require.ErrorContains(w, err, guest.ID)
		require.ErrorContains(w, err, "start kubelet with --provider-id=")
		w.sim.Remove(guest.ID)
		w.Later()
		assert.Equal(w, providerIDPrefix+own.ID, w.RequireMetadata(conformance.NewNode("worker.example.org", "")).ProviderID)
	})
}

// TestMachineWithoutStatusAndFilteredUser: of no machine does such a user see the host, so that a missing one says nothing.
func TestMachineWithoutStatusAndFilteredUser(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v, other := w.sim.Add("worker", func(v *ovirtsim.VM) { v.Status = "" }), w.sim.Add("other")
		w.sim.Permit(v.ID, other.ID)
		assert.False(w, w.ShutDown(nodeOf(v)))
		require.NoError(w, w.cloud.instances.CheckAPI(w.Context()))
		w.Later()
		assert.False(w, w.ShutDown(nodeOf(v)))
	})
}

// TestBrokenLoginsAreNotRepeatedAllTheTime: an engine that breaks off may have refused the password, and five refusals lock the account.
func TestBrokenLoginsAreNotRepeatedAllTheTime(t *testing.T) {
	for name, f := range map[string]simkit.Fault{
		"half an answer": {Kind: simkit.FaultCut, Operation: tokenCall}, "no answer": {Kind: simkit.FaultHang, Operation: tokenCall},
		"a page": {Kind: simkit.FaultHTML, Operation: tokenCall}, "an error": {Kind: simkit.FaultStatus, Status: 500, Operation: tokenCall},
		"a lost connection":           {Kind: simkit.FaultLost, Operation: tokenCall},
		"the token is never accepted": {Kind: simkit.FaultStatus, Status: 401, Operation: "GET /ovirt-engine/api"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *testWorld) {
				n := nodeOf(w.sim.Add("worker"))
				w.Fail(f)
				began := time.Now()
				for time.Since(began) < time.Minute {
					_, err := w.Exists(n)
					require.Error(w, err)
					_, err = w.Metadata(conformance.NewNode("worker", ""))
					require.Error(w, err)
					time.Sleep(time.Second)
				}
				assert.LessOrEqual(w, w.Calls(tokenCall), 4, "in a minute")
				w.Server.ClearFaults()
				time.Sleep(time.Minute)
				w.RequireExists(n)
			})
		})
	}
}

// TestNothingIsSentElsewhere: no redirect is followed, with a token or with a password.
func TestNothingIsSentElsewhere(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for _, operation := range []string{tokenCall, "GET /ovirt-engine/api$", "GET /ovirt-engine/api/vms/{id}"} {
			w.start()
			w.Fail(simkit.Fault{Kind: simkit.FaultRedirect, Operation: operation})
			_, err := w.cloud.api.instance(w.Context(), strings.TrimPrefix(n.Spec.ProviderID, providerIDPrefix))
			require.ErrorContains(w, err, "redirects to", operation)
			w.Server.ClearFaults()
			w.Later()
		}
		assert.Empty(w, w.Network.Strangers())
	})
}

// TestAnswerThatIsNoListing: an object in JSON that some other server has written does not show an engine without machines.
func TestAnswerThatIsNoListing(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.Fail(simkit.Fault{Kind: "other-list"})
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "the answer is not that of the engine")
	})
}

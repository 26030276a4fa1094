package photon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/photon/photonsim"
)

// The faults of the provider before, each of which is absent here.

func TestFaultLoginPerQuestion(t *testing.T) {
	inWorld(t, photonsim.Interim(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for range 50 {
			w.RequireExists(n)
			w.RequireMetadata(n)
		}
		w.requireLogins(1, 0, 0)
		assert.LessOrEqual(w, w.Server.Calls().Total, 10, "%v", w.Server.Calls().ByOperation)
	})
}

func TestFaultTasksOfAllForEach(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.Env["PHOTON_OVERRIDE_IP"] = "true"
		w.sim.Seed(20)
		w.start()
		for _, ip := range []string{"10.9.0.2", "10.9.0.3", "10.9.0.4", "10.9.0.5"} {
			w.RequireMetadata(conformance.NewNode(ip, ""))
		}
		assert.Equal(w, 20, w.sim.Tasks())
	})
}

func TestFaultOtherResultCrashes(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.sim.Add("worker", func(v *photonsim.VM) { v.Properties = `{"networkConnections":[{"ipAddress":7}]}` })
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "has no address yet")
	})
}

func TestFaultCertificatesAreNotVerified(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		delete(w.Env, "PHOTON_IGNORE_CERTIFICATE")
		w.start()
		w.RequireDoubt(nodeOf(w.sim.Add("worker")), "the certificate is not trusted")
		w.requireLogins(0, 0, 0)
	})
}

func TestFaultDeadNodesStay(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		w.sim.Add("other")
		w.RequireExists(nodeOf(v))
		w.sim.Remove(v.ID)
		w.Later()
		w.RequireGone(nodeOf(v))
	})
}

func TestFaultFirstOfTwoIsTaken(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.sim.Add("worker")
		w.sim.Add("worker")
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorIs(w, err, cloudapi.ErrConflict)
	})
}

func TestFaultTokenIsNotRenewed(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		for range 3 {
			w.RequireExists(n)
			w.sim.EndTokens(false)
			w.Later()
		}
		w.requireLogins(1, 0, 2) // the refresh token has a sign that a form must encode
	})
}

func TestFaultOwnInterfacesAreTheNodes(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.sim.Add("localhost", func(v *photonsim.VM) { v.Connections = nil })
		_, err := w.Metadata(conformance.NewNode("localhost", ""))
		require.ErrorContains(w, err, "has no address yet")
	})
}

func TestFaultWaitingWithoutEnd(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		w.Fail(simkit.Fault{Kind: simkit.FaultHang})
		began := time.Now()
		_, err := w.Exists(n)
		require.Error(w, err)
		assert.Less(w, time.Since(began), 2*time.Minute)
		w.Server.ClearFaults()
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 502, Operation: "POST " + tokenPath})
		w.Later()
		w.RequireDoubt(n, "HTTP 502")
	})
}

func TestFaultPollsWithoutEnd(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.sim.Add("worker", func(v *photonsim.VM) { v.Stuck = true })
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.Error(w, err)
		assert.Less(w, w.Calls("GET /tasks/{id}"), 40)
	})
}

func TestFaultClustersWithoutObject(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		clusters, ok := w.cloud.Clusters()
		assert.Nil(w, clusters)
		assert.False(w, ok)
	})
}

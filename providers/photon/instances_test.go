package photon

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/photon/photonsim"
)

const listing = "GET /projects/{id}/vms"

func TestProviderIDs(t *testing.T) {
	id, err := parseProviderID("photon://4f9b3b9e-7c11")
	require.NoError(t, err)
	assert.Equal(t, "4f9b3b9e-7c11", id)
	for _, text := range []string{"", "photon://", "photon://a/b", "vsphere://x", "photon://..", "photon://a?b", "photon://a%2fb"} {
		_, err := parseProviderID(text)
		require.Error(t, err, text)
	}
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		bare := conformance.NewNode("worker", "photon://")
		assert.Equal(w, providerIDPrefix+v.ID, w.RequireMetadata(bare).ProviderID, "it names no machine, so that the name does")
		w.RequireExists(bare)
		w.sim.Remove(v.ID)
		w.Later()
		_, err := w.Exists(bare)
		require.Error(w, err, "and proves nothing")
	})
}

func TestFindByName(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		m := w.RequireMetadata(conformance.NewNode("worker", ""))
		assert.Equal(w, []string{providerIDPrefix + v.ID, "cluster-node", "", ""}, []string{m.ProviderID, m.InstanceType, m.Zone, m.Region})
		_, err := w.Metadata(conformance.NewNode("absent", ""))
		require.ErrorContains(w, err, "No matching started VM is found with name absent")
		w.Env["PHOTON_ZONE"], w.Env["PHOTON_REGION"], w.Env["PHOTON_FLAVOR_LABEL"] = "rack-7", "berlin", "false"
		w.start()
		m = w.RequireMetadata(conformance.NewNode("worker", ""))
		assert.Equal(w, []string{"", "rack-7", "berlin"}, []string{m.InstanceType, m.Zone, m.Region})
		ok, why, err := w.cloud.VerifyInstance(w.Context(), nodeOf(v))
		require.NoError(w, err)
		assert.True(w, ok, why)
	})
}

// TestFindByAddress: nodes are named after their addresses. Each machine costs one task, and a failed one leaves the result unknown.
func TestFindByAddress(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.Env["PHOTON_OVERRIDE_IP"] = "true"
		w.sim.Seed(99)
		v := w.sim.Add("other", func(v *photonsim.VM) { v.Connections = photonsim.On("00:50:56:00:00:01", "10.9.200.5") })
		w.start()
		assert.Equal(w, providerIDPrefix+v.ID, w.RequireMetadata(conformance.NewNode("10.9.200.5", "")).ProviderID)
		assert.Equal(w, 100, w.sim.Tasks())
		for i := range 5 {
			w.RequireMetadata(conformance.NewNode(fmt.Sprintf("10.9.0.%d", i+2), ""))
		}
		assert.Equal(w, 100, w.sim.Tasks(), "nothing is asked twice")
		_, err := w.Metadata(conformance.NewNode("10.9.200.77", ""))
		require.ErrorContains(w, err, "no virtual machine reports the address 10.9.200.77")
		_, err = w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "is not named after an address")
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.Fails = "the host does not answer" })
		time.Sleep(networksMaxAge + time.Minute)
		_, err = w.Metadata(conformance.NewNode("10.9.0.2", ""))
		require.ErrorContains(w, err, "nothing is known of address 10.9.0.2")
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.Fails = ""; v.Connections = photonsim.On("00:50:56:00:00:01", "10.9.0.2") })
		w.Later()
		_, err = w.Metadata(conformance.NewNode("10.9.0.2", ""))
		require.ErrorContains(w, err, "have the address 10.9.0.2")
	})
}

func TestStates(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		for state, down := range map[string]bool{
			"STARTED": false, "CREATING": false, "SUSPENDED": true, "STOPPED": true, "ERROR": false, "BRAND_NEW": false,
		} {
			w.sim.Edit(v.ID, func(v *photonsim.VM) { v.State = state })
			w.Later()
			w.RequireExists(nodeOf(v))
			assert.Equal(w, down, w.ShutDown(nodeOf(v)), state)
		}
		w.sim.Add("other")
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.State = "DELETED" })
		w.Later()
		w.RequireGone(nodeOf(v)) // deleted ones are listed for a while
	})
}

func TestRemovedMachineIsGone(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		w.RequireExists(nodeOf(v))
		w.sim.Remove(v.ID)
		w.Later()
		w.RequireGone(nodeOf(v))
		assert.Equal(w, 1, w.Calls("GET /projects/{id}"), "nothing else is there, so that the project was read")
	})
}

// TestNotFoundIsNoProof: wrong paths and dialects also yield "not found", and IDs were typed by hand.
func TestNotFoundIsNoProof(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		w.sim.Seed(150)
		mistyped := conformance.NewNode("worker", providerIDPrefix+"mistyped")
		w.Nodes = append(w.Nodes, mistyped)
		w.start()
		w.RequireDoubt(mistyped, "virtual machine "+v.ID+" has the name of its Node worker; correct vmID")
		ask := func(f simkit.Fault, words string) {
			w.Helper()
			w.Fail(f)
			_, err := w.cloud.instances.read(w.Context(), v.ID)
			require.ErrorContains(w, err, words)
			require.NotErrorIs(w, err, cloudapi.ErrNotFound)
			w.Server.ClearFaults()
			time.Sleep(time.Minute)
		}
		ask(simkit.Fault{Kind: simkit.FaultHTML, Status: http.StatusNotFound}, "a page instead of an answer of the API")
		ask(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusNotFound}, "NotFound: simulated fault")
		ask(simkit.Fault{Kind: simkit.FaultVanished, Names: v.ID, Operation: "GET /vms/{id}"}, "it is not found, and yet it is listed")
		w.sim.Change(func(s *photonsim.Sim) { s.Paused = true })
		_, err := w.cloud.instances.read(w.Context(), v.ID)
		require.ErrorContains(w, err, "SystemPaused")
		require.NotErrorIs(w, err, cloudapi.ErrNotFound)
		w.sim.Change(func(s *photonsim.Sim) { s.Paused = false })
		w.sim.Remove(v.ID)
		for name, f := range map[string]simkit.Fault{
			"the second page fails":        {Kind: simkit.FaultStatus, Status: 500, Operation: listing + "$", From: 2},
			"the listing is cut":           {Kind: "cut-list"},
			"the listing is another thing": {Kind: simkit.FaultHTML, Operation: listing + "$"},
			"the listing is not found":     {Kind: simkit.FaultStatus, Status: 404, Operation: listing + "$"},
		} {
			w.Fail(f)
			w.Later()
			_, err := w.Exists(nodeOf(v))
			require.Error(w, err, name)
			w.Server.ClearFaults()
		}
		w.Later()
		w.RequireGone(nodeOf(v))
		w.Fail(simkit.Fault{Kind: "empty-list"})
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 404, Operation: "GET /projects/{id}$"})
		w.Later()
		w.RequireDoubt(nodeOf(v), "check project")
	})
}

func TestPages(t *testing.T) {
	for name, d := range map[string]photonsim.Dialect{"old": photonsim.Old(), "interim": photonsim.Interim()} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, d, func(w *testWorld) {
				w.sim.Seed(250)
				ask := func() int {
					all, calls, err := w.cloud.instances.api.vms(w.Context())
					require.NoError(w, err)
					require.Len(w, all, 250)
					return calls
				}
				assert.Equal(w, 3, ask())
				w.sim.Change(func(s *photonsim.Sim) { s.Rootless = true })
				assert.Equal(w, 3, ask())
				w.sim.Change(func(s *photonsim.Sim) { s.Expires = 1 })
				assert.Equal(w, 5, ask(), "begun once more, and never taken for the end")
				w.sim.Change(func(s *photonsim.Sim) { s.Expires = 100 })
				_, _, err := w.cloud.instances.api.vms(w.Context())
				require.ErrorContains(w, err, "PageExpired")
				_, err = w.Metadata(conformance.NewNode("absent", ""))
				require.ErrorContains(w, err, "PageExpired")
			})
		})
	}
}

func TestTasks(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		assert.Contains(w, shown(w.RequireMetadata(conformance.NewNode("worker", "")).NodeAddresses), "InternalIP 10.9.0.2")
		ask := func(change func(*photonsim.VM)) error {
			w.Helper()
			w.sim.Edit(v.ID, change)
			w.start()
			_, err := w.Metadata(conformance.NewNode("worker", ""))
			return err
		}
		require.ErrorContains(w, ask(func(v *photonsim.VM) { v.Fails = "the host does not answer" }), "InternalError: the host does not answer")
		began := time.Now()
		require.ErrorContains(w, ask(func(v *photonsim.VM) { v.Fails = ""; v.Stuck = true }), "has not ended")
		assert.Less(w, time.Since(began), time.Minute)
		assert.Less(w, w.Calls("GET /tasks/{id}"), 40)
		for _, result := range []string{`null`, `"text"`, `[]`, `{}`, `{"networkConnections":null}`, `{"networkConnections":"x"}`, `{"networkConnections":[null]}`} {
			err := ask(func(v *photonsim.VM) { v.Stuck = false; v.Properties = result })
			require.ErrorContains(w, err, "has no address yet; start VMware Tools in it", result)
		}
		for _, ip := range []string{"", "-", "nonsense", "fe80::1", "169.254.0.1"} {
			err := ask(func(v *photonsim.VM) { v.Properties = ""; v.Connections = photonsim.On("00:50:56:00:00:01", ip) })
			require.ErrorContains(w, err, "has no address yet", ip)
		}
		require.ErrorContains(w, ask(func(v *photonsim.VM) { v.State = "ERROR" }), "InvalidVmState")
	})
}

func shown(list []v1.NodeAddress) string {
	var text strings.Builder
	for _, a := range list {
		text.WriteString(string(a.Type) + " " + a.Address + ", ")
	}
	return text.String()
}

func TestAddresses(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		floating := "198.51.100.9"
		w.sim.Add("worker", func(v *photonsim.VM) {
			v.Connections = photonsim.On("00:50:56:00:00:01", "10.9.0.5", "02:00:00:00:00:01", "10.8.0.5",
				"00:0c:29:00:00:01", "10.7.0.5", "02:00:00:00:00:02", "-")
			v.FloatingIP = &floating
		})
		n := conformance.NewNode("worker", "")
		assert.Equal(w, "Hostname worker, InternalIP 10.9.0.5, InternalIP 10.8.0.5, InternalIP 10.7.0.5, ExternalIP 198.51.100.9, ",
			shown(w.RequireMetadata(n).NodeAddresses))
		w.Env["PHOTON_LEGACY_ADDRESS_TYPES"] = "true"
		w.start()
		assert.Equal(w, "Hostname worker, ExternalIP 10.9.0.5, InternalIP 10.8.0.5, ExternalIP 10.7.0.5, ExternalIP 198.51.100.9, ",
			shown(w.RequireMetadata(n).NodeAddresses))
		delete(w.Env, "PHOTON_LEGACY_ADDRESS_TYPES")
		w.start()
		n.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: "10.8.0.5"}
		assert.Equal(w, "Hostname worker, InternalIP 10.8.0.5, InternalIP 10.9.0.5, InternalIP 10.7.0.5, ExternalIP 198.51.100.9, ",
			shown(w.RequireMetadata(n).NodeAddresses))
		n.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr] = "10.8.0.6"
		_, err := w.Metadata(n)
		require.ErrorContains(w, err, "kubelet was started with --node-ip=10.8.0.6, which virtual machine")
	})
}

func TestAddressesThatVanish(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker")
		assert.NotEmpty(w, w.RequireMetadata(nodeOf(v)).NodeAddresses)
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.Connections = photonsim.On("00:50:56:00:00:01", "") })
		time.Sleep(networksMaxAge + time.Minute)
		assert.Empty(w, w.RequireMetadata(nodeOf(v)).NodeAddresses, "the framework keeps what the Node has")
		w.sim.Edit(v.ID, func(v *photonsim.VM) { v.Stuck = true })
		time.Sleep(networksMaxAge + time.Minute)
		assert.Empty(w, w.RequireMetadata(nodeOf(v)).NodeAddresses)
	})
}

// TestFiveHundredNodes: listing in pages, and one task per machine.
func TestFiveHundredNodes(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		const n = 500
		w.sim.Seed(n + 50)
		for i := range n {
			w.Nodes = append(w.Nodes, conformance.NewNode(fmt.Sprintf("node-%d", i+1), ""))
		}
		w.start()
		require.NoError(w, w.cloud.instances.CheckAPI(w.Context()))
		for _, node := range w.Nodes {
			node.Spec.ProviderID = w.RequireMetadata(node).ProviderID
			node.Spec.Taints = nil
		}
		assert.Equal(w, n, w.sim.Tasks())
		assert.LessOrEqual(w, w.Calls(listing), 6*(1+int(4*time.Minute/time.Minute)), "%v", w.Server.Calls().ByOperation)
		w.Later()
		tasks := w.sim.Tasks()
		for _, node := range w.Nodes {
			w.RequireExists(node)
			w.ShutDown(node)
		}
		assert.Equal(w, tasks, w.sim.Tasks(), "none for existence")
	})
}

// TestTakeoverLeavesNodesAsTheyAre: Nodes of Kubernetes' former provider, with the option that keeps its addresses, do not change at the
// takeover or the next start.
func TestTakeoverLeavesNodesAsTheyAre(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		v := w.sim.Add("worker", func(v *photonsim.VM) {
			v.Connections = photonsim.On("00:50:56:00:00:01", "10.9.0.5", "02:00:00:00:00:01", "10.8.0.5")
		})
		w.Env["PHOTON_LEGACY_ADDRESS_TYPES"] = "true"
		n := nodeOf(v)
		n.Status.Addresses = []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: "worker"},
			{Type: v1.NodeExternalIP, Address: "10.9.0.5"},
			{Type: v1.NodeInternalIP, Address: "10.8.0.5"},
		}
		for range 2 {
			w.start()
			m := w.RequireMetadata(n)
			assert.Equal(w, n.Spec.ProviderID, m.ProviderID)
			assert.Equal(w, n.Status.Addresses, m.NodeAddresses)
			w.RequireExists(n)
			assert.False(w, w.ShutDown(n))
		}
		w.RequireReadOnly("POST " + tokenPath)
	})
}

func TestAddressesOfAllAreReadOnce(t *testing.T) {
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

func TestResultOfAnotherForm(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.sim.Add("worker", func(v *photonsim.VM) { v.Properties = `{"networkConnections":[{"ipAddress":7}]}` })
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "has no address yet")
	})
}

func TestAddressesAreTakenFromPhotonAlone(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		w.sim.Add("localhost", func(v *photonsim.VM) { v.Connections = nil })
		_, err := w.Metadata(conformance.NewNode("localhost", ""))
		require.ErrorContains(w, err, "has no address yet")
	})
}

func TestNoClusters(t *testing.T) {
	inWorld(t, photonsim.New12(), func(w *testWorld) {
		clusters, ok := w.cloud.Clusters()
		assert.Nil(w, clusters)
		assert.False(w, ok)
	})
}

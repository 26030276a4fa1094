package ovirt

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const someUUID = "5f3ae1c0-7b1d-4e0a-9c55-000000000001"

// TestFormsOfProviderIDs: each that a controller has written names the same machine.
func TestFormsOfProviderIDs(t *testing.T) {
	for _, text := range []string{
		"ovirt://" + someUUID, "ovirt:///" + someUUID, "ovirt-cloud-provider://" + someUUID, "ovirt://5F3AE1C0-7B1D-4E0A-9C55-000000000001",
	} {
		id, err := parseProviderID(text)
		require.NoError(t, err, text)
		assert.Equal(t, someUUID, id)
		assert.Equal(t, someUUID, instanceKey(text), "so that no two Nodes have it")
	}
	for _, text := range []string{
		"", someUUID, "olvm://" + someUUID, "ovirt://", "ovirt:///", "ovirt:////" + someUUID, "ovirt://" + someUUID[1:], "ovirt://" + someUUID + "/",
		"ovirt-cloud-provider:///" + someUUID, "ovirt://x?search=name=y",
	} {
		_, err := parseProviderID(text)
		require.Error(t, err, text)
	}
	assert.Empty(t, instanceKey("olvm://"+someUUID))
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		for _, text := range []string{"ovirt://" + v.ID, "ovirt:///" + v.ID, "ovirt-cloud-provider://" + v.ID} {
			n := conformance.NewNode("worker", text)
			w.RequireExists(n)
			assert.Equal(w, text, w.RequireMetadata(n).ProviderID, "it is never rewritten")
		}
		assert.Equal(w, "ovirt://"+v.ID, w.RequireMetadata(conformance.NewNode("worker", "")).ProviderID)
		w.Env["OVIRT_PROVIDER_ID_FORM"] = "ovirt:///"
		w.start()
		assert.Equal(w, "ovirt:///"+v.ID, w.RequireMetadata(conformance.NewNode("worker", "")).ProviderID)
	})
}

func TestFindByName(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		named := w.sim.Add("worker.example.org", func(v *ovirtsim.VM) { v.FQDN = "other.example.org" })
		w.sim.Add("impostor", func(v *ovirtsim.VM) { v.FQDN = "worker.example.org" })
		fqdn := w.sim.Add("vm-17", func(v *ovirtsim.VM) { v.FQDN = "Node.Example.org" })
		short := w.sim.Add("short", func(v *ovirtsim.VM) { v.FQDN = "" })
		for name, v := range map[string]*ovirtsim.VM{
			"worker.example.org": named, "node.example.org": fqdn, "short.example.org": short,
		} {
			assert.Equal(w, providerIDPrefix+v.ID, w.RequireMetadata(conformance.NewNode(name, "")).ProviderID, name)
		}
		_, err := w.Metadata(conformance.NewNode("absent", ""))
		require.ErrorContains(w, err, "no virtual machine has the name absent")
		_, err = w.Exists(conformance.NewNode("absent", ""))
		require.Error(w, err, "which proves nothing")
	})
}

// TestNamesInOtherCases: the exact name comes first; the engine's own search would find either.
func TestNamesInOtherCases(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("Node-1")
		exact := w.sim.Add("node-1")
		other := w.sim.Add("Node-2", func(v *ovirtsim.VM) { v.FQDN = "" })
		assert.Equal(w, providerIDPrefix+exact.ID, w.RequireMetadata(conformance.NewNode("node-1", "")).ProviderID)
		assert.Equal(w, providerIDPrefix+other.ID, w.RequireMetadata(conformance.NewNode("node-2", "")).ProviderID, "which kubelet has in small letters")
	})
}

const onlyTagged = "tag=kubernetes"

func tagged(v *ovirtsim.VM) { v.Tags = []string{"kubernetes"} }

// TestMachineOutsideTheFilterExists: the filter is for names alone.
func TestMachineOutsideTheFilterExists(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.Env["OVIRT_VMS"] = onlyTagged
		inside, outside := w.sim.Add("inside", tagged), w.sim.Add("outside")
		w.start()
		w.RequireMetadata(conformance.NewNode("inside", ""))
		_, err := w.Metadata(conformance.NewNode("outside", ""))
		require.ErrorContains(w, err, "no virtual machine of the filter vms has the name outside")
		w.RequireExists(nodeOf(outside))
		w.RequireMetadata(nodeOf(outside))
		w.sim.Edit(inside.ID, func(v *ovirtsim.VM) { v.Tags = nil })
		w.Later()
		w.RequireExists(nodeOf(inside))
		w.RequireNothingRefused()
	})
}

// TestTagsOutsideTheFilter: a new Node whose machine the filter lacks has its tags as well.
func TestTagsOutsideTheFilter(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.Env["OVIRT_VMS"] = onlyTagged
		w.sim.Add("inside", tagged)
		outside := w.sim.Add("outside", func(v *ovirtsim.VM) { v.Tags = []string{"gold"} })
		w.start()
		var told map[string]string
		_, err := w.API.InstanceMetadata(contract.WithTags(w.Context(), &told), conformance.NewNode("outside", providerIDPrefix+outside.ID))
		require.NoError(w, err)
		assert.Equal(w, map[string]string{"gold": "true"}, told)
		w.RequireNothingRefused()
	})
}

// TestNodeNamesAreNotSearched: whoever names a Node puts nothing into a search.
func TestNodeNamesAreNotSearched(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("worker")
		for _, name := range []string{"*", `"worker" or name=*`, "worker or id=*", "w*"} {
			_, err := w.Metadata(conformance.NewNode(name, ""))
			require.Error(w, err, name)
		}
		for _, c := range w.Server.Calls().Latest {
			assert.NotContains(w, c.URL, "search=")
		}
		w.RequireNothingRefused()
	})
}

func TestStates(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		w.sim.Add("HostedEngine") // which shows that the user is an administrator
		require.NoError(w, w.cloud.instances.CheckAPI(w.Context()))
		n := nodeOf(v)
		for status, down := range map[string]bool{
			"up": false, "powering_up": false, "reboot_in_progress": false, "migrating": false, "wait_for_launch": false, "restoring_state": false,
			"saving_state": false, "powering_down": false, "paused": false, "unknown": false, "not_responding": false, "unassigned": false,
			"down": true, "suspended": true, "image_locked": true, "": true, "brand_new": false,
		} {
			require.NoError(w, w.sim.SetStatus(v.ID, status))
			w.Later()
			w.RequireExists(n)
			assert.Equal(w, down, w.ShutDown(n), "%q", status)
		}
	})
}

// TestMachineWithoutStatus: it is certain not to run where the engine shows no host of it either.
func TestMachineWithoutStatus(t *testing.T) {
	var s newStates
	assert.Equal(t, nodes.Existing, s.stateFor(vm{Host: &ref{"b"}}, true))
	assert.Equal(t, nodes.ShutDown, s.stateFor(vm{}, true))
	assert.Equal(t, nodes.Existing, s.stateFor(vm{}, false), "nothing shows that it has none")
}

func TestSuspendedMachineIsShutDown(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker", func(v *ovirtsim.VM) { v.Status = "suspended" })
		w.RequireExists(nodeOf(v))
		assert.True(w, w.ShutDown(nodeOf(v)))
	})
}

func TestLostHostIsNotShutDown(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker", func(v *ovirtsim.VM) { v.Status, v.Host = "unknown", "" })
		w.RequireExists(nodeOf(v))
		assert.False(w, w.ShutDown(nodeOf(v)), "it may run, with its disks")
	})
}

func TestRemovedMachineIsGone(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		w.sim.Add("HostedEngine")
		w.RequireExists(nodeOf(v))
		w.sim.Remove(v.ID)
		w.Later()
		before := w.Calls("GET /ovirt-engine/api")
		w.RequireGone(nodeOf(v))
		assert.Equal(w, before+1, w.Calls("GET /ovirt-engine/api"), "the entry of the API was read for the proof")
	})
}

// TestNotFoundIsNoProof: the engine says so also of what it must not show, and of wrong addresses.
func TestNotFoundIsNoProof(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v, other := w.sim.Add("worker"), w.sim.Add("other")
		w.Nodes = append(w.Nodes, nodeOf(v), nodeOf(other))
		w.start()
		n := nodeOf(v)
		w.RequireExists(n)
		doubt := func(f simkit.Fault, words string) {
			w.Helper()
			w.Fail(f)
			_, err := w.cloud.api.instance(w.Context(), v.ID)
			require.ErrorContains(w, err, words)
			require.NotErrorIs(w, err, cloudapi.ErrNotFound)
			w.Server.ClearFaults()
			w.Later()
			w.RequireExists(n)
		}
		doubt(simkit.Fault{Kind: simkit.FaultHTML, Status: 404}, "a page instead of an answer of the engine")
		doubt(simkit.Fault{Kind: simkit.FaultVanished, Names: v.ID, Operation: "GET /ovirt-engine/api/vms/{id}"}, "it is not found, and yet it is listed")
		w.sim.Remove(v.ID)
		for name, f := range map[string]simkit.Fault{
			"the address is wrong":   {Kind: simkit.FaultStatus, Status: 404, Operation: "GET /ovirt-engine/api$"},
			"the listing fails":      {Kind: simkit.FaultStatus, Status: 500, Operation: ovirtsim.Listing + "$"},
			"the listing is cut":     {Kind: "cut-list"},
			"the listing is a fault": {Kind: "fault-list"},
			"the listing is empty":   {Kind: "empty-list"},
			"the listing is a page":  {Kind: simkit.FaultHTML, Operation: ovirtsim.Listing + "$"},
		} {
			w.Fail(f)
			w.Later()
			_, err := w.Exists(n)
			require.Error(w, err, name)
			w.Server.ClearFaults()
		}
		w.Later()
		w.RequireGone(n)
		w.sim.Permit() // nothing is visible any more
		w.Later()
		w.RequireDoubt(n, "cannot tell missing from forbidden")
		w.RequireDoubt(nodeOf(other), "cannot tell missing from forbidden")
	})
}

// TestRemovedMachineIsGoneForFilteredUser: another node of the cluster shows that the user sees the cluster's machines.
func TestRemovedMachineIsGoneForFilteredUser(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v, other, stranger := w.sim.Add("worker"), w.sim.Add("other"), w.sim.Add("stranger")
		w.sim.Permit(v.ID, other.ID, stranger.ID)
		w.Nodes = append(w.Nodes, nodeOf(v), nodeOf(other))
		w.start()
		w.RequireExists(nodeOf(v))
		w.sim.Permit(v.ID, stranger.ID)
		w.sim.Remove(v.ID)
		w.Later()
		w.RequireDoubt(nodeOf(v), "cannot tell missing from forbidden") // a stranger shows nothing
		w.sim.Permit(v.ID, other.ID)
		w.Later()
		w.RequireGone(nodeOf(v))
	})
}

// TestLostRightOnOneMachine: a user with rights on single machines who loses one of these is answered as if that machine was removed. Its
// kubelet goes on reporting, which shows that it was not, and keeps its Node also later.
func TestLostRightOnOneMachine(t *testing.T) {
	for name, removed := range map[string]bool{"the right is lost": false, "the machine is removed": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *testWorld) {
				v, other := w.sim.Add("worker"), w.sim.Add("other")
				w.sim.Permit(v.ID, other.ID)
				n := nodeOf(v)
				w.Nodes = append(w.Nodes, n, nodeOf(other))
				report := func(status v1.ConditionStatus, list ...*v1.Node) {
					for _, n := range list {
						n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
						n.CreationTimestamp.Time = time.Now().Add(-time.Hour)
					}
				}
				report(v1.ConditionTrue, w.Nodes...)
				w.Open(Description())
				ask := func() (gone bool) {
					_, _ = w.Guarded.InstanceMetadata(w.Context(), n) // the loop over addresses
					exists, err := w.Guarded.InstanceExists(w.Context(), n)
					return err == nil && !exists
				}
				require.False(w, ask())
				if removed {
					w.sim.Remove(v.ID)
					report(v1.ConditionUnknown, n)
				} else {
					w.sim.Permit(other.ID)
				}
				gone := false
				for round := range 60 {
					if gone = gone || ask(); round == 36 { // after three minutes
						report(v1.ConditionUnknown, n)
					}
					time.Sleep(5 * time.Second)
				}
				assert.Equal(w, removed, gone)
			})
		})
	}
}

// TestNewSessionDuringTheProof: what another session shows says nothing of the answer before.
func TestNewSessionDuringTheProof(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.Add("HostedEngine")
		err := w.cloud.api.everything.Prove(w.Context(), "5f3ae1c0-7b1d-4e0a-9c55-00000000dead", func(all []listedVM) error {
			return w.cloud.api.checkAbsence(restapi.Tokens{Access: "another"}, all)
		})
		require.ErrorContains(w, err, "the session has changed meanwhile")
	})
}

func TestBrokenListings(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		for _, f := range []simkit.Fault{
			{Kind: "cut-list"},
			{Kind: "fault-list"},
			{Kind: simkit.FaultCut},
			{Kind: simkit.FaultHTML},
			{Kind: simkit.FaultNull},
			{Kind: simkit.FaultStatus, Status: 404, Operation: ovirtsim.Listing + "$"},
			{Kind: simkit.FaultStatus, Status: 500},
		} {
			w.start()
			w.Fail(f)
			_, err := w.Metadata(conformance.NewNode("worker", ""))
			require.Error(w, err, f.Kind)
			require.NotContains(w, err.Error(), "no virtual machine has the name", f.Kind)
			w.Server.ClearFaults()
			w.Later()
			w.RequireExists(nodeOf(v))
		}
	})
}

func TestRenamedMachineIsTheSameNode(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		n := nodeOf(v)
		first := w.RequireMetadata(n)
		w.sim.Edit(v.ID, func(v *ovirtsim.VM) { v.Name = "renamed" })
		w.Later()
		w.RequireExists(n)
		assert.Equal(w, first, w.RequireMetadata(n))
		ok, why, err := w.cloud.VerifyInstance(w.Context(), n)
		require.NoError(w, err)
		assert.False(w, ok)
		assert.Contains(w, why, `is named "renamed"`)
	})
}

// TestThousandNodesCostFourCalls: one listing of the machines, and one of each thing that they refer to.
func TestThousandNodesCostFourCalls(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		const n = 1000
		w.sim.Seed(n)
		var list []*v1.Node
		for i := range n {
			list = append(list, conformance.NewNode(fmt.Sprintf("node-%d", i+1), ""))
		}
		w.Nodes = list
		w.start()
		require.NoError(w, w.cloud.instances.CheckAPI(w.Context()))
		for _, node := range list {
			m := w.RequireMetadata(node)
			require.Equal(w, []string{"Large", "Default", "Berlin"}, []string{m.InstanceType, m.Zone, m.Region})
			node.Spec.ProviderID, node.Spec.Taints = m.ProviderID, nil
		}
		calls := w.Server.Calls()
		assert.Equal(w, 6, calls.Total, "with the login, and the look at the version: %v", calls.ByOperation)
		for range 2 {
			time.Sleep(5 * time.Minute)
			w.Server.ResetCalls()
			for _, node := range list {
				w.RequireMetadata(node)
			}
			assert.LessOrEqual(w, w.Server.Calls().Total, 4, "a pass over all addresses: %v", w.Server.Calls().ByOperation)
			assert.Equal(w, 1, w.Calls(ovirtsim.Listing))
		}
	})
}

// TestManyNodesThatAreNotReadyShareListings: they are asked about every 5 s, two questions each.
func TestManyNodesThatAreNotReadyShareListings(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		const n = 200
		w.sim.Seed(n)
		for _, i := range w.Server.Summary().Instances {
			node := conformance.NewNode(i.Name, i.ProviderID)
			node.Spec.Taints = nil
			w.Nodes = append(w.Nodes, node)
		}
		w.start()
		w.RequireExists(w.Nodes[0])
		w.Server.ResetCalls()
		for range 12 { // a minute
			time.Sleep(5 * time.Second)
			for _, node := range w.Nodes {
				w.RequireExists(node)
				w.ShutDown(node)
			}
		}
		assert.LessOrEqual(w, w.Server.Calls().Total, 8, "%v", w.Server.Calls().ByOperation)
		assert.Zero(w, w.Calls("GET /ovirt-engine/api/vms/{id}"))
	})
}

func TestFailedReadsAreNoProof(t *testing.T) {
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

// TestQuestionsShareListingsAndEnd, and without an end to the waiting.
func TestQuestionsShareListingsAndEnd(t *testing.T) {
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

func TestNameIsNoProof(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		v := w.sim.Add("worker")
		w.sim.Edit(v.ID, func(v *ovirtsim.VM) { v.Name = "renamed" })
		w.RequireExists(nodeOf(v))
		n := conformance.NewNode("worker", "")
		n.Spec.Taints = nil
		_, err := w.Exists(n)
		require.Error(w, err, "no name proves anything")
	})
}

// TestIncompleteMachineHoldsUpNoOther: the SDK refuses a listing for one machine that lacks a field.
func TestIncompleteMachineHoldsUpNoOther(t *testing.T) {
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

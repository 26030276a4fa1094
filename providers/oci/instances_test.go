package oci

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

func idOf(t *testing.T, n *v1.Node) string {
	t.Helper()
	id, err := parseProviderID(n.Spec.ProviderID)
	require.NoError(t, err)
	return id
}

// TestFormsOfProviderIDs: the bare OCID of kubelet and the form that controllers write name the same instance, and stay as they are.
func TestFormsOfProviderIDs(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		id := w.sim.AddInstance("worker")
		bare := w.RequireMetadata(conformance.InitializedNode("worker", id))
		whole := w.RequireMetadata(conformance.InitializedNode("worker", providerIDPrefix+id))
		assert.Equal(w, providerIDPrefix+id, whole.ProviderID)
		bare.ProviderID = whole.ProviderID // the framework writes none where there is one
		assert.Equal(w, whole, bare)
		assert.Equal(w, instanceKey(id), instanceKey(providerIDPrefix+id), "so that no two Nodes have it")
		w.RequireExists(conformance.InitializedNode("worker", id))
	})
	for text, words := range map[string]string{
		"": "provider ID is empty", "kind://x": `provider ID "kind://x" is not of the form oci://`, "oci://x": "is not of the form", "ocid1": "is not of the form",
	} {
		_, err := parseProviderID(text)
		require.ErrorContains(t, err, words)
	}
	assert.Empty(t, instanceKey("kind://x"))
}

// TestFindByName: by the display name, whose holders that ended do not count.
func TestFindByName(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		ended := w.sim.AddInstance("worker")
		require.NoError(w, w.sim.Terminate(ended))
		id := w.sim.AddInstance("worker")
		assert.Equal(w, providerIDPrefix+id, w.RequireMetadata(conformance.NewNode("worker", "")).ProviderID)

		w.sim.AddInstance("worker")
		w.Later()
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "too many instances returned for display name worker: 2")
		_, err = w.Exists(conformance.InitializedNode("worker", ""))
		require.Error(w, err, "no Node goes for it")
	})
}

// TestFindByInterface: by a host name or an address of a network interface, where no instance has the display name.
func TestFindByInterface(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		id := w.sim.Add("elsewhere called", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC {
				v[0].Hostname, v[0].IPv6 = "node1", []string{"2603:c020::5"}
				return v
			})
		})
		for _, name := range []string{"node1", "node1.sub.vcn.oraclevcn.com", "10.0.64.3", "129.146.0.3"} {
			assert.Equal(w, providerIDPrefix+id, w.RequireMetadata(conformance.NewNode(name, "")).ProviderID, name)
		}
		for _, name := range []string{"node10", "node", "10.0.64.33"} {
			_, err := w.Metadata(conformance.NewNode(name, ""))
			require.Error(w, err, "%s: the host name is no prefix", name)
		}
	})
}

// TestStates: what ended is gone, what is stopped is shut down, and everything else exists.
func TestStates(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := w.join("worker", nil)
		for _, state := range []string{"MOVING", "PROVISIONING", "RUNNING", "STARTING", "CREATING_IMAGE", "STOPPING", "STOPPED"} {
			require.NoError(w, w.sim.SetStatus(idOf(w.T, n), state))
			w.Later()
			w.RequireExists(n)
			assert.Equal(w, strings.HasPrefix(state, "STOP"), w.ShutDown(n), state)
		}
		for _, state := range []string{"TERMINATING", "TERMINATED"} {
			require.NoError(w, w.sim.SetStatus(idOf(w.T, n), state))
			w.Later()
			w.RequireGone(n)
		}
	})
}

// TestNotFoundIsNoProof: "not found" is also what the cloud says of what the user may not see. It counts together with a listing that
// shows another node of the cluster.
func TestNotFoundIsNoProof(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n, other := w.join("worker", nil), w.join("other", nil)
		w.start()
		w.sim.Remove(idOf(w.T, n))
		w.RequireGone(n)
		w.RequireExists(other)

		w.sim.Remove(idOf(w.T, other))
		w.sim.AddInstance("of somebody else")
		w.Later()
		w.RequireDoubt(other, "cannot tell missing from forbidden")
		w.sim.SetBlind(true)
		w.Later()
		w.RequireDoubt(other, "cannot tell missing from forbidden")
	})
}

// TestListingFails: an instance that is not found stays where the listing fails, or shows it all the same.
func TestListingFails(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := w.join("worker", nil)
		w.join("other", nil)
		w.start()
		for _, status := range []int{http.StatusNotFound, http.StatusTooManyRequests, http.StatusInternalServerError} {
			w.Server.ClearFaults()
			w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: "GET /instances/{id}"})
			w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: status, Operation: "GET /instances"})
			w.RequireDoubt(n, "")
			w.Later()
		}
		w.Server.ClearFaults()
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: "GET /instances/{id}"})
		w.RequireExists(n)
	})
}

// TestPlaces: the zone is the availability domain without the tenancy's prefix, the region what the instance shows.
func TestPlaces(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := w.join("worker", func(i *ocisim.Instance) { i.AvailabilityDomain, i.Region = "Uocm:PHX-AD-1", "phx" })
		m := w.RequireMetadata(n)
		assert.Equal(w, []string{"PHX-AD-1", "phx", "VM.Standard.E4.Flex"}, []string{m.Zone, m.Region, m.InstanceType})
		assert.Equal(w, map[string]string{labelFaultDomain: "FAULT-DOMAIN-2"}, m.AdditionalLabels)
		n = w.join("bare", func(i *ocisim.Instance) { i.FaultDomain, i.AvailabilityDomain = "", "AD-1" })
		m = w.RequireMetadata(n)
		assert.Equal(w, "AD-1", m.Zone)
		assert.Empty(w, m.AdditionalLabels, "no fault domain, no label")
	})
}

// requireBoth asks for metadata by single reads, and by listings, which say the same.
func (w *testWorld) requireBoth(n *v1.Node) []v1.NodeAddress {
	w.Helper()
	known := w.Nodes
	w.Nodes = []*v1.Node{n}
	w.start()
	single := w.RequireMetadata(n).NodeAddresses
	for i := range 40 {
		w.Nodes = append(w.Nodes, conformance.InitializedNode(fmt.Sprintf("n%d", i), ""))
	}
	w.start()
	w.Server.ResetCalls()
	assert.Equal(w, single, w.RequireMetadata(n).NodeAddresses)
	assert.NotZero(w, w.Calls("GET /privateIps"), "%v", w.Server.Calls().ByOperation)
	w.Nodes = known
	return single
}

// TestAddresses: those of the primary interface, private before public, and those of IPv6 for Nodes with the label.
func TestAddresses(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		ip := func(kind v1.NodeAddressType, address string) v1.NodeAddress {
			return v1.NodeAddress{Type: kind, Address: address}
		}
		private, public := ip(v1.NodeInternalIP, "10.0.64.3"), ip(v1.NodeExternalIP, "129.146.0.3")
		n := w.join("worker", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC {
				v[0].IPv6 = []string{"fd00::7", "2603:c020::5"}
				return append([]ocisim.VNIC{w.sim.SecondInterface(1)}, v...)
			})
		})
		assert.Equal(w, []v1.NodeAddress{private, public}, w.requireBoth(n), "the primary interface is the second one")
		n.Labels = map[string]string{labelIPv6: ""}
		assert.Equal(w, []v1.NodeAddress{private, public, ip(v1.NodeExternalIP, "2603:c020::5"), ip(v1.NodeInternalIP, "fd00::7")}, w.requireBoth(n))

		n = w.join("inside", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC { v[0].PublicIP = ""; return v })
		})
		assert.Equal(w, []v1.NodeAddress{ip(v1.NodeInternalIP, "10.0.128.4")}, w.requireBoth(n))
		n = w.join("reserved", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC { v[0].Reserved = true; return v })
		})
		assert.Equal(w, []v1.NodeAddress{ip(v1.NodeInternalIP, "10.0.0.5"), ip(v1.NodeExternalIP, "129.146.0.5")}, w.requireBoth(n))
		n = w.join("attaching", func(i *ocisim.Instance) {
			i.Interfaces(func(v []ocisim.VNIC) []ocisim.VNIC { v[0].Attachment = "ATTACHING"; return v })
		})
		_, err := w.Metadata(n)
		require.ErrorContains(w, err, "its primary network interface has no address")
	})
}

// TestForeignNodesDoNotMatter: a Node of another cloud, or without a provider ID, changes nothing for the others.
func TestForeignNodesDoNotMatter(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.Nodes = []*v1.Node{conformance.InitializedNode("a", "kind://x"), conformance.InitializedNode("b", "")}
		n := w.join("worker", nil)
		w.start()
		w.RequireExists(n)
		w.RequireMetadata(n)
	})
}

// TestOtherCompartments: instances of Nodes whose annotation names another compartment are listed there.
func TestOtherCompartments(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		const other = "ocid1.compartment.oc1..aaaaother"
		n := w.join("far", func(i *ocisim.Instance) { i.Compartment = other })
		n.Annotations = map[string]string{annotationCompartment: other}
		w.sim.Add("of others", func(i *ocisim.Instance) { i.Compartment = other })
		w.join("near", nil)
		w.start()
		w.sim.Remove(idOf(w.T, n))
		w.RequireGone(n)
		var asked []string
		for _, c := range w.Server.Calls().Latest {
			if c.Operation == "GET /instances" && !slices.Contains(asked, c.URL) {
				asked = append(asked, c.URL)
			}
		}
		assert.Len(w, asked, 2)
	})
}

// TestWrongCompartment: an annotation that names a compartment which cannot be read holds up no other Node, and proves nothing.
func TestWrongCompartment(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		wrong, n := w.join("wrong", nil), w.join("worker", nil)
		wrong.Annotations = map[string]string{annotationCompartment: "ocid1.compartment.oc1..aaaanone"}
		for i := range 40 {
			w.join(fmt.Sprintf("n%d", i), nil)
		}
		w.start()
		for _, known := range w.Nodes {
			w.RequireMetadata(known)
		}
		assert.NotZero(w, w.Calls("GET /privateIps"), "by listings")
		w.RequireExists(wrong)
		w.sim.Remove(idOf(w.T, n))
		w.Later()
		w.RequireDoubt(n, "aaaanone")
		require.NoError(w, w.sim.Terminate(idOf(w.T, w.Nodes[5])))
		w.Later()
		w.RequireGone(w.Nodes[5])
	})
}

// TestAnnotation: what Oracle's own controller writes on Nodes is written once.
func TestAnnotation(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := w.join("worker", nil)
		done := w.join("done", nil)
		done.Annotations = map[string]string{annotationCompartment: "ocid1.compartment.oc1..aaaaother"}
		w.Nodes = append(w.Nodes, conformance.NewNode("new", ""), conformance.InitializedNode("foreign", "kind://x"))
		for _, known := range w.Nodes {
			_, err := w.kube.CoreV1().Nodes().Create(w.Context(), known, metav1.CreateOptions{})
			require.NoError(w, err)
		}
		w.kube.ClearActions()
		w.start()
		require.NoError(w, w.cloud.annotate(w.Context()))
		require.Len(w, w.kube.Actions(), 1)
		got, err := w.kube.CoreV1().Nodes().Get(w.Context(), n.Name, metav1.GetOptions{})
		require.NoError(w, err)
		assert.Equal(w, ocisim.Compartment, got.Annotations[annotationCompartment])
	})
}

// TestThousandNodes: in three subnets they cost calls in pages and subnets, and no call for each.
func TestThousandNodes(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		for i := range 1000 {
			w.join(fmt.Sprintf("n%d", i), nil)
		}
		w.start()
		w.Server.ResetCalls()
		for _, n := range w.Nodes {
			w.RequireMetadata(n)
		}
		calls := w.Server.Calls()
		t.Logf("%d calls: %v", calls.Total, calls.ByOperation)
		assert.LessOrEqual(w, calls.Total, 12, "%v", calls.ByOperation)
		w.Later()
		w.Server.ResetCalls()
		for _, n := range w.Nodes {
			w.RequireMetadata(n)
		}
		assert.LessOrEqual(w, w.Server.Calls().Total, 12, "%v", w.Server.Calls().ByOperation)
		w.RequireReadOnly()
		w.RequireNothingRefused()
	})
}

// TestPages: listings of many pages are read to their end.
func TestPages(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.sim.SetPageSize(3)
		for i := range 10 {
			w.sim.AddInstance(fmt.Sprintf("n%d", i))
		}
		require.NoError(w, w.cloud.CheckAPI(w.Context()))
		assert.Equal(w, 4, w.Calls("GET /instances"))
		assert.Len(w, w.cloud.instances.inventory.PeekAll(), 10)
	})
}

// TestTooManyRequests: refusals for the cloud's own limit are not answered by more calls.
func TestTooManyRequests(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := w.join("worker", nil)
		w.Fail(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusTooManyRequests})
		_, err := w.Exists(n)
		require.Error(w, err)
		assert.LessOrEqual(w, w.Server.Calls().Total, 5)
	})
}

// TestOutageIsNoAbsence: whatever else fails keeps Nodes.
func TestOutageIsNoAbsence(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		n := w.join("worker", nil)
		w.join("other", nil)
		w.start()
		for _, f := range []simkit.Fault{
			{Kind: simkit.FaultStatus, Status: http.StatusUnauthorized},
			{Kind: simkit.FaultStatus, Status: http.StatusForbidden},
			{Kind: simkit.FaultHTML},
			{Kind: simkit.FaultHTML, Status: http.StatusNotFound},
			{Kind: simkit.FaultReset},
			{Kind: simkit.FaultCut},
		} {
			w.Server.ClearFaults()
			w.Fail(f)
			gone, err := w.Exists(n)
			assert.True(w, gone || err != nil, "%v: %v", f, errors.Unwrap(err))
			w.Later()
		}
	})
}

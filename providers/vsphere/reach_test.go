package vsphere

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/vim25/types"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

func internalIP(address string) v1.NodeAddress {
	return v1.NodeAddress{Type: v1.NodeInternalIP, Address: address}
}

func TestAddressesOfANode(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "node-1"})
		w.start()
		n := nodeOf(m)
		addresses := func() []v1.NodeAddress {
			w.Helper()
			list, err := w.cloud.instances.addressesOf(w.Context(), n)
			require.NoError(w, err)
			return list
		}
		own := addresses()
		require.NotEmpty(w, own, "what the virtual machine has, though the Node tells nothing")
		n.Status.Addresses = []v1.NodeAddress{internalIP("10.9.9.9")}
		assert.Equal(w, own, addresses())

		w.servers[0].ResetCalls()
		addresses()
		assert.Empty(w, w.servers[0].Calls().ByOperation, "it is known")

		w.sims[0].Update(m, types.PropertyChange{Name: "guest.net", Val: []types.GuestNicInfo{}})
		w.start()
		assert.Empty(w, addresses(), "not known while the virtual machine reports none")
	})
}

// TestOneNodeHoldsUpNoOthers: what is wrong with one node, for which its own kubelet or guest can see, is no error: load balancers and
// routes of all nodes would wait for it.
func TestOneNodeHoldsUpNoOthers(t *testing.T) {
	for name, arrange := range map[string]func(w *testWorld) *v1.Node{
		"a malformed provider ID": func(*testWorld) *v1.Node { return conformance.NewNode("worker", "vsphere://none") },
		"not initialized":         func(*testWorld) *v1.Node { return conformance.NewNode("worker", "") },
		"cloud-init's data cannot be read": func(w *testWorld) *v1.Node {
			return nodeOf(w.sims[0].Add(vspheresim.Spec{Name: "worker", Metadata: "*", Encoding: "base64"}))
		},
		"two copies run": func(w *testWorld) *v1.Node {
			m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.sims[0].Add(vspheresim.Spec{Name: "copy", UUID: m.UUID, HostName: "worker"})
			return nodeOf(m)
		},
		"gone, which an inaccessible virtual machine keeps from being proved": func(w *testWorld) *v1.Node {
			w.sims[0].Lose(w.sims[0].Add(vspheresim.Spec{Name: "lost"}))
			return conformance.NewNode("worker", "vsphere://4230aaaa-3f21-5a6b-9c0d-0000000000aa")
		},
		"gone, while the account lacks a right": func(w *testWorld) *v1.Node {
			m := w.sims[0].Add(vspheresim.Spec{Name: "worker"})
			w.sims[0].Hide(m)
			return nodeOf(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, "", nil, func(w *testWorld) {
				other := w.sims[0].Add(vspheresim.Spec{Name: "other"})
				n := arrange(w)
				w.start()
				list, err := w.cloud.instances.addressesOf(w.Context(), n)
				require.NoError(w, err)
				assert.Empty(w, list)
				w.servers[0].ResetCalls()
				_, err = w.cloud.instances.addressesOf(w.Context(), n)
				require.NoError(w, err)
				assert.Zero(w, w.calls(), "each Service asks")
				list, err = w.cloud.instances.addressesOf(w.Context(), nodeOf(other))
				require.NoError(w, err)
				assert.NotEmpty(w, list)
			})
		})
	}
}

// TestVCenterThatDoesNotAnswerHidesNoAddresses: a load balancer that is made meanwhile would be without its nodes, and nobody comes back.
func TestVCenterThatDoesNotAnswerHidesNoAddresses(t *testing.T) {
	inWorld(t, twoVCenters, []vspheresim.Options{{}, {}}, func(w *testWorld) {
		m := w.sims[0].Add(vspheresim.Spec{Name: "worker", UUID: "4230aaaa-3f21-5a6b-9c0d-0000000000aa"})
		other := w.sims[1].Add(vspheresim.Spec{Name: "other", UUID: "4230bbbb-3f21-5a6b-9c0d-0000000000bb"})
		w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 503})
		w.start()
		_, err := w.cloud.instances.addressesOf(w.Context(), nodeOf(m))
		require.Error(w, err)
		list, err := w.cloud.instances.addressesOf(w.Context(), nodeOf(other))
		require.NoError(w, err)
		assert.NotEmpty(w, list)
		w.servers[0].ClearFaults()
		w.Later()
		list, err = w.cloud.instances.addressesOf(w.Context(), nodeOf(m))
		require.NoError(w, err)
		assert.NotEmpty(w, list)
	})
}

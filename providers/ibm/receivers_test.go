package ibm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// TestAddressThatAKubeletTells: whoever controls a kubelet writes addresses and labels of its Node. Traffic goes to what its instance has.
func TestAddressThatAKubeletTells(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		own, err := w.cloud.instances.receivers(w.t.Context(), w.nodes, false)
		require.NoError(w.t, err)
		require.Len(w.t, own, 1)
		lying := w.nodes[0].DeepCopy()
		lying.Labels[labelInternalIP] = "10.99.0.1"
		lying.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.99.0.1"}}
		told, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{lying}, false)
		require.NoError(w.t, err)
		require.Len(w.t, told, 1)
		assert.Equal(w.t, own[0].target, told[0].target)
	})
}

// TestNodeWithoutAddresses: a node that has just joined receives traffic before anybody wrote its addresses and its provider ID.
func TestNodeWithoutAddresses(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		fresh := w.nodes[0].DeepCopy()
		fresh.Spec.ProviderID, fresh.Status.Addresses, fresh.Labels = "", nil, map[string]string{}
		for _, network := range []bool{false, true} {
			all, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{fresh}, network)
			require.NoError(w.t, err)
			require.Len(w.t, all, 1)
			assert.NotZero(w.t, all[0].target)
		}
	})
}

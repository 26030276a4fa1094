package ibm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
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

// TestLabelsThatAKubeletSets: where instances can be read, what they have describes their nodes, and is where traffic goes, whatever
// labels, addresses and provider IDs a kubelet writes.
func TestLabelsThatAKubeletSets(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 0, nil, func(w *world) {
		mine, victim := w.nodes[0], w.nodes[1]
		_, _, other, _ := parts(victim.Spec.ProviderID)
		lying := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: mine.Name, Labels: map[string]string{
			labelInternalIP: "10.99.0.1", labelWorker: other, labelType: "bx2-128x512", labelZone: "us-south-3", labelRegion: "eu-de",
		}}}
		m, err := w.cloud.instances.InstanceMetadata(w.t.Context(), lying)
		require.NoError(w.t, err)
		assert.Equal(w.t, mine.Spec.ProviderID, m.ProviderID)
		assert.Equal(w.t, mine.Status.Addresses, m.NodeAddresses)
		assert.Equal(w.t, []string{"bx2-4x16", mine.Labels[v1.LabelTopologyZone], ibmsim.Region}, []string{m.InstanceType, m.Zone, m.Region})

		own, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{mine}, false)
		require.NoError(w.t, err)
		for _, id := range []string{"", "ibm://" + ibmsim.Account + "///" + ibmsim.Cluster + "/kube-1", "ibm://x", "ibmvpc://a/b"} {
			lying.Spec.ProviderID = id
			lying.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.99.0.1"}}
			told, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{lying}, false)
			require.NoError(w.t, err, id)
			require.Len(w.t, told, 1, id)
			assert.Equal(w.t, own[0].target, told[0].target, id)
		}
		stranger := lying.DeepCopy()
		stranger.Name = "no-instance"
		told, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{stranger}, false)
		require.NoError(w.t, err)
		assert.Empty(w.t, told, "which nobody has seen")
	})
}

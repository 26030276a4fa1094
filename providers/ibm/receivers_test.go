package ibm

import (
	"slices"
	"strings"
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
		own, _, err := w.cloud.instances.receivers(w.t.Context(), w.nodes, false)
		require.NoError(w.t, err)
		require.Len(w.t, own, 1)
		lying := w.nodes[0].DeepCopy()
		lying.Labels[labelInternalIP] = "10.99.0.1"
		lying.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.99.0.1"}}
		told, _, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{lying}, false)
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
			all, _, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{fresh}, network)
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
		_, _, other, _ := splitProviderID(victim.Spec.ProviderID)
		lying := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: mine.Name, Labels: map[string]string{
			labelInternalIP: "10.99.0.1", labelWorker: other, labelType: "bx2-128x512", labelZone: "us-south-3", labelRegion: "eu-de",
		}}}
		m, err := w.cloud.instances.InstanceMetadata(w.t.Context(), lying)
		require.NoError(w.t, err)
		assert.Equal(w.t, mine.Spec.ProviderID, m.ProviderID)
		assert.Equal(w.t, mine.Status.Addresses, m.NodeAddresses)
		assert.Equal(w.t, []string{"bx2-4x16", mine.Labels[v1.LabelTopologyZone], ibmsim.Region}, []string{m.InstanceType, m.Zone, m.Region})

		own, _, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{mine}, false)
		require.NoError(w.t, err)
		for _, id := range []string{"", "ibm://" + ibmsim.Account + "///" + ibmsim.Cluster + "/kube-1", "ibm://x", "ibmvpc://a/b"} {
			lying.Spec.ProviderID = id
			lying.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.99.0.1"}}
			told, _, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{lying}, false)
			require.NoError(w.t, err, id)
			require.Len(w.t, told, 1, id)
			assert.Equal(w.t, own[0].target, told[0].target, id)
		}
		stranger := lying.DeepCopy()
		stranger.Name = "no-instance"
		told, _, err := w.cloud.instances.receivers(w.t.Context(), []*v1.Node{stranger}, false)
		require.NoError(w.t, err)
		assert.Empty(w.t, told, "which nobody has seen")
	})
}

// TestMembersWithoutInstance: a member that a node tells of which is no instance stays, and is told of; such a node becomes none by what it
// says. One that belongs to no node is taken away, which is told.
func TestMembersWithoutInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		for _, address := range []string{"10.0.3.3", "10.0.3.4"} {
			require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) {
				lb.Pools = slices.Clone(lb.Pools)
				for n := range lb.Pools {
					lb.Pools[n].Members = append(slices.Clone(lb.Pools[n].Members), ibmsim.Member{
						ID: "r006-0a1b2c3d-7a2c-4b1d-9e3f-0000000" + strings.ReplaceAll(address[5:], ".", "0") + "bb", Port: lb.Pools[n].Members[0].Port,
						Target: ibmsim.Target{Address: address},
					})
				}
			}))
		}
		const worker = "0717-e21b7391-2ca2-4ab5-84a8-b92157a633b0"
		own := w.nodes
		w.nodes = append(slices.Clone(own), labelledNode("metal-1", "10.0.3.3", worker), labelledNode("metal-2", "10.0.3.5", worker))
		time.Sleep(time.Minute)
		w.restart()
		w.drainEvents()
		w.writes()
		w.mustEnsure(s)
		assert.Equal(w.t, []string{put, put}, w.writes())
		members := func() (list []string) {
			for _, m := range w.sim.LoadBalancers()[0].Pools[0].Members {
				list = append(list, m.Target.Address)
			}
			return list
		}
		assert.Len(w.t, members(), 2)
		assert.Contains(w.t, members(), "10.0.3.3")
		told := w.drainEvents()
		assert.Contains(w.t, told, "such as metal-1: no instance of the VPC has its name: it stays a member")
		assert.Contains(w.t, told, "such as metal-2: no instance of the VPC has its name: it receives no traffic")
		assert.Contains(w.t, told, "such as 10.0.3.4, belong to no node")
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())

		metal := w.nodes[1]
		w.nodes = own
		require.NoError(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes))
		assert.Equal(w.t, []string{put, put}, w.writes(), "it left")
		w.nodes = append(slices.Clone(own), metal)
		require.NoError(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes))
		assert.Empty(w.t, w.writes())
		assert.Contains(w.t, w.drainEvents(), "metal-1: no instance of the VPC has its name: it receives no traffic")
	})
}

// labelledNode is a Node that labels describe whole.
func labelledNode(name, address, worker string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		labelInternalIP: address, labelWorker: worker, labelType: "bx2.4x16", labelZone: "us-south-1", labelRegion: "us-south",
		v1.LabelTopologyZone: "us-south-1",
	}}}
	n.Spec.ProviderID = "ibm://" + ibmsim.Account + "///" + ibmsim.Cluster + "/" + worker
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
	return n
}

// TestNodesThatAreNoInstances: a bare metal server, or a server in another VPC, is described by its labels, and IBM's own controller sends
// traffic to its address. A takeover takes that from no node without a word.
func TestNodesThatAreNoInstances(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) {
			lb.Pools = slices.Clone(lb.Pools)
			for n := range lb.Pools {
				p := &lb.Pools[n]
				p.Members = append(slices.Clone(p.Members), ibmsim.Member{
					ID: "r006-0a1b2c3d-7a2c-4b1d-9e3f-00000000bbbb", Port: p.Members[0].Port, Target: ibmsim.Target{Address: "10.0.3.3"},
				})
			}
		}))
		metal := labelledNode("metal-1", "10.0.3.3", "0717-e21b7391-2ca2-4ab5-84a8-b92157a633b0")
		w.bench.Register(metal)
		w.nodes = append(w.nodes, metal)
		time.Sleep(time.Minute)
		w.drainEvents()
		w.restart()
		w.writes()
		w.mustEnsure(s)
		told := w.drainEvents()
		assert.True(w.t, len(w.writes()) == 0 || strings.Contains(told, "metal-1"), "served as before, or an event tells: %q", told)
	})
}

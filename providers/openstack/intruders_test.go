package openstack

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// pretender adds a Node of no cloud that is known here, which tells any address it likes.
func (w *world) pretender(address string) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-pretender"}, Spec: v1.NodeSpec{ProviderID: "elsewhere://1"}}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
	w.Register(node)
	w.nodes = append(w.nodes, node)
}

// TestAddressOfAnotherNode: a Node that tells another one's address keeps nobody's load balancer from being changed.
func TestAddressOfAnotherNode(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	w.pretender(w.nodes[0].Status.Addresses[0].Address)
	w.requireNoWrites(s)
	w.addNode(openstacksim.Spec{Name: "n3"})
	require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
	assert.Len(t, w.sim.Pools()[0].BackendMembers(), 3)
	assert.Empty(t, w.server.Calls().Refused)
}

// TestPretenderProvesNothing: what a Node of no known cloud tells makes another cluster's load balancer nobody's here.
func TestPretenderProvesNothing(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", nil)
	theirs := w.addNode(openstacksim.Spec{Name: "n1"})
	s := web(nil)
	leave(t, w, s, left{})
	s.Annotations, s.Status = map[string]string{}, v1.ServiceStatus{}
	w.Unregister(theirs)
	w.nodes = nil
	w.addNode(openstacksim.Spec{Name: "ours"})
	w.pretender(theirs.Status.Addresses[0].Address)
	w.restart()
	w.refuses(s, "another cluster of the same name")
	assert.Len(t, w.sim.LoadBalancers(), 1)
}

// TestGuestOfALivingOwner: who shares a load balancer never deletes it while its owner lives, even if the owner's tag is missing.
func TestGuestOfALivingOwner(t *testing.T) {
	t.Parallel()
	w, owner := served(t, "", web(nil))
	id := owner.Annotations[annotationID]
	guest := named(service("guest", map[string]string{annotationID: id}, servicePort("x", 81, 30081)), "guest")
	w.Apply(guest)
	guest, _ = w.ensure(guest)
	w.sim.ChangeLoadBalancer(id, func(lb *openstacksim.LoadBalancer) {
		lb.Tags = slices.DeleteFunc(lb.Tags, func(tag string) bool { return tag == loadBalancerName(w.cluster, owner) })
	})
	w.restart()
	require.NoError(t, w.remove(guest))
	assert.Len(t, w.sim.LoadBalancers(), 1)
	assert.Len(t, w.sim.Listeners(), 1, "what was the guest's is gone")
}

// TestGuestOfAClusterCalledAlike: the tag of another cluster's guest lets none of the same name in, nor take it off.
func TestGuestOfAClusterCalledAlike(t *testing.T) {
	t.Parallel()
	w, owner := served(t, "", web(nil))
	claim := func(port int32) *v1.Service {
		return named(service("guest", map[string]string{annotationID: owner.Annotations[annotationID]}, servicePort("x", port, 30081)), "guest")
	}
	guest := claim(81)
	w.Apply(guest)
	w.ensure(guest)
	before := w.sim.LoadBalancers()[0].Tags
	w.anotherCluster(w.cluster, "").refuses(claim(82), "is not of this cluster")
	assert.Equal(t, before, w.sim.LoadBalancers()[0].Tags)
}

// TestTwins: of what two processes made at the same time one serves, and all goes with the Service.
func TestTwins(t *testing.T) {
	t.Parallel()
	w, s := served(t, "manage-security-groups = true\n", web(nil))
	mine := w.sim.LoadBalancers()[0]
	twin := w.sim.AddLoadBalancer(mine.Name, firstSubnet)
	w.sim.ChangeLoadBalancer(twin.ID, func(lb *openstacksim.LoadBalancer) { lb.Tags = slices.Clone(mine.Tags) })
	_, err := w.loadBalancers.createSecurityGroup(t.Context(), s)
	require.NoError(t, err)
	now := w.Current(s)
	delete(now.Annotations, annotationID)
	delete(now.Annotations, annotationMade)
	w.Apply(now)
	w.restart()
	now, _ = w.ensure(now)
	assert.Equal(t, mine.ID, w.Current(now).Annotations[annotationID], "the one that serves")
	assert.Len(t, w.sim.SecurityGroups(), 1)
	require.NoError(t, w.remove(now))
	assert.Empty(t, w.sim.LoadBalancers())
	assert.Empty(t, w.sim.FloatingIPs())
	assert.Empty(t, w.sim.SecurityGroups())
}

// TestFaultOfASubnet: while the subnet of the members cannot be told, a change of nodes moves neither members nor rules elsewhere.
func TestFaultOfASubnet(t *testing.T) {
	t.Parallel()
	w, s := served(t, "manage-security-groups = true\n", web(nil))
	other := w.sim.AddSubnet(w.sim.AddNetwork("other", false), "other", "10.9.0.0/16")
	s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationMemberSubnetID] = other })
	require.Equal(t, []string{"tcp 30080 10.9.0.0/16"}, groupRules(w))
	now := w.Current(s)
	now.Annotations[annotationMemberSubnetID] = "typo"
	w.Apply(now)
	w.addNode(openstacksim.Spec{Name: "n3"})
	require.ErrorContains(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes), annotationMemberSubnetID)
	assert.Equal(t, []string{"tcp 30080 10.9.0.0/16"}, groupRules(w))
}

// TestFreeAddressOfAClusterCalledAlike: a record that an author wrote deletes no floating address.
func TestFreeAddressOfAClusterCalledAlike(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	external := ""
	for _, n := range w.sim.Networks() {
		if n.External {
			external = n.ID
		}
	}
	theirs := w.sim.AddFloatingIP(external, "203.0.113.200", floatingIPDescription(w.cluster, s))
	now := w.Current(s)
	now.Annotations[annotationAddress] = "203.0.113.200"
	w.Apply(now)
	w.restart()
	require.NoError(t, w.remove(now))
	require.Len(t, w.sim.FloatingIPs(), 1)
	assert.Equal(t, theirs, w.sim.FloatingIPs()[0].ID)
}

// TestGroupOfAnOrphan: the security group of a Service that went without clean-up goes before its load balancer, also where the option
// is off by now: while the group cannot be deleted, the load balancer is found again.
func TestGroupOfAnOrphan(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"manage-security-groups = true\n", ""} {
		w, s := served(t, "manage-security-groups = true\n", web(nil))
		w.vanish(s)
		w.file = file
		w.restart()
		lb := w.sim.LoadBalancers()[0]
		o := guard.Orphan{Kind: "load balancer", ID: lb.ID, Name: lb.Name}
		id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "DELETE /networking/v2.0/security-groups/{id}"})
		require.NoError(t, err)
		require.Error(t, w.DeleteOrphan(t.Context(), o))
		assert.Len(t, w.sim.LoadBalancers(), 1)
		assert.Len(t, w.sim.FloatingIPs(), 1)
		found, err := w.Orphans(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, found, 1)
		w.server.RemoveFault(id)
		require.NoError(t, w.DeleteOrphan(t.Context(), o))
		assert.Empty(t, w.sim.SecurityGroups())
		assert.Empty(t, w.sim.LoadBalancers())
		assert.Empty(t, w.sim.FloatingIPs())
	}
}

// TestErrorWithoutCascade: of a load balancer in ERROR no part can be deleted alone, so that it goes as a whole.
func TestErrorWithoutCascade(t *testing.T) {
	t.Parallel()
	w, s := served(t, "cascade-delete = false\n", web(nil))
	w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.ProvisioningStatus = statusError })
	w.restart()
	require.NoError(t, w.remove(s))
	assert.Empty(t, w.sim.LoadBalancers())
}

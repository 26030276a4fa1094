package aws

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

func TestProviderIDs(t *testing.T) {
	t.Parallel()
	const one = "i-0123456789abcdef0"
	for text, want := range map[string]string{
		"aws:///us-east-1a/" + one: one, "aws:////" + one: one, "aws://us-east-1a/" + one: one, "aws:///a/b/" + one + "/": one, "/us-east-1a/" + one: one, one: one,
		"foo/" + one: one,
	} {
		got, err := parseProviderID(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "aws://" + one, "vol-1", "aws:///us-east-1a/i-0123456789abcdef0/suffix", "eks-hybrid:///us-east-1/c/mi-1", "openstack:///" + one, "gce://a/b/" + one, "aws:///us-east-1a/i-*",
		"aws:///us-east-1a/i-0123456789abcdef?", "aws:///us-east-1a/i-1", "i-0123456789ABCDEF0",
	} {
		_, err := parseProviderID(text)
		assert.Error(t, err, text)
	}
	for text, want := range map[string]string{
		"aws:///us-west-2c/1abc-2def/fargate-192.168.164.88":                               "192.168.164.88",
		"aws:///us-west-2c/1abc-2def/fargate-ip-192-168-164-88.us-west-2.compute.internal": "192.168.164.88",
	} {
		got, ok := fargateKey(text)
		assert.True(t, ok)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"aws:///us-west-2c/i-0123456789abcdef0", "aws:///us-west-2c/a/fargate-192.168.*", "aws:///us-west-2c/a/fargate-ip-1-2"} {
		_, ok := fargateKey(text)
		assert.False(t, ok, text)
	}
}

func bare(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}},
	}
}

func withID(name, providerID string) *v1.Node {
	n := bare(name)
	n.Spec.ProviderID = providerID
	return n
}

func TestNodeAddresses(t *testing.T) {
	t.Parallel()
	two := []*awssim.Interface{
		{Index: 1, PrivateIPs: []string{"172.20.1.1", "172.20.1.2"}, IPv6: []string{"2001:db8::3"}},
		{Index: 0, ID: "eni-first", PrivateIPs: []string{"172.20.0.100", "172.20.0.101"}, IPv6: []string{"2001:db8::1", "2001:db8::2"}},
		{Index: 2, Status: "available", PrivateIPs: []string{"172.20.9.9"}},
	}
	full := awssim.Spec{Name: "ip-172-20-0-100.ec2.internal", PublicIP: "1.2.3.4", PublicDNS: "ec2-1-2-3-4.compute.amazonaws.com", Interfaces: two}
	v4 := []string{
		"InternalIP 172.20.0.100", "InternalIP 172.20.0.101", "InternalIP 172.20.1.1", "InternalIP 172.20.1.2", "ExternalIP 1.2.3.4", "InternalDNS ip-172-20-0-100.ec2.internal",
		"Hostname ip-172-20-0-100.ec2.internal", "ExternalDNS ec2-1-2-3-4.compute.amazonaws.com",
	}
	v6 := []string{"InternalIP 2001:db8::1", "InternalIP 2001:db8::3"}
	for name, c := range map[string]struct {
		file string
		spec awssim.Spec
		want []string
	}{
		"ipv4":       {"", full, v4},
		"ipv6 alone": {"NodeIPFamilies = ipv6\n", full, v6},
		"both":       {"NodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\n", full, append(append([]string{}, v6...), v4...)},
		"private": {
			"",
			awssim.Spec{Name: "n", Interfaces: []*awssim.Interface{{PrivateIPs: []string{"10.0.0.1"}}}},
			[]string{"InternalIP 10.0.0.1", "InternalDNS n", "Hostname n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestWorld(t, c.file, awssim.Options{})
			id := w.sim.AddInstance(c.spec)
			m, err := w.instances.InstanceMetadata(t.Context(), withID("n", "aws:///us-east-1a/"+id))
			require.NoError(t, err)
			var got []string
			for _, a := range m.NodeAddresses {
				got = append(got, string(a.Type)+" "+a.Address)
			}
			assert.Equal(t, c.want, got)
		})
	}
	w := newTestWorld(t, "", awssim.Options{})
	id := w.sim.AddInstance(awssim.Spec{Interfaces: []*awssim.Interface{{PrivateIPs: []string{"not-an-address"}}}})
	_, err := w.instances.InstanceMetadata(t.Context(), withID("n", "i-"+id[2:]))
	require.ErrorContains(t, err, "not-an-address")
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	w.sim.SetTopology("p4d.24xlarge", true)
	id := w.sim.AddInstance(awssim.Spec{Name: "gpu", Type: "p4d.24xlarge", Zone: "us-east-1b"})
	m, err := w.instances.InstanceMetadata(t.Context(), bare("gpu"))
	require.NoError(t, err)
	assert.Equal(t, "aws:///us-east-1b/"+id, m.ProviderID)
	assert.Equal(t, "p4d.24xlarge", m.InstanceType)
	assert.Equal(t, "us-east-1b", m.Zone)
	assert.Equal(t, "us-east-1", m.Region)
	assert.Equal(t, map[string]string{
		"topology.k8s.aws/zone-id": "use1-az2", "topology.k8s.aws/network-node-layer-1": "nn-1111111111example",
		"topology.k8s.aws/network-node-layer-2": "nn-2222222222example", "topology.k8s.aws/network-node-layer-3": "nn-" + id[len(id)-4:],
	}, m.AdditionalLabels)

	// Labels that a node has are not asked for, and the provider ID that kubelet set stays as it is.
	w.restart()
	labelled := withID("gpu", "i-"+id[2:])
	labelled.Labels = map[string]string{labelZoneID: "x", labelNetworkLayer + "1": "y"}
	w.server.ResetCalls()
	m, err = w.instances.InstanceMetadata(t.Context(), labelled)
	require.NoError(t, err)
	assert.Empty(t, m.AdditionalLabels)
	assert.Equal(t, "i-"+id[2:], m.ProviderID)
	assert.Equal(t, map[string]int{"EC2 DescribeInstances": 1}, w.server.Calls().ByOperation)

	gone := w.sim.AddInstance(awssim.Spec{Name: "nowhere"})
	w.sim.Edit(gone, func(i *awssim.Instance) { i.NoPlacement = true })
	_, err = w.instances.InstanceMetadata(t.Context(), bare("nowhere"))
	require.ErrorContains(t, err, "does not tell where")
	w.sim.AddInstance(awssim.Spec{Name: "unknown-zone", Zone: "us-east-9z"})
	_, err = w.instances.InstanceMetadata(t.Context(), bare("unknown-zone"))
	require.ErrorContains(t, err, "us-east-9z")
}

// TestNodeNames: without a provider ID, the ID in the name counts, then our own name, then the private DNS name of an
// instance with the tag of the cluster.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	byDNS := w.sim.AddInstance(awssim.Spec{Name: "ip-10-0-0-1.ec2.internal"})
	w.sim.AddInstance(awssim.Spec{Name: "foreign", Untagged: true})
	old := w.sim.AddInstance(awssim.Spec{Name: "reused", State: "terminated"})
	reborn := w.sim.AddInstance(awssim.Spec{Name: "reused"})
	byID := w.sim.AddInstance(awssim.Spec{Name: "whatever", Untagged: true})
	for name, want := range map[string]string{"ip-10-0-0-1.ec2.internal": byDNS, byID: byID, byID + ".ec2.internal": byID, "reused": reborn} {
		m, err := w.instances.InstanceMetadata(t.Context(), bare(name))
		require.NoError(t, err, name)
		assert.Contains(t, m.ProviderID, want)
	}
	assert.NotEqual(t, old, reborn)
	_, err := w.instances.InstanceMetadata(t.Context(), bare("foreign"))
	require.ErrorIs(t, err, cloudprovider.InstanceNotFound)
	require.ErrorContains(t, err, "kubernetes.io/cluster/simulated")

	// A VPC with names of its own: the address that kubelet tells leads to the instance.
	other := w.sim.AddInstance(
		awssim.Spec{Name: "ip-10-9-0-1.ec2.internal", Interfaces: []*awssim.Interface{{PrivateIPs: []string{"10.9.0.1"}, IPv6: []string{"2001:db8::9"}}}},
	)
	for _, told := range []string{"10.9.0.1", "2001:db8::9"} {
		node := bare("worker-1.example.com")
		node.Annotations = map[string]string{annotationNodeIP: told}
		m, err := w.instances.InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Contains(t, m.ProviderID, other)
		node.Annotations, node.Status.Addresses = nil, []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: told}}
		m, err = w.instances.InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Contains(t, m.ProviderID, other)
	}
}

// TestStates is the table of what each state means for a node.
func TestStates(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]struct{ exists, shutdown bool }{
		"pending": {true, false}, "running": {true, false}, "shutting-down": {true, false}, "stopping": {true, false}, "stopped": {true, true},
		"terminated": {false, false},
	} {
		w := newTestWorld(t, "", awssim.Options{})
		id := w.sim.AddInstance(awssim.Spec{Name: "n", State: state})
		node := withID("n", "aws:///us-east-1a/"+id)
		exists, err := w.instances.InstanceExists(t.Context(), node)
		require.NoError(t, err)
		assert.Equal(t, want.exists, exists, state)
		shutdown, err := w.instances.InstanceShutdown(t.Context(), node)
		require.NoError(t, err)
		assert.Equal(t, want.shutdown, shutdown, state)
	}
	w := newTestWorld(t, "", awssim.Options{})
	id := w.sim.AddInstance(awssim.Spec{Name: "n"})
	w.sim.Edit(id, func(i *awssim.Instance) { i.State = "" })
	_, err := w.instances.InstanceExists(t.Context(), withID("n", "aws:///us-east-1a/"+id))
	require.ErrorContains(t, err, "state", "without a state nothing is certain")

	never := withID("n", "aws:///us-east-1a/i-0123456789abcdef0")
	exists, err := w.instances.InstanceExists(t.Context(), never)
	require.NoError(t, err)
	assert.False(t, exists)
	_, err = w.instances.InstanceShutdown(t.Context(), never)
	require.Error(t, err)
	_, err = w.instances.InstanceExists(t.Context(), withID("n", "aws:///us-east-1a/i-malformed"))
	require.ErrorContains(t, err, "is not the ID of an instance", "the node is kept")
}

// TestEmptyAnswersDeleteNobody: the one fault that costs a cluster. An empty set, or a page that is no answer, says nothing
// about an instance, whether it is read by its ID, in a batch or in a listing.
func TestEmptyAnswersDeleteNobody(t *testing.T) {
	t.Parallel()
	for _, fault := range []simkit.Fault{
		{Kind: "empty-set"},
		{Kind: "no-answer"},
		{Kind: simkit.FaultHTML},
		{Kind: "empty-set", Operation: "{id}"},
		{Kind: "empty-set", Operation: "DescribeInstances$"},
		{Kind: simkit.FaultStatus, Status: 404},
		{Kind: simkit.FaultStatus, Status: 404, Operation: "DescribeInstances$"},
	} {
		t.Run(fmt.Sprint(fault.Kind, fault.Status, fault.Operation), func(t *testing.T) {
			t.Parallel()
			w := newTestWorld(t, "", awssim.Options{})
			var nodes []*v1.Node
			for i := range 3 {
				n := w.addNode(awssim.Spec{Name: fmt.Sprintf("n%d", i)})
				nodes = append(nodes, n)
			}
			_, err := w.server.AddFault(fault)
			require.NoError(t, err)
			w.restart()
			for _, n := range nodes {
				exists, err := w.instances.InstanceExists(t.Context(), n)
				assert.True(t, exists || err != nil, "%s is never gone", n.Name)
			}
		})
	}
}

// TestBatchReads: nodes that are not ready are read by one call, and one that is gone does not make the others cost calls.
func TestBatchReads(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{PageLimit: 5})
	w.addNodes(40) // 8 pages, none of them ready
	w.sim.Remove(instanceOf(w.nodes[7]))
	w.restart()
	_, err := w.instances.InstanceExists(t.Context(), w.nodes[0])
	require.NoError(t, err)
	w.server.ResetCalls()
	// A start lists once, to learn how many pages there are; from then on batches are cheaper.
	for _, n := range w.nodes {
		w.instances.inventory.Invalidate(instanceOf(n))
	}
	var group sync.WaitGroup
	for i, n := range w.nodes {
		group.Go(func() {
			exists, err := w.instances.InstanceExists(context.Background(), n)
			assert.NoError(t, err)
			assert.Equal(t, i != 7, exists, n.Name)
		})
	}
	group.Wait()
	calls := w.server.Calls().ByOperation
	assert.LessOrEqual(t, calls["EC2 DescribeInstances"], 16, "two batches of eight pages at most")
	assert.LessOrEqual(t, calls["EC2 DescribeInstances {id}"], 2, "the one that is gone is asked for by itself")
}

// TestThrottledBatch: a batch that AWS refuses for its rate limit does not become a call for each instance.
func TestThrottledBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t, "", awssim.Options{PageLimit: 5})
		w.addNodes(30)
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429})
		require.NoError(t, err)
		for _, n := range w.nodes {
			w.instances.inventory.Invalidate(instanceOf(n))
		}
		w.server.ResetCalls()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var group sync.WaitGroup
		for _, n := range w.nodes {
			group.Go(func() {
				_, err := w.instances.InstanceExists(ctx, n)
				assert.Error(t, err)
			})
		}
		group.Wait()
		assert.LessOrEqual(t, w.server.Calls().Total, 12, "tries and tries again of two batches, and no more")
	})
}

// TestNodesCost: 1,000 nodes initialise with at most 15 calls and are swept with at most 3.
func TestNodesCost(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"m5.large", "p5.48xlarge"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newTestWorld(t, "", awssim.Options{})
			w.sim.SetTopology("p5.48xlarge", true)
			for i := range 1000 {
				name := fmt.Sprintf("n%d", i)
				id := w.sim.AddInstance(awssim.Spec{Name: name, Type: kind})
				node := bare(name)
				if kind == "p5.48xlarge" {
					node.Spec.ProviderID = "aws:///us-east-1a/" + id
				}
				w.nodes = append(w.nodes, node)
				w.Register(node)
			}
			w.server.ResetCalls()
			var group sync.WaitGroup
			work := make(chan *v1.Node)
			for range 20 {
				group.Go(func() {
					for n := range work {
						_, err := w.instances.InstanceMetadata(context.Background(), n)
						assert.NoError(t, err)
					}
				})
			}
			for _, n := range w.nodes {
				work <- n
			}
			close(work)
			group.Wait()
			t.Logf("1,000 nodes: %v", w.server.Calls().ByOperation)
			assert.LessOrEqual(t, w.server.Calls().Total, 15)

			for _, n := range w.nodes {
				n.Spec.Taints = nil
			}
			w.instances.inventory.InvalidateAll()
			w.server.ResetCalls()
			for _, n := range w.nodes {
				_, err := w.instances.InstanceMetadata(t.Context(), n)
				require.NoError(t, err)
			}
			assert.LessOrEqual(t, w.server.Calls().Total, 3)
		})
	}
}

const topologyOperation = "EC2 DescribeInstanceTopology"

// topologyLabels asks for the place of a new instance.
func topologyLabels(w *world, kind string) (map[string]string, error) {
	id := w.sim.AddInstance(awssim.Spec{Type: kind})
	return w.instances.topology.labelsOf(w.T.Context(), instance{id: id, kind: kind}, func() []string { return nil })
}

func TestTopology(t *testing.T) {
	t.Parallel()
	t.Run("a type that does not tell is asked once", func(t *testing.T) {
		t.Parallel()
		w := newTestWorld(t, "", awssim.Options{})
		for range 3 {
			labels, err := topologyLabels(w, "m6g.large")
			require.NoError(t, err)
			assert.Empty(t, labels)
		}
		assert.Equal(t, 1, w.server.Calls().ByOperation[topologyOperation])
		_, err := topologyLabels(w, "")
		require.NoError(t, err)
		assert.Equal(t, 1, w.server.Calls().ByOperation[topologyOperation], "without a type there is no call")
	})
	t.Run("a missing permission", func(t *testing.T) {
		t.Parallel()
		w := newTestWorld(t, "", awssim.Options{})
		w.sim.Deny("DescribeInstanceTopology", true)
		for _, kind := range []string{"m5.large", "p4d.24xlarge", "hpc7a.96xlarge"} {
			labels, err := topologyLabels(w, kind)
			require.NoError(t, err)
			assert.Empty(t, labels)
		}
		assert.Equal(t, 1, w.server.Calls().ByOperation[topologyOperation])
	})
	t.Run("a failure", testTopologyFailure)
	t.Run("another pattern", func(t *testing.T) {
		t.Parallel()
		w := newTestWorld(t, "SupportedTopologyInstanceTypePattern = ^m5\n", awssim.Options{})
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: topologyOperation})
		require.NoError(t, err)
		_, err = topologyLabels(w, "m5.large")
		require.Error(t, err)
		_, err = topologyLabels(w, "p4d.24xlarge")
		require.NoError(t, err)
	})
	t.Run("another instance is gone", func(t *testing.T) {
		t.Parallel()
		w := newTestWorld(t, "", awssim.Options{})
		w.sim.SetTopology("p5.48xlarge", true)
		id := w.sim.AddInstance(awssim.Spec{Type: "p5.48xlarge"})
		labels, err := w.instances.topology.labelsOf(t.Context(), instance{id: id, kind: "p5.48xlarge"}, func() []string { return []string{"i-0123456789abcdef0"} })
		require.NoError(t, err)
		assert.Len(t, labels, 3)
	})
}

func testTopologyFailure(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: topologyOperation})
	require.NoError(t, err)
	_, err = topologyLabels(w, "m5.large")
	require.NoError(t, err, "such nodes do not wait for it")
	for _, kind := range []string{"hpc6a.48xlarge", "p3dn.24xlarge", "p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge", "trn1.32xlarge"} {
		_, err = topologyLabels(w, kind)
		require.Error(t, err, "%s waits for its place", kind)
	}
	for _, kind := range []string{"t3.micro", "c3.large", "inf2.xlarge", "pv.large"} {
		_, err = topologyLabels(w, kind)
		require.NoError(t, err, kind)
	}
}

func TestFargate(t *testing.T) {
	t.Parallel()
	const byIP, byName = "aws:///us-east-1a/x/fargate-10.0.1.77", "aws:///us-east-1a/x/fargate-ip-10-0-1-77.ec2.internal"
	w := newTestWorld(t, "NodeIPFamilies = ipv4\nNodeIPFamilies = ipv6\n", awssim.Options{})
	eni := w.sim.AddInterface(
		awssim.Interface{PrivateIPs: []string{"10.0.1.77"}, IPv6: []string{"2001:db8::7"}, PrivateDNS: "fargate-ip-10-0-1-77.ec2.internal", Zone: "us-east-1a"},
	)
	for _, id := range []string{byIP, byName} {
		m, err := w.instances.InstanceMetadata(t.Context(), withID("f", id))
		require.NoError(t, err)
		assert.Equal(t, id, m.ProviderID)
		assert.Empty(t, m.InstanceType)
		assert.Equal(t, "us-east-1a", m.Zone)
		assert.Equal(t, map[string]string{labelZoneID: "use1-az1"}, m.AdditionalLabels)
		assert.Equal(t, []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: "10.0.1.77"},
			{Type: v1.NodeInternalDNS, Address: "fargate-ip-10-0-1-77.ec2.internal"},
			{Type: v1.NodeInternalIP, Address: "2001:db8::7"},
			{Type: v1.NodeInternalDNS, Address: "fargate-ip-10-0-1-77.ec2.internal"},
		}, m.NodeAddresses)
	}
	node := withID("f", byIP)
	exists, err := w.instances.InstanceExists(t.Context(), node)
	require.NoError(t, err)
	assert.True(t, exists)
	shutdown, err := w.instances.InstanceShutdown(t.Context(), node)
	require.NoError(t, err)
	assert.False(t, shutdown, "what runs is not shut down")
	_, why, err := w.instances.AttestInstance(t.Context(), node)
	require.NoError(t, err)
	assert.Contains(t, why, "on Fargate", "no certificate of its kubelet is approved")

	w.sim.RemoveInterface(eni)
	w.restart()
	_, err = w.instances.InstanceExists(t.Context(), node)
	require.ErrorContains(t, err, "nothing proves", "an empty answer alone deletes nobody")
	w.addNode(awssim.Spec{Name: "witness"})
	w.restart()
	exists, err = w.instances.InstanceExists(t.Context(), node)
	require.NoError(t, err)
	assert.False(t, exists, "the same answer shows another interface")
	_, err = w.instances.InstanceMetadata(t.Context(), node)
	require.ErrorIs(t, err, cloudprovider.InstanceNotFound)
}

// TestToldAddresses: a kubelet does not become another node's instance by telling its address.
func TestToldAddresses(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	victim := w.addNode(
		awssim.Spec{Name: "victim", Interfaces: []*awssim.Interface{{PrivateIPs: []string{"10.9.0.1"}}, {PrivateIPs: []string{"10.9.0.2"}}}},
	)
	w.sim.AddInstance(
		awssim.Spec{Name: "second", Interfaces: []*awssim.Interface{{PrivateIPs: []string{"10.9.0.3"}}, {PrivateIPs: []string{"10.9.0.4"}}}},
	)
	for told, want := range map[string]string{
		"10.9.0.1": "node victim is that instance", "10.9.0.2": "not on its first interface", "10.9.0.4": "not on its first interface",
	} {
		node := bare("worker.example.com")
		node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: told}}
		_, err := w.instances.InstanceMetadata(t.Context(), node)
		require.ErrorContains(t, err, want, told)
	}
	victim.Spec.ProviderID = "" // before its initialisation, the name says it
	node := bare("worker.example.com")
	node.Annotations = map[string]string{annotationNodeIP: "10.9.0.1"}
	_, err := w.instances.InstanceMetadata(t.Context(), node)
	require.ErrorContains(t, err, "node victim is that instance")
}

// TestInstanceOfAnotherVPC: private names are those of one network. An instance of another one with a node's name is not the node's.
func TestInstanceOfAnotherVPC(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	name := "ip-10-0-1-5.ec2.internal"
	theirs := w.sim.AddInstance(awssim.Spec{Name: name})
	w.sim.Edit(theirs, func(i *awssim.Instance) { i.VPC = "vpc-of-another" })
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := w.instances.InstanceMetadata(t.Context(), node)
	require.ErrorContains(t, err, "no instance with the tag")
	ours := w.sim.AddInstance(awssim.Spec{Name: name})
	w.restart()
	m, err := w.instances.InstanceMetadata(t.Context(), node)
	require.NoError(t, err)
	assert.Contains(t, m.ProviderID, ours)
}

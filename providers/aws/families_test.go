package aws

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// TestSourceRangesByFamily: ranges of IPv4 alone do not leave IPv6 open, which a network load balancer without a security group
// would do.
func TestSourceRangesByFamily(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, ranges string
		policy       v1.IPFamilyPolicy
		want, told   string
	}{
		"nobody by IPv6":        {"", "10.0.0.0/8", v1.IPFamilyPolicyPreferDualStack, "ipv4", "it would let everybody in by IPv6"},
		"some by IPv6":          {"", "10.0.0.0/8,2001:db8::/32", v1.IPFamilyPolicyPreferDualStack, "ipv4", "it would let everybody in by IPv6"},
		"everybody by IPv6":     {"", "10.0.0.0/8,::/0", v1.IPFamilyPolicyPreferDualStack, "dualstack", ""},
		"with a security group": {"NLBSecurityGroupMode = Managed\n", "10.0.0.0/8", v1.IPFamilyPolicyPreferDualStack, "dualstack", ""},
		"both are demanded":     {"", "10.0.0.0/8", v1.IPFamilyPolicyRequireDualStack, "", "cannot keep clients out that come by IPv6"},
	} {
		w := startWorld(t, c.file, awssim.Options{})
		s := nlb("web", nil, servicePort("http", 80, 30080))
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, new(c.policy)
		s.Spec.LoadBalancerSourceRanges = strings.Split(c.ranges, ",")
		w.Apply(s)
		_, err := w.try(s)
		if c.want == "" {
			require.ErrorContains(t, err, c.told, name)
			assert.Empty(t, w.sim.Networks(), name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, c.want, w.sim.Networks()[0].AddressType, name)
		assert.Equal(t, c.told != "", strings.Contains(strings.Join(w.Events(), "\n"), "let everybody in by IPv6"), name)
	}
}

// TestTopologyOfNewNodes: nodes that are named by DNS are asked about together, and a failure is not asked about by each.
func TestTopologyOfNewNodes(t *testing.T) {
	t.Parallel()
	const operation = "EC2 DescribeInstanceTopology"
	prepare := func() (*world, []*v1.Node) {
		w := newTestWorld(t, "", awssim.Options{})
		w.sim.SetTopology("p5.48xlarge", true)
		var nodes []*v1.Node
		for i := range 20 {
			n := bare(fmt.Sprintf("ip-10-0-7-%d.ec2.internal", i))
			n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule}}
			w.sim.AddInstance(awssim.Spec{Name: n.Name, Type: "p5.48xlarge"})
			w.Register(n)
			nodes = append(nodes, n)
		}
		return w, nodes
	}
	w, nodes := prepare()
	for _, n := range nodes {
		m, err := w.instances.InstanceMetadata(t.Context(), n)
		require.NoError(t, err)
		assert.NotEmpty(t, m.AdditionalLabels[labelNetworkLayer+"1"])
	}
	assert.Equal(t, 1, w.server.Calls().ByOperation[operation])

	w, nodes = prepare()
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: operation})
	require.NoError(t, err)
	for _, n := range nodes {
		_, err := w.instances.InstanceMetadata(t.Context(), n)
		require.Error(t, err)
	}
	assert.Equal(t, 1, w.server.Calls().ByOperation[operation])
}

// TestNodesNamedByID: a node that is named after an instance which does not exist may go, by the guard's rules, and costs few
// reads until it does.
func TestNodesNamedByID(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	node := bare("i-0123456789abcdef0")
	for range 5 {
		exists, err := w.instances.InstanceExists(t.Context(), node)
		require.NoError(t, err)
		assert.False(t, exists)
		_, err = w.instances.InstanceShutdown(t.Context(), node)
		require.Error(t, err)
	}
	assert.Equal(t, 1, w.server.Calls().ByOperation["EC2 DescribeInstances {id}"])
	exists, err := w.instances.InstanceExists(t.Context(), bare("ip-10-0-0-9.ec2.internal"))
	assert.False(t, exists)
	require.Error(t, err, "another name proves nothing")
}

// TestUnlistedInstancesAreReadOnce: while listings lack every instance, each one of a silent kubelet is read alone once, and not at every
// question.
func TestUnlistedInstancesAreReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t, "", awssim.Options{})
		w.addNodes(60)
		ids := make([]string, len(w.nodes))
		for i, n := range w.nodes {
			ids[i] = instanceOf(n)
			n.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			_, err := w.Kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		instances, _ := guarded(t, w, "", nil).InstancesV2()
		w.fault(simkit.Fault{Kind: simkit.FaultUnlisted, Names: strings.Join(ids, ",")})
		w.server.ResetCalls()
		silent := w.nodes[:20]
		for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(5 * time.Second) {
			var group sync.WaitGroup
			for _, n := range silent {
				group.Go(func() {
					exists, err := instances.InstanceExists(t.Context(), n)
					assert.True(t, exists || err != nil, n.Name)
				})
			}
			group.Wait()
		}
		calls := w.server.Calls()
		t.Logf("20 silent kubelets in 30 s: %v", calls.ByOperation)
		assert.Equal(t, len(silent), calls.ByOperation["EC2 DescribeInstances {id}"], "%v", calls.ByOperation)
		assert.LessOrEqual(t, calls.Reads, len(silent)+6, "%v", calls.ByOperation)
	})
}

// TestManyGoneNodes: the proofs for nodes whose instances EC2 does not know are one read each, whatever else is asked for, and all
// are there within 20 s under EC2's published limits.
func TestManyGoneNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t, "", awssim.Options{})
		w.addNodes(60)
		for _, n := range w.nodes[:50] {
			w.sim.Remove(instanceOf(n))
		}
		ask := func(demand evidence.Demand) {
			for i, n := range w.nodes {
				if i >= 50 {
					demand = evidence.Demand{} // the guard suspects nothing of them
				}
				exists, err := w.instances.InstanceExists(evidence.With(t.Context(), demand), n)
				require.NoError(t, err)
				require.Equal(t, i >= 50, exists)
			}
		}
		// The guard's questions: earlier confirmations may come from a listing, the last one is a read of that instance.
		w.server.ResetCalls()
		began := time.Now()
		ask(evidence.Demand{NotBefore: began, Absence: evidence.Absence{ListedSince: began}})
		ask(evidence.Proof(began))
		calls := w.server.Calls()
		assert.LessOrEqual(t, calls.Total, 75, "%v", calls.ByOperation)
		assert.Equal(t, 50, calls.ByOperation["EC2 DescribeInstances {id}"])
		assert.LessOrEqual(t, time.Since(began), 20*time.Second)

		// Without a demand each question is one batch and one proof, and no other node's.
		w.server.ResetCalls()
		began = time.Now()
		ask(evidence.Demand{})
		calls = w.server.Calls()
		t.Logf("without a demand: %v after %v", calls.ByOperation, time.Since(began))
		assert.LessOrEqual(t, calls.ByOperation["EC2 DescribeInstances {id}"], 50, "one for each question: %v", calls.ByOperation)
		assert.LessOrEqual(t, calls.Total, 110, "%v", calls.ByOperation)
		assert.LessOrEqual(t, time.Since(began), 20*time.Second)
	})
}

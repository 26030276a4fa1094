package e2e

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// startAs starts the program as a test's expectations say.
func startAs(t *testing.T, c *harness.Cluster, s expectations.Setup, args ...string) *harness.CCM {
	t.Helper()
	return startRelease(t, c, harness.Values(s.Values), append(args, s.Arguments...), s.Environment)
}

// prepareAll makes things in the simulated cloud, and counts none of the calls.
func prepareAll(t *testing.T, c *harness.Cluster, steps []expectations.Step) {
	t.Helper()
	for _, step := range steps {
		prepare(t, c, step)
	}
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
}

// TestThousandNodes counts the calls for 1,000 nodes on every cloud, within its published limits: their initialisation, and a minute
// in which all addresses are looked at and 50 nodes are not ready.
func TestThousandNodes(t *testing.T) {
	onEachCloud(t, hasNodes, func(t *testing.T, provider string, expected expectations.Cloud) {
		for name, want := range expected.Costs.Nodes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c, m := thousandNodes(t, provider, want)
				minuteOfThousandNodes(t, c, m, want)
				requirePodRanges(t, c, want.PodCIDRs)
			})
		}
	})
}

const thousand = 1000

// thousandNodes starts a cluster and holds its initialisation against what it may cost. Clusters do this one after the other: several
// at a time need longer, and leave nothing to the small ones.
func thousandNodes(t *testing.T, provider string, want expectations.NodeCosts) (*harness.Cluster, *harness.CCM) {
	t.Helper()
	bigClusters.Lock()
	defer bigClusters.Unlock()
	c := startCluster(t, provider, "--latency=40ms", "--published-limits")
	prepareAll(t, c, want.Prepare)
	require.NoError(t, c.Cloud.Seed(t.Context(), thousand))
	// The address loop runs soon after the start and then every minute.
	m := startAs(t, c, want.Setup, "--node-status-update-frequency=1m")
	began := time.Now()
	require.NoError(t, c.RegisterNodes(t.Context(), 1, thousand, harness.NodeSpec{Ready: true}))
	require.NoError(t, c.WaitInitialized(t.Context(), thousand, patience))
	waitWrites(t, c, want.Writes)
	got, took := calls(t, c), time.Since(began)
	t.Logf("%d nodes were initialised in %.0f s with %d reads and %d writes: %v", thousand, took.Seconds(), got.Reads, got.Writes, got.ByOperation)
	assert.LessOrEqual(t, got.Reads, want.StartWithin(took))
	assert.Equal(t, want.Writes, got.Writes)
	assert.Empty(t, got.Refused)
	return c, m
}

// minuteOfThousandNodes: a look at all addresses, and 50 nodes that are not ready for 6 passes of the lifecycle loop, each 5 s after
// the one before.
func minuteOfThousandNodes(t *testing.T, c *harness.Cluster, m *harness.CCM, want expectations.NodeCosts) {
	t.Helper()
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	began := time.Now()
	for i := range 50 {
		require.NoError(t, c.SetReady(t.Context(), fmt.Sprintf("node-%d", i+1), false))
	}
	waitPasses(t, m, 6)
	waitRounds(t, m, thousand, 1)
	got := calls(t, c)
	t.Logf("%.0f s in which nothing changes cost %d reads: %v", time.Since(began).Seconds(), got.Reads, got.ByOperation)
	assert.LessOrEqual(t, got.Reads, want.Minute*(1+minutesSince(began))+want.Once)
	assert.Zero(t, got.Writes)
	list, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, list.Items, thousand)
}

// requirePodRanges: each node has as many ranges for pods, no two nodes have the same one, and none lacks its network.
func requirePodRanges(t *testing.T, c *harness.Cluster, each int) {
	t.Helper()
	list, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	ranges := map[string]bool{}
	for _, n := range list.Items {
		require.Len(t, n.Spec.PodCIDRs, each, n.Name)
		for _, condition := range n.Status.Conditions {
			require.False(t, condition.Type == v1.NodeNetworkUnavailable && condition.Status == v1.ConditionTrue, "%s: %s", n.Name, condition.Message)
		}
		for _, r := range n.Spec.PodCIDRs {
			ranges[r] = true
		}
	}
	assert.Len(t, ranges, each*len(list.Items), "no range twice")
}

// waitPasses waits for passes of the lifecycle loop.
func waitPasses(t *testing.T, m *harness.CCM, passes float64) {
	t.Helper()
	waitPassesSince(t, m, passesOf(t, m), passes)
}

// provenPasses is after how many passes a Node is deleted at the latest whose instance is gone: it has a grace of four passes, and the
// proof takes two more.
const provenPasses = 8

const passesMetric = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"

// passesOf is how many times the program has looked at all Nodes.
func passesOf(t *testing.T, m *harness.CCM) float64 {
	t.Helper()
	passes, err := m.Metric(t.Context(), passesMetric)
	require.NoError(t, err)
	return passes
}

// waitPassesSince is waitPasses for passes that began to be counted before.
func waitPassesSince(t *testing.T, m *harness.CCM, before, passes float64) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the lifecycle loop", func(ctx context.Context) error {
		now, err := m.Metric(ctx, passesMetric)
		if err == nil && now < before+passes {
			err = fmt.Errorf("%.0f of %.0f passes", now-before, passes)
		}
		return err
	}))
}

// waitWrites waits until the cloud has seen that many writes; more are a matter of the caller's.
func waitWrites(t *testing.T, c *harness.Cluster, n int) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, fmt.Sprintf("%d writes", n), func(ctx context.Context) error {
		got, err := c.Cloud.Calls(ctx)
		if err == nil && got.Writes < n {
			err = fmt.Errorf("%d writes: %v", got.Writes, got.ByOperation)
		}
		return err
	}))
}

// TestServiceCosts counts calls on every cloud: a node that joins 20 Services of two ports, a Service that did not change, and a
// restart, after which nothing is known.
func TestServiceCosts(t *testing.T) {
	onEachCloud(t, hasNodesAndLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		const n, nodes = 20, 30
		want := expected.Costs.Services
		c := newClusterOn(t, provider, "--activation="+cmp.Or(want.Activation, "1s"))
		prepareAll(t, c, want.Prepare)
		require.NoError(t, c.Cloud.Seed(t.Context(), nodes+1))
		m := startAs(t, c, want.Setup)
		joinNodes(t, c, nodes)
		createServices(t, c, n, want.Annotations)
		for i := range n {
			_, err := c.WaitServed(t.Context(), fmt.Sprintf("web-%d", i), patience)
			require.NoError(t, err)
		}
		waitHoldings(t, c, n, fmt.Sprintf("%d nodes", nodes))
		waitQuiet(t, c, m)

		require.NoError(t, c.Cloud.ResetCalls(t.Context()))
		began := time.Now()
		require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: fmt.Sprintf("node-%d", nodes+1), Ready: true}))
		waitHoldings(t, c, n, fmt.Sprintf("%d nodes", nodes+1))
		waitWrites(t, c, want.Join.Writes)
		waitQuiet(t, c, m)
		got := calls(t, c)
		took := time.Since(began).Seconds()
		t.Logf("a node joined %d Services of 2 ports in %.0f s with %d writes and %d reads: %v", n, took, got.Writes, got.Reads, got.ByOperation)
		assert.Equal(t, want.Join.Writes, got.Writes)
		assert.LessOrEqual(t, got.Reads, want.Join.Reads+int(want.Join.PerSecond*took))

		require.NoError(t, c.Cloud.ResetCalls(t.Context()))
		before := ensured(t, m)
		patchService(t, c, "web-0", `{"metadata":{"annotations":{"example.com/unrelated":"1"}}}`)
		requireEnsured(t, m, before+1)
		got = calls(t, c)
		t.Logf("a Service that did not change: %v", got.ByOperation)
		assert.Zero(t, got.Writes)
		assert.LessOrEqual(t, got.Reads, want.Unchanged)

		m.Stop(patience)
		require.NoError(t, c.Cloud.ResetCalls(t.Context()))
		m = startAs(t, c, want.Setup)
		requireEnsured(t, m, n)
		got = calls(t, c)
		t.Logf("%d unchanged Services of 2 ports after a restart: %d reads, %v", n, got.Reads, got.ByOperation)
		assert.Zero(t, got.Writes)
		assert.LessOrEqual(t, got.Reads, want.Restart)
		assert.Empty(t, got.Refused)
	})
}

// createServices makes the Services web-0 to web-<n-1> with two ports each.
func createServices(t *testing.T, c *harness.Cluster, n int, annotations map[string]string) {
	t.Helper()
	for i := range n {
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Annotations: annotations}, Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 443}},
		}}
		_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// ensured is how often Services were reconciled.
func ensured(t *testing.T, m *harness.CCM) int {
	t.Helper()
	done, err := m.Metric(t.Context(), "workqueue_work_duration_seconds_count", `name="service"`)
	require.NoError(t, err)
	return int(done)
}

// waitQuiet waits until the Services have nothing left to do and two passes of the lifecycle loop go by without a call: the 5 s between
// them are longer than any provider holds a change back to make one write of several, which no metric shows.
func waitQuiet(t *testing.T, c *harness.Cluster, m *harness.CCM) {
	t.Helper()
	const maxPasses = 24
	for range maxPasses {
		before := calls(t, c).Total
		waitPasses(t, m, 2)
		requireWorked(t, m, "service")
		if calls(t, c).Total == before {
			return
		}
	}
	t.Fatalf("the cloud is still called: %v", calls(t, c).ByOperation)
}

// TestFurtherControllers: those of one cloud run where the chart names them, with the rights that the chart gives them.
func TestFurtherControllers(t *testing.T) {
	onClouds(t, hasNodes, func(t *testing.T, provider string, expected expectations.Cloud) {
		for name, want := range expected.Controllers {
			if want.None != "" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				c := newClusterOn(t, provider, "--instances=2")
				prepareAll(t, c, want.Prepare)
				startAs(t, c, want.Setup)
				joinNodes(t, c, 2)
				waitState(t, c, "what "+name+" does", want.State)
				require.NoError(t, harness.Eventually(t.Context(), patience, "labels on both nodes", func(ctx context.Context) error {
					for node, n := range listNodes(ctx, t, c) {
						for _, key := range want.NodeLabels {
							if _, has := n.Labels[key]; !has {
								return fmt.Errorf("%s has no label %s", node, key)
							}
						}
					}
					return nil
				}))
			})
		}
	})
}

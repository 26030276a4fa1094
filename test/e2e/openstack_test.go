package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const (
	openstackAnnotations = "loadbalancer.openstack.org/"
	memberBatch          = "PUT /load-balancer/v2.0/lbaas/pools/{id}/members"
)

// createServices makes Services with two ports each, or one.
func createServices(t *testing.T, c *harness.Cluster, n, ports int) {
	t.Helper()
	for i := range n {
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i)}, Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 443}}[:ports],
		}}
		_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func waitAllServed(t *testing.T, c *harness.Cluster, n int) {
	t.Helper()
	for i := range n {
		_, err := c.WaitServed(t.Context(), fmt.Sprintf("web-%d", i), 2*time.Minute)
		require.NoError(t, err)
	}
}

// openstackState is what the tests read of the simulated cloud.
type openstackState struct {
	LoadBalancers []struct {
		Status string `json:"provisioning_status"`
	} `json:"loadbalancers"`
}

// waitOpenStackIdle waits until Octavia works on nothing.
func waitOpenStackIdle(t *testing.T, c *harness.Cluster) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), 2*time.Minute, "Octavia to be idle", func(ctx context.Context) error {
		var s openstackState
		if err := c.Cloud.State(ctx, &s); err != nil {
			return err
		}
		for _, lb := range s.LoadBalancers {
			if lb.Status != "ACTIVE" {
				return errors.New(lb.Status)
			}
		}
		return nil
	}))
}

func waitCalls(t *testing.T, c *harness.Cluster, operation string, n int) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), 2*time.Minute, fmt.Sprintf("%d times %s", n, operation), func(ctx context.Context) error {
		got, err := c.Cloud.Calls(ctx)
		if err == nil && got.ByOperation[operation] < n {
			err = fmt.Errorf("%d so far", got.ByOperation[operation])
		}
		return err
	}))
}

// TestOpenStackSlowOctavia: an Octavia that works 5 s on each change holds nobody up but the load balancer in question.
func TestOpenStackSlowOctavia(t *testing.T) {
	const n = 20
	c := newClusterOn(t, "openstack", "--instances=3", "--activation=5s")
	startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	began := time.Now()
	createServices(t, c, n, 1)
	waitAllServed(t, c, n)
	t.Logf("%d Services were served %.1f s after they were made: %v", n, time.Since(began).Seconds(), calls(t, c).ByOperation)
	waitOpenStackIdle(t, c)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	began = time.Now()
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-3", Ready: true}))
	waitHoldings(t, c, n, "3 nodes")
	waitCalls(t, c, memberBatch, n)
	waitOpenStackIdle(t, c)
	got := calls(t, c)
	t.Logf("a node joined them in %.1f s: %v", time.Since(began).Seconds(), got.ByOperation)
	assert.Equal(t, n, got.Writes)
	assert.Empty(t, got.Refused)
}

// TestOpenStackCosts counts calls: a node that joins 50 Services of 2 ports while Octavia takes 5 s for each change, and a
// Service that did not change.
func TestOpenStackCosts(t *testing.T) {
	const n, nodes = 50, 100
	c := newClusterOn(t, "openstack", fmt.Sprintf("--instances=%d", nodes+1))
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, nodes)
	createServices(t, c, n, 2)
	waitAllServed(t, c, n)
	requireWorked(t, m, "service")
	require.NoError(t, c.Cloud.Do(t.Context(), "activation", object{"activation": "5s"}))
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	began := time.Now()
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: fmt.Sprintf("node-%d", nodes+1), Ready: true}))
	waitCalls(t, c, memberBatch, 2*n)
	took := time.Since(began)
	waitOpenStackIdle(t, c)
	waitCalls(t, c, "GET /load-balancer/v2.0/lbaas/pools", 1) // the look at what is there afterwards
	requireWorked(t, m, "service")
	got := calls(t, c)
	t.Logf("a node joined %d Services of 2 ports in %.1f s with %d writes and %d reads: %v", n, took.Seconds(), got.Writes, got.Reads, got.ByOperation)
	waitHoldings(t, c, n, fmt.Sprintf("%d nodes", nodes+1))
	assert.Equal(t, 2*n, got.Writes)
	// How often is looked depends on how long all of it took, and on nothing that grows with the Services.
	listings := got.ByOperation["GET /load-balancer/v2.0/lbaas/loadbalancers"]
	assert.LessOrEqual(t, listings, int(time.Since(began)/(700*time.Millisecond))+3, "one listing for all every 0.7 s at most")
	assert.LessOrEqual(t, got.Reads-listings, 24, "3 listings for a look at what is there afterwards, which those share that one listing has woken")
	assert.Empty(t, got.Refused)

	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	patchService(t, c, "web-0", `{"metadata":{"annotations":{"example.com/unrelated":"1"}}}`)
	requireWorked(t, m, "service")
	got = calls(t, c)
	t.Logf("a Service that did not change: %v", got.ByOperation)
	assert.Zero(t, got.Writes)
	assert.LessOrEqual(t, got.Reads, 4, "the parts were looked at after our own changes")

	// After a restart nothing is known; still nothing is written, and what Services share is read once.
	m.Stop(10 * time.Second)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m = startCCM(t, c, nil, nil)
	requireEnsured(t, m, n)
	got = calls(t, c)
	t.Logf("%d unchanged Services of 2 ports after a restart: %d reads, %v", n, got.Reads, got.ByOperation)
	assert.Zero(t, got.Writes)
	assert.LessOrEqual(t, got.Reads, 4*n+12, "4 of its own for each, and the listings that all share")
}

// TestOpenStackThousandNodes counts the calls for 1,000 nodes: their initialisation, a minute in which nothing happens, and
// nodes that are not ready.
func TestOpenStackThousandNodes(t *testing.T) {
	const n = 1000
	c := newBigClusterOn(t, "openstack", fmt.Sprintf("--instances=%d", n), "--latency=40ms")
	// The address loop runs soon after the start and then every minute.
	m := startCCM(t, c, []string{"--node-status-update-frequency=1m"}, nil)
	began := time.Now()
	require.NoError(t, c.RegisterNodes(t.Context(), 1, n, harness.NodeSpec{Ready: true}))
	require.NoError(t, c.WaitInitialized(t.Context(), n, 3*time.Minute))
	got := calls(t, c)
	t.Logf("%d nodes were initialised with %d requests: %v", n, got.Total, got.ByOperation)
	assert.LessOrEqual(t, got.Total, 12+4*minutesSince(began), "2 pages of servers and of ports")
	assert.Empty(t, got.Refused)

	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	began = time.Now()
	waitAnswers(t, m, "server", n, 3*time.Minute)
	got = calls(t, c)
	t.Logf("a resync of %d nodes took %d requests: %v", n, got.Total, got.ByOperation)
	assert.LessOrEqual(t, got.Total, 6+4*minutesSince(began))

	for i := range 50 {
		require.NoError(t, c.SetReady(t.Context(), fmt.Sprintf("node-%d", i+1), false))
	}
	// The span is counted in passes of the lifecycle loop, each 5 s after the one before: 6 passes are half a minute.
	const passes = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"
	before, err := m.Metric(t.Context(), passes)
	require.NoError(t, err)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	began = time.Now()
	require.NoError(t, harness.Eventually(t.Context(), 3*time.Minute, "6 passes", func(ctx context.Context) error {
		now, err := m.Metric(ctx, passes)
		if err == nil && now < before+6 {
			err = fmt.Errorf("%.0f passes", now-before)
		}
		return err
	}))
	got = calls(t, c)
	t.Logf("50 nodes that are not ready cost %d reads in half a minute: %v", got.Reads, got.ByOperation)
	assert.Zero(t, got.Writes)
	listings := 0
	for operation, times := range got.ByOperation {
		if strings.HasSuffix(operation, "/servers/detail") {
			listings += times
		}
	}
	assert.LessOrEqual(t, got.Reads-listings, 0, "nothing but listings")
	assert.LessOrEqual(t, listings, 2*(1+int(time.Since(began)/(15*time.Second))), "2 pages every 15 s")
}

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const (
	linodeAnnotations = "service.beta.kubernetes.io/linode-loadbalancer-"
	linodeRecord      = "anyccm.io/linode-nodebalancer-id"
)

// TestLinodeLifeCycle: nodes, and a Service from its creation to its end, on the second cloud.
func TestLinodeLifeCycle(t *testing.T) {
	c := newClusterOn(t, "linode", "--instances=3")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	node, err := c.Kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Regexp(t, `^linode://[0-9]+$`, node.Spec.ProviderID)
	assert.Equal(t, "us-sea", node.Labels[v1.LabelTopologyRegion])

	_, err = c.CreateService(t.Context(), "web", map[string]string{linodeAnnotations + "default-protocol": "http", linodeAnnotations + "throttle": "5"})
	require.NoError(t, err)
	address, err := c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	waitHoldings(t, c, 1, "http/80, 2 nodes")

	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-3", Ready: true}))
	waitHoldings(t, c, 1, "3 nodes")
	require.NoError(t, c.Kube.CoreV1().Nodes().Delete(t.Context(), "node-3", metav1.DeleteOptions{}))
	waitHoldings(t, c, 1, "2 nodes")

	requireWorked(t, m, "service")
	m.Stop(10 * time.Second)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m = startCCM(t, c, nil, nil)
	requireEnsured(t, m, 1)
	assert.Zero(t, calls(t, c).Writes)
	again, err := c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)
	assert.Equal(t, address, again)

	// The API server clears the status with the type; the NodeBalancer is found and deleted all the same.
	patchService(t, c, "web", `{"spec":{"type":"ClusterIP"}}`)
	waitHoldings(t, c, 0, "")
	assert.Empty(t, calls(t, c).Refused)
}

// TestLinodeTypeChangeOfATakenOverService: the same for a NodeBalancer whose label says nothing about its Service.
func TestLinodeTypeChangeOfATakenOverService(t *testing.T) {
	c := newClusterOn(t, "linode", "--instances=1")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	m.Stop(10 * time.Second)
	services := c.Kube.CoreV1().Services(metav1.NamespaceDefault)
	s, err := c.CreateService(t.Context(), "web", nil)
	require.NoError(t, err)
	var nb struct {
		ID             int
		IPv4, Hostname string
	}
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v4/nodebalancers", testToken, object{
		"label": "ccm-0123456789ab", "region": "us-sea", "client_conn_throttle": 0, "tags": []string{"kubernetes"}, "type": "common",
		"configs": []object{{
			"port": 80, "protocol": "tcp", "proxy_protocol": "none", "algorithm": "roundrobin", "check": "connection", "check_interval": 5, "check_timeout": 3,
			"check_attempts": 2, "check_passive": true,
			"nodes": []object{{"address": fmt.Sprintf("192.168.128.1:%d", s.Spec.Ports[0].NodePort), "label": "node-1", "weight": 100, "mode": "accept"}},
		}},
	}, &nb))
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: nb.IPv4, Hostname: nb.Hostname}}
	s, err = services.UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	require.NoError(t, err)

	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m = startCCM(t, c, nil, nil)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the record", func(ctx context.Context) error {
		now, err := services.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && now.Annotations[linodeRecord] != strconv.Itoa(nb.ID) {
			err = fmt.Errorf("it is %q", now.Annotations[linodeRecord])
		}
		return err
	}))
	requireWorked(t, m, "service")
	assert.Zero(t, calls(t, c).Writes, "what Linode's own controller left is as it should be")
	now, err := services.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, s.Status, now.Status)

	patchService(t, c, "web", `{"spec":{"type":"ClusterIP"}}`)
	waitHoldings(t, c, 0, "")
}

// TestLinodeCosts counts calls: a node that joins 20 Services of 2 ports, and a Service that did not change.
func TestLinodeCosts(t *testing.T) {
	const n = 20
	c := newClusterOn(t, "linode", "--instances=3")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	for i := range n {
		s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i)}, Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 443}},
		}}
		_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for i := range n {
		_, err := c.WaitServed(t.Context(), fmt.Sprintf("web-%d", i), patience)
		require.NoError(t, err)
	}
	requireWorked(t, m, "service") // each is reconciled once more after its record was written
	requireWorked(t, m, "node-metadata")
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "node-3", Ready: true}))
	waitHoldings(t, c, n, "3 nodes")
	require.NoError(t, harness.Eventually(t.Context(), patience, "the node on every port", func(ctx context.Context) error {
		got, err := c.Cloud.Calls(ctx)
		if err == nil && got.Writes < 2*n {
			err = fmt.Errorf("%d writes", got.Writes)
		}
		return err
	}))
	got := calls(t, c)
	t.Logf("a node joined %d Services of 2 ports with %d writes and %d reads: %v", n, got.Writes, got.Reads, got.ByOperation)
	assert.Equal(t, 2*n, got.Writes)
	assert.LessOrEqual(t, got.Reads, 10)

	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	patchService(t, c, "web-0", `{"metadata":{"annotations":{"example.com/unrelated":"1"}}}`)
	requireWorked(t, m, "service")
	got = calls(t, c)
	assert.Zero(t, got.Writes)
	assert.LessOrEqual(t, got.Reads, 5)
	assert.Empty(t, got.Refused)
}

// TestLinodeThousandNodesInAVPC: nodes with both families, routes and pod ranges, within the published limits.
func TestLinodeThousandNodesInAVPC(t *testing.T) {
	const n = 1000
	c := newClusterOn(t, "linode", "--latency=40ms", "--published-limits")
	require.NoError(t, c.Cloud.Do(t.Context(), "vpc", object{"label": "cluster", "subnet": "default", "ipv4": "10.0.0.0/8"}))
	require.NoError(t, c.Cloud.Seed(t.Context(), n))
	m := startCCM(t, c, []string{
		"--vpc-names=cluster", "--enable-route-controller", "--allocate-node-cidrs", "--cluster-cidr=10.192.0.0/10", "--route-reconciliation-period=10s",
	}, nil)
	require.NoError(t, c.RegisterNodes(t.Context(), 1, n, harness.NodeSpec{Ready: true}))
	require.NoError(t, c.WaitInitialized(t.Context(), n, 3*time.Minute))
	require.NoError(t, harness.Eventually(t.Context(), 3*time.Minute, "a route for each node", func(ctx context.Context) error {
		got, err := c.Cloud.Calls(ctx)
		if err == nil && got.Writes < n {
			err = fmt.Errorf("%d routes", got.Writes)
		}
		return err
	}))
	got := calls(t, c)
	t.Logf("%d nodes were initialised and routed with %d reads and %d writes: %v", n, got.Reads, got.Writes, got.ByOperation)
	assert.LessOrEqual(t, got.Reads, 40)
	assert.Equal(t, n, got.Writes, "each route is written once")
	assert.Empty(t, got.Refused)

	// The span is counted in reconciliations of routes, each 10 s after the one before: 6 are a minute.
	passes := func(ctx context.Context) (float64, error) {
		return m.Metric(ctx, "anyccm_inventory_answers_total", `kind="Linode"`)
	}
	_, err := passes(t.Context())
	require.NoError(t, err)
	list, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	ranges := map[string]bool{}
	for _, node := range list.Items {
		require.Len(t, node.Spec.PodCIDRs, 2, node.Name)
		ranges[node.Spec.PodCIDRs[0]], ranges[node.Spec.PodCIDRs[1]] = true, true
	}
	assert.Len(t, ranges, 2*n, "no range twice")
}

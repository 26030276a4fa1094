package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
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

// leftByLinode is a Service as Linode's own controller leaves it.
type leftByLinode struct {
	annotations map[string]string
	protocol    v1.Protocol
	// config are the fields of its port that differ from those of a Service without annotations.
	config   object
	throttle int
	tags     []string
	firewall object
	// status chooses what the status shows.
	status func(ip, ipv6, hostname string) []v1.LoadBalancerIngress
}

func leftKinds() map[string]leftByLinode {
	return map[string]leftByLinode{
		"plain": {},
		"web": {
			annotations: map[string]string{
				linodeAnnotations + "default-protocol": "HTTP", linodeAnnotations + "check-type": "http",
				linodeAnnotations + "check-path": "/ready", linodeAnnotations + "check-interval": "10",
			},
			config: object{"protocol": "http", "stickiness": "table", "check": "http", "check_path": "/ready", "check_interval": 10},
		},
		"proxied": {
			annotations: map[string]string{
				linodeAnnotations + "proxy-protocol": "v2", linodeAnnotations + "throttle": "7", linodeAnnotations + "tags": "one,two",
				linodeAnnotations + "default-algorithm": "leastconn",
			},
			config: object{"proxy_protocol": "v2", "algorithm": "leastconn"}, throttle: 7, tags: []string{"one", "two"},
		},
		"udp": {
			protocol: v1.ProtocolUDP,
			config:   object{"protocol": "udp", "stickiness": "session", "check": "none", "check_passive": false, "udp_check_port": 80},
		},
		"dual-stack": {
			annotations: map[string]string{linodeAnnotations + "enable-ipv6-ingress": "true"},
			status: func(ip, ipv6, hostname string) []v1.LoadBalancerIngress {
				return []v1.LoadBalancerIngress{{IP: ip, Hostname: hostname}, {IP: ipv6, Hostname: hostname}}
			},
		},
		"by-hostname": {
			annotations: map[string]string{linodeAnnotations + "hostname-only-ingress": "true"},
			status: func(_, _, hostname string) []v1.LoadBalancerIngress {
				return []v1.LoadBalancerIngress{{Hostname: hostname}}
			},
		},
		"filtered": {
			annotations: map[string]string{linodeAnnotations + "firewall-acl": `{"allowList": {"ipv4": ["198.51.100.0/24"]}}`},
			firewall: object{"inbound_policy": "DROP", "outbound_policy": "ACCEPT", "outbound": []object{}, "inbound": []object{{
				"action": "ACCEPT", "label": "ACCEPT-filtered", "description": "Created by linode-ccm: ccm-00000000aaaa, for filtered", "ports": "80", "protocol": "TCP",
				"addresses": object{"ipv4": []string{"198.51.100.0/24"}},
			}}},
		},
	}
}

// leaveOnLinode makes a Service and its NodeBalancer as Linode's own controller does, whose labels are of the time.
func leaveOnLinode(t *testing.T, c *harness.Cluster, name string, l leftByLinode, number int) {
	t.Helper()
	services := c.Kube.CoreV1().Services(metav1.NamespaceDefault)
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: l.annotations, Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"}},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Name: "http", Protocol: l.protocol, Port: 80}}},
	}
	s, err := services.Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
	node := object{"address": fmt.Sprintf("192.168.128.1:%d", s.Spec.Ports[0].NodePort), "label": "node-1", "weight": 100}
	config := object{
		"port": 80, "protocol": "tcp", "proxy_protocol": "none", "algorithm": "roundrobin", "check": "connection", "check_interval": 5, "check_timeout": 3,
		"check_attempts": 2, "check_passive": true, "nodes": []object{node},
	}
	maps.Copy(config, l.config)
	if l.protocol != v1.ProtocolUDP {
		node["mode"] = "accept"
	}
	request := object{
		"label": fmt.Sprintf("ccm-%012x", number), "region": "us-sea", "client_conn_throttle": l.throttle,
		"tags": append([]string{"kubernetes"}, l.tags...), "type": "common",
		"configs": []object{config},
	}
	if l.firewall != nil {
		var fw struct{ ID int }
		require.NoError(
			t,
			c.Cloud.Call(
				t.Context(), http.MethodPost, "/v4/networking/firewalls", testToken,
				object{"label": "ccm-00000000aaaa", "rules": l.firewall, "tags": []string{"kubernetes"}}, &fw,
			),
		)
		request["firewall_id"] = fw.ID
	}
	var nb struct {
		ID                   int
		IPv4, IPv6, Hostname string
	}
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v4/nodebalancers", testToken, request, &nb))
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: nb.IPv4, Hostname: nb.Hostname}}
	if l.status != nil {
		s.Status.LoadBalancer.Ingress = l.status(nb.IPv4, nb.IPv6, nb.Hostname)
	}
	_, err = services.UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// TestLinodeTakeover: several kinds of Services as Linode's own controller leaves them. Our program starts: nothing is
// written in the cloud, and the status of no Service changes. A change of type then deletes what was taken over, though
// the label of the NodeBalancer says nothing about the Service, and the API server clears the status.
func TestLinodeTakeover(t *testing.T) {
	c := newClusterOn(t, "linode", "--instances=1")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 1)
	waitNodeMetadata(t, c)
	m.Stop(10 * time.Second)
	kinds := leftKinds()
	for i, name := range slices.Sorted(maps.Keys(kinds)) {
		leaveOnLinode(t, c, name, kinds[name], i+1)
	}
	before := listServices(t.Context(), t, c)
	nodes := listNodes(t.Context(), t, c)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	m = startCCM(t, c, nil, nil)
	require.NoError(t, harness.Eventually(t.Context(), patience, "the records", func(ctx context.Context) error {
		for name, s := range listServices(ctx, t, c) {
			if s.Annotations[linodeRecord] == "" {
				return fmt.Errorf("Service %s has none", name)
			}
		}
		return nil
	}))
	requireWorked(t, m, "service")
	requireWorked(t, m, "node-metadata")
	got := calls(t, c)
	assert.Zero(t, got.Writes, "%v", got.ByOperation)
	t.Logf("%d Services were taken over with %d reads: %v", len(kinds), got.Reads, got.ByOperation)
	for name, s := range listServices(t.Context(), t, c) {
		assert.Equal(t, before[name].Status, s.Status, name)
		assert.Equal(t, before[name].Spec, s.Spec, name)
		delete(s.Annotations, linodeRecord)
		assert.Len(t, s.Annotations, len(before[name].Annotations), name)
	}
	for name, n := range listNodes(t.Context(), t, c) {
		assert.Equal(t, nodes[name].ResourceVersion, n.ResourceVersion, name)
	}

	for name := range kinds {
		patchService(t, c, name, `{"spec":{"type":"ClusterIP"}}`)
	}
	waitHoldings(t, c, 0, "")
	require.NoError(t, harness.Eventually(t.Context(), patience, "the firewall to go", func(ctx context.Context) error {
		var s struct{ Firewalls []object }
		err := c.Cloud.State(ctx, &s)
		if err == nil && len(s.Firewalls) > 0 {
			err = fmt.Errorf("it is still there: %v", s.Firewalls)
		}
		return err
	}))
	assert.Empty(t, calls(t, c).Refused)
}

// waitNodeMetadata waits for the host label and the addresses on every Node.
func waitNodeMetadata(t *testing.T, c *harness.Cluster) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the metadata of nodes", func(ctx context.Context) error {
		for name, n := range listNodes(ctx, t, c) {
			if n.Labels["node.k8s.linode.com/host-uuid"] == "" {
				return fmt.Errorf("node %s has no label for its host", name)
			}
		}
		return nil
	}))
}

// TestLinodeCosts counts calls: a node that joins 300 others and 50 Services of 2 ports, and a Service that did not change.
func TestLinodeCosts(t *testing.T) {
	const n, nodes = 50, 300
	c := newClusterOn(t, "linode", fmt.Sprintf("--instances=%d", nodes+1))
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, nodes)
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
	// Each is reconciled once more after its record was written, and its ports and nodes are then read for the first time.
	require.NoError(t, harness.Eventually(t.Context(), patience, "each NodeBalancer to be observed", func(ctx context.Context) error {
		got, err := c.Cloud.Calls(ctx)
		if read := got.ByOperation["GET /v4/nodebalancers/{id}/configs/{id}/nodes"]; err == nil && read < 2*n {
			err = fmt.Errorf("%d of %d ports are", read, 2*n)
		}
		return err
	}))
	requireWorked(t, m, "service")
	waitNodeMetadata(t, c)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: fmt.Sprintf("node-%d", nodes+1), Ready: true}))
	waitHoldings(t, c, n, fmt.Sprintf("%d nodes", nodes+1))
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
	c := newBigClusterOn(t, "linode", "--latency=40ms", "--published-limits")
	require.NoError(t, c.Cloud.Do(t.Context(), "vpc", object{"label": "cluster", "subnet": "default", "ipv4": "10.0.0.0/8"}))
	require.NoError(t, c.Cloud.Seed(t.Context(), n))
	m := startRelease(t, c, harness.Values{"routes.clusterCIDR": "10.192.0.0/10", "routes.allocateNodeCIDRs": true},
		[]string{"--vpc-names=cluster", "--enable-route-controller", "--route-reconciliation-period=10s"}, nil)
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

	list, err := c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	ranges := map[string]bool{}
	for _, node := range list.Items {
		require.Len(t, node.Spec.PodCIDRs, 2, node.Name)
		ranges[node.Spec.PodCIDRs[0]], ranges[node.Spec.PodCIDRs[1]] = true, true
	}
	assert.Len(t, ranges, 2*n, "no range twice")

	// The span is counted in passes of the lifecycle loop, each 5 s after the one before: 12 passes are a minute.
	waitNodeMetadata(t, c)
	const passes = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"
	before, err := m.Metric(t.Context(), passes)
	require.NoError(t, err)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	began := time.Now()
	require.NoError(t, harness.Eventually(t.Context(), 3*time.Minute, "12 passes", func(ctx context.Context) error {
		now, err := m.Metric(ctx, passes)
		if err == nil && now < before+12 {
			err = fmt.Errorf("%.0f passes", now-before)
		}
		return err
	}))
	got = calls(t, c)
	t.Logf("a minute in which nothing happens costs %d reads: %v", got.Reads, got.ByOperation)
	assert.Zero(t, got.Writes)
	assert.LessOrEqual(t, got.Reads, 12*(1+minutesSince(began)))
}

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

package digitalocean

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// leftBalancers returns the objects that DigitalOcean's own controller leaves. The requests are written down by hand, from what
// it is known to send.
func leftBalancers(t testing.TB, f *conformance.Fixture, url string) map[string]conformance.Left {
	t.Helper()
	regional := map[string]any{
		"type": "REGIONAL", "network_stack": "DUALSTACK",
		"forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 30080}},
		"health_check": map[string]any{
			"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3, "response_timeout_seconds": 5,
			"unhealthy_threshold": 3, "healthy_threshold": 5,
		},
	}
	filtered := maps.Clone(regional)
	filtered["firewall"] = map[string]any{"allow": []string{"cidr:198.51.100.0/24"}}
	leave := func(change map[string]any, annotations map[string]string, ranges ...string) func([]*v1.Node) *v1.Service {
		return func(nodes []*v1.Node) *v1.Service {
			s := service("web", maps.Clone(annotations), port("http", 80, 30080))
			s.Spec.LoadBalancerSourceRanges = ranges
			lb := leaveBalancer(t, f, url, s, nodes, change)
			s.Annotations[annotationID], s.Annotations[annotationType] = lb["id"].(string), lb["type"].(string)
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: lb["ip"].(string)}}
			return s
		}
	}
	return map[string]conformance.Left{
		"network":  {Leave: leave(nil, nil)},
		"regional": {Leave: leave(regional, map[string]string{annotationType: typeRegional})},
		"filtered": {Leave: leave(filtered, map[string]string{annotationType: typeRegional}, "198.51.100.0/24")},
		"named":    {Leave: leave(map[string]any{"name": "front.example"}, map[string]string{annotationName: "front.example"})},
	}
}

// leaveBalancer makes a load balancer of a Service, with what differs from a network load balancer.
func leaveBalancer(
	t testing.TB, f *conformance.Fixture, url string, s *v1.Service, nodes []*v1.Node, change map[string]any,
) map[string]any {
	t.Helper()
	droplets := []int{}
	for _, n := range nodes {
		id, err := parseProviderID(n.Spec.ProviderID)
		require.NoError(t, err)
		droplets = append(droplets, id)
	}
	body := map[string]any{
		"name": ("a" + strings.ReplaceAll(string(s.UID), "-", ""))[:32], "algorithm": "round_robin", "region": "nyc3", "type": "REGIONAL_NETWORK",
		"forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80}},
		"health_check": map[string]any{
			"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3, "response_timeout_seconds": 5,
			"unhealthy_threshold": 3, "healthy_threshold": 5,
		},
		"sticky_sessions": map[string]any{"type": "none"}, "droplet_ids": droplets, "tags": []string{"k8s:5a4981aa-9653-4bd1-bef5-d6bff52042e4"},
		"disable_lets_encrypt_dns_records": false, "firewall": map[string]any{}, "network": "EXTERNAL", "network_stack": "IPV4",
	}
	maps.Copy(body, change)
	text, err := json.Marshal(body)
	require.NoError(t, err)
	made := f.Send(t, "POST", url+"/v2/load_balancers", testToken, string(text))
	time.Sleep(time.Minute)
	id := made["load_balancer"].(map[string]any)["id"].(string)
	return f.Send(t, "GET", url+"/v2/load_balancers/"+id, testToken, "")["load_balancer"].(map[string]any)
}

package linode

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// leftNodeBalancers returns the objects that Linode's own controller leaves. The requests are written down by hand, from what
// it is known to send.
func leftNodeBalancers(t testing.TB, f *conformance.Fixture, url string) map[string]conformance.Left {
	t.Helper()
	send := func(path string, body any) map[string]any {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		return f.Send(t, "POST", url+path, testToken, string(text))
	}
	leave := func(config map[string]any, rules any, change func(*v1.Service)) func([]*v1.Node) *v1.Service {
		return func(nodes []*v1.Node) *v1.Service {
			s := service("web", nil, port("http", 80, 30080))
			change(s)
			const label = "ccm-00000000aaaa"
			tags := []string{"kubernetes"}
			balancer := map[string]any{"label": label, "region": linodesim.Region, "client_conn_throttle": 0, "tags": tags, "type": "common"}
			if rules != nil {
				balancer["firewall_id"] = send("/v4/networking/firewalls", map[string]any{"label": label, "tags": tags, "rules": rules})["id"]
			}
			balancer["configs"] = []any{leftConfig(nodes, config)}
			made := send("/v4/nodebalancers", balancer)
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: made["ipv4"].(string), Hostname: made["hostname"].(string)}}
			return s
		}
	}
	rules := map[string]any{"inbound_policy": "DROP", "outbound_policy": "ACCEPT", "outbound": []any{}, "inbound": []any{map[string]any{
		"action": "ACCEPT", "label": "ACCEPT-web", "description": "Created by linode-ccm: ccm-00000000aaaa, for web", "ports": "80",
		"protocol": "TCP", "addresses": map[string]any{"ipv4": []string{"198.51.100.0/24"}},
	}}}
	udp := map[string]any{"protocol": "udp", "stickiness": "session", "check": "none", "check_passive": false, "udp_check_port": 80}
	return map[string]conformance.Left{
		"plain": {Leave: leave(nil, nil, func(*v1.Service) {})},
		"udp":   {Leave: leave(udp, nil, func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP })},
		"filtered": {Leave: leave(nil, rules, func(s *v1.Service) {
			s.Annotations[annotationFirewallACL] = `{"allowList": {"ipv4": ["198.51.100.0/24"]}}`
		})},
	}
}

// leftConfig is the port of a NodeBalancer, with what differs from a port of TCP.
func leftConfig(nodes []*v1.Node, change map[string]any) map[string]any {
	config := map[string]any{
		"port": 80, "protocol": "tcp", "proxy_protocol": "none", "algorithm": "roundrobin", "check": "connection", "check_interval": 5,
		"check_timeout": 3, "check_attempts": 2, "check_passive": true,
	}
	maps.Copy(config, change)
	backends := []any{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Type != v1.NodeInternalIP {
				continue
			}
			backend := map[string]any{"address": fmt.Sprintf("%s:30080", a.Address), "label": n.Name, "weight": 100}
			if config["protocol"] != "udp" {
				backend["mode"] = "accept"
			}
			backends = append(backends, backend)
		}
	}
	config["nodes"] = backends
	return config
}

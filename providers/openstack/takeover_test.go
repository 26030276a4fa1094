package openstack

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

type object = map[string]any

// left is a Service as OpenStack's own controller leaves it, and what it makes in the cloud for it. The requests are
// written down here by hand, from what that controller is known to send, and not made by our code.
type left struct {
	file        string
	annotations map[string]string
	change      func(*v1.Service)
	protocol    string
	// listener, pool, member and monitor are fields that differ from those of a Service without annotations.
	listener, pool, member, monitor object
	loadBalancer                    object
	noMonitor, internal             bool
	ipMode                          v1.LoadBalancerIPMode
	hostname                        string
	octavia                         int
	name, tag                       string
	securityGroup                   bool
}

func leftKinds() map[string]left {
	udp := func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }
	local := func(s *v1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
	}
	return map[string]left{
		"plain":       {},
		"unmonitored": {annotations: map[string]string{annotationMonitor: "false"}, noMonitor: true},
		"tuned": {
			annotations: map[string]string{
				annotationConnectionLimit: "100", annotationMethod: "LEAST_CONNECTIONS", annotationClientData: "60000", annotationMonitorDelay: "9",
				annotationMonitorRetriesDown: "5",
			},
			listener: object{"connection_limit": 100, "timeout_client_data": 60000}, pool: object{"lb_algorithm": "LEAST_CONNECTIONS"},
			monitor: object{"delay": 9, "max_retries_down": 5},
		},
		"proxied": {
			annotations: map[string]string{annotationProxyProtocol: "v2"}, pool: object{"protocol": "PROXYV2"}, ipMode: v1.LoadBalancerIPModeProxy,
		},
		"headers": {
			annotations: map[string]string{annotationForwardedFor: "true"},
			listener:    object{"protocol": "HTTP", "insert_headers": object{"X-Forwarded-For": "true"}}, pool: object{"protocol": "HTTP"},
		},
		"udp": {change: udp, protocol: "UDP", monitor: object{"type": "UDP-CONNECT"}},
		"affinity": {
			change: func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
			pool:   object{"session_persistence": object{"type": "SOURCE_IP"}},
		},
		"local": {
			change: local, member: object{"monitor_port": 30999},
			monitor: object{"type": "HTTP", "url_path": "/healthz", "http_method": "GET", "expected_codes": "200"},
		},
		"filtered": {
			change:   func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24"} },
			listener: object{"allowed_cidrs": []string{"198.51.100.0/24", "192.0.2.0/24"}},
		},
		"internal":      {annotations: map[string]string{annotationInternal: "true"}, internal: true},
		"by name":       {annotations: map[string]string{annotationHostname: "web.example.com"}, hostname: "web.example.com"},
		"groups":        {file: "manage-security-groups = true\n", securityGroup: true},
		"a former name": {name: "a3c1f6b527a664b588b4b0a61c1f9e0a", tag: "kube_service_kubernetes_default_web"},
		"ovn": {
			file: "lb-provider = ovn\n", loadBalancer: object{"provider": "ovn"}, pool: object{"lb_algorithm": "SOURCE_IP_PORT"},
			listener: object{"allowed_cidrs": nil, "timeout_client_data": nil, "timeout_member_connect": nil, "timeout_member_data": nil, "timeout_tcp_inspect": nil},
		},
		"no tags": {octavia: 4, listener: object{"tags": nil, "allowed_cidrs": nil}, loadBalancer: object{"tags": nil}},
	}
}

// leftCases are how the suite takes them over, whose cluster has security groups.
func leftCases(t testing.TB, sim *openstacksim.Sim, f *conformance.Fixture) map[string]conformance.Left {
	t.Helper()
	all := map[string]conformance.Left{}
	for name, l := range leftKinds() {
		if l.octavia > 0 || l.loadBalancer != nil {
			continue // others than the suite's
		}
		l.securityGroup = true
		all[name] = conformance.Left{Leave: func(nodes []*v1.Node) *v1.Service {
			in := f.Inputs()
			in.Dial = f.Network.Dial
			c, err := newCloud(in)
			require.NoError(t, err)
			s := web(maps.Clone(l.annotations))
			if l.change != nil {
				l.change(s)
			}
			leave(t, &world{cloud: c, sim: sim, nodes: nodes}, s, l)
			return s
		}}
	}
	return all
}

func merged(base object, changes object) object {
	all := maps.Clone(base)
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// leave makes what OpenStack's own controller makes.
func leave(t testing.TB, w *world, s *v1.Service, l left) {
	t.Helper()
	name := "kube_service_kubernetes_default_web"
	if l.name != "" {
		name = l.name
	}
	tag := name
	if l.tag != "" {
		tag = l.tag
	}
	protocol := "TCP"
	if l.protocol != "" {
		protocol = l.protocol
	}
	members := []object{}
	for _, n := range w.nodes {
		members = append(
			members,
			merged(object{"address": n.Status.Addresses[0].Address, "protocol_port": 30080, "name": n.Name, "subnet_id": firstSubnet}, l.member),
		)
	}
	pool := merged(object{"name": "pool_0_" + tag, "protocol": protocol, "lb_algorithm": "ROUND_ROBIN", "members": members}, l.pool)
	if !l.noMonitor {
		pool["healthmonitor"] = merged(
			object{"name": "monitor_0_" + tag, "type": protocol, "delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 3}, l.monitor,
		)
	}
	request := merged(object{
		"name": name, "description": "Kubernetes external service default/web from cluster kubernetes", "provider": "amphora", "vip_subnet_id": firstSubnet, "tags": []string{tag},
		"listeners": []object{merged(object{
			"name": "listener_0_" + tag, "protocol": protocol, "protocol_port": 80, "connection_limit": -1, "tags": []string{tag},
			"default_pool": pool, "allowed_cidrs": []string{"0.0.0.0/0"},
			"timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
		}, l.listener)},
	}, l.loadBalancer)
	lb, err := request2[loadBalancer](t, w, loadBalancing, "lbaas/loadbalancers", "loadbalancer", request)
	require.NoError(t, err)
	address := lb.VIPAddress
	if !l.internal {
		f, err := request2[floatingIP](t, w, network, "floatingips", "floatingip", object{
			"floating_network_id": w.sim.Networks()[0].ID, "port_id": lb.VIPPortID, "description": "Floating IP for Kubernetes external service default/web from cluster kubernetes",
		})
		require.NoError(t, err)
		address = f.Address
	}
	if l.securityGroup {
		leaveGroup(t, w, s)
	}
	s.Annotations[annotationID], s.Annotations[annotationAddress] = lb.ID, address
	mode := v1.LoadBalancerIPModeVIP
	if l.ipMode != "" {
		mode = l.ipMode
	}
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: address, IPMode: &mode}}
	if l.hostname != "" {
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{Hostname: l.hostname}}
	}
}

func leaveGroup(t testing.TB, w *world, s *v1.Service) {
	t.Helper()
	g, err := request2[securityGroup](t, w, network, "security-groups", "security_group", object{
		"name": "lb-sg-" + string(s.UID) + "-default-web", "description": "Security Group for default/web Service LoadBalancer in cluster kubernetes",
	})
	require.NoError(t, err)
	open := func(protocol v1.Protocol, port int32) {
		_, err = request2[securityRule](t, w, network, "security-group-rules", "security_group_rule", object{
			"security_group_id": g.ID, "direction": "ingress", "ethertype": "IPv4", "protocol": strings.ToLower(string(protocol)),
			"port_range_min": port, "port_range_max": port, "remote_ip_prefix": "10.0.0.0/16",
		})
		require.NoError(t, err)
	}
	if s.Spec.HealthCheckNodePort != 0 {
		open(v1.ProtocolTCP, s.Spec.HealthCheckNodePort)
	}
	for _, p := range s.Spec.Ports {
		open(p.Protocol, p.NodePort)
	}
	for _, r := range g.Rules {
		_, err := request[struct{}](t.Context(), w.api, network, "removing a rule", http.MethodDelete, "security-group-rules/"+r.ID, nil, "", http.StatusNoContent)
		require.NoError(t, err)
	}
	for _, p := range w.sim.Ports() {
		if slices.ContainsFunc(w.nodes, func(n *v1.Node) bool { return n.Spec.ProviderID == providerIDPrefix+"/"+p.DeviceID }) {
			w.sim.ChangePort(p.ID, func(p *openstacksim.Port) { p.SecurityGroups = append(p.SecurityGroups, g.ID) })
		}
	}
}

func request2[T any](t testing.TB, w *world, of serviceType, at, key string, body object) (*T, error) {
	t.Helper()
	return request[T](t.Context(), w.api, of, "making "+key, http.MethodPost, at, map[string]any{key: body}, key, http.StatusCreated)
}

// TestTakeover: what OpenStack's own controller left is served on without any write, the status of the Service stays, and
// deletion finds all of it.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, l := range leftKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, l.file, func(s *openstacksim.Sim) {
					if l.octavia > 0 {
						s.SetOctaviaMinor(l.octavia)
					}
				})
				w.addNode(openstacksim.Spec{Name: "n1"})
				w.addNode(openstacksim.Spec{Name: "n2"})
				s := web(maps.Clone(l.annotations))
				if l.change != nil {
					l.change(s)
				}
				leave(t, w, s, l)
				w.Apply(s)
				before := w.Current(s)
				for _, recorded := range []bool{true, false} {
					if !recorded { // it is found by name as well
						bare := w.Current(s)
						delete(bare.Annotations, annotationID)
						w.Apply(bare)
					}
					w.restart()
					w.server.ResetCalls()
					now, status := w.ensure(s)
					got := w.server.Calls()
					assert.Zero(t, got.Writes, "%v", got.ByOperation)
					assert.Equal(t, before.Status.LoadBalancer, *status)
					assert.Equal(t, before.Annotations, now.Annotations, "nothing is written on the Service either")
				}
				w.nodes = w.nodes[:1]
				w.update(s)
				assert.Len(t, w.sim.Pools()[0].BackendMembers(), 1)
				require.NoError(t, w.remove(s))
				assert.Empty(t, w.sim.LoadBalancers())
				assert.Empty(t, w.sim.FloatingIPs())
				assert.Empty(t, w.sim.SecurityGroups())
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestRollback: what we make is what OpenStack's own controller would make, as far as it compares it: names, tags,
// descriptions and every field that it sends.
func TestRollback(t *testing.T) {
	t.Parallel()
	for name, l := range leftKinds() {
		if l.name != "" || l.octavia > 0 {
			continue // it makes such load balancers no more
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				state := func(make func(w *world, s *v1.Service)) string {
					w := newTestWorld(t, l.file, nil)
					w.env["OPENSTACK_OWNERSHIP_TAG"] = "false"
					w.restart()
					w.addNode(openstacksim.Spec{Name: "n1"})
					w.addNode(openstacksim.Spec{Name: "n2"})
					s := web(maps.Clone(l.annotations))
					if l.change != nil {
						l.change(s)
					}
					make(w, s)
					assert.Empty(t, w.server.Calls().Refused)
					for _, lb := range w.sim.LoadBalancers() {
						assert.Equal(t, openstacksim.Active, lb.ProvisioningStatus)
					}
					return snapshot(t, w.sim)
				}
				theirs := state(func(w *world, s *v1.Service) { leave(t, w, s, l) })
				ours := state(func(w *world, s *v1.Service) { w.Apply(s); w.ensure(s) })
				assert.Equal(t, theirs, ours)
			})
		})
	}
}

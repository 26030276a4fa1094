package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const (
	idAnnotation   = "kubernetes.digitalocean.com/load-balancer-id"
	typeAnnotation = annotations + "type"
	clusterID      = "5a4981aa-9653-4bd1-bef5-d6bff52042e4"
	firewallName   = "public-access"
)

// object is a JSON object of DigitalOcean's API.
type object = map[string]any

// left is a Service as DigitalOcean's own controller leaves it: what the user wrote, what it sent, what it recorded.
type left struct {
	annotations map[string]string
	spec        func(*v1.ServiceSpec)
	// request are the fields of its request that differ from those of a Service without annotations.
	request func(s *v1.Service) object
	// unrecorded are the annotations that its older versions did not write yet.
	unrecorded []string
	hostname   string
}

func rule(entry string, port int32, target string, targetPort int32) object {
	return object{"entry_protocol": entry, "entry_port": port, "target_protocol": target, "target_port": targetPort}
}

func secureRule(entry string, port, targetPort int32, certificate string) object {
	r := rule(entry, port, "http", targetPort)
	r["certificate_id"] = certificate
	return r
}

func withPorts(list ...v1.ServicePort) func(*v1.ServiceSpec) {
	return func(s *v1.ServiceSpec) { s.Ports = list }
}

func tcpPort(name string, number int32) v1.ServicePort {
	return v1.ServicePort{Name: name, Port: number, Protocol: v1.ProtocolTCP}
}

// regionalRequest is what a regional load balancer is asked for with, besides what every one is.
func regionalRequest(s *v1.Service, more object) object {
	r := object{"type": "REGIONAL", "network_stack": "DUALSTACK", "forwarding_rules": []object{rule("tcp", 80, "tcp", s.Spec.Ports[0].NodePort)}}
	maps.Copy(r, more)
	return r
}

// healthCheck is the usual one but for what is given.
func healthCheck(more object) object {
	h := object{
		"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3, "response_timeout_seconds": 5,
		"unhealthy_threshold": 3, "healthy_threshold": 5, "proxy_protocol": false,
	}
	maps.Copy(h, more)
	return h
}

// takenOver are Services of each kind. certificate is that of a certificate named www.
func takenOver(certificate string) map[string]left {
	all := map[string]left{}
	for _, kinds := range []map[string]left{networkKinds(), webKinds(certificate), settingsKinds(), recordKinds()} {
		maps.Copy(all, kinds)
	}
	return all
}

// networkKinds have network load balancers.
func networkKinds() map[string]left {
	return map[string]left{
		"plain": {},
		"several-ports": {
			spec: withPorts(tcpPort("a", 80), tcpPort("b", 443), v1.ServicePort{Name: "c", Port: 443, Protocol: v1.ProtocolUDP}),
			request: func(*v1.Service) object {
				return object{"forwarding_rules": []object{rule("tcp", 80, "tcp", 80), rule("tcp", 443, "tcp", 443), rule("udp", 443, "udp", 443)}}
			},
		},
		"internal": {
			annotations: map[string]string{annotations + "network": "INTERNAL"},
			request:     func(*v1.Service) object { return object{"network": "INTERNAL"} },
		},
		"local": {
			spec: func(s *v1.ServiceSpec) { s.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal },
			request: func(s *v1.Service) object {
				return object{"health_check": healthCheck(object{"port": s.Spec.HealthCheckNodePort})}
			},
		},
		"named": {
			annotations: map[string]string{annotations + "name": "front.example"},
			request:     func(*v1.Service) object { return object{"name": "front.example"} },
		},
	}
}

// webKinds have regional load balancers that differ in ports and protocols.
func webKinds(certificate string) map[string]left {
	return map[string]left{
		"regional": {
			annotations: map[string]string{typeAnnotation: "REGIONAL"},
			request:     func(s *v1.Service) object { return regionalRequest(s, nil) },
		},
		"web": {
			annotations: map[string]string{
				typeAnnotation: "REGIONAL", annotations + "http-ports": "80", annotations + "tls-ports": "443", annotations + "certificate-id": certificate,
				annotations + "redirect-http-to-https": "true", annotations + "enable-backend-keepalive": "true", annotations + "http-idle-timeout-seconds": "120",
				annotations + "algorithm": "least_connections",
			},
			spec: withPorts(tcpPort("a", 80), tcpPort("b", 443)),
			request: func(s *v1.Service) object {
				return regionalRequest(s, object{
					"forwarding_rules": []object{
						rule("http", 80, "http", s.Spec.Ports[0].NodePort), secureRule("https", 443, s.Spec.Ports[1].NodePort, certificate),
					},
					"redirect_http_to_https": true, "enable_backend_keepalive": true, "http_idle_timeout_seconds": 120, "algorithm": "least_connections",
				})
			},
		},
		"modern-web": {
			annotations: map[string]string{
				typeAnnotation: "REGIONAL", annotations + "http2-ports": "443", annotations + "http3-port": "443", annotations + "certificate-name": "www",
				annotations + "disable-lets-encrypt-dns-records": "true", annotations + "hostname": "WWW.example.com",
			},
			spec: withPorts(tcpPort("b", 443)),
			request: func(s *v1.Service) object {
				n := s.Spec.Ports[0].NodePort
				return regionalRequest(s, object{
					"forwarding_rules":                 []object{secureRule("http2", 443, n, certificate), secureRule("http3", 443, n, certificate)},
					"disable_lets_encrypt_dns_records": true,
				})
			},
			hostname: "www.example.com",
		},
		"passthrough": {
			annotations: map[string]string{typeAnnotation: "REGIONAL", annotations + "tls-passthrough": "true", annotations + "enable-proxy-protocol": "true"},
			spec:        withPorts(tcpPort("b", 443)),
			request: func(s *v1.Service) object {
				r := rule("https", 443, "https", s.Spec.Ports[0].NodePort)
				r["tls_passthrough"] = true
				return regionalRequest(s, object{"forwarding_rules": []object{r}, "enable_proxy_protocol": true})
			},
		},
	}
}

// settingsKinds have regional load balancers that differ in everything else.
func settingsKinds() map[string]left {
	return map[string]left{
		"sticky": {
			annotations: map[string]string{
				typeAnnotation: "REGIONAL", annotations + "sticky-sessions-type": "cookies", annotations + "sticky-sessions-cookie-name": "lb",
				annotations + "sticky-sessions-cookie-ttl": "300", annotations + "size-unit": "3",
			},
			request: func(s *v1.Service) object {
				return regionalRequest(s, object{"sticky_sessions": object{"type": "cookies", "cookie_name": "lb", "cookie_ttl_seconds": 300}, "size_unit": 3})
			},
		},
		"checked": {
			annotations: map[string]string{
				typeAnnotation: "REGIONAL", annotations + "override-health-check": "true", annotations + "healthcheck-path": "/ready",
				annotations + "healthcheck-check-interval-seconds": "10", annotations + "healthcheck-unhealthy-threshold": "4", annotations + "size-slug": "lb-medium",
			},
			request: func(s *v1.Service) object {
				h := healthCheck(object{"port": s.Spec.Ports[0].NodePort, "path": "/ready", "check_interval_seconds": 10, "unhealthy_threshold": 4})
				delete(h, "proxy_protocol")
				return regionalRequest(s, object{"health_check": h, "size": "lb-medium"})
			},
		},
		"filtered": {
			annotations: map[string]string{typeAnnotation: "REGIONAL", annotations + "deny-rules": "ip:192.0.2.7", annotations + "allow-rules": "ip:192.0.2.9"},
			spec:        func(s *v1.ServiceSpec) { s.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "203.0.113.0/24"} },
			request: func(s *v1.Service) object {
				// It walks a map, so that the order is another one each time.
				return regionalRequest(s, object{"firewall": object{"allow": []string{"cidr:203.0.113.0/24", "cidr:198.51.100.0/24"}, "deny": []string{"ip:192.0.2.7"}}})
			},
		},
	}
}

// recordKinds lack records, or are no longer the other controller's.
func recordKinds() map[string]left {
	return map[string]left{
		// Before v0.1.60 the type was not recorded, and before v0.1.61 it was REGIONAL.
		"without-a-type": {request: func(s *v1.Service) object { return regionalRequest(s, nil) }, unrecorded: []string{typeAnnotation}},
		// The very first versions recorded nothing and found load balancers by name alone.
		"without-records": {request: func(s *v1.Service) object { return regionalRequest(s, nil) }, unrecorded: []string{typeAnnotation, idAnnotation}},
		// The cluster's ID was set later: the tag loop tagged it.
		"disowned": {annotations: map[string]string{"service.kubernetes.io/do-loadbalancer-disown": "true", annotations + "http-ports": "smoke"}},
	}
}

// otherRequest is the whole request of DigitalOcean's own controller for a Service.
func otherRequest(l left, s *v1.Service, droplets []int) object {
	r := object{
		"name": ("a" + strings.ReplaceAll(string(s.UID), "-", ""))[:32], "algorithm": "round_robin", "region": "nyc3", "type": "REGIONAL_NETWORK",
		"forwarding_rules": []object{rule("tcp", 80, "tcp", 80)},
		"health_check": object{
			"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3, "response_timeout_seconds": 5,
			"unhealthy_threshold": 3, "healthy_threshold": 5, "proxy_protocol": false,
		},
		"sticky_sessions": object{"type": "none"}, "droplet_ids": droplets, "tags": []string{"k8s:" + clusterID},
		"disable_lets_encrypt_dns_records": false, "firewall": object{}, "network": "EXTERNAL", "network_stack": "IPV4",
	}
	if l.request != nil {
		maps.Copy(r, l.request(s))
	}
	return r
}

// state is what the simulated cloud holds, as far as these tests look.
type state struct {
	Droplets []struct {
		ID       int    `json:"id"`
		Name     string `json:"name"`
		Networks struct {
			V4 []struct {
				IP   string `json:"ip_address"`
				Type string `json:"type"`
			} `json:"v4"`
		} `json:"networks"`
	} `json:"droplets"`
	LoadBalancers []object            `json:"load_balancers"`
	Firewalls     []object            `json:"firewalls"`
	Tags          map[string][]string `json:"tags"`
}

func cloudState(t *testing.T, c *harness.Cluster) state {
	t.Helper()
	var s state
	require.NoError(t, c.Cloud.State(t.Context(), &s))
	return s
}

// initialisedNodes registers the cloud's droplets as nodes that DigitalOcean's own controller has initialised.
func initialisedNodes(t *testing.T, c *harness.Cluster) (droplets []int) {
	t.Helper()
	for _, d := range cloudState(t, c).Droplets {
		droplets = append(droplets, d.ID)
		addresses := []v1.NodeAddress{{Type: v1.NodeHostName, Address: d.Name}}
		for kind, as := range map[string]v1.NodeAddressType{"private": v1.NodeInternalIP, "public": v1.NodeExternalIP} {
			for _, n := range d.Networks.V4 {
				if n.Type == kind {
					addresses = append(addresses, v1.NodeAddress{Type: as, Address: n.IP})
				}
			}
		}
		slices.SortStableFunc(addresses[1:], func(a, b v1.NodeAddress) int { return -strings.Compare(string(a.Type), string(b.Type)) })
		_, err := c.Kube.CoreV1().Nodes().Create(t.Context(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: d.Name, Labels: map[string]string{
				v1.LabelHostname: d.Name, v1.LabelInstanceType: "s-2vcpu-4gb", v1.LabelInstanceTypeStable: "s-2vcpu-4gb",
				v1.LabelTopologyRegion: "nyc3", v1.LabelFailureDomainBetaRegion: "nyc3",
			}},
			Spec:   v1.NodeSpec{ProviderID: fmt.Sprintf("digitalocean://%d", d.ID)},
			Status: v1.NodeStatus{Addresses: addresses, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	slices.Reverse(droplets) // it sends them in no particular order
	return droplets
}

func createLoadBalancer(t *testing.T, c *harness.Cluster, request object) (id string, ingress []v1.LoadBalancerIngress) {
	t.Helper()
	var answer struct {
		LoadBalancer struct{ ID, IP, IPv6, Status string } `json:"load_balancer"`
	}
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v2/load_balancers", testToken, request, &answer))
	id = answer.LoadBalancer.ID
	require.NoError(t, harness.Eventually(t.Context(), patience, "the load balancer", func(ctx context.Context) error {
		err := c.Cloud.Call(ctx, http.MethodGet, "/v2/load_balancers/"+id, testToken, nil, &answer)
		if err == nil && answer.LoadBalancer.Status != "active" {
			err = errors.New(answer.LoadBalancer.Status)
		}
		return err
	}))
	for _, ip := range []string{answer.LoadBalancer.IP, answer.LoadBalancer.IPv6} {
		if ip != "" {
			ingress = append(ingress, v1.LoadBalancerIngress{IP: ip})
		}
	}
	return id, ingress
}

// leave makes a Service and its load balancer as DigitalOcean's own controller does.
func leave(t *testing.T, c *harness.Cluster, name string, l left, droplets []int) {
	t.Helper()
	services := c.Kube.CoreV1().Services(metav1.NamespaceDefault)
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}, Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"}},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}},
		},
	}
	maps.Copy(s.Annotations, l.annotations)
	if l.spec != nil {
		l.spec(&s.Spec)
	}
	s, err := services.Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
	request := otherRequest(l, s, droplets)
	id, ingress := createLoadBalancer(t, c, request)
	if l.hostname != "" {
		ingress = []v1.LoadBalancerIngress{{Hostname: l.hostname}}
	}
	records := map[string]any{idAnnotation: id, typeAnnotation: request["type"]}
	for _, key := range l.unrecorded {
		delete(records, key)
	}
	patch, err := json.Marshal(object{"metadata": object{"annotations": records}})
	require.NoError(t, err)
	s, err = services.Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	s.Status.LoadBalancer.Ingress = ingress
	_, err = services.UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// otherFirewall is the public access firewall that DigitalOcean's own controller keeps for these Services.
func otherFirewall(t *testing.T, c *harness.Cluster) object {
	t.Helper()
	world := object{"addresses": []string{"0.0.0.0/0", "::/0"}}
	inbound := []object{}
	list, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	opened := map[string]bool{}
	open := func(protocol v1.Protocol, port int32) {
		r := object{"protocol": strings.ToLower(string(protocol)), "ports": strconv.Itoa(int(port)), "sources": world}
		if key := fmt.Sprint(r["protocol"], r["ports"]); !opened[key] {
			opened[key] = true
			inbound = append(inbound, r)
		}
	}
	for i := range list.Items {
		s := &list.Items[i]
		if s.Spec.Type == v1.ServiceTypeNodePort {
			open(s.Spec.Ports[0].Protocol, s.Spec.Ports[0].NodePort)
		}
		if s.Spec.Type != v1.ServiceTypeLoadBalancer ||
			s.Annotations[typeAnnotation] != "REGIONAL_NETWORK" || s.Annotations[annotations+"network"] == "INTERNAL" {
			continue
		}
		check := "10256"
		if s.Spec.HealthCheckNodePort != 0 {
			check = strconv.Itoa(int(s.Spec.HealthCheckNodePort))
		}
		inbound = append(inbound, object{"protocol": "tcp", "ports": check, "sources": object{"load_balancer_uids": []string{s.Annotations[idAnnotation]}}})
		for _, p := range s.Spec.Ports {
			open(p.Protocol, p.Port)
		}
	}
	return object{
		"name": firewallName, "inbound_rules": inbound, "droplet_ids": nil, "tags": []string{"worker"},
		"outbound_rules": []object{
			{
				"protocol": "tcp", "ports": "all", "destinations": world,
			}, {"protocol": "udp", "ports": "all", "destinations": world}, {"protocol": "icmp", "destinations": world},
		},
	}
}

// TestTakeover: the cloud and the cluster are as DigitalOcean's own controller leaves them. Our program starts, with
// every feature on: nothing is written in the cloud, and Services and Nodes stay as they are.
func TestTakeover(t *testing.T) {
	c := newCluster(t, "--instances=3", "--activation=20ms")
	droplets := initialisedNodes(t, c)
	var certificate struct {
		Certificate struct{ ID string } `json:"certificate"`
	}
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v2/certificates", testToken,
		object{"name": "www", "type": "lets_encrypt", "dns_names": []string{"www.example.com"}}, &certificate))
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v2/tags", testToken, object{"name": "worker"}, nil))
	kinds := takenOver(certificate.Certificate.ID)
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		leave(t, c, name, kinds[name], droplets)
	}
	_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "node-port"}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeNodePort, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v2/firewalls", testToken, otherFirewall(t, c), nil))

	before, services, nodes := cloudState(t, c), listServices(t.Context(), t, c), listNodes(t.Context(), t, c)
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	env := map[string]string{"DO_CLUSTER_ID": clusterID, "PUBLIC_ACCESS_FIREWALL_NAME": firewallName, "PUBLIC_ACCESS_FIREWALL_TAGS": "worker"}
	m := startCCM(t, c, nil, env)
	requireEnsured(t, m, len(kinds))
	requireWorked(t, m, "firewall")
	requireWorked(t, m, "load-balancer-tags")
	requireWorked(t, m, "Nodes")
	requireEnsured(t, m, len(kinds)+2) // two Services are reconciled once more, because their records were completed

	got := calls(t, c)
	assert.Zero(t, got.Writes, "%v", got.ByOperation)
	assert.Equal(t, before, cloudState(t, c))
	t.Logf("%d Services were taken over with %d reads: %v", len(kinds), got.Reads, got.ByOperation)
	for name, s := range listServices(t.Context(), t, c) {
		was := services[name]
		assert.Equal(t, was.Status, s.Status, name)
		assert.Equal(t, was.Spec, s.Spec, name)
		assert.Equal(t, was.Finalizers, s.Finalizers, name)
		if kinds[name].unrecorded == nil {
			assert.Equal(t, was.Annotations, s.Annotations, name)
			assert.Equal(t, was.ResourceVersion, s.ResourceVersion, "%s was not written at all", name)
		} else {
			assert.NotEmpty(t, s.Annotations[idAnnotation], name)
			assert.Equal(t, "REGIONAL", s.Annotations[typeAnnotation], name)
		}
	}
	for name, n := range listNodes(t.Context(), t, c) {
		assert.Equal(t, nodes[name].ResourceVersion, n.ResourceVersion, "%s was not written at all", name)
	}
}

// createKind makes a Service of a kind, which no controller has seen.
func createKind(t *testing.T, c *harness.Cluster, name string, l left) {
	t.Helper()
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: l.annotations},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}},
		},
	}
	if l.spec != nil {
		l.spec(&s.Spec)
	}
	_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{})
	require.NoError(t, err)
}

// waitFirewallRules waits until the only firewall has as many rules.
func waitFirewallRules(t *testing.T, c *harness.Cluster, want int) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the firewall", func(ctx context.Context) error {
		var s state
		if err := c.Cloud.State(ctx, &s); err != nil {
			return err
		}
		if len(s.Firewalls) != 1 || len(s.Firewalls[0]["inbound_rules"].([]any)) != want {
			return fmt.Errorf("it is %v", s.Firewalls)
		}
		return nil
	}))
}

// sortUnordered sorts the lists whose order says nothing.
func sortUnordered(s *state) {
	for _, lb := range s.LoadBalancers {
		slices.SortFunc(lb["droplet_ids"].([]any), func(a, b any) int { return int(a.(float64) - b.(float64)) })
		if allow, ok := lb["firewall"].(object)["allow"].([]any); ok {
			slices.SortFunc(allow, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		}
	}
	for _, rules := range []string{"inbound_rules", "outbound_rules"} {
		slices.SortFunc(s.Firewalls[0][rules].([]any), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// TestTheWayBack: what we make carries the names and records by which DigitalOcean's own controller finds it, and its
// unconditional replacement of everything changes nothing.
func TestTheWayBack(t *testing.T) {
	c := newCluster(t, "--instances=2", "--activation=20ms")
	droplets := initialisedNodes(t, c)
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v2/tags", testToken, object{"name": "worker"}, nil))
	var certificate struct {
		Certificate struct{ ID string } `json:"certificate"`
	}
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPost, "/v2/certificates", testToken,
		object{"name": "www", "type": "custom", "private_key": "k", "leaf_certificate": "c"}, &certificate))
	kinds := takenOver(certificate.Certificate.ID)
	maps.DeleteFunc(kinds, func(name string, l left) bool { return l.unrecorded != nil || name == "disowned" })
	for name, l := range kinds {
		createKind(t, c, name, l)
	}
	m := startCCM(t, c, nil, map[string]string{"DO_CLUSTER_ID": clusterID, "PUBLIC_ACCESS_FIREWALL_NAME": firewallName, "PUBLIC_ACCESS_FIREWALL_TAGS": "worker"})
	for name := range kinds {
		_, err := c.WaitServed(t.Context(), name, patience)
		require.NoError(t, err)
	}
	waitFirewallRules(t, c, len(otherFirewall(t, c)["inbound_rules"].([]object)))
	m.Stop(patience)

	// The other one starts: it finds each load balancer by its record, or by its name without, and replaces it.
	before := cloudState(t, c)
	for name, s := range listServices(t.Context(), t, c) {
		request := otherRequest(kinds[name], s, droplets)
		i := slices.IndexFunc(before.LoadBalancers, func(lb object) bool { return lb["id"] == s.Annotations[idAnnotation] })
		require.GreaterOrEqual(t, i, 0, name)
		lb := before.LoadBalancers[i]
		assert.Equal(t, request["name"], lb["name"], "%s is found by name too", name)
		assert.Equal(t, lb["type"], s.Annotations[typeAnnotation], name)
		assert.Contains(t, before.Tags["k8s:"+clusterID], "load_balancer:"+s.Annotations[idAnnotation], name)
		require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPut, "/v2/load_balancers/"+s.Annotations[idAnnotation], testToken, request, nil), name)
	}
	firewall := otherFirewall(t, c)
	require.NoError(t, c.Cloud.Call(t.Context(), http.MethodPut, "/v2/firewalls/"+before.Firewalls[0]["id"].(string), testToken, firewall, nil))
	after := cloudState(t, c)
	for _, s := range []*state{&before, &after} {
		sortUnordered(s)
	}
	assert.Equal(t, before, after, "nothing changed but orders that say nothing")
}

func listServices(ctx context.Context, t *testing.T, c *harness.Cluster) map[string]*v1.Service {
	t.Helper()
	list, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	byName := map[string]*v1.Service{}
	for i := range list.Items {
		if list.Items[i].Name != "kubernetes" {
			byName[list.Items[i].Name] = &list.Items[i]
		}
	}
	return byName
}

func listNodes(ctx context.Context, t *testing.T, c *harness.Cluster) map[string]*v1.Node {
	t.Helper()
	list, err := c.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	byName := map[string]*v1.Node{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}

// requireWorked waits until a controller has done something and has nothing left to do.
func requireWorked(t *testing.T, m *harness.CCM, queue string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, "the controller "+queue, func(ctx context.Context) error {
		done, err := m.Metric(ctx, "workqueue_work_duration_seconds_count", fmt.Sprintf("name=%q", queue))
		if err != nil {
			return err
		}
		depth, err := m.Metric(ctx, "workqueue_depth", fmt.Sprintf("name=%q", queue))
		if err != nil {
			return err
		}
		busy, err := m.Metric(ctx, "workqueue_unfinished_work_seconds", fmt.Sprintf("name=%q", queue))
		if err == nil && (done == 0 || depth > 0 || busy > 0) {
			err = fmt.Errorf("%.0f done, %.0f waiting, busy for %.1f s", done, depth, busy)
		}
		return err
	}))
}

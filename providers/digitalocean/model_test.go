package digitalocean

import (
	"fmt"
	"maps"
	"testing"

	"github.com/digitalocean/godo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

var testConfig = Config{ClusterID: "c1", VPCID: "vpc", DefaultType: godo.LoadBalancerTypeRegionalNetwork}

var twoBackends = []backend{
	{node: "b", dropletID: 2, publicV4: true, private: true}, {node: "a", dropletID: 1, publicV4: true, private: true},
}

// build runs the pure part from Service to request, as a new load balancer is made.
func build(s *v1.Service, certificateID string, backends []backend) (*godo.LoadBalancerRequest, error) {
	set, _, err := parseSettings(s.Annotations, testConfig.DefaultType, "")
	if err != nil {
		return nil, err
	}
	kept, err := eligibleBackends(backends, set.Type, set.Network)
	if err != nil {
		return nil, err
	}
	return desire(testConfig, "nyc3", s, set, certificateID, backendsOf(kept), nil)
}

func TestDefaultRequest(t *testing.T) {
	t.Parallel()
	r, err := build(service("web", nil, port("http", 80, 30080)), "", twoBackends)
	require.NoError(t, err)
	assert.Equal(t, &godo.LoadBalancerRequest{
		Name: "a3c1f6b527a664b588b4b0a61c1f9e0a", Algorithm: "round_robin", Region: "nyc3", Type: "REGIONAL_NETWORK",
		ForwardingRules: []godo.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 80}},
		HealthCheck: &godo.HealthCheck{
			Protocol: "http", Port: 10256, Path: "/healthz", CheckIntervalSeconds: 3, ResponseTimeoutSeconds: 5, UnhealthyThreshold: 3, HealthyThreshold: 5,
			ProxyProtocol: new(false),
		},
		StickySessions: &godo.StickySessions{Type: "none"}, DropletIDs: []int{1, 2}, Tags: []string{"k8s:c1"}, VPCUUID: "vpc",
		DisableLetsEncryptDNSRecords: new(false), Firewall: &godo.LBFirewall{}, Network: "EXTERNAL", NetworkStack: "IPV4",
	}, r)
}

// The ports of Services that are served.
var (
	webPort = port("http", 80, 30080)
	tlsPort = port("https", 443, 30443)
	altPort = port("alt", 8443, 30843)
	dnsPort = protocol(port("dns", 53, 30053), v1.ProtocolUDP)
)

func servicePorts(list ...v1.ServicePort) []v1.ServicePort { return list }

func ruleList(list ...godo.ForwardingRule) []godo.ForwardingRule { return list }

func rule(entry string, port int, target string, targetPort int) godo.ForwardingRule {
	return godo.ForwardingRule{EntryProtocol: entry, EntryPort: port, TargetProtocol: target, TargetPort: targetPort}
}

// secured is a rule that ends TLS with a certificate, or passes it through.
func secured(r godo.ForwardingRule, certificate string, passthrough bool) godo.ForwardingRule {
	r.CertificateID, r.TlsPassthrough = certificate, passthrough
	return r
}

// regional are the annotations of a regional load balancer, and others.
func regional(more map[string]string) map[string]string {
	all := map[string]string{annotationType: "REGIONAL"}
	maps.Copy(all, more)
	return all
}

// forwardingRuleCases list the rules that the ports of a Service need.
var forwardingRuleCases = map[string]struct {
	annotations map[string]string
	certificate string
	ports       []v1.ServicePort
	want        []godo.ForwardingRule
	refused     string
}{
	"network: packets keep their port": {
		nil, "", servicePorts(webPort, dnsPort),
		ruleList(rule("tcp", 80, "tcp", 80), rule("udp", 53, "udp", 53)), "",
	},
	"network: layer 7 annotations are not read": {
		map[string]string{annotationHTTPPorts: "x", annotationTLSPorts: "443"},
		"", servicePorts(tlsPort),
		ruleList(rule("tcp", 443, "tcp", 443)), "",
	},
	"tcp": {
		regional(nil), "", servicePorts(webPort, tlsPort),
		ruleList(rule("tcp", 80, "tcp", 30080), rule("tcp", 443, "tcp", 30443)), "",
	},
	"http by default": {
		regional(map[string]string{annotationProtocol: "http"}), "", servicePorts(webPort, dnsPort),
		ruleList(rule("http", 80, "http", 30080), rule("udp", 53, "udp", 30053)), "",
	},
	"http by port": {
		regional(map[string]string{annotationHTTPPorts: "80"}), "", servicePorts(webPort, altPort),
		ruleList(rule("http", 80, "http", 30080), rule("tcp", 8443, "tcp", 30843)), "",
	},
	"https with a certificate": {
		regional(map[string]string{annotationTLSPorts: "8443"}), "cert", servicePorts(altPort, tlsPort),
		ruleList(secured(rule("https", 8443, "http", 30843), "cert", false), rule("tcp", 443, "tcp", 30443)), "",
	},
	"https with passthrough": {
		regional(map[string]string{annotationTLSPorts: "8443", annotationTLSPassthrough: "true"}), "", servicePorts(altPort),
		ruleList(secured(rule("https", 8443, "https", 30843), "", true)), "",
	},
	"443 with a certificate": {
		regional(nil), "cert", servicePorts(webPort, tlsPort),
		ruleList(rule("tcp", 80, "tcp", 30080), secured(rule("https", 443, "http", 30443), "cert", false)), "",
	},
	"443 with passthrough": {
		regional(map[string]string{annotationTLSPassthrough: "true"}), "", servicePorts(tlsPort),
		ruleList(secured(rule("https", 443, "https", 30443), "", true)), "",
	},
	"443 as http2": {
		regional(map[string]string{annotationHTTP2Ports: "443"}), "cert", servicePorts(tlsPort),
		ruleList(secured(rule("http2", 443, "http", 30443), "cert", false)), "",
	},
	"http2 with passthrough": {
		regional(map[string]string{annotationHTTP2Ports: "443", annotationTLSPassthrough: "true"}), "", servicePorts(tlsPort),
		ruleList(secured(rule("http2", 443, "http2", 30443), "", true)), "",
	},
	"443 in http-ports is https all the same": {
		regional(map[string]string{annotationHTTPPorts: "443"}), "cert", servicePorts(tlsPort),
		ruleList(secured(rule("https", 443, "http", 30443), "cert", false)), "",
	},
	"http3 beside https": {
		regional(map[string]string{annotationHTTP3Port: "443"}), "cert", servicePorts(tlsPort),
		ruleList(secured(rule("https", 443, "http", 30443), "cert", false), secured(rule("http3", 443, "http", 30443), "cert", false)), "",
	},
	"http3 on a port that is not there": {
		regional(map[string]string{annotationHTTP3Port: "8443"}), "cert", servicePorts(tlsPort),
		ruleList(secured(rule("https", 443, "http", 30443), "cert", false)), "",
	},
	"http3 without a certificate": {
		regional(map[string]string{annotationHTTP3Port: "80"}), "", servicePorts(webPort),
		nil, "http3-port: needs a certificate",
	},
	"http3 with passthrough": {
		regional(map[string]string{annotationHTTP3Port: "443", annotationTLSPassthrough: "true"}), "", servicePorts(tlsPort),
		nil, "http3-port: excludes",
	},
	"https without a certificate": {
		regional(map[string]string{annotationTLSPorts: "443"}), "", servicePorts(tlsPort),
		nil, "port 443: https needs a certificate or TLS passthrough",
	},
	"http3 for every port": {
		regional(map[string]string{annotationProtocol: "http3"}), "cert", servicePorts(webPort),
		nil, "port 80: a load balancer speaks no http3 to droplets; give " + annotationProtocol + " another value",
	},
	"http2 without a certificate": {
		regional(map[string]string{annotationHTTP2Ports: "443"}), "", servicePorts(tlsPort),
		nil, "port 443: http2 needs a certificate",
	},
	"one port in two lists": {
		regional(map[string]string{annotationHTTPPorts: "80", annotationTLSPorts: "80"}), "cert", servicePorts(webPort),
		nil, "names port 80, which " + annotationHTTPPorts + " names already",
	},
	"unknown protocol": {regional(map[string]string{annotationProtocol: "udp"}), "", servicePorts(webPort), nil, `"udp" is not one of`},
	"empty protocol":   {regional(map[string]string{annotationProtocol: ""}), "", servicePorts(webPort), nil, "is empty; remove it or give it a value"},
	"no ports":         {nil, "", nil, nil, "the Service has no ports"},
	"every fault at once": {
		regional(map[string]string{annotationTLSPorts: "443,81"}), "", servicePorts(tlsPort, port("x", 81, 30081)),
		nil, "port 81",
	},
}

func TestForwardingRules(t *testing.T) {
	t.Parallel()
	for name, c := range forwardingRuleCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := build(service("web", c.annotations, c.ports...), c.certificate, twoBackends)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, r.ForwardingRules)
		})
	}
}

func localPolicy(s *v1.Service) {
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
}

// healthCheckCases are annotations and changes of a Service with the ports 53 of UDP, 80 and 8080, and its health check.
var healthCheckCases = map[string]struct {
	annotations map[string]string
	change      func(*v1.Service)
	want        godo.HealthCheck
	refused     string
}{
	"kube-proxy":   {nil, nil, godo.HealthCheck{Protocol: "http", Port: 10256, Path: "/healthz", ProxyProtocol: new(false)}, ""},
	"local policy": {nil, localPolicy, godo.HealthCheck{Protocol: "http", Port: 32000, Path: "/healthz", ProxyProtocol: new(false)}, ""},
	"without override": {
		map[string]string{annotationCheckPath: "/x", annotationCheckPort: "nonsense"},
		nil,
		godo.HealthCheck{Protocol: "http", Port: 10256, Path: "/healthz", ProxyProtocol: new(false)},
		"",
	},
	"override": {map[string]string{annotationOverrideCheck: "false"}, nil, godo.HealthCheck{Protocol: "tcp", Port: 30080}, ""},
	"path implies http": {
		map[string]string{annotationOverrideCheck: "", annotationCheckPath: "/ready"},
		nil,
		godo.HealthCheck{Protocol: "http", Port: 30080, Path: "/ready"},
		"",
	},
	"all of it": {
		map[string]string{
			annotationOverrideCheck: "", annotationCheckPath: "/ready", annotationCheckPort: "8080", annotationCheckProtocol: "https",
		},
		nil,
		godo.HealthCheck{Protocol: "https", Port: 30081, Path: "/ready"},
		"",
	},
	"unknown port":     {map[string]string{annotationOverrideCheck: "", annotationCheckPort: "81"}, nil, godo.HealthCheck{}, `healthcheck-port: "81" is not a TCP port of the Service`},
	"UDP port":         {map[string]string{annotationOverrideCheck: "", annotationCheckPort: "53"}, nil, godo.HealthCheck{}, `"53" is not a TCP port`},
	"several ports":    {map[string]string{annotationOverrideCheck: "", annotationCheckPort: "80,8080"}, nil, godo.HealthCheck{}, `"80,8080" is not a whole number`},
	"unknown protocol": {map[string]string{annotationOverrideCheck: "", annotationCheckProtocol: "icmp"}, nil, godo.HealthCheck{}, `"icmp" is not one of`},
	"no TCP port": {
		map[string]string{annotationOverrideCheck: ""},
		func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] },
		godo.HealthCheck{},
		"needs a TCP port",
	},
	"out of range": {map[string]string{annotationCheckInterval: "2"}, nil, godo.HealthCheck{}, `"2" is out of range; use 3 to 300`},
	"empty":        {map[string]string{annotationHealthyThreshold: ""}, nil, godo.HealthCheck{}, "is empty"},
}

func TestHealthCheck(t *testing.T) {
	t.Parallel()
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	ports := []v1.ServicePort{udp, port("http", 80, 30080), port("alt", 8080, 30081)}
	for name, c := range healthCheckCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service("web", c.annotations, ports...)
			if c.change != nil {
				c.change(s)
			}
			r, err := build(s, "", twoBackends)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			c.want.CheckIntervalSeconds, c.want.ResponseTimeoutSeconds, c.want.UnhealthyThreshold, c.want.HealthyThreshold = 3, 5, 3, 5
			assert.Equal(t, &c.want, r.HealthCheck)
		})
	}
}

func TestNetworkStack(t *testing.T) {
	t.Parallel()
	v4, dual, private := backend{node: "v4", publicV4: true}, backend{
		node: "dual", publicV4: true, publicV6: true,
	}, backend{node: "private", private: true}
	v6 := backend{node: "v6", publicV6: true}
	for _, c := range []struct {
		kind, network, asked string
		backends             []backend
		want, refused        string
	}{
		{"REGIONAL", "EXTERNAL", "", []backend{v4}, "DUALSTACK", ""},
		{"REGIONAL", "INTERNAL", "", []backend{dual}, "IPV4", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "", []backend{v4}, "IPV4", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "", []backend{dual}, "DUALSTACK", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "", []backend{dual, v4}, "IPV4", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "", nil, "IPV4", ""},
		{"REGIONAL_NETWORK", "INTERNAL", "", []backend{dual, private}, "IPV4", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "DUALSTACK", []backend{dual}, "DUALSTACK", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "DUALSTACK", []backend{dual, v4}, "", "nodes v4 with IPv4 only"},
		{"REGIONAL", "EXTERNAL", "IPV4", []backend{dual}, "IPV4", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "", []backend{dual, v6}, "DUALSTACK", ""},
		{"REGIONAL", "EXTERNAL", "", nil, "DUALSTACK", ""},
		{"REGIONAL", "INTERNAL", "", nil, "IPV4", ""},
		{"REGIONAL_NETWORK", "INTERNAL", "", nil, "IPV4", ""},
		{"REGIONAL_NETWORK", "EXTERNAL", "DUALSTACK", nil, "DUALSTACK", ""},
	} {
		got, err := networkStack(settings{Type: c.kind, Network: c.network, NetworkStack: c.asked}, c.backends)
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%+v", c)
	}
	_, _, err := parseSettings(map[string]string{annotationNetwork: "INTERNAL", annotationNetworkStack: "DUALSTACK"}, "REGIONAL", "")
	require.ErrorContains(t, err, "contradict")
}

// TestDropletWithTwoNames: a droplet that has two Nodes for a while is named once.
func TestDropletWithTwoNames(t *testing.T) {
	t.Parallel()
	kept, err := eligibleBackends([]backend{
		{node: "new", dropletID: 5, publicV4: true}, {node: "other", dropletID: 3, publicV4: true}, {node: "old", dropletID: 5, publicV4: true},
	}, godo.LoadBalancerTypeRegional, godo.LoadBalancerNetworkTypeExternal)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 5}, dropletIDs(kept))
}

func TestEligible(t *testing.T) {
	t.Parallel()
	all := []backend{
		{node: "v4", dropletID: 5, publicV4: true, private: true},
		{node: "dual", dropletID: 4, publicV4: true, publicV6: true, private: true},
		{node: "v6", dropletID: 3, publicV6: true, private: true},
		{node: "private", dropletID: 2, private: true},
		{node: "none", dropletID: 1},
	}
	for _, c := range []struct {
		kind, network string
		want          []int
	}{
		{"REGIONAL_NETWORK", "EXTERNAL", []int{4, 5}},
		{"REGIONAL", "EXTERNAL", []int{2, 4, 5}},
		{"REGIONAL_NETWORK", "INTERNAL", []int{1, 2, 3, 4, 5}},
		{"REGIONAL", "INTERNAL", []int{1, 2, 3, 4, 5}},
	} {
		kept, err := eligibleBackends(all, c.kind, c.network)
		require.NoError(t, err)
		assert.Equal(t, c.want, dropletIDs(kept), "%s %s", c.kind, c.network)
	}
	_, err := eligibleBackends(all[3:], "REGIONAL_NETWORK", "EXTERNAL")
	require.ErrorIs(t, err, errNoBackends)
	require.ErrorContains(t, err, "nodes none, private without a public IPv4 address; set the annotation "+annotationType)
	_, err = eligibleBackends(all[4:], "REGIONAL", "EXTERNAL")
	require.ErrorContains(t, err, "without an address that the load balancer can reach")
	_, err = eligibleBackends(nil, "REGIONAL", "EXTERNAL")
	require.ErrorContains(t, err, "no provider ID yet")
}

func TestNodeNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "nodes a, b", nodeNames([]string{"b", "a"}, 2))
	assert.Equal(t, "nodes a, b [+2 more]", nodeNames([]string{"d", "c", "b", "a"}, 2))
	assert.Equal(t, "nodes a", nodeNames([]string{"a"}, 3))
}

func TestFirewallRules(t *testing.T) {
	t.Parallel()
	s := service("web", map[string]string{annotationAllowRules: " ip:192.0.2.1 , cidr:198.51.100.0/24", annotationDenyRules: "cidr:203.0.113.0/24"}, port("http", 80, 30080))
	r, err := build(s, "", twoBackends)
	require.NoError(t, err)
	assert.Equal(t, &godo.LBFirewall{Allow: []string{"ip:192.0.2.1", "cidr:198.51.100.0/24"}, Deny: []string{"cidr:203.0.113.0/24"}}, r.Firewall)

	s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.9/24", "192.0.2.0/24", "203.0.113.0/24"}
	r, err = build(s, "", twoBackends)
	require.NoError(t, err)
	ranges := &godo.LBFirewall{Allow: []string{"cidr:192.0.2.0/24", "cidr:203.0.113.0/24"}, Deny: []string{"cidr:203.0.113.0/24"}}
	assert.Equal(t, ranges, r.Firewall, "source ranges win, masked, once each and in a fixed order")

	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0", "nonsense"}
	_, err = build(s, "", twoBackends)
	require.ErrorContains(t, err, `spec.loadBalancerSourceRanges: "192.0.2.0" is not a network`)
	require.ErrorContains(t, err, `"nonsense"`)
	_, _, err = parseSettings(map[string]string{annotationDenyRules: "192.0.2.1"}, "REGIONAL", "")
	require.ErrorContains(t, err, `holds "192.0.2.1"; use a list such as`)
	_, _, err = parseSettings(map[string]string{annotationAllowRules: ","}, "REGIONAL", "")
	require.ErrorContains(t, err, "holds no rule")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	require.NoError(t, Annotations.Defaults(), "every default is legal")
	for name, c := range map[string]struct {
		annotations map[string]string
		refused     string
	}{
		"cookies complete":      {map[string]string{annotationStickyType: "cookies", annotationStickyCookieName: "lb", annotationStickyCookieTTL: "60"}, ""},
		"cookies without name":  {map[string]string{annotationStickyType: "cookies", annotationStickyCookieTTL: "60"}, "sticky-sessions-cookie-name: is required"},
		"cookies without time":  {map[string]string{annotationStickyType: "cookies", annotationStickyCookieName: "lb"}, "sticky-sessions-cookie-ttl: is required"},
		"cookie name alone":     {map[string]string{annotationStickyCookieName: "lb"}, ""},
		"slug":                  {map[string]string{annotationSizeSlug: "lb-large"}, ""},
		"unknown slug":          {map[string]string{annotationSizeSlug: "lb-huge"}, `"lb-huge" is not one of`},
		"slug and no unit":      {map[string]string{annotationSizeSlug: "lb-small", annotationSizeUnit: "0"}, ""},
		"slug and unit":         {map[string]string{annotationSizeSlug: "lb-small", annotationSizeUnit: "2"}, "exclude each other"},
		"negative unit":         {map[string]string{annotationSizeUnit: "-1"}, "out of range"},
		"illegal boolean":       {map[string]string{annotationProxyProtocol: "yes"}, `"yes" is not a boolean`},
		"illegal passthrough":   {map[string]string{annotationTLSPassthrough: "yes"}, ""},
		"illegal sticky type":   {map[string]string{annotationStickyType: "cookie"}, ""},
		"illegal algorithm":     {map[string]string{annotationAlgorithm: "random"}, ""},
		"global":                {map[string]string{annotationType: "GLOBAL"}, `"GLOBAL" is not one of "REGIONAL", "REGIONAL_NETWORK"`},
		"idle timeout":          {map[string]string{annotationIdleTimeout: "29"}, "use 30 to 600"},
		"name":                  {map[string]string{annotationName: "-front"}, "is not a load balancer name"},
		"passthrough and cert":  {map[string]string{annotationTLSPassthrough: "true", annotationCertificateName: "c"}, "excludes a certificate"},
		"unknown network":       {map[string]string{annotationNetwork: "external"}, `did you mean "EXTERNAL"?`},
		"illegal disown is not": {map[string]string{annotationDisown: "maybe"}, `"maybe" is not a boolean`},
	} {
		_, _, err := parseSettings(c.annotations, "REGIONAL", "")
		if c.refused == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.refused, name)
		}
	}

	_, warnings, err := parseSettings(
		map[string]string{annotationHTTPPorts: "80", annotationCheckPath: "/x", annotationStickyType: "cookie"},
		"REGIONAL_NETWORK", "",
	)
	require.NoError(t, err)
	assert.Len(t, schema.Problems(warnings), 2)
	require.ErrorContains(t, warnings, annotationHTTPPorts+": has no effect unless "+annotationType+` is "REGIONAL"`)

	s, _, err := parseSettings(map[string]string{annotationType: "nonsense"}, "REGIONAL", "REGIONAL_NETWORK")
	require.NoError(t, err, "the type of what exists is a fact")
	assert.Equal(t, "REGIONAL_NETWORK", s.Type)
}

// existing is the load balancer that the API shows after a request.
func existing(r *godo.LoadBalancerRequest) *godo.LoadBalancer {
	lb := &godo.LoadBalancer{
		ID: "id", Name: r.Name, SizeUnit: 1, Type: r.Type, Algorithm: "round_robin", Status: "active", ForwardingRules: r.ForwardingRules,
		HealthCheck: new(*r.HealthCheck), StickySessions: r.StickySessions, Region: &godo.Region{Slug: r.Region},
		DropletIDs: r.DropletIDs, Tags: r.Tags, VPCUUID: r.VPCUUID, DisableLetsEncryptDNSRecords: r.DisableLetsEncryptDNSRecords,
		Firewall: &godo.LBFirewall{Allow: []string{}, Deny: []string{}},
		Network:  r.Network, NetworkStack: r.NetworkStack, ProjectID: "project", TLSCipherPolicy: "STRONG", HTTPIdleTimeoutSeconds: new(uint64(60)),
	}
	return lb
}

// plannedService is a Service, and the load balancer that it asks for.
func plannedService(t *testing.T) (*v1.Service, *godo.LoadBalancerRequest) {
	t.Helper()
	s := service("web", map[string]string{annotationType: "REGIONAL"}, port("http", 80, 30080), port("alt", 8080, 30081))
	want, err := build(s, "", twoBackends)
	require.NoError(t, err)
	return s, want
}

func TestPlan(t *testing.T) {
	t.Parallel()
	s, want := plannedService(t)

	assert.Equal(t, step{kind: create, request: want}, creation(want, s))
	named := *want
	named.Name = "front"
	assert.Equal(t, want.Name, creation(&named, s).request.Name, "the name of its own comes after the record")
	assert.Equal(t, "front", named.Name)
	assert.Empty(t, plan(existing(want), want), "what is as wanted is left alone")

	for name, c := range map[string]struct {
		change func(*godo.LoadBalancer)
		want   []step
	}{
		"order of rules": {func(lb *godo.LoadBalancer) {
			lb.ForwardingRules = []godo.ForwardingRule{lb.ForwardingRules[1], lb.ForwardingRules[0]}
		}, nil},
		"order of droplets":     {func(lb *godo.LoadBalancer) { lb.DropletIDs = []int{2, 1} }, nil},
		"no idle timeout shown": {func(lb *godo.LoadBalancer) { lb.HTTPIdleTimeoutSeconds = nil }, nil},
		"nothing shown": {func(lb *godo.LoadBalancer) {
			lb.Firewall, lb.StickySessions, lb.DisableLetsEncryptDNSRecords = nil, nil, nil
		}, nil},
		"size of others": {func(lb *godo.LoadBalancer) { lb.SizeUnit = 7 }, nil},
		"stack is fixed": {func(lb *godo.LoadBalancer) { lb.NetworkStack = "IPV4" }, nil},
		"droplet missing": {
			func(lb *godo.LoadBalancer) { lb.DropletIDs = []int{1} },
			[]step{{kind: addDroplets, droplets: []int{2}, reasons: []string{"droplet_ids"}}},
		},
		"droplet too many": {
			func(lb *godo.LoadBalancer) { lb.DropletIDs = []int{1, 2, 3} },
			[]step{{kind: removeDroplets, droplets: []int{3}, reasons: []string{"droplet_ids"}}},
		},
	} {
		lb := existing(want)
		c.change(lb)
		assert.Equal(t, c.want, plan(lb, want), name)
	}
	lb := existing(want)
	lb.DropletIDs = []int{1, 3}
	steps := plan(lb, want)
	require.Len(t, steps, 1, "one replacement is cheaper than adding and removing")
	assert.Equal(t, replace, steps[0].kind)
	byDroplet := planDroplets(lb, want.DropletIDs)
	assert.Equal(t, []stepKind{addDroplets, removeDroplets}, []stepKind{byDroplet[0].kind, byDroplet[1].kind}, "never a moment without backends")
}

// TestReplacement: each field that differs leads to one replacement of the whole, which keeps what others set.
func TestReplacement(t *testing.T) {
	t.Parallel()
	_, want := plannedService(t)
	for field, change := range map[string]func(*godo.LoadBalancer){
		"name":                             func(lb *godo.LoadBalancer) { lb.Name = "x" },
		"forwarding_rules":                 func(lb *godo.LoadBalancer) { lb.ForwardingRules = lb.ForwardingRules[:1] },
		"health_check":                     func(lb *godo.LoadBalancer) { lb.HealthCheck.Port = 1 },
		"sticky_sessions":                  func(lb *godo.LoadBalancer) { lb.StickySessions = &godo.StickySessions{Type: "cookies"} },
		"redirect_http_to_https":           func(lb *godo.LoadBalancer) { lb.RedirectHttpToHttps = true },
		"enable_proxy_protocol":            func(lb *godo.LoadBalancer) { lb.EnableProxyProtocol = true },
		"enable_backend_keepalive":         func(lb *godo.LoadBalancer) { lb.EnableBackendKeepalive = true },
		"disable_lets_encrypt_dns_records": func(lb *godo.LoadBalancer) { lb.DisableLetsEncryptDNSRecords = new(true) },
		"http_idle_timeout_seconds":        func(lb *godo.LoadBalancer) { lb.HTTPIdleTimeoutSeconds = new(uint64(90)) },
		"firewall":                         func(lb *godo.LoadBalancer) { lb.Firewall.Deny = []string{"ip:192.0.2.1"} },
	} {
		lb := existing(want)
		change(lb)
		steps := plan(lb, want)
		require.Len(t, steps, 1, field)
		assert.Equal(t, replace, steps[0].kind, field)
		assert.Equal(t, []string{field}, steps[0].reasons)
		r := steps[0].request
		assert.Equal(t, []string{"project", "STRONG", ""}, []string{r.ProjectID, r.TLSCipherPolicy, r.IP}, "a full replacement keeps what others set")
		assert.Equal(t, uint32(1), r.SizeUnit)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	lb := &godo.LoadBalancer{IP: "198.18.0.9", IPv6: "2001:db8::9"}
	assert.Equal(t, []v1.LoadBalancerIngress{{IP: "198.18.0.9"}, {IP: "2001:db8::9"}}, status(lb, settings{}).Ingress)
	assert.Equal(t, []v1.LoadBalancerIngress{{Hostname: "www.example.com"}}, status(lb, settings{Hostname: "WWW.example.com"}).Ingress)
}

func TestProviderID(t *testing.T) {
	t.Parallel()
	id, err := parseProviderID("digitalocean://12345")
	require.NoError(t, err)
	assert.Equal(t, 12345, id)
	seen := map[string]bool{}
	for _, bad := range []string{"", "digitalocean:/123", "digitalocean://", "digitalocean://12345cruft", "digitalocean://0", "aws:///x/i-1"} {
		_, err := parseProviderID(bad)
		require.Error(t, err, bad)
		seen[err.Error()] = true
	}
	assert.Len(t, seen, 6, "each fault has a message of its own")
}

func FuzzProviderID(f *testing.F) {
	f.Add("digitalocean://1")
	f.Add("digitalocean://+1")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := parseProviderID(text); err == nil && id < 1 {
			t.Fatalf("%q gave %d", text, id)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add(annotationHTTPPorts, "80,443", "REGIONAL")
	f.Add(annotationDenyRules, "cidr:/", "REGIONAL_NETWORK")
	f.Fuzz(func(t *testing.T, key, value, kind string) {
		s := service("web", map[string]string{key: value, annotationType: kind}, port("http", 80, 30080))
		r, err := build(s, "", twoBackends)
		if (r == nil) == (err == nil) {
			t.Fatalf("%s=%q gave %v and %v", key, value, r, err)
		}
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	v4 := func(kind, ip string) godo.NetworkV4 { return godo.NetworkV4{Type: kind, IPAddress: ip} }
	base := godo.Droplet{ID: 7, Name: "web", SizeSlug: "s", Region: &godo.Region{Slug: "nyc3"}}
	for name, c := range map[string]struct {
		networks   *godo.Networks
		want       string
		incomplete bool
	}{
		"IPv4": {&godo.Networks{V4: []godo.NetworkV4{v4("public", "198.18.0.1"), v4("private", "10.0.0.1")}}, "[{Hostname web} {InternalIP 10.0.0.1} {ExternalIP 198.18.0.1}]", false},
		"both families": {
			&godo.Networks{
				V4: []godo.NetworkV4{v4("private", "10.0.0.1"), v4("public", "198.18.0.1")},
				V6: []godo.NetworkV6{{Type: "public", IPAddress: "2001:db8::1"}},
			},
			"[{Hostname web} {InternalIP 10.0.0.1} {ExternalIP 198.18.0.1} {ExternalIP 2001:db8::1}]", false,
		},
		"private only": {&godo.Networks{V4: []godo.NetworkV4{v4("private", "10.0.0.1")}}, "[{Hostname web} {InternalIP 10.0.0.1}]", false},
		"no private":   {&godo.Networks{V4: []godo.NetworkV4{v4("public", "198.18.0.1")}}, "", true},
		"no networks":  {nil, "", true},
		"first of each one": {
			&godo.Networks{V4: []godo.NetworkV4{v4("private", "10.0.0.1"), v4("private", "10.0.0.2"), v4("public", "198.18.0.1"), v4("public", "198.18.0.2")}},
			"[{Hostname web} {InternalIP 10.0.0.1} {ExternalIP 198.18.0.1}]", false,
		},
	} {
		d := base
		d.Networks = c.networks
		got := newDroplet(&d)
		assert.Equal(t, c.incomplete, got.missingData() != "", name)
		if !c.incomplete {
			assert.Equal(t, c.want, fmt.Sprint(got.addresses()), name)
		}
	}
	assert.NotEmpty(
		t,
		newDroplet(&godo.Droplet{ID: 7, Networks: &godo.Networks{V4: []godo.NetworkV4{v4("private", "10.0.0.1")}}}).missingData(),
		"no region",
	)
}

func backendsOf(list []backend) backendSet { return backendSet{list: list, ids: dropletIDs(list)} }

package digitalocean

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// legal is a legal value of an annotation, and the field of the creating request in which it must arrive.
type legal struct {
	value string
	// with are further annotations that the value needs.
	with map[string]string
	// field is a path such as "health_check.port"; want is its value as JSON decodes it, nil if it must be absent.
	field string
	want  any
}

// checked is one row of the checklist.
type checked struct {
	legal []legal
	// illegal values must lead to an event that names annotation and value, and to no call. Rows of free text have none.
	illegal []string
	// event is the reason of that event where it is not LoadBalancerConfigError: the value then counts as the default.
	event string
	// elsewhere names the test that shows what the annotation does, where that is not a field of the request.
	elsewhere string
}

const (
	certificateOne = "certificate-1" // stands for an ID that the simulator gave
	illegalRange   = "0"
)

func regionalWith(more ...string) map[string]string {
	all := map[string]string{annotationType: typeRegional}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

var (
	secureRegional  = regionalWith(annotationCertificateID, certificateOne)
	overriddenCheck = regionalWith(annotationOverrideCheck, "")
	withCookies     = regionalWith(annotationStickyType, "cookies", annotationStickyCookieName, "lb", annotationStickyCookieTTL, "60")
)

func booleanField(field string) checked {
	return checked{
		legal:   []legal{{"true", regionalWith(), field, true}, {"1", regionalWith(), field, true}, {"false", regionalWith(), field, nil}},
		illegal: []string{"yes", " true", "TrUe"},
	}
}

// checklistRows are the legal and the illegal values of each annotation.
var checklistRows = map[string]checked{
	annotationID:              {elsewhere: "TestLookup", illegal: []string{"web", "../account?x=y"}},
	annotationDisown:          {elsewhere: "TestDisown", illegal: []string{"maybe"}},
	annotationFirewallManaged: {elsewhere: "TestServiceAccess"},
	annotationHostname:        {elsewhere: "TestStatus"},
	annotationName: {
		legal:   []legal{{"front.example-1", nil, "name", "front.example-1"}, {"", nil, "name", "a3c1f6b527a664b588b4b0a61c1f9e0a"}},
		illegal: []string{"-front", "front-", "a b", strings.Repeat("x", 256)},
	},
	annotationType: {
		legal:   []legal{{typeRegional, nil, "type", typeRegional}, {typeNetwork, nil, "type", typeNetwork}, {"", nil, "type", typeNetwork}},
		illegal: []string{"GLOBAL", "regional"},
	},
	annotationNetwork: {
		legal:   []legal{{"EXTERNAL", nil, "network", "EXTERNAL"}, {"INTERNAL", nil, "network", "INTERNAL"}, {"", nil, "network", "EXTERNAL"}},
		illegal: []string{"internal"},
	},
	annotationNetworkStack: {
		legal: []legal{
			{"IPV4", regionalWith(), "network_stack", "IPV4"},
			{"DUALSTACK", regionalWith(), "network_stack", "DUALSTACK"},
			{"", regionalWith(), "network_stack", "DUALSTACK"},
		},
		illegal: []string{"IPV6"},
	},
	annotationIP: {legal: []legal{{" 198.51.100.9 ", nil, "ip", "198.51.100.9"}, {"", nil, "ip", nil}}, illegal: []string{"198.51.100", "2001:db8::1"}},
	annotationSubnet: {
		legal:   []legal{{" 5a4981aa-9653-4bd1-bef5-d6bff52042e4", nil, "subnet_uuid", "5a4981aa-9653-4bd1-bef5-d6bff52042e4"}, {"", nil, "subnet_uuid", nil}},
		illegal: []string{"../account", "private"},
	},
	annotationProtocol: {
		legal: []legal{
			{"tcp", regionalWith(), "forwarding_rules.0.entry_protocol", "tcp"},
			{"http", regionalWith(), "forwarding_rules.0.entry_protocol", "http"},
			{"https", secureRegional, "forwarding_rules.0.entry_protocol", "https"},
			{"http2", secureRegional, "forwarding_rules.0.entry_protocol", "http2"},
		},
		illegal: []string{"udp", "", "HTTP"},
	},
	annotationHTTPPorts: {
		legal: []legal{
			{"80", regionalWith(), "forwarding_rules.0.entry_protocol", "http"},
			{"443, 80", regionalWith(), "forwarding_rules.0.entry_protocol", "http"},
			{"443", regionalWith(), "forwarding_rules.0.entry_protocol", "tcp"},
		},
		illegal: []string{"", "http", "80;443", illegalRange, "65536"},
	},
	annotationTLSPorts:   {legal: []legal{{"80", secureRegional, "forwarding_rules.0.entry_protocol", "https"}}, illegal: []string{"", "https", illegalRange}},
	annotationHTTP2Ports: {legal: []legal{{"80", secureRegional, "forwarding_rules.0.entry_protocol", "http2"}}, illegal: []string{"", "h2", illegalRange}},
	annotationHTTP3Port: {
		legal:   []legal{{"443", secureRegional, "forwarding_rules.2.entry_protocol", "http3"}, {"8443", secureRegional, "forwarding_rules.2.entry_protocol", nil}},
		illegal: []string{"", "80,443", illegalRange},
	},
	annotationTLSPassthrough: {
		legal: []legal{
			{"true", regionalWith(annotationTLSPorts, "80"), "forwarding_rules.0.tls_passthrough", true},
			{"", regionalWith(), "forwarding_rules.0.tls_passthrough", nil},
		},
		illegal: []string{"yes"}, event: eventIgnored,
	},
	annotationCertificateID: {
		legal:   []legal{{certificateOne, regionalWith(annotationTLSPorts, "80"), "forwarding_rules.0.certificate_id", certificateOne}},
		illegal: []string{"web", "../account", certificateOne + "/x"},
	},
	annotationCertificateName: {legal: []legal{{"web", regionalWith(annotationTLSPorts, "80"), "forwarding_rules.0.certificate_id", certificateOne}}},
	annotationNoLetsEncryptDNS: {
		legal:   []legal{{"true", nil, "disable_lets_encrypt_dns_records", true}, {"", nil, "disable_lets_encrypt_dns_records", false}},
		illegal: []string{"yes"},
	},
	annotationRedirect:      booleanField("redirect_http_to_https"),
	annotationProxyProtocol: booleanField("enable_proxy_protocol"),
	annotationKeepalive:     booleanField("enable_backend_keepalive"),
	annotationIdleTimeout: {
		legal:   []legal{{"30", nil, "http_idle_timeout_seconds", 30.0}, {"600", nil, "http_idle_timeout_seconds", 600.0}},
		illegal: []string{"", "1m", "29", "601", "-5"},
	},
	annotationStickyType: {
		legal: []legal{
			{"cookies", withCookies, "sticky_sessions.type", "cookies"},
			{"none", regionalWith(), "sticky_sessions.type", "none"},
			{"", regionalWith(), "sticky_sessions.type", "none"},
		},
		illegal: []string{"cookie"}, event: eventIgnored,
	},
	annotationStickyCookieName: {
		legal: []legal{{"route", withCookies, "sticky_sessions.cookie_name", "route"}, {"route", regionalWith(), "sticky_sessions.cookie_name", nil}},
	},
	annotationStickyCookieTTL: {legal: []legal{{"300", withCookies, "sticky_sessions.cookie_ttl_seconds", 300.0}}, illegal: []string{"5m", "-1"}},
	annotationAlgorithm: {
		legal:   []legal{{"least_connections", nil, "algorithm", "least_connections"}, {"", nil, "algorithm", "round_robin"}},
		illegal: []string{"random"}, event: eventIgnored,
	},
	annotationSizeSlug: {
		legal: []legal{
			{"lb-small", nil, "size", "lb-small"},
			{"lb-medium", nil, "size", "lb-medium"},
			{"lb-large", nil, "size", "lb-large"},
			{"", nil, "size", nil},
		},
		illegal: []string{"lb-huge"},
	},
	annotationSizeUnit: {
		legal:   []legal{{"1", nil, "size_unit", 1.0}, {"100", nil, "size_unit", 100.0}, {"0", nil, "size_unit", nil}, {"", nil, "size_unit", nil}},
		illegal: []string{"two", "-1", "201"},
	},
	annotationCheckInterval:      {legal: []legal{{"10", nil, "health_check.check_interval_seconds", 10.0}}, illegal: []string{"", "10s", "2", "301"}},
	annotationCheckTimeout:       {legal: []legal{{"10", nil, "health_check.response_timeout_seconds", 10.0}}, illegal: []string{"", "10s", "2", "301"}},
	annotationUnhealthyThreshold: {legal: []legal{{"10", nil, "health_check.unhealthy_threshold", 10.0}}, illegal: []string{"", "x", "1", "11"}},
	annotationHealthyThreshold:   {legal: []legal{{"10", nil, "health_check.healthy_threshold", 10.0}}, illegal: []string{"", "x", "1", "11"}},
	annotationOverrideCheck:      {legal: []legal{{"", regionalWith(), "health_check.port", 30080.0}, {"false", regionalWith(), "health_check.port", 30080.0}}},
	annotationCheckPath: {
		legal: []legal{{"/ready", overriddenCheck, "health_check.path", "/ready"}, {"/ready", regionalWith(), "health_check.path", "/healthz"}},
	},
	annotationCheckPort: {
		legal:   []legal{{"443", overriddenCheck, "health_check.port", 30443.0}, {"443", regionalWith(), "health_check.port", 10256.0}},
		illegal: []string{"80,443", "8080", illegalRange, "http"},
	},
	annotationCheckProtocol: {
		legal: []legal{
			{"https", overriddenCheck, "health_check.protocol", "https"},
			{"tcp", overriddenCheck, "health_check.protocol", "tcp"},
			{"https", regionalWith(), "health_check.protocol", "http"},
		},
		illegal: []string{"udp"},
	},
	annotationDenyRules: {
		legal:   []legal{{"ip:192.0.2.1 , cidr:198.51.100.0/24", nil, "firewall.deny.1", "cidr:198.51.100.0/24"}, {"", nil, "firewall.deny", nil}},
		illegal: []string{"192.0.2.1", "ip:x", "cidr:198.51.100.0"},
	},
	annotationAllowRules: {
		legal:   []legal{{"ip:192.0.2.1", nil, "firewall.allow.0", "ip:192.0.2.1"}, {"", nil, "firewall.allow", nil}},
		illegal: []string{"192.0.2.1", "ip:x", "cidr:198.51.100.0"},
	},
}

// judgedWith returns the annotations beside which an illegal value is judged: some have no effect alone.
func judgedWith(key string) map[string]string {
	switch key {
	case annotationType:
		return nil
	case annotationCheckPort, annotationCheckProtocol:
		return map[string]string{annotationType: typeRegional, annotationOverrideCheck: ""}
	case annotationStickyCookieTTL:
		return map[string]string{annotationType: typeRegional, annotationStickyType: "cookies", annotationStickyCookieName: "lb"}
	}
	return map[string]string{annotationType: typeRegional}
}

// TestAnnotationChecklist walks every row of the table: each legal value arrives in its field of the request, each
// illegal one becomes an event and no call.
func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	list := maps.Clone(checklistRows)
	for _, row := range Annotations.Rows() {
		c, ok := list[row.Key]
		require.True(t, ok, "the checklist lacks %s", row.Key)
		delete(list, row.Key)
		restricted := len(row.Choices) > 0 || row.Min != nil || row.Check != nil || row.ID != nil || row.Kind != "string"
		t.Run(strings.TrimPrefix(row.Key, annotationPrefix), func(t *testing.T) {
			t.Parallel()
			require.True(t, len(c.legal) > 0 || c.elsewhere != "", "no legal value is checked")
			require.True(t, len(c.illegal) > 0 || !restricted || c.elsewhere != "", "no illegal value is checked")
			for _, l := range c.legal {
				checkLegal(t, row.Key, l)
			}
			for _, value := range c.illegal {
				checkIllegal(t, row.Key, value, c.event)
			}
		})
	}
	assert.Empty(t, list, "these are checked but not in the table")
}

func checklistWorld(t *testing.T) (*world, string) {
	t.Helper()
	w := newTestWorld(t, nil)
	w.addNode(digitaloceansim.Spec{Name: "node-1", IPv6: true})
	id := w.sim.AddCertificate("web", "custom")
	w.server.ResetCalls()
	return w, id
}

func checklistService(annotations map[string]string) *v1.Service {
	return service("web", annotations, port("http", 80, 30080), port("https", 443, 30443))
}

func checkLegal(t *testing.T, key string, l legal) {
	t.Helper()
	w, certificate := checklistWorld(t)
	annotations := maps.Clone(l.with)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = l.value
	for k, v := range annotations {
		annotations[k] = strings.ReplaceAll(v, certificateOne, certificate)
	}
	s := checklistService(annotations)
	w.Apply(s)
	w.ensure(s)
	_, judged := checkService(registry.Inputs{}, s)
	require.NoError(t, judged, "%s=%q", key, l.value)
	want := l.want
	if want == certificateOne {
		want = certificate
	}
	operation := createOperation
	if key == annotationName && l.value != "" {
		operation = updateOperation // a load balancer is born under the default name
	}
	assert.Equal(t, want, conformance.Field(conformance.LatestBody(t, w.server, operation), l.field), "%s=%q: %s", key, l.value, l.field)
	assert.Empty(t, w.server.Calls().Refused)
}

func checkIllegal(t *testing.T, key, value, event string) {
	t.Helper()
	w, _ := checklistWorld(t)
	annotations := judgedWith(key)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	s := checklistService(annotations)
	w.Apply(s)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	told := strings.Join(w.Events(), "\n")
	warned, judged := checkService(registry.Inputs{}, s)
	if event != "" {
		require.NoError(t, judged)
		require.ErrorContains(t, warned, key)
		require.Contains(t, told, "Warning "+event+" annotation "+key, "%q", value)
		return
	}
	require.Error(t, err, "%s=%q", key, value)
	require.EqualError(t, judged, err.Error(), "offline the same words: %s=%q", key, value)
	assert.Contains(t, err.Error(), key)
	if key != annotationDisown {
		assert.Contains(t, told, "Warning "+eventConfigError, "%s=%q", key, value)
		assert.Contains(t, told, key)
	}
	assert.Zero(t, w.server.Calls().Total, "%s=%q: %v", key, value, w.server.Calls().ByOperation)
}

const (
	createOperation = "POST /v2/load_balancers"
	updateOperation = "PUT /v2/load_balancers/{id}"
)

// TestValidateKnowsWhatNeedsACertificate: without a look at the cloud, a port that nobody could serve is a fault.
func TestValidateKnowsWhatNeedsACertificate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"https":   {map[string]string{annotationProtocol: protocolHTTPS}, "port 443: https needs a certificate or TLS passthrough"},
		"http3":   {map[string]string{annotationHTTP3Port: "443"}, "annotation " + annotationHTTP3Port + ": needs a certificate"},
		"by name": {map[string]string{annotationProtocol: protocolHTTPS, annotationCertificateName: "web"}, ""},
		"by ID":   {map[string]string{annotationHTTP3Port: "443", annotationCertificateID: "4de7ac8b-495b-4884-9a69-1050c6793cd6"}, ""},
	} {
		s := conformance.Service("web", c.annotations, conformance.Port("https", 443, 30443))
		s.Annotations[annotationType] = "REGIONAL"
		_, err := checkService(registry.Inputs{}, s)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		assert.ErrorContains(t, err, c.want, "%s: %s", name, c.want)
	}
}

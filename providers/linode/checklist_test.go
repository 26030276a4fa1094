package linode

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/internal/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// legal is a legal value of an annotation, and the field of the creating request in which it must arrive.
type legal struct {
	value string
	// with are further annotations that the value needs.
	with  map[string]string
	field string
	want  any
}

// checked is one row of the checklist.
type checked struct {
	legal []legal
	// illegal values must lead to an event that names the annotation, and to no call.
	illegal []string
	// with are annotations beside which illegal values are judged.
	with map[string]string
	// lenient values count as the default: the event says so, and the Service is served.
	lenient bool
	// elsewhere names the test that shows what the annotation does, where that is not a field of the request.
	elsewhere string
}

func checklist() map[string]checked {
	with := func(pairs ...string) map[string]string {
		all := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	http := with(annotationProtocol, "http")
	first := func(field string) string { return "configs.0." + field }
	number := func(field string, value string, want float64, illegal ...string) checked {
		return checked{legal: []legal{{value, nil, first(field), want}}, illegal: append(illegal, "x", "1.5", "-1")}
	}
	return map[string]checked{
		annotationRecord:             {elsewhere: "TestMoves"},
		annotationFirewallRecord:     {elsewhere: "TestFirewallTransitions"},
		annotationID:                 {elsewhere: "TestMoves", illegal: []string{"x", "0", "-1"}},
		annotationPreserve:           {elsewhere: "TestDeletion", illegal: []string{"maybe"}},
		annotationRetainReservedIPv4: {elsewhere: "TestDeletion", illegal: []string{"maybe"}},
		annotationHostnameOnly:       {elsewhere: "TestStatus", illegal: []string{"maybe"}, lenient: true},
		annotationIPv6Ingress:        {elsewhere: "TestStatus", illegal: []string{"maybe"}, lenient: true},
		annotationFirewallID:         {elsewhere: "TestFirewallTransitions", illegal: []string{"x", "0"}},
		annotationFirewallACL: {elsewhere: "TestFirewallTransitions", illegal: []string{
			"x", "{}", `{"allowList": {"ipv4": ["192.0.2.0/24"]}, "denyList": {"ipv4": ["192.0.2.0/24"]}}`, `{"allowList": {}}`, `{"allowList": {"ipv4": ["192.0.2.1"]}}`,
		}},
		annotationProtocol: {legal: []legal{{"HTTP", nil, first("protocol"), "http"}, {"tcp", nil, first("protocol"), "tcp"}, {"udp", nil, first("protocol"), "udp"}, {"", nil, first("protocol"), "tcp"}}, illegal: []string{"sctp"}},
		annotationPort + "<port>": {legal: []legal{
			{`{"protocol": "http"}`, nil, first("protocol"), "http"},
			{`{"proxy-protocol": "V2"}`, nil, first("proxy_protocol"), "v2"},
			{`{"algorithm": "source"}`, nil, first("algorithm"), "source"},
			{`{"stickiness": "none"}`, http, first("stickiness"), "none"},
			{`{"protocol": "udp", "udp-check-port": "53"}`, nil, first("udp_check_port"), 53.0},
			{`{"unknown": "x"}`, nil, first("protocol"), "tcp"},
		}, illegal: []string{"x", `{"udp-check-port": 8080}`, `{"protocol": "smoke"}`, `{"algorithm": "ring_hash"}`, `{"protocol": "udp", "proxy-protocol": "v1"}`, `{"protocol": "udp", "udp-check-port": "0"}`, `{"protocol": "udp", "tls-secret-name": "x"}`, `{"protocol": "https"}`, `{"protocol": "http", "stickiness": "session"}`}},
		annotationProxyProtocol:    {legal: []legal{{"v1", nil, first("proxy_protocol"), "v1"}, {"V2", nil, first("proxy_protocol"), "v2"}, {"none", nil, first("proxy_protocol"), "none"}}, illegal: []string{"v3"}},
		annotationOldProxyProtocol: {legal: []legal{{"v1", nil, first("proxy_protocol"), "v1"}, {"v1", with(annotationProxyProtocol, "v2"), first("proxy_protocol"), "v2"}}, illegal: []string{"v3"}},
		annotationAlgorithm:        {legal: []legal{{"leastconn", nil, first("algorithm"), "leastconn"}, {"Source", nil, first("algorithm"), "source"}, {"ring_hash", with(annotationProtocol, "udp"), first("algorithm"), "ring_hash"}}, illegal: []string{"random", "ring_hash"}},
		annotationStickiness:       {legal: []legal{{"http_cookie", http, first("stickiness"), "http_cookie"}, {"", http, first("stickiness"), "table"}, {"table", nil, first("stickiness"), nil}, {"source_ip", with(annotationProtocol, "udp"), first("stickiness"), "source_ip"}}, illegal: []string{"session", "x"}, with: http},
		annotationCheckType:        {legal: []legal{{"none", nil, first("check"), "none"}, {"http", nil, first("check"), "http"}, {"http", nil, first("check_path"), "/"}, {"", nil, first("check"), "connection"}}, illegal: []string{"HTTP", "http_body"}},
		annotationCheckPath:        {legal: []legal{{"/ready", with(annotationCheckType, "http"), first("check_path"), "/ready"}, {"/ready", nil, first("check_path"), nil}}},
		annotationCheckBody:        {legal: []legal{{"ok", with(annotationCheckType, "http_body"), first("check_body"), "ok"}}},
		annotationCheckInterval:    number("check_interval", "20", 20, "1", "3601", "3"),
		annotationCheckTimeout:     number("check_timeout", "4", 4, "0", "31", "5"),
		annotationCheckAttempts:    number("check_attempts", "7", 7, "0", "31"),
		annotationCheckPassive:     {legal: []legal{{"false", nil, first("check_passive"), false}, {"", nil, first("check_passive"), true}, {"true", with(annotationProtocol, "udp"), first("check_passive"), false}}, illegal: []string{"yes"}},
		annotationUDPCheckPort:     {legal: []legal{{"53", with(annotationProtocol, "udp"), first("udp_check_port"), 53.0}, {"53", nil, first("udp_check_port"), nil}}, illegal: []string{"0", "65536", "x"}},
		annotationThrottle:         {legal: []legal{{"7", nil, "client_conn_throttle", 7.0}, {"-4", nil, "client_conn_throttle", 0.0}, {"21", nil, "client_conn_throttle", 20.0}}, illegal: []string{"x"}, lenient: true},
		annotationType:             {legal: []legal{{"Premium", nil, "type", "premium"}, {"premium_40gb", nil, "type", "premium_40gb"}, {"", nil, "type", "common"}}, illegal: []string{"huge"}},
		annotationIPv6Backends:     {legal: []legal{{"false", nil, "configs.0.nodes.0.mode", "accept"}}, illegal: []string{"maybe"}, lenient: true},
		annotationTags:             {legal: []legal{{"one, two", nil, "tags.1", "one"}, {"one, two", nil, "tags.2", "two"}, {"", nil, "tags.0", "kubernetes"}}},
		annotationReservedIPv4:     {legal: []legal{{reservedIP, nil, "ipv4", reservedIP}, {"", nil, "ipv4", nil}}, illegal: []string{"198.19.200", "2001:db8::1"}},
		annotationBackendRange:     {elsewhere: "TestVPCOptions", illegal: []string{"10.0.0.0", "x"}},
		annotationBackendVPC:       {elsewhere: "TestVPCOptions"},
		annotationBackendSubnet:    {elsewhere: "TestVPCOptions"},
		annotationBackendSubnetID:  {elsewhere: "TestVPCOptions", illegal: []string{"x", "0"}},
		annotationFrontendSubnetID: {elsewhere: "TestVPCOptions", illegal: []string{"x", "0"}},
		annotationFrontendVPC:      {elsewhere: "TestVPCOptions", illegal: []string{"alone"}},
		annotationFrontendSubnet:   {elsewhere: "TestVPCOptions", illegal: []string{"alone"}},
		annotationFrontendRangeV4:  {elsewhere: "TestVPCOptions", illegal: []string{"x", "10.0.0.0/28"}},
		annotationFrontendRangeV6:  {elsewhere: "TestVPCOptions", illegal: []string{"x"}},
	}
}

// TestAnnotationChecklist walks every row of the table: each legal value arrives in its field of the request, each
// illegal one becomes an event and no call.
func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	list := checklist()
	for _, row := range Annotations.Rows() {
		c, ok := list[row.Key]
		require.True(t, ok, "the checklist lacks %s", row.Key)
		delete(list, row.Key)
		restricted := len(row.Choices) > 0 || row.Min != nil || row.Check != nil || (row.Kind != "string" && row.Kind != "list")
		t.Run(strings.TrimPrefix(row.Key, annotationPrefix), func(t *testing.T) {
			t.Parallel()
			require.True(t, len(c.legal) > 0 || c.elsewhere != "", "no legal value is checked")
			require.True(t, len(c.illegal) > 0 || !restricted || row.Changes == schema.Written, "no illegal value is checked")
			key := strings.ReplaceAll(row.Key, "<port>", "80")
			for _, l := range c.legal {
				checkLegal(t, key, l)
			}
			for _, value := range c.illegal {
				checkIllegal(t, key, value, c)
			}
		})
	}
	assert.Empty(t, list, "these are checked but not in the table")
}

func checklistWorld(t *testing.T) *world {
	t.Helper()
	w := newTestWorld(t, nil, func(s *linodesim.Sim) { s.Reserve(reservedIP) })
	w.addNode(linodesim.Spec{Label: "worker", Private: true})
	w.server.ResetCalls()
	return w
}

func checkLegal(t *testing.T, key string, l legal) {
	t.Helper()
	w := checklistWorld(t)
	annotations := maps.Clone(l.with)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = l.value
	s := service("web", annotations, port("http", 80, 30080))
	w.apply(s)
	w.ensure(s)
	_, judged := checkService(testInputs("", nil, nil), s)
	require.NoError(t, judged, "%s=%q", key, l.value)
	assert.Equal(t, l.want, conformance.Field(conformance.LatestBody(t, w.server, "POST /v4/nodebalancers"), l.field), "%s=%q: %s", key, l.value, l.field)
	assert.Empty(t, w.server.Calls().Refused)
}

func checkIllegal(t *testing.T, key, value string, c checked) {
	t.Helper()
	w := checklistWorld(t)
	annotations := maps.Clone(c.with)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	s := service("web", annotations, port("http", 80, 30080))
	w.apply(s)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	told := strings.Join(w.events(), "\n")
	warned, judged := checkService(testInputs("", nil, nil), s)
	if c.lenient {
		require.NoError(t, err)
		require.NoError(t, judged)
		require.ErrorContains(t, warned, key)
		assert.Contains(t, told, "Warning "+eventIgnored+" annotation "+key, "%q", value)
		return
	}
	require.Error(t, err, "%s=%q", key, value)
	require.EqualError(t, judged, err.Error(), "offline the same words: %s=%q", key, value)
	assert.Contains(t, told, "Warning "+eventConfigError, "%s=%q", key, value)
	assert.Zero(t, w.server.Calls().Writes, "%s=%q: %v", key, value, w.server.Calls().ByOperation)
}

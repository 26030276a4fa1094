package linode

import (
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

func annotated(pairs ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

var onHTTP = annotated(annotationProtocol, "http")

func inFirstConfig(field string) string { return "configs.0." + field }

func numberRow(field string, value string, want float64, illegal ...string) conformance.Checked {
	return conformance.Checked{
		Legal: []conformance.Legal{conformance.Arrives(value, nil, inFirstConfig(field), want)}, Illegal: append(illegal, "x", "1.5", "-1"),
	}
}

// checklistRows are the legal and the illegal values of each annotation.
var checklistRows = map[string]conformance.Checked{
	annotationRecord:             {Elsewhere: "TestMoves"},
	annotationFirewallRecord:     {Elsewhere: "TestFirewallTransitions"},
	annotationID:                 {Elsewhere: "TestMoves", Illegal: []string{"x", "0", "-1"}},
	annotationPreserve:           {Elsewhere: "TestDeletion", Illegal: []string{"maybe"}},
	annotationRetainReservedIPv4: {Elsewhere: "TestDeletion", Illegal: []string{"maybe"}},
	annotationHostnameOnly:       {Elsewhere: "TestStatus", Illegal: []string{"maybe"}, Lenient: true},
	annotationIPv6Ingress:        {Elsewhere: "TestStatus", Illegal: []string{"maybe"}, Lenient: true},
	annotationFirewallID:         {Elsewhere: "TestFirewallTransitions", Illegal: []string{"x", "0"}},
	annotationFirewallACL: {Elsewhere: "TestFirewallTransitions", Illegal: []string{
		"x", "{}", `{"allowList": {"ipv4": ["192.0.2.0/24"]}, "denyList": {"ipv4": ["192.0.2.0/24"]}}`, `{"allowList": {}}`, `{"allowList": {"ipv4": ["192.0.2.1"]}}`,
		`{"allowList": {"ipv4": ["` + strings.Join(manyNetworks(maxNetworks()+1), `","`) + `"]}}`,
	}},
	annotationProtocol: {
		Legal: []conformance.Legal{
			conformance.Arrives("HTTP", nil, inFirstConfig("protocol"), "http"), conformance.Arrives("tcp", nil, inFirstConfig("protocol"), "tcp"),
			conformance.Arrives("udp", nil, inFirstConfig("protocol"), "udp"), conformance.Arrives("", nil, inFirstConfig("protocol"), "tcp"),
		},
		Illegal: []string{"sctp"},
	},
	annotationPort + "<port>": {Legal: []conformance.Legal{
		conformance.Arrives(`{"protocol": "http"}`, nil, inFirstConfig("protocol"), "http"),
		conformance.Arrives(`{"proxy-protocol": "V2"}`, nil, inFirstConfig("proxy_protocol"), "v2"),
		conformance.Arrives(`{"algorithm": "source"}`, nil, inFirstConfig("algorithm"), "source"),
		conformance.Arrives(`{"stickiness": "none"}`, onHTTP, inFirstConfig("stickiness"), "none"),
		conformance.Arrives(`{"protocol": "udp", "udp-check-port": "53"}`, nil, inFirstConfig("udp_check_port"), 53.0),
		conformance.Arrives(`{"unknown": "x"}`, nil, inFirstConfig("protocol"), "tcp"),
	}, Illegal: []string{
		"x", `{"unknown": "` + strings.Repeat("x", 1100) + `"}`, `{"udp-check-port": 8080}`, `{"protocol": "smoke"}`,
		`{"algorithm": "ring_hash"}`, `{"protocol": "udp", "proxy-protocol": "v1"}`, `{"protocol": "udp", "udp-check-port": "0"}`,
		`{"protocol": "udp", "tls-secret-name": "x"}`, `{"protocol": "https"}`, `{"protocol": "http", "stickiness": "session"}`,
	}},
	annotationProxyProtocol: {
		Legal: []conformance.Legal{
			conformance.Arrives("v1", nil, inFirstConfig("proxy_protocol"), "v1"), conformance.Arrives("V2", nil, inFirstConfig("proxy_protocol"), "v2"),
			conformance.Arrives("none", nil, inFirstConfig("proxy_protocol"), "none"),
		},
		Illegal: []string{"v3"},
	},
	annotationOldProxyProtocol: {
		Legal: []conformance.Legal{
			conformance.Arrives("v1", nil, inFirstConfig("proxy_protocol"), "v1"),
			conformance.Arrives("v1", annotated(annotationProxyProtocol, "v2"), inFirstConfig("proxy_protocol"), "v2"),
		},
		Illegal: []string{"v3"},
	},
	annotationAlgorithm: {
		Legal: []conformance.Legal{
			conformance.Arrives("leastconn", nil, inFirstConfig("algorithm"), "leastconn"),
			conformance.Arrives("Source", nil, inFirstConfig("algorithm"), "source"),
			conformance.Arrives("ring_hash", annotated(annotationProtocol, "udp"), inFirstConfig("algorithm"), "ring_hash"),
		},
		Illegal: []string{"random", "ring_hash"},
	},
	annotationStickiness: {
		Legal: []conformance.Legal{
			conformance.Arrives("http_cookie", onHTTP, inFirstConfig("stickiness"), "http_cookie"),
			conformance.Arrives("", onHTTP, inFirstConfig("stickiness"), "table"), conformance.Arrives("table", nil, inFirstConfig("stickiness"), nil),
			conformance.Arrives("source_ip", annotated(annotationProtocol, "udp"), inFirstConfig("stickiness"), "source_ip"),
		},
		Illegal: []string{"session", "x"}, With: onHTTP,
	},
	annotationCheckType: {
		Legal: []conformance.Legal{
			conformance.Arrives("none", nil, inFirstConfig("check"), "none"), conformance.Arrives("http", nil, inFirstConfig("check"), "http"),
			conformance.Arrives("http", nil, inFirstConfig("check_path"), "/"), conformance.Arrives("", nil, inFirstConfig("check"), "connection"),
		},
		Illegal: []string{"HTTP", "http_body"},
	},
	annotationCheckPath: {
		Legal: []conformance.Legal{
			conformance.Arrives("/ready", annotated(annotationCheckType, "http"), inFirstConfig("check_path"), "/ready"),
			conformance.Arrives("/ready", nil, inFirstConfig("check_path"), nil),
		},
		Illegal: []string{"/" + strings.Repeat("x", 300)},
	},
	annotationCheckBody: {
		Legal:   []conformance.Legal{conformance.Arrives("ok", annotated(annotationCheckType, "http_body"), inFirstConfig("check_body"), "ok")},
		Illegal: []string{strings.Repeat("x", 300)},
	},
	annotationCheckInterval: numberRow("check_interval", "20", 20, "1", "3601", "3"),
	annotationCheckTimeout:  numberRow("check_timeout", "4", 4, "0", "31", "5"),
	annotationCheckAttempts: numberRow("check_attempts", "7", 7, "0", "31"),
	annotationCheckPassive: {
		Legal: []conformance.Legal{
			conformance.Arrives("false", nil, inFirstConfig("check_passive"), false), conformance.Arrives("", nil, inFirstConfig("check_passive"), true),
			conformance.Arrives("true", annotated(annotationProtocol, "udp"), inFirstConfig("check_passive"), false),
		},
		Illegal: []string{"yes"},
	},
	annotationUDPCheckPort: {
		Legal: []conformance.Legal{
			conformance.Arrives("53", annotated(annotationProtocol, "udp"), inFirstConfig("udp_check_port"), 53.0),
			conformance.Arrives("53", nil, inFirstConfig("udp_check_port"), nil),
		},
		Illegal: []string{"0", "65536", "x"},
	},
	annotationThrottle: {
		Legal: []conformance.Legal{
			conformance.Arrives("7", nil, "client_conn_throttle", 7.0), conformance.Arrives("-4", nil, "client_conn_throttle", 0.0),
			conformance.Arrives("21", nil, "client_conn_throttle", 20.0),
		},
		Illegal: []string{"x"}, Lenient: true,
	},
	annotationType: {
		Legal: []conformance.Legal{
			conformance.Arrives("Premium", nil, "type", "premium"), conformance.Arrives("premium_40gb", nil, "type", "premium_40gb"),
			conformance.Arrives("", nil, "type", "common"),
		},
		Illegal: []string{"huge"},
	},
	annotationIPv6Backends: {
		Legal: []conformance.Legal{conformance.Arrives("false", nil, "configs.0.nodes.0.mode", "accept")}, Illegal: []string{"maybe"},
		Lenient: true,
	},
	annotationTags: {
		Legal: []conformance.Legal{
			conformance.Arrives("one, two", nil, "tags.1", "one"), conformance.Arrives("one, two", nil, "tags.2", "two"),
			conformance.Arrives("", nil, "tags.0", "kubernetes"),
		},
		Illegal: []string{"anyccm:another-cluster", "anyccm-svc:another-service", "ab", strings.Repeat("x", 51), strings.Repeat("tag,", 101)},
	},
	annotationReservedIPv4: {
		Legal:   []conformance.Legal{conformance.Arrives(reservedIP, nil, "ipv4", reservedIP), conformance.Arrives("", nil, "ipv4", nil)},
		Illegal: []string{"198.19.200", "2001:db8::1"},
	},
	annotationBackendRange:     {Elsewhere: "TestVPCOptions", Illegal: []string{"10.0.0.0", "x"}},
	annotationBackendVPC:       {Elsewhere: "TestVPCOptions"},
	annotationBackendSubnet:    {Elsewhere: "TestVPCOptions"},
	annotationBackendSubnetID:  {Elsewhere: "TestVPCOptions", Illegal: []string{"x", "0"}},
	annotationFrontendSubnetID: {Elsewhere: "TestVPCOptions", Illegal: []string{"x", "0"}},
	annotationFrontendVPC:      {Elsewhere: "TestVPCOptions", Illegal: []string{"alone"}},
	annotationFrontendSubnet:   {Elsewhere: "TestVPCOptions", Illegal: []string{"alone"}},
	annotationFrontendRangeV4:  {Elsewhere: "TestVPCOptions", Illegal: []string{"x", "10.0.0.0/28"}},
	annotationFrontendRangeV6:  {Elsewhere: "TestVPCOptions", Illegal: []string{"x"}},
}

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Items: maps.Clone(checklistRows), Prefix: annotationPrefix, Creation: "POST /v4/nodebalancers",
		Refused: eventConfigError, Ignored: eventIgnored,
		Service: func(annotations map[string]string) *v1.Service {
			return service("web", annotations, port("http", 80, 30080))
		},
		Check: func(s *v1.Service) (warnings, err error) { return checkService(testInputs("", nil, nil), s) },
		New: func(t *testing.T) conformance.Subject {
			w := newTestWorld(t, nil, func(s *linodesim.Sim) { s.Reserve(reservedIP) })
			w.addNode(linodesim.Spec{Label: "worker", Private: true})
			w.server.ResetCalls()
			return conformance.Subject{
				Bench: w.Bench, Server: w.server, Serve: func(s *v1.Service) { w.ensure(s) },
				Ensure: func(s *v1.Service) error {
					_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
					return err
				},
			}
		},
	}.Run(t)
}

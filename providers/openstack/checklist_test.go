package openstack

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

const (
	someID      = "11111111-1111-4111-8111-111111111111"
	creation    = "POST /load-balancer/v2.0/lbaas/loadbalancers"
	firstSubnet = "5b000004-0000-4000-8000-000000000004" // the simulator's private subnet
	firstNet    = "0e000003-0000-4000-8000-000000000003" // and its network
)

var arrives = conformance.Arrives

func inListener(field string) string { return "loadbalancer.listeners.0." + field }

func inFirstPool(field string) string { return inListener("default_pool." + field) }
func annotated(pairs ...string) map[string]string {
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func millisecondsRow(field, standard string, number, usual float64) conformance.Checked {
	return conformance.Checked{
		Legal:   []conformance.Legal{arrives(standard, nil, inListener(field), number), arrives("", nil, inListener(field), usual)},
		Illegal: []string{"x", "-1", "1.5", "31536000001"}, Lenient: true,
	}
}

func checkRow(field, value string, number float64) conformance.Checked {
	return conformance.Checked{
		Legal:   []conformance.Legal{arrives(value, annotated(annotationMonitor, textTrue), inFirstPool("healthmonitor."+field), number)},
		Illegal: []string{"x", "0", "-1", "1.5"}, Lenient: true,
	}
}

func elsewhereRow(test string, illegal ...string) conformance.Checked {
	return conformance.Checked{Elsewhere: test, Illegal: illegal}
}

func lenientRow(c conformance.Checked) conformance.Checked { c.Lenient = true; return c }

// checklistRows are the legal and the illegal values of each annotation.
var checklistRows = map[string]conformance.Checked{
	annotationInternal:     lenientRow(elsewhereRow("TestFloatingIPs", "yes", "1")),
	annotationNodeSelector: elsewhereRow("TestNodeSelector", "=edge", "pool=edge,=x"),
	annotationConnectionLimit: {
		Legal: []conformance.Legal{
			arrives("7", nil, inListener("connection_limit"), 7.0), arrives("-1", nil, inListener("connection_limit"), -1.0),
			arrives("", nil, inListener("connection_limit"), -1.0),
		},
		Illegal: []string{"x", "-2", "1.5"}, Lenient: true,
	},
	annotationFloatingNetworkID:  elsewhereRow("TestFloatingSubnets", "not an ID"),
	annotationFloatingSubnetID:   elsewhereRow("TestFloatingSubnets", "not/an/ID"),
	annotationFloatingSubnet:     elsewhereRow("TestFloatingSubnets", "~(", "[", "!~("),
	annotationFloatingSubnetTags: elsewhereRow("TestFloatingSubnets"),
	annotationClass:              elsewhereRow("TestClasses", "no-such-class"),
	annotationKeepFloatingIP:     lenientRow(elsewhereRow("TestFloatingIPs", "yes")),
	annotationPortID:             elsewhereRow("TestPlaces", "a b"),
	annotationMethod: {
		Legal: []conformance.Legal{
			arrives("LEAST_CONNECTIONS", nil, inFirstPool("lb_algorithm"), "LEAST_CONNECTIONS"), arrives("SOURCE_IP", nil, inFirstPool("lb_algorithm"), "SOURCE_IP"),
			arrives("", nil, inFirstPool("lb_algorithm"), "ROUND_ROBIN"),
		},
		Illegal: []string{"round_robin", "RANDOM"},
	},
	annotationProxyProtocol: {Legal: []conformance.Legal{
		arrives("true", nil, inFirstPool("protocol"), "PROXY"), arrives("v1", nil, inFirstPool("protocol"), "PROXY"),
		arrives("v2", nil, inFirstPool("protocol"), "PROXYV2"), arrives("v2", nil, inListener("protocol"), "TCP"),
		arrives("false", nil, inFirstPool("protocol"), "TCP"),
	}, Illegal: []string{"v3", "yes"}, Lenient: true},
	annotationSubnetID: {
		Legal: []conformance.Legal{
			arrives(firstSubnet, nil, "loadbalancer.vip_subnet_id", firstSubnet),
			arrives(firstSubnet, nil, inFirstPool("members.0.subnet_id"), firstSubnet),
		},
		Illegal: []string{"not an ID"},
	},
	annotationNetworkID: {
		Legal:   []conformance.Legal{arrives(firstNet, nil, "loadbalancer.vip_network_id", firstNet), arrives(firstNet, nil, "loadbalancer.vip_subnet_id", nil)},
		Illegal: []string{"not an ID"},
	},
	annotationMemberSubnetID: {
		Legal: []conformance.Legal{arrives(firstSubnet, nil, inFirstPool("members.0.subnet_id"), firstSubnet)}, Illegal: []string{"not an ID"},
	},
	annotationClientData:    millisecondsRow("timeout_client_data", "60000", 60000, 50000),
	annotationMemberConnect: millisecondsRow("timeout_member_connect", "7000", 7000, 5000),
	annotationMemberData:    millisecondsRow("timeout_member_data", "80000", 80000, 50000),
	annotationTCPInspect:    millisecondsRow("timeout_tcp_inspect", "10", 10, 0),
	annotationForwardedFor: {
		Legal: []conformance.Legal{
			arrives("true", nil, inListener("insert_headers.X-Forwarded-For"), "true"), arrives("true", nil, inListener("protocol"), "HTTP"),
			arrives("true", nil, inFirstPool("protocol"), "HTTP"), arrives("false", nil, inListener("insert_headers"), nil),
		},
		Illegal: []string{"yes"}, Lenient: true,
	},
	annotationFlavorID: {
		Legal:   []conformance.Legal{arrives(someID, nil, "loadbalancer.flavor_id", someID), arrives("", nil, "loadbalancer.flavor_id", nil)},
		Illegal: []string{"not an ID"},
	},
	annotationZone: {Legal: []conformance.Legal{arrives("nova", nil, "loadbalancer.availability_zone", "nova"), arrives("", nil, "loadbalancer.availability_zone", nil)}},
	annotationMonitor: {
		Legal: []conformance.Legal{
			arrives("true", nil, inFirstPool("healthmonitor.type"), "TCP"), arrives("false", nil, inFirstPool("healthmonitor"), nil),
			arrives("", nil, inFirstPool("healthmonitor.type"), "TCP"),
		},
		Illegal: []string{"yes"}, Lenient: true,
	},
	annotationMonitorDelay:       checkRow("delay", "11", 11),
	annotationMonitorTimeout:     checkRow("timeout", "4", 4),
	annotationMonitorRetries:     checkRow("max_retries", "2", 2),
	annotationMonitorRetriesDown: checkRow("max_retries_down", "5", 5),
	annotationHostname:           elsewhereRow("TestStatus", "no_hostname", "192.0.2.1"),
	annotationTLSContainerRef:    elsewhereRow("TestCertificates", "x", "https://host/v1/orders/"+someID),
	annotationID:                 elsewhereRow("TestSharing", "not an ID"),
	annotationShareWith:          elsewhereRow("TestSharingAcrossNamespaces"),
	annotationAddress:            elsewhereRow("TestTakeover"),
	annotationSourceRanges: {
		Legal: []conformance.Legal{
			arrives("192.0.2.7/24, 198.51.100.0/24", nil, inListener("allowed_cidrs.0"), "192.0.2.0/24"),
			arrives("192.0.2.7/24, 198.51.100.0/24", nil, inListener("allowed_cidrs.1"), "198.51.100.0/24"),
			arrives("", nil, inListener("allowed_cidrs.0"), "0.0.0.0/0"),
		},
		Illegal: []string{"192.0.2.1", "x"},
	},
}

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Items: maps.Clone(checklistRows), Prefix: annotationPrefix, Creation: creation,
		Refused: eventConfigError, Ignored: eventIgnored,
		Service: func(annotations map[string]string) *v1.Service {
			return service("web", annotations, servicePort("http", 80, 30080))
		},
		Check: func(s *v1.Service) (warnings, err error) {
			return checkService(testInputs("[LoadBalancerClass \"other\"]\nsubnet-id = "+firstSubnet+"\n", nil), s)
		},
		Virtual: true,
		New: func(t *testing.T) conformance.Subject {
			w := newTestWorld(t, "[LoadBalancerClass \"other\"]\nsubnet-id = "+firstSubnet+"\n", nil)
			w.addNode(openstacksim.Spec{Name: "worker"})
			w.server.ResetCalls()
			return conformance.Subject{
				Bench: w.Bench, Server: w.server, Serve: func(s *v1.Service) { w.ensure(s) },
				Ensure: func(s *v1.Service) error {
					_, err := w.reconciler.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
					return err
				},
			}
		},
	}.Run(t)
}

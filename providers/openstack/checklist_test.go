package openstack

import (
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

func checklist() map[string]conformance.Checked {
	at := conformance.Arrives
	listener := func(field string) string { return "loadbalancer.listeners.0." + field }
	inPool := func(field string) string { return listener("default_pool." + field) }
	with := func(pairs ...string) map[string]string {
		all := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	milliseconds := func(field, standard string, number, usual float64) conformance.Checked {
		return conformance.Checked{
			Legal:   []conformance.Legal{at(standard, nil, listener(field), number), at("", nil, listener(field), usual)},
			Illegal: []string{"x", "-1", "1.5", "31536000001"}, Lenient: true,
		}
	}
	check := func(field, value string, number float64) conformance.Checked {
		return conformance.Checked{
			Legal:   []conformance.Legal{at(value, with(annotationMonitor, textTrue), inPool("healthmonitor."+field), number)},
			Illegal: []string{"x", "0", "-1", "1.5"}, Lenient: true,
		}
	}
	elsewhere := func(test string, illegal ...string) conformance.Checked {
		return conformance.Checked{Elsewhere: test, Illegal: illegal}
	}
	lenient := func(c conformance.Checked) conformance.Checked { c.Lenient = true; return c }
	return map[string]conformance.Checked{
		annotationInternal:           lenient(elsewhere("TestFloatingIPs", "yes", "1")),
		annotationNodeSelector:       elsewhere("TestNodeSelector", "=edge", "pool=edge,=x"),
		annotationConnectionLimit:    {Legal: []conformance.Legal{at("7", nil, listener("connection_limit"), 7.0), at("-1", nil, listener("connection_limit"), -1.0), at("", nil, listener("connection_limit"), -1.0)}, Illegal: []string{"x", "-2", "1.5"}, Lenient: true},
		annotationFloatingNetworkID:  elsewhere("TestFloatingSubnets", "not an ID"),
		annotationFloatingSubnetID:   elsewhere("TestFloatingSubnets", "not/an/ID"),
		annotationFloatingSubnet:     elsewhere("TestFloatingSubnets", "~(", "[", "!~("),
		annotationFloatingSubnetTags: elsewhere("TestFloatingSubnets"),
		annotationClass:              elsewhere("TestClasses", "no-such-class"),
		annotationKeepFloatingIP:     lenient(elsewhere("TestFloatingIPs", "yes")),
		annotationPortID:             elsewhere("TestPlaces", "a b"),
		annotationMethod:             {Legal: []conformance.Legal{at("LEAST_CONNECTIONS", nil, inPool("lb_algorithm"), "LEAST_CONNECTIONS"), at("SOURCE_IP", nil, inPool("lb_algorithm"), "SOURCE_IP"), at("", nil, inPool("lb_algorithm"), "ROUND_ROBIN")}, Illegal: []string{"round_robin", "RANDOM"}},
		annotationProxyProtocol: {Legal: []conformance.Legal{
			at("true", nil, inPool("protocol"), "PROXY"), at("v1", nil, inPool("protocol"), "PROXY"), at("v2", nil, inPool("protocol"), "PROXYV2"), at("false", nil, inPool("protocol"), "TCP"), at("v2", nil, listener("protocol"), "TCP"),
		}, Illegal: []string{"v3", "yes"}, Lenient: true},
		annotationSubnetID:           {Legal: []conformance.Legal{at(firstSubnet, nil, "loadbalancer.vip_subnet_id", firstSubnet), at(firstSubnet, nil, inPool("members.0.subnet_id"), firstSubnet)}, Illegal: []string{"not an ID"}},
		annotationNetworkID:          {Legal: []conformance.Legal{at(firstNet, nil, "loadbalancer.vip_network_id", firstNet), at(firstNet, nil, "loadbalancer.vip_subnet_id", nil)}, Illegal: []string{"not an ID"}},
		annotationMemberSubnetID:     {Legal: []conformance.Legal{at(firstSubnet, nil, inPool("members.0.subnet_id"), firstSubnet)}, Illegal: []string{"not an ID"}},
		annotationClientData:         milliseconds("timeout_client_data", "60000", 60000, 50000),
		annotationMemberConnect:      milliseconds("timeout_member_connect", "7000", 7000, 5000),
		annotationMemberData:         milliseconds("timeout_member_data", "80000", 80000, 50000),
		annotationTCPInspect:         milliseconds("timeout_tcp_inspect", "10", 10, 0),
		annotationForwardedFor:       {Legal: []conformance.Legal{at("true", nil, listener("insert_headers.X-Forwarded-For"), "true"), at("true", nil, listener("protocol"), "HTTP"), at("true", nil, inPool("protocol"), "HTTP"), at("false", nil, listener("insert_headers"), nil)}, Illegal: []string{"yes"}, Lenient: true},
		annotationFlavorID:           {Legal: []conformance.Legal{at(someID, nil, "loadbalancer.flavor_id", someID), at("", nil, "loadbalancer.flavor_id", nil)}, Illegal: []string{"not an ID"}},
		annotationZone:               {Legal: []conformance.Legal{at("nova", nil, "loadbalancer.availability_zone", "nova"), at("", nil, "loadbalancer.availability_zone", nil)}},
		annotationMonitor:            {Legal: []conformance.Legal{at("true", nil, inPool("healthmonitor.type"), "TCP"), at("false", nil, inPool("healthmonitor"), nil), at("", nil, inPool("healthmonitor.type"), "TCP")}, Illegal: []string{"yes"}, Lenient: true},
		annotationMonitorDelay:       check("delay", "11", 11),
		annotationMonitorTimeout:     check("timeout", "4", 4),
		annotationMonitorRetries:     check("max_retries", "2", 2),
		annotationMonitorRetriesDown: check("max_retries_down", "5", 5),
		annotationHostname:           elsewhere("TestStatus", "no_hostname", "192.0.2.1"),
		annotationTLSContainerRef:    elsewhere("TestCertificates", "x", "https://host/v1/orders/"+someID),
		annotationID:                 elsewhere("TestSharing", "not an ID"),
		annotationShareWith:          elsewhere("TestSharingAcrossNamespaces"),
		annotationAddress:            elsewhere("TestTakeover"),
		annotationSourceRanges:       {Legal: []conformance.Legal{at("192.0.2.7/24, 198.51.100.0/24", nil, listener("allowed_cidrs.0"), "192.0.2.0/24"), at("192.0.2.7/24, 198.51.100.0/24", nil, listener("allowed_cidrs.1"), "198.51.100.0/24"), at("", nil, listener("allowed_cidrs.0"), "0.0.0.0/0")}, Illegal: []string{"192.0.2.1", "x"}},
	}
}

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Items: checklist(), Prefix: annotationPrefix, Creation: creation, Refused: eventConfigError, Ignored: eventIgnored,
		Service: func(annotations map[string]string) *v1.Service {
			return service("web", annotations, servicePort("http", 80, 30080))
		},
		Check: func(s *v1.Service) (warnings, err error) {
			return checkService(testInputs("[LoadBalancerClass \"other\"]\nsubnet-id = "+firstSubnet+"\n", nil), s)
		},
		New: func(t *testing.T) conformance.Subject {
			w := newTestWorld(t, "[LoadBalancerClass \"other\"]\nsubnet-id = "+firstSubnet+"\n", nil)
			w.addNode(openstacksim.Spec{Name: "worker"})
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

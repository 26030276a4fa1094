package aws

import (
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

const (
	createClassicCall    = "ELB CreateLoadBalancer"
	classicAttributes    = "ELB ModifyLoadBalancerAttributes"
	classicCheckCall     = "ELB ConfigureHealthCheck"
	createNetworkCall    = "ELBv2 CreateLoadBalancer"
	createGroupCall      = "ELBv2 CreateTargetGroup"
	createListenerCall   = "ELBv2 CreateListener"
	networkAttributeCall = "ELBv2 ModifyLoadBalancerAttributes"
)

var arrivesIn = conformance.ArrivesIn

func onNetwork(pairs ...string) map[string]string {
	all := map[string]string{annotationType: typeNLB}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func onClassic(pairs ...string) map[string]string {
	all := onNetwork(pairs...)
	delete(all, annotationType)
	return all
}

func withLogs() map[string]string {
	return onClassic(annotationAccessLog, "true", annotationAccessLogBucket, "logs")
}

var illegalThresholds = []string{"x", "1.5", "4294967297", "1", "11"}

const logAttribute = "LoadBalancerAttributes.AccessLog."

// checklistRows are the legal and the illegal values of each annotation.
var checklistRows = map[string]conformance.Checked{
	annotationType: {
		Legal: []conformance.Legal{
			arrivesIn(createNetworkCall, typeNLB, nil, "Type", "network"), arrivesIn(createClassicCall, "", nil, "Action", "CreateLoadBalancer"),
		},
		Illegal: []string{"NLB", "clb", "external2"}, Lenient: true,
	},
	annotationInternal: {Legal: []conformance.Legal{
		arrivesIn(createClassicCall, "true", nil, "Scheme", "internal"), arrivesIn(createClassicCall, "0.0.0.0/0", nil, "Scheme", "internal"),
		arrivesIn(createClassicCall, "False", nil, "Scheme", "internal"),
		arrivesIn(createClassicCall, "false", nil, "Scheme", nil), arrivesIn(createClassicCall, "", nil, "Scheme", nil),
		arrivesIn(createNetworkCall, "true", onNetwork(), "Scheme", "internal"), arrivesIn(createNetworkCall, "false", onNetwork(), "Scheme", nil),
	}},
	annotationProxyProtocol: {
		Legal:   []conformance.Legal{arrivesIn("ELB SetLoadBalancerPoliciesForBackendServer", "*", nil, "PolicyNames.member.1", policyProxy)},
		Illegal: []string{"true", "80"},
	},
	annotationAccessLog: {Legal: []conformance.Legal{
		arrivesIn(classicAttributes, "true", onClassic(annotationAccessLogBucket, "logs"), logAttribute+"Enabled", "true"),
		arrivesIn(networkAttributeCall, "t", onNetwork(annotationAccessLogBucket, "logs"), "Attributes.member.1.Key", attributeLogsBucket),
	}, Illegal: []string{"yes"}},
	annotationAccessLogInterval: {
		Legal: []conformance.Legal{
			arrivesIn(classicAttributes, "5", withLogs(), logAttribute+"EmitInterval", "5"),
			arrivesIn(classicAttributes, "60", withLogs(), logAttribute+"EmitInterval", "60"),
		},
		Illegal: []string{"x", "10", "4294967301"}, With: withLogs(),
	},
	annotationAccessLogBucket: {
		Legal: []conformance.Legal{arrivesIn(classicAttributes, "b-1", onClassic(annotationAccessLog, "1"), logAttribute+"S3BucketName", "b-1")},
	},
	annotationAccessLogPrefix: {
		Legal:   []conformance.Legal{arrivesIn(classicAttributes, "p", withLogs(), logAttribute+"S3BucketPrefix", "p")},
		Illegal: []string{strings.Repeat("p", 1025)},
	},
	annotationDraining: {Legal: []conformance.Legal{arrivesIn(classicAttributes, "true", nil, "LoadBalancerAttributes.ConnectionDraining.Enabled", "true")}, Illegal: []string{"on"}},
	annotationDrainingTimeout: {
		Legal:   []conformance.Legal{arrivesIn(classicAttributes, "30", onClassic(annotationDraining, "true"), "LoadBalancerAttributes.ConnectionDraining.Timeout", "30")},
		Illegal: []string{"x", "0", "3601"},
	},
	annotationIdleTimeout: {
		Legal:   []conformance.Legal{arrivesIn(classicAttributes, "600", nil, "LoadBalancerAttributes.ConnectionSettings.IdleTimeout", "600")},
		Illegal: []string{"x", "0", "4001"},
	},
	annotationCrossZone: {
		Legal: []conformance.Legal{
			arrivesIn(classicAttributes, "true", nil, "LoadBalancerAttributes.CrossZoneLoadBalancing.Enabled", "true"),
			arrivesIn(networkAttributeCall, "true", onNetwork(), "Attributes.member.1.Value", "true"),
		},
		Illegal: []string{"yes"},
	},
	annotationExtraGroups: {
		Legal:   []conformance.Legal{arrivesIn(createClassicCall, " "+extraGroup+" ,", nil, "SecurityGroups.member.2", extraGroup)},
		Illegal: []string{"web"},
	},
	annotationGroups: {
		Legal: []conformance.Legal{
			arrivesIn(createClassicCall, extraGroup, nil, "SecurityGroups.member.1", extraGroup),
			arrivesIn(createNetworkCall, extraGroup, onNetwork(), "SecurityGroups.member.1", extraGroup),
		},
		Illegal: []string{"web"},
	},
	annotationCertificate: {
		Legal: []conformance.Legal{
			arrivesIn(createClassicCall, someARN, nil, "Listeners.member.1.SSLCertificateId", someARN),
			arrivesIn(createListenerCall, someARN, onNetwork(), "Certificates.member.1.CertificateArn", someARN),
		},
		Illegal: []string{"web"},
	},
	annotationTLSPorts: {Elsewhere: "TestTLSPorts"},
	annotationTLSPolicy: {
		Legal: []conformance.Legal{
			arrivesIn("ELB SetLoadBalancerPoliciesOfListener", somePolicy, onClassic(annotationCertificate, someARN), "PolicyNames.member.1", policyTLSPrefix+somePolicy),
			arrivesIn(createListenerCall, somePolicy, onNetwork(annotationCertificate, someARN), "SslPolicy", somePolicy),
		},
	},
	annotationBackendProtocol: {
		Legal: []conformance.Legal{
			arrivesIn(createClassicCall, "http", nil, "Listeners.member.1.Protocol", "HTTP"),
			arrivesIn(createGroupCall, "ssl", onNetwork(annotationCertificate, someARN), "Protocol", "TLS"),
			arrivesIn(createGroupCall, "quic", onNetwork(annotationCertificate, someARN), "Protocol", "TCP"),
		},
	},
	annotationTags: {
		Legal: []conformance.Legal{
			arrivesIn(createClassicCall, "a=1,b", nil, "Tags.member.1.Key", "a"), arrivesIn(createClassicCall, "a=1,b", nil, "Tags.member.2.Key", "b"),
			arrivesIn(createGroupCall, "a=1", onNetwork(), "Tags.member.1.Value", "1"),
		},
	},
	annotationCheckProtocol: {
		Legal: []conformance.Legal{
			arrivesIn(classicCheckCall, "HTTP", nil, "HealthCheck.Target", "HTTP:30080/"),
			arrivesIn(classicCheckCall, "ssl", nil, "HealthCheck.Target", "SSL:30080"),
			arrivesIn(createGroupCall, "Https", onNetwork(), "HealthCheckProtocol", "HTTPS"),
		},
		Illegal: []string{"udp", "grpc"},
	},
	annotationCheckPort: {
		Legal: []conformance.Legal{
			arrivesIn(classicCheckCall, "8081", nil, "HealthCheck.Target", "TCP:8081"),
			arrivesIn(createGroupCall, "traffic-port", onNetwork(), "HealthCheckPort", "traffic-port"),
			arrivesIn(createGroupCall, "8081", onNetwork(), "HealthCheckPort", "8081"),
		},
		Illegal: []string{"web", "0", "65536", "4294967297"},
	},
	annotationCheckPath: {
		Legal: []conformance.Legal{
			arrivesIn(classicCheckCall, "/ready", onClassic(annotationCheckProtocol, "http"), "HealthCheck.Target", "HTTP:30080/ready"),
			arrivesIn(createGroupCall, "/ready", onNetwork(annotationCheckProtocol, "http"), "HealthCheckPath", "/ready"),
		},
		Illegal: []string{"ready"},
	},
	annotationHealthyThreshold: {
		Legal: []conformance.Legal{
			arrivesIn(classicCheckCall, "4", nil, "HealthCheck.HealthyThreshold", "4"),
			arrivesIn(createGroupCall, "4", onNetwork(), "HealthyThresholdCount", "4"),
		},
		Illegal: illegalThresholds,
	},
	annotationUnhealthyThreshold: {
		Legal: []conformance.Legal{
			arrivesIn(classicCheckCall, "4", nil, "HealthCheck.UnhealthyThreshold", "4"),
			arrivesIn(createGroupCall, "4", onNetwork(), "UnhealthyThresholdCount", "4"),
		},
		Illegal: illegalThresholds,
	},
	annotationCheckTimeout: {
		Legal: []conformance.Legal{
			arrivesIn(classicCheckCall, "7", nil, "HealthCheck.Timeout", "7"),
			arrivesIn(createGroupCall, "7", onNetwork(), "HealthCheckTimeoutSeconds", "7"),
		},
		Illegal: []string{"x", "1", "121", "4294967297", "10"},
	},
	annotationCheckInterval: {
		Legal: []conformance.Legal{
			arrivesIn(classicCheckCall, "20", nil, "HealthCheck.Interval", "20"), arrivesIn(createGroupCall, "20", onNetwork(), "HealthCheckIntervalSeconds", "20"),
		},
		Illegal: []string{"x", "4", "301", "4294967297"},
	},
	annotationTargetAttributes: {
		Legal: []conformance.Legal{
			arrivesIn("ELBv2 ModifyTargetGroupAttributes", "preserve_client_ip.enabled=false", onNetwork(), "Attributes.member.1.Key", attributePreserveClient),
			arrivesIn("ELBv2 ModifyTargetGroupAttributes", "proxy_protocol_v2.enabled=false,proxy_protocol_v2.enabled=true", onNetwork(), "Attributes.member.1.Value", "true"),
		},
		Illegal: []string{
			"preserve_client_ip.enabled=", "preserve_client_ip.enabled=True", "preserve_client_ip.enabled = true", "stickiness.enabled=true",
			"proxy_protocol_v2.enabled",
		},
		With: onNetwork(),
	},
	annotationEIPs:             {Elsewhere: "TestFixedAddresses", Illegal: []string{"198.51.100.1"}, With: onNetwork()},
	annotationPrivateAddresses: {Elsewhere: "TestFixedAddresses", Illegal: []string{"web", "2001:db8::1"}, With: onNetwork(annotationInternal, "true")},
	annotationNodeLabels:       {Elsewhere: "TestTargetNodeLabels"},
	annotationSubnets: {
		Legal: []conformance.Legal{
			arrivesIn(createClassicCall, "subnet-00000000000000a2", nil, "Subnets.member.1", "subnet-00000000000000a2"),
			arrivesIn(createNetworkCall, "public-us-east-1c,subnet-00000000000000a0", onNetwork(), "SubnetMappings.member.1.SubnetId", "subnet-00000000000000a4"),
		},
	},
	annotationSourceRanges: {
		Legal:   []conformance.Legal{arrivesIn("EC2 AuthorizeSecurityGroupIngress", "192.0.2.0/24", onNetwork(), "IpPermissions.1.IpRanges.1.CidrIp", "192.0.2.0/24")},
		Illegal: []string{"192.0.2.0", "192.0.2.0/24,x"},
	},
}

func checklist() map[string]conformance.Checked {
	all := maps.Clone(checklistRows)
	for _, key := range []string{
		annotationSubnets, annotationNodeLabels, annotationTags, annotationBackendProtocol, annotationTLSPolicy, annotationTLSPorts,
		annotationAccessLogBucket, annotationAccessLogPrefix, annotationInternal,
	} {
		item := all[key]
		item.Illegal = append(item.Illegal, strings.Repeat("a", maxText+1))
		all[key] = item
	}
	return all
}

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Items: checklist(), Prefix: annotationPrefix, Creation: createClassicCall, Refused: eventConfigError,
		Ignored: eventIgnored,
		New: func(t *testing.T) conformance.Subject {
			t.Helper()
			w := newTestWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
			w.sim.AddGroup(awssim.Group{ID: extraGroup, Name: "extra"})
			w.addNode(awssim.Spec{Name: "n1"})
			return conformance.Subject{
				Bench: w.Bench, Server: w.server,
				Ensure: func(s *v1.Service) error { _, err := w.try(s); return err },
				Serve:  func(s *v1.Service) { w.ensure(s) },
			}
		},
		Service: func(annotations map[string]string) *v1.Service {
			return service("web", annotations, servicePort("http", 80, 30080))
		},
		Check: func(s *v1.Service) (warnings, err error) {
			in := testInputs(nil, "", "[Global]\nNLBSecurityGroupMode = Managed\n", nil)
			return checkService(in, s)
		},
	}.Run(t)
}

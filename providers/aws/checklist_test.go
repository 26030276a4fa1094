package aws

import (
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

func checklist() map[string]conformance.Checked {
	in := conformance.ArrivesIn
	network := func(pairs ...string) map[string]string {
		all := map[string]string{annotationType: typeNLB}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	classic := func(pairs ...string) map[string]string {
		all := network(pairs...)
		delete(all, annotationType)
		return all
	}
	logs := func() map[string]string {
		return classic(annotationAccessLog, "true", annotationAccessLogBucket, "logs")
	}
	thresholds := []string{"x", "1.5", "4294967297", "1", "11"}
	const log = "LoadBalancerAttributes.AccessLog."
	all := map[string]conformance.Checked{
		annotationType: {Legal: []conformance.Legal{in(createNetworkCall, typeNLB, nil, "Type", "network"), in(createClassicCall, "", nil, "Action", "CreateLoadBalancer")}, Illegal: []string{"NLB", "clb", "external2"}, Lenient: true},
		annotationInternal: {Legal: []conformance.Legal{
			in(createClassicCall, "true", nil, "Scheme", "internal"), in(createClassicCall, "0.0.0.0/0", nil, "Scheme", "internal"), in(createClassicCall, "False", nil, "Scheme", "internal"),
			in(createClassicCall, "false", nil, "Scheme", nil), in(createClassicCall, "", nil, "Scheme", nil), in(createNetworkCall, "true", network(), "Scheme", "internal"), in(createNetworkCall, "false", network(), "Scheme", nil),
		}},
		annotationProxyProtocol: {Legal: []conformance.Legal{in("ELB SetLoadBalancerPoliciesForBackendServer", "*", nil, "PolicyNames.member.1", policyProxy)}, Illegal: []string{"true", "80"}},
		annotationAccessLog: {Legal: []conformance.Legal{
			in(classicAttributes, "true", classic(annotationAccessLogBucket, "logs"), log+"Enabled", "true"), in(networkAttributeCall, "t", network(annotationAccessLogBucket, "logs"), "Attributes.member.1.Key", attributeLogsBucket),
		}, Illegal: []string{"yes"}},
		annotationAccessLogInterval:  {Legal: []conformance.Legal{in(classicAttributes, "5", logs(), log+"EmitInterval", "5"), in(classicAttributes, "60", logs(), log+"EmitInterval", "60")}, Illegal: []string{"x", "10", "4294967301"}, With: logs()},
		annotationAccessLogBucket:    {Legal: []conformance.Legal{in(classicAttributes, "b", classic(annotationAccessLog, "1"), log+"S3BucketName", "b")}},
		annotationAccessLogPrefix:    {Legal: []conformance.Legal{in(classicAttributes, "p", logs(), log+"S3BucketPrefix", "p")}},
		annotationDraining:           {Legal: []conformance.Legal{in(classicAttributes, "true", nil, "LoadBalancerAttributes.ConnectionDraining.Enabled", "true")}, Illegal: []string{"on"}},
		annotationDrainingTimeout:    {Legal: []conformance.Legal{in(classicAttributes, "30", classic(annotationDraining, "true"), "LoadBalancerAttributes.ConnectionDraining.Timeout", "30")}, Illegal: []string{"x", "0", "3601"}},
		annotationIdleTimeout:        {Legal: []conformance.Legal{in(classicAttributes, "600", nil, "LoadBalancerAttributes.ConnectionSettings.IdleTimeout", "600")}, Illegal: []string{"x", "0", "4001"}},
		annotationCrossZone:          {Legal: []conformance.Legal{in(classicAttributes, "true", nil, "LoadBalancerAttributes.CrossZoneLoadBalancing.Enabled", "true"), in(networkAttributeCall, "true", network(), "Attributes.member.1.Value", "true")}, Illegal: []string{"yes"}},
		annotationExtraGroups:        {Legal: []conformance.Legal{in(createClassicCall, " "+extraGroup+" ,", nil, "SecurityGroups.member.2", extraGroup)}, Illegal: []string{"web"}},
		annotationGroups:             {Legal: []conformance.Legal{in(createClassicCall, extraGroup, nil, "SecurityGroups.member.1", extraGroup), in(createNetworkCall, extraGroup, network(), "SecurityGroups.member.1", extraGroup)}, Illegal: []string{"web"}},
		annotationCertificate:        {Legal: []conformance.Legal{in(createClassicCall, someARN, nil, "Listeners.member.1.SSLCertificateId", someARN), in(createListenerCall, someARN, network(), "Certificates.member.1.CertificateArn", someARN)}, Illegal: []string{"web"}},
		annotationTLSPorts:           {Elsewhere: "TestTLSPorts"},
		annotationTLSPolicy:          {Legal: []conformance.Legal{in("ELB SetLoadBalancerPoliciesOfListener", somePolicy, classic(annotationCertificate, someARN), "PolicyNames.member.1", policyTLSPrefix+somePolicy), in(createListenerCall, somePolicy, network(annotationCertificate, someARN), "SslPolicy", somePolicy)}},
		annotationBackendProtocol:    {Legal: []conformance.Legal{in(createClassicCall, "http", nil, "Listeners.member.1.Protocol", "HTTP"), in(createGroupCall, "ssl", network(annotationCertificate, someARN), "Protocol", "TLS"), in(createGroupCall, "quic", network(annotationCertificate, someARN), "Protocol", "TCP")}},
		annotationTags:               {Legal: []conformance.Legal{in(createClassicCall, "a=1,b", nil, "Tags.member.1.Key", "a"), in(createClassicCall, "a=1,b", nil, "Tags.member.2.Key", "b"), in(createGroupCall, "a=1", network(), "Tags.member.1.Value", "1")}},
		annotationCheckProtocol:      {Legal: []conformance.Legal{in(classicCheckCall, "HTTP", nil, "HealthCheck.Target", "HTTP:30080/"), in(classicCheckCall, "ssl", nil, "HealthCheck.Target", "SSL:30080"), in(createGroupCall, "Https", network(), "HealthCheckProtocol", "HTTPS")}, Illegal: []string{"udp", "grpc"}},
		annotationCheckPort:          {Legal: []conformance.Legal{in(classicCheckCall, "8081", nil, "HealthCheck.Target", "TCP:8081"), in(createGroupCall, "traffic-port", network(), "HealthCheckPort", "traffic-port"), in(createGroupCall, "8081", network(), "HealthCheckPort", "8081")}, Illegal: []string{"web", "0", "65536", "4294967297"}},
		annotationCheckPath:          {Legal: []conformance.Legal{in(classicCheckCall, "/ready", classic(annotationCheckProtocol, "http"), "HealthCheck.Target", "HTTP:30080/ready"), in(createGroupCall, "/ready", network(annotationCheckProtocol, "http"), "HealthCheckPath", "/ready")}, Illegal: []string{"ready"}},
		annotationHealthyThreshold:   {Legal: []conformance.Legal{in(classicCheckCall, "4", nil, "HealthCheck.HealthyThreshold", "4"), in(createGroupCall, "4", network(), "HealthyThresholdCount", "4")}, Illegal: thresholds},
		annotationUnhealthyThreshold: {Legal: []conformance.Legal{in(classicCheckCall, "4", nil, "HealthCheck.UnhealthyThreshold", "4"), in(createGroupCall, "4", network(), "UnhealthyThresholdCount", "4")}, Illegal: thresholds},
		annotationCheckTimeout:       {Legal: []conformance.Legal{in(classicCheckCall, "7", nil, "HealthCheck.Timeout", "7"), in(createGroupCall, "7", network(), "HealthCheckTimeoutSeconds", "7")}, Illegal: []string{"x", "1", "121", "4294967297", "10"}},
		annotationCheckInterval:      {Legal: []conformance.Legal{in(classicCheckCall, "20", nil, "HealthCheck.Interval", "20"), in(createGroupCall, "20", network(), "HealthCheckIntervalSeconds", "20")}, Illegal: []string{"x", "4", "301", "4294967297"}},
		annotationTargetAttributes: {
			Legal:   []conformance.Legal{in("ELBv2 ModifyTargetGroupAttributes", "preserve_client_ip.enabled=false", network(), "Attributes.member.1.Key", attributePreserveClient), in("ELBv2 ModifyTargetGroupAttributes", "proxy_protocol_v2.enabled=false,proxy_protocol_v2.enabled=true", network(), "Attributes.member.1.Value", "true")},
			Illegal: []string{"preserve_client_ip.enabled=", "preserve_client_ip.enabled=True", "preserve_client_ip.enabled = true", "stickiness.enabled=true", "proxy_protocol_v2.enabled"}, With: network(),
		},
		annotationEIPs:             {Elsewhere: "TestFixedAddresses", Illegal: []string{"198.51.100.1"}, With: network()},
		annotationPrivateAddresses: {Elsewhere: "TestFixedAddresses", Illegal: []string{"web", "2001:db8::1"}, With: network(annotationInternal, "true")},
		annotationNodeLabels:       {Elsewhere: "TestTargetNodeLabels"},
		annotationSubnets:          {Legal: []conformance.Legal{in(createClassicCall, "subnet-00000000000000a2", nil, "Subnets.member.1", "subnet-00000000000000a2"), in(createNetworkCall, "public-us-east-1c,subnet-00000000000000a0", network(), "SubnetMappings.member.1.SubnetId", "subnet-00000000000000a4")}},
		annotationSourceRanges:     {Legal: []conformance.Legal{in("EC2 AuthorizeSecurityGroupIngress", "192.0.2.0/24", network(), "IpPermissions.1.IpRanges.1.CidrIp", "192.0.2.0/24")}, Illegal: []string{"192.0.2.0", "192.0.2.0/24,x"}},
	}
	for _, key := range []string{
		annotationSubnets, annotationNodeLabels, annotationTags, annotationBackendProtocol, annotationTLSPolicy, annotationTLSPorts, annotationAccessLogBucket, annotationAccessLogPrefix, annotationInternal,
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
		Rows: Annotations.Rows(), Items: checklist(), Prefix: annotationPrefix, Creation: createClassicCall, Refused: eventConfigError, Ignored: eventIgnored,
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

package aws

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// settingsOf parses the settings of a Service that must be sound.
func settingsOf(t *testing.T, s *v1.Service, c Config) settings {
	t.Helper()
	parsed, _, err := parseSettings(s, c)
	require.NoError(t, err)
	return parsed
}

// TestClassicListeners is the table of protocols.
func TestClassicListeners(t *testing.T) {
	t.Parallel()
	for backend, want := range map[string][2]string{
		"": {"TCP→TCP", "SSL→TCP"}, "tcp": {"TCP→TCP", "SSL→TCP"}, "ssl": {"TCP→TCP", "SSL→SSL"}, "http": {"HTTP→HTTP", "HTTPS→HTTP"},
		"https": {"TCP→TCP", "HTTPS→HTTPS"},
	} {
		for i, certificate := range []string{"", someARN} {
			s := service(
				"web", map[string]string{annotationBackendProtocol: backend, annotationCertificate: certificate}, servicePort("http", 80, 30080),
				servicePort("none", 81, 0),
			)
			list := classicListeners(s, settingsOf(t, s, Config{}))
			require.Len(t, list, 1, "a port without a node port has no listener")
			assert.Equal(t, want[i], list[0].protocol+"→"+list[0].instanceProtocol, "%s %s", backend, certificate)
			assert.Equal(t, certificate, list[0].certificate)
		}
	}
	s := service("web", map[string]string{annotationBackendProtocol: "quic", annotationCertificate: someARN}, servicePort("http", 80, 30080))
	_, _, err := parseSettings(s, Config{})
	require.ErrorContains(t, err, annotationBackendProtocol)
	s = service("web", map[string]string{annotationBackendProtocol: "quic"}, servicePort("http", 80, 30080))
	assert.Equal(t, "TCP", classicListeners(s, settingsOf(t, s, Config{}))[0].protocol, "without a certificate it means nothing")

	one := classicListener{80, 30080, "TCP", "TCP", ""}
	assert.True(
		t,
		one.equals(
			newClassicListener(
				&elbtypes.Listener{LoadBalancerPort: 80, InstancePort: aws.Int32(30080), Protocol: aws.String("tcp"), InstanceProtocol: aws.String("Tcp")},
			),
		),
	)
	for _, other := range []classicListener{
		{81, 30080, "TCP", "TCP", ""},
		{80, 30081, "TCP", "TCP", ""},
		{80, 30080, "HTTP", "TCP", ""},
		{80, 30080, "TCP", "HTTP", ""},
		{80, 30080, "TCP", "TCP", "arn:x"},
	} {
		assert.False(t, one.equals(other))
	}
	one.certificate = "ARN:x"
	assert.True(t, one.equals(classicListener{80, 30080, "TCP", "TCP", "arn:X"}))
}

// TestTLSPorts: by number and by name, and what each kind of load balancer makes of the case of names.
func TestTLSPorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ports   string
		network bool
		want    []bool
	}{
		{"", false, []bool{true, true}},
		{"*", true, []bool{true, true}},
		{"443", false, []bool{false, true}},
		{"https", true, []bool{false, true}},
		{"Https", false, []bool{false, false}},
		{"80,https", false, []bool{true, true}},
		{" 443", false, []bool{false, false}},
		{"444", true, []bool{false, false}},
	} {
		s := service(
			"web", map[string]string{annotationCertificate: someARN, annotationTLSPorts: c.ports}, servicePort("http", 80, 30080),
			servicePort("https", 443, 30443),
		)
		if c.network {
			s.Annotations[annotationType] = typeNLB
		}
		parsed, warnings, err := parseSettings(s, Config{})
		require.NoError(t, err)
		for i, p := range s.Spec.Ports {
			assert.Equal(t, c.want[i], parsed.endsTLS(p), "%q port %d", c.ports, p.Port)
		}
		if c.ports == " 443" || c.ports == "444" || c.ports == "Https" {
			require.ErrorContains(t, warnings, "which is not a port of the Service")
		} else {
			require.NoError(t, warnings)
		}
	}
	udp := v1.ServicePort{Port: 443, Protocol: v1.ProtocolUDP}
	assert.False(t, (&settings{Certificate: someARN}).endsTLS(udp))
	upper := service(
		"web", map[string]string{annotationType: typeNLB, annotationCertificate: someARN, annotationTLSPorts: "HTTPS"},
		servicePort("HTTPS", 443, 30443),
	)
	parsed, _, err := parseSettings(upper, Config{})
	require.NoError(t, err)
	assert.True(t, parsed.endsTLS(upper.Spec.Ports[0]), "a network load balancer compares names as they are")
	delete(upper.Annotations, annotationType)
	parsed, _, err = parseSettings(upper, Config{})
	require.NoError(t, err)
	assert.False(t, parsed.endsTLS(upper.Spec.Ports[0]), "a classic one knows them in lower case")
}

func local(s *v1.Service) *v1.Service {
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
	return s
}

func TestClassicCheck(t *testing.T) {
	t.Parallel()
	shared := Config{HealthProbeMode: probeShared, SharedProbePort: 10256, SharedProbePath: "/healthz"}
	for _, c := range []struct {
		annotations map[string]string
		local       bool
		config      Config
		want        string
	}{
		{nil, false, Config{}, "TCP:30080 2/6 5/10"},
		{map[string]string{annotationBackendProtocol: "https"}, false, Config{}, "SSL:30080 2/6 5/10"},
		{map[string]string{annotationBackendProtocol: "SSL"}, false, Config{}, "SSL:30080 2/6 5/10"},
		{nil, true, Config{}, "HTTP:32000/healthz 2/6 5/10"},
		{nil, false, shared, "HTTP:10256/healthz 2/6 5/10"},
		{nil, true, shared, "HTTP:32000/healthz 2/6 5/10"},
		{map[string]string{annotationCheckProtocol: "tcp"}, true, Config{}, "TCP:32000 2/6 5/10"},
		{map[string]string{annotationCheckPort: "traffic-port", annotationCheckPath: "/x"}, true, Config{}, "HTTP:30080/x 2/6 5/10"},
		{map[string]string{annotationCheckProtocol: "HTTP"}, false, Config{}, "HTTP:30080/ 2/6 5/10"},
		{map[string]string{annotationCheckProtocol: "ssl", annotationCheckPath: "/x"}, false, Config{}, "SSL:30080 2/6 5/10"},
		{
			map[string]string{
				annotationHealthyThreshold: "3", annotationUnhealthyThreshold: "4", annotationCheckTimeout: "7", annotationCheckInterval: "30",
				annotationCheckPort: "8081",
			},
			false, shared, "HTTP:8081/healthz 3/4 7/30",
		},
	} {
		s := service("web", c.annotations, servicePort("http", 80, 30080))
		if c.local {
			s = local(s)
		}
		parsed := settingsOf(t, s, c.config)
		h := classicCheck(s, parsed, c.config, classicListeners(s, parsed))
		assert.Equal(
			t, c.want, fmt.Sprintf("%s %d/%d %d/%d", *h.Target, *h.HealthyThreshold, *h.UnhealthyThreshold, *h.Timeout, *h.Interval), "%v", c.annotations,
		)
	}
}

func TestNetworkCheck(t *testing.T) {
	t.Parallel()
	shared := Config{HealthProbeMode: probeShared, SharedProbePort: 9999, SharedProbePath: "/live"}
	for _, c := range []struct {
		annotations map[string]string
		local       bool
		config      Config
		want        healthCheck
	}{
		{nil, false, Config{}, healthCheck{"TCP", "traffic-port", "", 30, 0, 3, 3}},
		{nil, true, Config{}, healthCheck{"HTTP", "32000", "/healthz", 10, 0, 2, 2}},
		{nil, false, shared, healthCheck{"HTTP", "9999", "/live", 30, 0, 3, 3}},
		{nil, true, shared, healthCheck{"HTTP", "32000", "/healthz", 10, 0, 2, 2}},
		{map[string]string{annotationCheckProtocol: "TCP"}, true, Config{}, healthCheck{"TCP", "32000", "", 10, 0, 2, 2}},
		{map[string]string{annotationCheckProtocol: "Http"}, false, Config{}, healthCheck{"HTTP", "traffic-port", "/", 30, 0, 3, 3}},
		{
			map[string]string{annotationCheckProtocol: "https", annotationCheckPath: "/x", annotationCheckPort: "80"},
			false,
			Config{},
			healthCheck{"HTTPS", "80", "/x", 30, 0, 3, 3},
		},
		{
			map[string]string{
				annotationCheckProtocol: "tcp", annotationCheckPort: "80", annotationCheckPath: "/x", annotationCheckInterval: "17",
				annotationUnhealthyThreshold: "7",
			},
			false, shared,
			healthCheck{"HTTP", "9999", "/live", 17, 0, 3, 7},
		},
		{
			map[string]string{annotationHealthyThreshold: "4", annotationUnhealthyThreshold: "6", annotationCheckTimeout: "9"},
			false,
			Config{},
			healthCheck{"TCP", "traffic-port", "", 30, 9, 4, 6},
		},
	} {
		s := nlb("web", c.annotations, servicePort("http", 80, 30080))
		if c.local {
			s = local(s)
		}
		assert.Equal(t, c.want, networkCheck(s, settingsOf(t, s, c.config), c.config), "%v %t", c.annotations, c.local)
	}
}

// TestSpecs: what no load balancer of AWS can do is refused with its place, all at once.
func TestSpecs(t *testing.T) {
	t.Parallel()
	udp := servicePort("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	sctp := servicePort("s", 53, 30053)
	sctp.Protocol = v1.ProtocolSCTP
	for name, c := range map[string]struct {
		service *v1.Service
		change  func(*v1.Service)
		want    string
	}{
		"affinity": {
			nlb("a", nil, servicePort("a", 80, 1)), func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }, "spec.sessionAffinity",
		},
		"address":         {nlb("a", nil, servicePort("a", 80, 1)), func(s *v1.Service) { s.Spec.LoadBalancerIP = "198.51.100.1" }, "spec.loadBalancerIP"},
		"no ports":        {nlb("a", nil), nil, "spec.ports"},
		"classic and UDP": {service("a", nil, udp), nil, "not supported by a classic load balancer"},
		"SCTP":            {nlb("a", nil, sctp), nil, "use TCP or UDP"},
		"one port twice":  {nlb("a", nil, udp, servicePort("dns-tcp", 53, 30054)), nil, "use two Services"},
		"ranges": {
			nlb("a", nil, servicePort("a", 80, 1)), func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"x"} }, "spec.loadBalancerSourceRanges",
		},
		"extra groups":      {nlb("a", map[string]string{annotationExtraGroups: ""}, servicePort("a", 80, 1)), nil, annotationExtraGroups},
		"target attributes": {service("a", map[string]string{annotationTargetAttributes: ""}, servicePort("a", 80, 1)), nil, annotationTargetAttributes},
		"UDP, client IP":    {nlb("a", map[string]string{annotationTargetAttributes: "preserve_client_ip.enabled=false"}, udp), nil, "UDP port"},
		"empty subnets":     {nlb("a", map[string]string{annotationSubnets: ""}, servicePort("a", 80, 1)), nil, annotationSubnets + ": is empty"},
		"EIPs inside": {
			nlb("a", map[string]string{annotationEIPs: "eipalloc-00000001", annotationInternal: "true"}, servicePort("a", 80, 1)), nil, annotationEIPs,
		},
		"private addresses": {nlb("a", map[string]string{annotationPrivateAddresses: "10.0.0.1"}, servicePort("a", 80, 1)), nil, annotationInternal},
		"logs nowhere":      {nlb("a", map[string]string{annotationAccessLog: "true"}, servicePort("a", 80, 1)), nil, annotationAccessLogBucket},
		"slow check":        {service("a", map[string]string{annotationCheckTimeout: "12"}, servicePort("a", 80, 1)), nil, "not shorter than"},
	} {
		if c.change != nil {
			c.change(c.service)
		}
		_, _, err := parseSettings(c.service, Config{})
		require.ErrorContains(t, err, c.want, name)
	}
	_, _, err := parseSettings(nlb("a", nil, udp, servicePort("web", 80, 30080)), Config{})
	require.NoError(t, err, "TCP and UDP on different ports are fine")
	_, warnings, err := parseSettings(
		nlb(
			"a", map[string]string{annotationProxyProtocol: "x", annotationDrainingTimeout: "x", annotationTags: "a=b=c", annotationGroups: "sg-00000001"},
			servicePort("a", 80, 1),
		),
		Config{},
	)
	require.NoError(t, err, "what classic load balancers alone know is not judged")
	for _, key := range []string{annotationProxyProtocol, annotationDrainingTimeout, annotationTags, annotationGroups} {
		require.ErrorContains(t, warnings, key)
	}
	ignored := service("a", map[string]string{annotationType: typeExternal, annotationCheckTimeout: "1", annotationSubnets: ""}, udp)
	_, err = checkService(testInputs(nil, "", "", nil), ignored)
	require.NoError(t, err, "another controller's Service is not judged")
}

func TestDiscoverSubnets(t *testing.T) {
	t.Parallel()
	id := &identity{clusterID: "one", subnet: "subnet-own", vpc: "vpc-1"}
	mine, other, role, internalRole := map[string]string{
		"kubernetes.io/cluster/one": "",
	}, map[string]string{"kubernetes.io/cluster/two": ""}, map[string]string{tagRolePublic: ""}, map[string]string{tagRoleInternal: ""}
	tables := []routeTable{
		{id: "main", main: true},
		{id: "public", subnets: []string{"p1", "p2", "p3", "p4"}, routes: []ec2types.Route{{GatewayId: aws.String("igw-1")}}},
	}
	for name, c := range map[string]struct {
		subnets  []subnet
		internal bool
		want     []string
	}{
		"one":                        {[]subnet{{id: "p1", zone: "a", tags: mine}}, false, []string{"p1"}},
		"untagged counts":            {[]subnet{{id: "p1", zone: "a"}}, false, []string{"p1"}},
		"another cluster's does not": {[]subnet{{id: "p1", zone: "a", tags: mine}, {id: "p2", zone: "b", tags: other}}, false, []string{"p1"}},
		"private is dropped":         {[]subnet{{id: "p1", zone: "a", tags: mine}, {id: "x", zone: "b", tags: mine}}, false, []string{"p1"}},
		"internal takes both":        {[]subnet{{id: "p1", zone: "b", tags: mine}, {id: "x", zone: "a", tags: mine}}, true, []string{"x", "p1"}},
		"role before cluster":        {[]subnet{{id: "p1", zone: "a", tags: mine}, {id: "p2", zone: "a", tags: role}}, false, []string{"p2"}},
		"cluster before none":        {[]subnet{{id: "p1", zone: "a"}, {id: "p2", zone: "a", tags: mine}}, false, []string{"p2"}},
		"the smallest ID":            {[]subnet{{id: "p2", zone: "a", tags: mine}, {id: "p1", zone: "a", tags: mine}}, false, []string{"p1"}},
		"the role of the scheme": {
			[]subnet{{id: "p1", zone: "a", tags: mergeTags(mine, role)}, {id: "x", zone: "a", tags: mergeTags(mine, internalRole)}},
			true,
			[]string{"x"},
		},
		"one of each zone, sorted by it": {
			[]subnet{
				{id: "p1", zone: "c", tags: mine},
				{id: "p2", zone: "b", tags: mine},
				{id: "p3", zone: "a", tags: mine},
				{id: "p4", zone: "a", tags: mine},
			},
			false,
			[]string{"p3", "p2", "p1"},
		},
		"without a zone or an ID": {[]subnet{{id: "p1", tags: mine}, {zone: "a", tags: mine}, {id: "p2", zone: "b", tags: mine}}, false, []string{"p2"}},
	} {
		got, err := discoverSubnets(id, c.subnets, tables, c.internal)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, idsOf(got), name)
	}
	_, err := discoverSubnets(id, []subnet{{id: "x", zone: "a", tags: mine}}, tables, false)
	require.ErrorContains(t, err, "no subnet can have the load balancer")
	require.ErrorContains(t, err, tagRolePublic, "and what to do")
	_, err = discoverSubnets(id, []subnet{{id: "x", zone: "a", tags: mine}}, tables[1:], false)
	require.ErrorIs(t, err, errNoTable)
	got, err := ownSubnet([]subnet{{id: "subnet-own"}}, id)
	require.NoError(t, err)
	assert.Equal(t, []string{"subnet-own"}, idsOf(got))
}

func TestNamedSubnets(t *testing.T) {
	t.Parallel()
	all := []subnet{
		{id: "subnet-1", zone: "a", tags: map[string]string{"Name": "one"}},
		{id: "subnet-2", zone: "b", tags: map[string]string{"Name": "two"}},
		{id: "subnet-3", zone: "c", tags: map[string]string{"Name": "two"}},
		{id: "subnet-4", zone: "a"},
	}
	got, err := namedSubnets(all, []string{"subnet-2", "one"})
	require.NoError(t, err)
	assert.Equal(t, []string{"subnet-2", "subnet-1"}, idsOf(got), "in the order of the annotation")
	for text, names := range map[string][]string{
		"of a subnet of the VPC": {"subnet-9"}, "Name of 2 subnets": {"two"}, "twice": {"one", "subnet-1"}, "two subnets of zone a": {"one", "subnet-4"},
	} {
		_, err := namedSubnets(all, names)
		require.ErrorContains(t, err, text)
	}
}

func TestNodeGroup(t *testing.T) {
	t.Parallel()
	id := &identity{clusterID: "one"}
	groups := map[string]securityGroup{
		"sg-1": {id: "sg-1"}, "sg-2": {id: "sg-2", tags: map[string]string{"kubernetes.io/cluster/one": "shared"}},
		"sg-3": {id: "sg-3", tags: map[string]string{"kubernetes.io/cluster/one": "owned"}},
		"sg-4": {id: "sg-4", tags: map[string]string{"kubernetes.io/cluster/one": "shared"}},
	}
	for _, c := range []struct {
		attached []string
		want     string
	}{
		{nil, ""},
		{[]string{"sg-1"}, "sg-1"},
		{[]string{"sg-1", "sg-2"}, "sg-2"},
		{[]string{"sg-4", "sg-2"}, "sg-2"},
		{[]string{"sg-2", "sg-3"}, "sg-3"},
	} {
		got, err := nodeGroup(id, c.attached, groups)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	_, err := nodeGroup(id, []string{"sg-1", "sg-9"}, groups)
	require.ErrorContains(t, err, "sg-1, sg-9")
}

// TestExactRules: what is compared, what is kept, and that equal rules of others spare a call that AWS would refuse.
func TestExactRules(t *testing.T) {
	t.Parallel()
	tcp := func(cidr, about string) rule { return rule{"tcp", 80, 80, ruleSource{cidr: cidr}, about} }
	byHand6 := rule{"tcp", 80, 80, ruleSource{cidr: "2001:db8::/32"}, "by hand"}
	list := rule{"tcp", 80, 80, ruleSource{prefixList: "pl-1"}, ""}
	g := securityGroup{rules: []rule{tcp("10.0.0.0/8", ""), tcp("192.0.2.0/24", "by hand"), byHand6, list}}
	c := exactChange(g, []rule{tcp("192.0.2.0/24", ""), tcp("198.51.100.0/24", "")}, ownFrontRule("mine"))
	assert.Equal(t, []rule{tcp("198.51.100.0/24", "")}, c.add)
	assert.Equal(t, []rule{tcp("10.0.0.0/8", "")}, c.remove)
	assert.Equal(t, []rule{tcp("192.0.2.0/24", "by hand"), byHand6, list, tcp("198.51.100.0/24", "")}, c.result().rules)
	assert.True(t, exactChange(c.result(), []rule{tcp("192.0.2.0/24", ""), tcp("198.51.100.0/24", "")}, ownFrontRule("mine")).isEmpty())

	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	assert.Equal(
		t,
		[]rule{
			tcp("10.0.0.0/8", ""),
			{"icmp", 3, 4, ruleSource{cidr: "10.0.0.0/8"}, ""},
			{"tcp", 80, 80, ruleSource{cidr: "2001:db8::/32"}, "mine"},
			{"icmpv6", 2, 0, ruleSource{cidr: "2001:db8::/32"}, "mine"},
		},
		frontRules([]frontPort{{"tcp", 80}}, ranges, "mine"),
	)
	in := ipPermissions(
		[]rule{tcp("10.0.0.0/8", "a"), byHand6, list, {"tcp", 80, 80, ruleSource{group: "sg-1"}, ""}, {"-1", 0, 0, ruleSource{group: "sg-1"}, ""}},
	)
	require.Len(t, in, 2, "one for each protocol and port")
	assert.Len(t, in[0].IpRanges, 1)
	assert.Len(t, in[0].Ipv6Ranges, 1)
	assert.Len(t, in[0].PrefixListIds, 1)
	assert.Len(t, in[0].UserIdGroupPairs, 1)
	assert.Nil(t, in[1].FromPort)
}

func TestNetworkNodeRules(t *testing.T) {
	t.Parallel()
	all, subnets := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	some := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")}
	listener := func(protocol, check string, port int32) desiredListener {
		return desiredListener{group: desiredTargetGroup{protocol: protocol, port: port, check: healthCheck{port: check}}}
	}
	show := func(rules []rule) []string {
		list := []string{}
		for _, r := range rules {
			list = append(list, fmt.Sprint(r.protocol, " ", r.from, " ", r.source.cidr, " ", r.description))
		}
		return list
	}
	client, health := " kubernetes.io/rule/nlb/client=lb", " kubernetes.io/rule/nlb/health=lb"
	for name, c := range map[string]struct {
		listeners []desiredListener
		ranges    []netip.Prefix
		hidden    bool
		want      []string
		spare     int
	}{
		"everybody implies the checks": {[]desiredListener{listener("TCP", trafficPort, 30080)}, all, false, []string{"tcp 30080 0.0.0.0/0" + client}, 1},
		"beside UDP, too": {[]desiredListener{listener("UDP", trafficPort, 30053), listener("TCP", trafficPort, 30080)}, all, false, []string{
			"udp 30053 0.0.0.0/0" + client, "tcp 30080 0.0.0.0/0" + client, "tcp 30053 10.0.0.0/24" + health,
		}, 1},
		"one port is checked for all": {
			[]desiredListener{listener("TCP", "30080", 30080), listener("TCP", "30080", 30081)},
			all, false,
			[]string{"tcp 30080 0.0.0.0/0" + client, "tcp 30081 0.0.0.0/0" + client},
			1,
		},
		"another port for checks": {
			[]desiredListener{listener("TCP", "32000", 30080)}, all, false, []string{"tcp 30080 0.0.0.0/0" + client, "tcp 32000 10.0.0.0/24" + health}, 0,
		},
		"ranges": {[]desiredListener{listener("TCP", trafficPort, 30080), listener("TCP", trafficPort, 30081)}, some, false, []string{
			"tcp 30080 192.0.2.0/24" + client, "tcp 30080 198.51.100.0/24" + client, "tcp 30081 192.0.2.0/24" + client, "tcp 30081 198.51.100.0/24" + client,
			"tcp 30080 10.0.0.0/24" + health, "tcp 30081 10.0.0.0/24" + health,
		}, 0},
		"UDP is checked by TCP": {
			[]desiredListener{listener("UDP", trafficPort, 30053)}, all, false, []string{"udp 30053 0.0.0.0/0" + client, "tcp 30053 10.0.0.0/24" + health}, 0,
		},
		"hidden clients": {
			[]desiredListener{listener("TCP", "32000", 30080)},
			some[:1], true,
			[]string{"tcp 30080 192.0.2.0/24" + client, "tcp 30080 10.0.0.0/24" + client, "tcp 32000 10.0.0.0/24" + health},
			0,
		},
		"clients by IPv6": {
			[]desiredListener{listener("TCP", trafficPort, 30080)}, some[:1], true, []string{"tcp 30080 192.0.2.0/24" + client, "tcp 30080 10.0.0.0/24" + client}, 0,
		},
	} {
		wanted, spare := networkNodeRules("lb", c.listeners, c.ranges, subnets, c.hidden)
		assert.Equal(t, c.want, show(wanted), name)
		assert.Len(t, spare, c.spare, name)
	}
}

// TestNetworkNodeChange: rules of this load balancer alone go, an ICMP rule for each network of clients of any stays, and
// the rule of a health check that several share goes with the last.
func TestNetworkNodeChange(t *testing.T) {
	t.Parallel()
	client := func(port int32, cidr, lb string) rule {
		return rule{"tcp", port, port, ruleSource{cidr: cidr}, descriptionClient + lb}
	}
	mtu := func(cidr string) rule { return rule{"icmp", 3, 4, ruleSource{cidr: cidr}, descriptionMTU} }
	byHand := rule{"tcp", 22, 22, ruleSource{cidr: "10.0.0.0/8"}, ""}
	g := securityGroup{rules: []rule{client(1, "192.0.2.0/24", "a"), client(2, "192.0.2.0/24", "b"), mtu("192.0.2.0/24"), byHand}}
	c := networkNodeChange(g, desiredNodeRules{name: "a", rules: []rule{client(1, "198.51.100.0/24", "a")}}, otherRules{})
	assert.Equal(t, []rule{client(1, "198.51.100.0/24", "a"), mtu("198.51.100.0/24")}, c.add)
	assert.Equal(t, []rule{client(1, "192.0.2.0/24", "a")}, c.remove)
	c = networkNodeChange(g, desiredNodeRules{name: "b"}, otherRules{})
	assert.Equal(t, []rule{client(2, "192.0.2.0/24", "b")}, c.remove, "the other one needs the ICMP rule still")
	c = networkNodeChange(
		securityGroup{rules: []rule{client(1, "192.0.2.0/24", "a"), mtu("192.0.2.0/24"), byHand}}, desiredNodeRules{name: "a"}, otherRules{},
	)
	assert.Equal(t, []rule{client(1, "192.0.2.0/24", "a"), mtu("192.0.2.0/24")}, c.remove)
	assert.True(t, networkNodeChange(securityGroup{rules: []rule{mtu("192.0.2.0/24")}}, desiredNodeRules{name: "a"}, otherRules{}).isEmpty(),
		"without a change of its own nothing is tidied up")

	shared := rule{"tcp", 10256, 10256, ruleSource{cidr: "10.0.0.0/24"}, descriptionHealth + "first"}
	g = securityGroup{rules: []rule{shared}}
	assert.True(t, networkNodeChange(g, desiredNodeRules{name: "first", sharedPort: 10256}, otherRules{names: []string{"second"}}).isEmpty(),
		"the second one is checked through it")
	assert.Equal(t, []rule{shared}, networkNodeChange(g, desiredNodeRules{name: "second", sharedPort: 10256}, otherRules{}).remove, "the last one takes it along, whoever made it")
}

// TestPlanTargets: old targets go first, a hundred at a time, unless none would be left and new ones fit. Targets that may stay are not
// registered again.
func TestPlanTargets(t *testing.T) {
	t.Parallel()
	ids := func(from, to int) (list []string) {
		for i := from; i < to; i++ {
			list = append(list, fmt.Sprintf("i-%d", i))
		}
		return list
	}
	targets := func(port int32, list []string) (all []target) {
		for _, id := range list {
			all = append(all, target{id, port})
		}
		return all
	}
	g := desiredTargetGroup{name: "g", port: 30080}
	kinds := func(steps []step) (list []string) {
		for _, s := range steps {
			list = append(list, s.what)
		}
		return list
	}
	assert.Empty(t, targetSteps("arn", g, targets(30080, ids(0, 3)), ids(0, 3), nil, false))
	joinFirst, leaveFirst := []string{"registering targets", "deregistering targets"}, []string{"deregistering targets", "registering targets"}
	assert.Equal(t, leaveFirst, kinds(targetSteps("arn", g, targets(30080, ids(0, 3)), ids(1, 4), nil, false)))
	assert.Equal(t, joinFirst, kinds(targetSteps("arn", g, targets(30080, ids(0, 3)), ids(3, 6), nil, false)), "all are others")
	full := kinds(targetSteps("arn", g, targets(30080, ids(0, 500)), ids(500, 501), nil, false))
	assert.Equal(t, leaveFirst[0], full[0], "a full target group")
	assert.Empty(t, targetSteps("arn", g, targets(30080, ids(0, 3)), ids(0, 2), ids(0, 3), false), "one that stopped may stay")
	assert.Empty(t, targetSteps("arn", g, targets(30080, ids(0, 3)), nil, nil, true), "no nodes at all change nothing")
	assert.Len(t, targetSteps("arn", g, targets(30080, ids(0, 250)), ids(250, 500), nil, false), 6)
	assert.Equal(
		t, joinFirst, kinds(targetSteps("arn", g, targets(30081, ids(0, 1)), ids(0, 1), nil, false)), "the port counts",
	)
}

func TestHasLabels(t *testing.T) {
	t.Parallel()
	n := bare("n")
	n.Labels = map[string]string{"pool": "edge", "zone": ""}
	for text, want := range map[string]bool{
		"": true, "pool=edge": true, "pool=": true, "pool": true, "zone": true, "pool=edge,zone": true, "pool=core": false, "disk": false,
	} {
		wanted, _ := parsePairs(text)
		assert.Equal(t, want, hasLabels(n, wanted), text)
	}
}

package aws

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

const (
	testSecret = "aws-secret"
	// managedGroups has network load balancers get security groups.
	managedGroups = "NLBSecurityGroupMode = Managed\n"
	extraGroup    = "sg-0000000000000eef0"
	someARN       = "arn:aws:acm:us-east-1:123456789012:certificate/one"
	otherARN      = "arn:aws:acm:us-east-1:123456789012:certificate/two"
	somePolicy    = "ELBSecurityPolicy-TLS13-1-2-2021-06"
	otherPolicy   = "ELBSecurityPolicy-TLS-1-2-2017-01"
)

// anyText is why a field takes any value.
const anyText = "tags are the user's own"

// dispensable are reads without which the work goes on.
var dispensable = map[string]string{
	"ELB DescribeTags": "load balancers are told by their names then, and tags by annotation are given again",
}

// onlyThere are faults of subnets, which AWS knows.
var onlyThere = []string{`which is neither the ID nor the tag Name of a subnet of the VPC`, `names \d+ addresses for \d+ subnets`}

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := awssim.New(newRegion(awssim.Options{}))
	sim.AddGroup(awssim.Group{ID: extraGroup, Name: "extra"})
	network := simkit.NewNetwork()
	url := network.Serve(t, server)
	file := sim.CloudConfig(url) + managedGroups
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(),
		Inputs: func() registry.Inputs {
			return testInputs(sim, url, file, map[string]string{"AWS_ACCESS_KEY_ID": awssim.Key, "AWS_SECRET_ACCESS_KEY": testSecret})
		},
		Strictness: conformance.Strictness{Free: map[string]string{
			"Action": "it names the call", "Version": "it names the service", "Tags[].*": anyText, "TagSpecification[].Tag[].*": anyText,
			"ELB DeleteLoadBalancer LoadBalancerName": "what does not exist is deleted with success, says the API",
		}, LimitsElsewhere: limitsElsewhere(), Unlimited: withoutLimit()},
		Lag: sim.SetLag, Lags: []time.Duration{time.Second, lag},
		Routes: func() {}, // the inputs have ClusterCIDR
		AddInstance: func(name string) string {
			id := sim.AddInstance(awssim.Spec{Name: name})
			for _, i := range sim.List() {
				if i.ID == id {
					return providerIDPrefix + "/" + i.Zone + "/" + id
				}
			}
			return ""
		},
		RemoveInstance:  func(id string) { sim.Remove(instanceID(t, id)) },
		PowerOff:        func(id string) { require.NoError(t, sim.SetStatus(instanceID(t, id), "stopped")) },
		Resize:          func(id string) { sim.Edit(instanceID(t, id), func(i *awssim.Instance) { i.Type = "m7g.2xlarge" }) },
		Tag:             func(id string, tags map[string]string) { sim.Edit(instanceID(t, id), tagged(tags)) },
		InstanceListing: "EC2 DescribeInstances", RefuseAccount: func() { sim.SetKey("AKIAANOTHER") }, OtherAccount: sim.Blind,

		RemoveLoadBalancers: sim.RemoveLoadBalancers,
		ClusterInSettings:   true,
		OtherCluster:        func() { file = strings.ReplaceAll(file, awssim.ClusterID, "restored") },
		MalformedIDs:        []string{providerIDPrefix, "aws://i-1", "aws:///", "aws:///us-east-1a/vol-1", "aws:///us-east-1a/i-1/suffix"},
		OnlyThere:           onlyThere, Services: map[string]conformance.Case{
			"classic":      {Service: service("classic", nil, servicePort("http", 80, 30080)), Change: addPort},
			"network":      {Service: nlb("network", nil, servicePort("http", 80, 30080)), Change: addPort},
			"rich classic": {Service: richClassic(), Change: changeClassic},
			"rich network": {Service: richNetwork(), Change: changeNetwork, Unique: []string{annotationPrivateAddresses}},
		},
		Portable: map[string]conformance.PortableCase{
			portable.Certificate:    {Value: someARN},
			portable.TLSPorts:       {With: map[string]string{portable.Certificate: someARN}},
			portable.Subnet:         {Value: "public-us-east-1b"},
			portable.SecurityGroups: {Value: extraGroup},
			portable.CheckPort:      {Value: "8080"},
			portable.Address: {Value: "10.0.1.10", With: map[string]string{
				annotationType: typeNLB, portable.Scheme: portable.SchemeInternal, portable.Subnet: "private-us-east-1a",
			}},
		},
		Snapshot: func() string { return snapshot(sim) }, Fixed: fixedCases(sim),
	}
	f.NodeRules, f.Dispensable = "security group nodes rule ", dispensable
	unmanaged := func() { file = strings.ReplaceAll(file, managedGroups, "") }
	addTranscripts(f, sim, unmanaged)
	tryFeatures(f, scopeOf(sim), unmanaged)
	return tryOthers(t, sim, f)
}

// tryFeatures says how the suite tries features, and source ranges of both kinds of load balancers, also of those without groups.
func tryFeatures(f *conformance.Fixture, scope conformance.Scope, unmanaged func()) {
	const later = "the security group of a load balancer goes with it; the nodes are closed before"
	network := map[string]string{annotationType: typeNLB}
	f.UDP, f.DualStack = conformance.FeatureCase{With: network, Shows: "UDP"}, conformance.FeatureCase{With: network, Shows: "dualstack"}
	classic := scope
	classic.Name = "classic"
	classic.Except, classic.Protect = maps.Clone(scope.Except), nil
	classic.Meddle, classic.Fill, classic.Overflow = nil, nil, 60 // ranges stand in the load balancer's own group
	classic.Unprotected, classic.NotUDP = "classic load balancers cannot be protected", "classic load balancers have no UDP"
	classic.Except[conformance.Stranger] = "a rule that lets in the group of a classic load balancer is ours by its form, and that group goes with it"
	classic.Except[conformance.OtherCluster] = classic.Except[conformance.Stranger]
	f.SourceRanges = conformance.FeatureCase{ClosesLater: later, Scope: classic}
	scope.Subnet, scope.NoSubnet = nil, "rules of nodes for everybody stay on ports of health checks, which come from the hidden subnet"
	scope.NeededReads = append(slices.Clone(needed), "EC2 DescribeSubnets")
	f.Scopes = map[string]conformance.FeatureCase{
		"network":                 {With: network, ClosesLater: later, Scope: scope},
		"network, rules of nodes": {Prepare: unmanaged, With: network, Scope: scope},
	}
}

func instanceID(t testing.TB, providerID string) string {
	id, err := parseProviderID(providerID)
	require.NoError(t, err)
	return id
}

func addPort(s *v1.Service) {
	s.Spec.Ports = append(s.Spec.Ports, servicePort("alt", 8080, 30081))
}

// richClassic uses everything of classic load balancers at once.
func richClassic() *v1.Service {
	s := service("rich-classic", map[string]string{
		annotationProxyProtocol: "*", annotationTags: "team=web,empty=", annotationExtraGroups: extraGroup,
		annotationAccessLog: "true", annotationAccessLogInterval: "5", annotationAccessLogBucket: "logs", annotationAccessLogPrefix: "web",
		annotationDraining: "true", annotationDrainingTimeout: "30", annotationIdleTimeout: "120", annotationCrossZone: "true",
		annotationCertificate: someARN, annotationTLSPorts: "https,8443", annotationTLSPolicy: somePolicy, annotationBackendProtocol: "https",
		annotationCheckProtocol: "http", annotationCheckPort: "traffic-port", annotationCheckPath: "/ready",
		annotationHealthyThreshold: "3", annotationUnhealthyThreshold: "4",
		annotationCheckTimeout: "6", annotationCheckInterval: "20", annotationSubnets: "public-us-east-1a,subnet-00000000000000a2",
	}, servicePort("http", 80, 30080), servicePort("https", 443, 30443), servicePort("alt", 8443, 30444))
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "192.0.2.0/24"}
	return s
}

func changeClassic(s *v1.Service) {
	a := s.Annotations
	a[annotationProxyProtocol], a[annotationAccessLogInterval], a[annotationDrainingTimeout] = "", "60", "60"
	a[annotationTLSPolicy], a[annotationTLSPorts], a[annotationCheckPath] = otherPolicy, "*", "/live"
	a[annotationTags], a[annotationSubnets] = "team=api", "public-us-east-1b,public-us-east-1c"
	delete(a, annotationExtraGroups)
	s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
	s.Spec.Ports = s.Spec.Ports[1:]
	s.Spec.Ports[0].NodePort = 30445
}

// richNetwork uses everything of network load balancers at once.
func richNetwork() *v1.Service {
	s := nlb("rich-network", map[string]string{
		annotationAccessLog: "true", annotationAccessLogBucket: "logs", annotationAccessLogPrefix: "web",
		annotationCrossZone: "true", annotationTags: "team=web,empty=",
		annotationCertificate: someARN, annotationTLSPorts: "https,8443", annotationTLSPolicy: somePolicy, annotationBackendProtocol: "ssl",
		annotationCheckProtocol: "HTTP", annotationCheckPath: "/ready", annotationHealthyThreshold: "4", annotationUnhealthyThreshold: "5",
		annotationCheckTimeout: "7", annotationCheckInterval: "15",
		annotationTargetAttributes: attributePreserveClient + "=false," + attributeProxyV2 + "=true", annotationInternal: "true",
		annotationPrivateAddresses: "10.0.1.10,10.0.3.10", annotationSubnets: "private-us-east-1a,private-us-east-1b",
	}, servicePort("http", 80, 30080), servicePort("https", 443, 30443), servicePort("alt", 8443, 30444))
	s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
	s.Spec.HealthCheckNodePort = 30999
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "192.0.2.0/24"}
	return s
}

func changeNetwork(s *v1.Service) {
	a := s.Annotations
	a[annotationTLSPorts], a[annotationTLSPolicy], a[annotationCertificate] = "8443", otherPolicy, otherARN
	a[annotationCrossZone], a[annotationAccessLog], a[annotationCheckInterval] = "false", "false", "30"
	a[annotationTargetAttributes] = attributeProxyV2 + "=false"
	delete(a, annotationCheckProtocol)
	s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
	s.Spec.Ports = s.Spec.Ports[1:]
	s.Spec.Ports[1].NodePort = 30445
}

// snapshot prints the region's objects for Services, without the fields that differ from run to run.
func snapshot(sim *awssim.Sim) string {
	var lines []string
	show := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	instances, groups := map[string]string{}, map[string]string{}
	for _, i := range sim.List() {
		instances[i.ID] = i.PrivateDNS
	}
	for _, g := range sim.Groups() {
		groups[g.ID] = g.Name
	}
	translated := func(ids []string, names map[string]string) []string {
		list := []string{}
		for _, id := range ids {
			list = append(list, names[id])
		}
		slices.Sort(list)
		return list
	}
	for _, lb := range sim.Classics() {
		show("classic %s %s %v %v %v %v %v %v %v", lb.Name, lb.Scheme, slices.Sorted(slices.Values(lb.Subnets)),
			translated(lb.Groups, groups), translated(lb.Instances, instances), lb.Tags, *lb.Check, lb.Backends, lb.Attributes)
		for _, l := range lb.Listeners {
			show("%s listener %v", lb.Name, *l)
		}
	}
	targetGroups, names := map[string]string{}, map[string]string{}
	for _, tg := range sim.TargetGroups() {
		targets := []string{}
		for _, t := range tg.Targets {
			targets = append(targets, fmt.Sprint(instances[t.ID], ":", t.Port))
		}
		slices.Sort(targets)
		targetGroups[tg.ARN] = tg.Name
		check := []any{tg.CheckProtocol, tg.CheckPort, tg.CheckPath, tg.Interval, tg.Timeout, tg.Healthy, tg.Unhealthy}
		traffic := []any{tg.Protocol, tg.AddressType, tg.Port}
		show("target group %s %v %v %v", tg.Name, append(traffic, check...), targets, []any{tg.Attributes, tg.Tags})
	}
	for _, lb := range sim.Networks() {
		names[lb.ARN] = lb.Name
		show("network %s %s %s %v %v %v %v", lb.Name, lb.Scheme, lb.AddressType, lb.Mappings, translated(lb.Groups, groups), lb.Tags, lb.Attributes)
	}
	for _, l := range sim.Listeners() {
		show("%s listener %v", names[l.LoadBalancer], []any{l.Protocol, l.Port, l.Policy, l.Certificates, targetGroups[l.TargetGroup], l.Tags})
	}
	for _, g := range sim.Groups() {
		if g.ID != awssim.NodeGroup && g.ID != extraGroup {
			show("security group %s %s %v", g.Name, g.Description, g.Tags)
		}
		for _, r := range g.Rules {
			r.Group = groups[r.Group]
			show("security group %s rule %v", g.Name, r)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// tagged gives an instance these tags, besides that of the cluster.
func tagged(tags map[string]string) func(*awssim.Instance) {
	return func(i *awssim.Instance) {
		maps.DeleteFunc(i.Tags, func(key, _ string) bool { return !strings.Contains(key, "/") })
		maps.Copy(i.Tags, tags)
	}
}

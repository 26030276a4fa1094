package aws

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// owned are the tags that AWS's own controller gives to everything of a Service.
func owned(more ...string) awssim.Tags {
	tags := awssim.Tags{"kubernetes.io/cluster/simulated": "owned", "kubernetes.io/service-name": "shop/web"}
	for i := 0; i < len(more); i += 2 {
		tags[more[i]] = more[i+1]
	}
	return tags
}

// taken is a Service and what AWS's own controller makes for it, written down from its names, tags and defaults.
type taken struct {
	file    string
	service func(*v1.Service)
	classic *awssim.ClassicLB
	network *awssim.LoadBalancer
	targets []awssim.TargetGroup
	// listeners are those of the network load balancer; they send to the target group with the same index.
	listeners []awssim.Listener
	// front is the security group of the load balancer itself, and nodes are the rules of the nodes' group.
	front *awssim.Group
	nodes []awssim.Rule
	// oneWay is set where ours would not make the same today: what there is stays, because nothing is wrong with it.
	oneWay bool
}

const (
	takenName  = "a1111111122223333444455555555555"
	takenGroup = "sg-000000000000000f1"
)

func cidrRule(protocol string, from, to int, cidr, about string) awssim.Rule {
	return awssim.Rule{Protocol: protocol, From: from, To: to, CIDR: cidr, Description: about}
}

func publicSubnets() []string {
	return []string{"subnet-00000000000000a0", "subnet-00000000000000a2", "subnet-00000000000000a4"}
}

func publicMappings() []awssim.Mapping {
	var list []awssim.Mapping
	for _, id := range publicSubnets() {
		list = append(list, awssim.Mapping{Subnet: id})
	}
	return list
}

func usualAttributes() map[string]string {
	return map[string]string{
		"proxy_protocol_v2.enabled": "false", "preserve_client_ip.enabled": "true", "deregistration_delay.timeout_seconds": "300",
		"stickiness.enabled": "false",
	}
}

func usualNetworkAttributes() map[string]string {
	return map[string]string{
		"load_balancing.cross_zone.enabled": "false", "access_logs.s3.enabled": "false", "access_logs.s3.bucket": "", "access_logs.s3.prefix": "",
		"deletion_protection.enabled": "false",
	}
}

func takenGroupOfClassic(ports ...int) *awssim.Group {
	g := &awssim.Group{
		ID: takenGroup, Name: "k8s-elb-" + takenName, Description: "Security group for Kubernetes ELB " + takenName + " (shop/web)",
		Tags: awssim.Tags{"kubernetes.io/cluster/simulated": "owned"},
	}
	for _, p := range ports {
		g.Rules = append(g.Rules, cidrRule("tcp", p, p, "0.0.0.0/0", ""))
	}
	g.Rules = append(g.Rules, cidrRule("icmp", 3, 4, "0.0.0.0/0", ""))
	return g
}

func takenTargetGroup(name, protocol string, port int) awssim.TargetGroup {
	return awssim.TargetGroup{
		Name: name, Protocol: protocol, Type: "instance", AddressType: "ipv4", Port: port, CheckProtocol: "TCP", CheckPort: "traffic-port",
		Interval: 30, Timeout: 10, Healthy: 3, Unhealthy: 3,
		Attributes: usualAttributes(), Tags: owned(),
	}
}

// putIn puts into a region what the other controller made there, with an instance behind it.
func (c taken) putIn(sim *awssim.Sim, instance string) {
	if c.front != nil {
		sim.AddGroup(*c.front)
	}
	sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = slices.Clone(c.nodes) })
	if c.classic != nil {
		lb := *c.classic
		lb.Name, lb.Instances = takenName, []string{instance}
		sim.AddClassic(lb)
		return
	}
	sim.ImportNetwork(takenName, *c.network, c.targets, c.listeners, instance)
}

// takenService is a Service that the other controller served.
func (c taken) takenService() *v1.Service {
	s := service("web", nil, servicePort("http", 80, 30080))
	s.Namespace, s.UID = "shop", types.UID("11111111-2222-3333-4444-555555555555")
	c.service(s)
	return s
}

// describe tells how the suite takes it over.
func (c taken) describe(sim *awssim.Sim) conformance.Left {
	return conformance.Left{Leave: func(nodes []*v1.Node) *v1.Service {
		c.putIn(sim, instanceOf(nodes[0]))
		return c.takenService()
	}}
}

// leftCases are those that need no other configuration than the suite's; unmanaged leaves the groups of network load balancers out.
func leftCases(sim *awssim.Sim, unmanaged func()) map[string]conformance.Left {
	all := map[string]conformance.Left{}
	for _, cases := range []map[string]taken{takenCases(), laterCases()} {
		for name, c := range cases {
			l := c.describe(sim)
			if c.file == "" {
				leave := l.Leave
				l.Leave = func(nodes []*v1.Node) *v1.Service {
					unmanaged()
					return leave(nodes)
				}
			}
			all[name] = l
		}
	}
	return all
}

// takenCases are load balancers as the other controller made them.
func takenCases() map[string]taken {
	all := takenNetworkCases()
	maps.Copy(all, takenClassicCases())
	maps.Copy(all, takenLocalCases())
	return all
}

func takenClassicCases() map[string]taken {
	fromNodes := []awssim.Rule{{Protocol: "-1", Group: takenGroup}}
	return map[string]taken{
		"classic": {
			service: func(*v1.Service) {},
			classic: &awssim.ClassicLB{
				Scheme:    "internet-facing",
				Listeners: []*awssim.ClassicListener{{Protocol: "TCP", InstanceProtocol: "TCP", Port: 80, InstancePort: 30080}},
				Subnets:   publicSubnets(), Groups: []string{takenGroup}, Tags: owned(),
				Check:      &awssim.HealthCheck{Target: "TCP:30080", Interval: 10, Timeout: 5, Healthy: 2, Unhealthy: 6},
				Attributes: awssim.ClassicAttributes{IdleTimeout: 60, DrainingTimeout: 300},
			},
			front: takenGroupOfClassic(80), nodes: fromNodes,
		},
		"classic with TLS, PROXY protocol and tags": {
			service: func(s *v1.Service) {
				s.Annotations = map[string]string{
					annotationCertificate: someARN, annotationTLSPolicy: somePolicy, annotationBackendProtocol: "http", annotationProxyProtocol: "*",
					annotationTags: "team=shop", annotationInternal: "true", annotationSubnets: "private-us-east-1a",
				}
			},
			classic: &awssim.ClassicLB{
				Scheme: "internal",
				Listeners: []*awssim.ClassicListener{
					{
						Protocol: "HTTPS", InstanceProtocol: "HTTP", Port: 80, InstancePort: 30080,
						Certificate: someARN, Policies: []string{"k8s-SSLNegotiationPolicy-" + somePolicy},
					},
				},
				Subnets: []string{"subnet-00000000000000a1"}, Groups: []string{takenGroup}, Tags: owned("team", "shop"),
				Check: &awssim.HealthCheck{Target: "TCP:30080", Interval: 10, Timeout: 5, Healthy: 2, Unhealthy: 6},
				Policies: map[string]awssim.ClassicPolicy{
					"k8s-proxyprotocol-enabled":              {Type: "ProxyProtocolPolicyType", Attributes: map[string]string{"ProxyProtocol": "true"}},
					"k8s-SSLNegotiationPolicy-" + somePolicy: {Type: "SSLNegotiationPolicyType", Attributes: map[string]string{"Reference-Security-Policy": somePolicy}},
				},
				Backends: map[int][]string{30080: {"k8s-proxyprotocol-enabled"}}, Attributes: awssim.ClassicAttributes{IdleTimeout: 60, DrainingTimeout: 300},
			},
			front: func() *awssim.Group {
				g := takenGroupOfClassic(80)
				g.Tags["team"] = "shop"
				return g
			}(), nodes: fromNodes,
		},
	}
}

func takenNetworkCases() map[string]taken {
	return map[string]taken{
		"network": {
			service: func(s *v1.Service) {
				s.Annotations = map[string]string{annotationType: "nlb"}
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			},
			network: &awssim.LoadBalancer{
				Scheme: "internet-facing", AddressType: "ipv4", Mappings: publicMappings(), Tags: owned(), Attributes: usualNetworkAttributes(),
			},
			targets:   []awssim.TargetGroup{takenTargetGroup("k8s-shop-web-f9f80cf63e", "TCP", 30080)},
			listeners: []awssim.Listener{{Protocol: "TCP", Port: 80, Tags: owned()}},
			nodes: []awssim.Rule{
				cidrRule("tcp", 30080, 30080, "192.0.2.0/24", "kubernetes.io/rule/nlb/client="+takenName),
				cidrRule("tcp", 30080, 30080, "10.0.0.0/24", "kubernetes.io/rule/nlb/health="+takenName),
				cidrRule("tcp", 30080, 30080, "10.0.2.0/24", "kubernetes.io/rule/nlb/health="+takenName),
				cidrRule("tcp", 30080, 30080, "10.0.4.0/24", "kubernetes.io/rule/nlb/health="+takenName),
				cidrRule("icmp", 3, 4, "192.0.2.0/24", "kubernetes.io/rule/nlb/mtu"),
			},
		},
		"network with TLS and a managed group": {
			file: "NLBSecurityGroupMode = Managed\n",
			service: func(s *v1.Service) {
				s.Annotations = map[string]string{annotationType: "nlb", annotationCertificate: someARN}
			},
			network: &awssim.LoadBalancer{
				Scheme: "internet-facing", AddressType: "ipv4", Mappings: publicMappings(), Groups: []string{takenGroup}, Tags: owned(),
				Attributes: usualNetworkAttributes(),
			},
			targets:   []awssim.TargetGroup{takenTargetGroup("k8s-shop-web-f9f80cf63e", "TCP", 30080)},
			listeners: []awssim.Listener{{Protocol: "TLS", Port: 80, Policy: "ELBSecurityPolicy-2016-08", Certificates: []string{someARN}, Tags: owned()}},
			front: &awssim.Group{
				ID: takenGroup, Name: "k8s-shop-web-8e0a805e93", Description: "[k8s] Managed SecurityGroup for LoadBalancer",
				Tags:  awssim.Tags{"kubernetes.io/cluster/simulated": "owned"},
				Rules: []awssim.Rule{cidrRule("tcp", 80, 80, "0.0.0.0/0", ""), cidrRule("icmp", 3, 4, "0.0.0.0/0", "")},
			},
			nodes: []awssim.Rule{
				cidrRule("tcp", 30080, 30080, "0.0.0.0/0", "kubernetes.io/rule/nlb/client="+takenName),
				cidrRule("icmp", 3, 4, "0.0.0.0/0", "kubernetes.io/rule/nlb/mtu"),
			},
		},
	}
}

func takenLocalCases() map[string]taken {
	return map[string]taken{
		"network with local traffic": {
			service: func(s *v1.Service) {
				s.Annotations = map[string]string{annotationType: "nlb"}
				s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
			},
			network: &awssim.LoadBalancer{
				Scheme: "internet-facing", AddressType: "ipv4", Mappings: publicMappings(), Tags: owned(), Attributes: usualNetworkAttributes(),
			},
			targets: []awssim.TargetGroup{{
				Name: "k8s-shop-web-9f8655d4bd", Protocol: "TCP", Type: "instance", AddressType: "ipv4", Port: 30080, CheckProtocol: "HTTP",
				CheckPort: "32000", CheckPath: "/healthz", Interval: 10, Timeout: 6, Healthy: 2, Unhealthy: 2,
				Attributes: usualAttributes(), Tags: owned(),
			}},
			listeners: []awssim.Listener{{Protocol: "TCP", Port: 80, Tags: owned()}},
			nodes: []awssim.Rule{
				cidrRule("tcp", 30080, 30080, "0.0.0.0/0", "kubernetes.io/rule/nlb/client="+takenName),
				cidrRule("tcp", 32000, 32000, "10.0.0.0/24", "kubernetes.io/rule/nlb/health="+takenName),
				cidrRule("tcp", 32000, 32000, "10.0.2.0/24", "kubernetes.io/rule/nlb/health="+takenName),
				cidrRule("tcp", 32000, 32000, "10.0.4.0/24", "kubernetes.io/rule/nlb/health="+takenName),
				cidrRule("icmp", 3, 4, "0.0.0.0/0", "kubernetes.io/rule/nlb/mtu"),
			},
		},
	}
}

// laterCases are Services after some changes under the other controller or an older one.
func laterCases() map[string]taken {
	udp := takenTargetGroup("k8s-shop-web-7613d9ca3e", "UDP", 30053)
	tcp := takenTargetGroup("k8s-shop-web-f9f80cf63e", "TCP", 30080)
	client, health := "kubernetes.io/rule/nlb/client="+takenName, "kubernetes.io/rule/nlb/health="+takenName
	checks := func(port int) (list []awssim.Rule) {
		for _, cidr := range []string{"10.0.0.0/24", "10.0.2.0/24", "10.0.4.0/24"} {
			list = append(list, cidrRule("tcp", port, port, cidr, health))
		}
		return list
	}
	mixed := func(rules ...awssim.Rule) taken {
		return taken{
			service: func(s *v1.Service) {
				s.Annotations = map[string]string{annotationType: "nlb"}
				s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Protocol: v1.ProtocolUDP, Port: 53, NodePort: 30053})
			},
			network: &awssim.LoadBalancer{
				Scheme: "internet-facing", AddressType: "ipv4", Mappings: publicMappings(), Tags: owned(), Attributes: usualNetworkAttributes(),
			},
			targets:   []awssim.TargetGroup{tcp, udp},
			listeners: []awssim.Listener{{Protocol: "TCP", Port: 80, Tags: owned()}, {Protocol: "UDP", Port: 53, Tags: owned()}},
			nodes: append(append([]awssim.Rule{
				cidrRule("tcp", 30080, 30080, "0.0.0.0/0", client), cidrRule("udp", 30053, 30053, "0.0.0.0/0", client),
				cidrRule("icmp", 3, 4, "0.0.0.0/0", "kubernetes.io/rule/nlb/mtu"),
			}, checks(30053)...), rules...),
		}
	}
	spare := mixed(checks(30080)...)
	spare.oneWay = true
	classic := takenCases()["classic"]
	lb := *classic.classic
	lb.Subnets = []string{"subnet-00000000000000a5", "subnet-00000000000000a1", "subnet-00000000000000a3"}
	classic.classic, classic.service = &lb, func(s *v1.Service) {
		s.Annotations = map[string]string{annotationSubnets: "private-us-east-1a,private-us-east-1b,private-us-east-1c"}
	}
	fixed := takenCases()["network"]
	fixed.oneWay, fixed.service = true, func(s *v1.Service) {
		s.Annotations = map[string]string{annotationType: "nlb", annotationSubnets: "private-us-east-1a,private-us-east-1b,private-us-east-1c"}
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	}
	hidden, plain := takenTargetGroup("k8s-shop-web-f9f80cf63e", "TCP", 30080), takenCases()["network"]
	hidden.Attributes = maps.Clone(hidden.Attributes)
	hidden.Attributes[attributePreserveClient] = "false"
	plain.targets, plain.service = []awssim.TargetGroup{hidden}, func(s *v1.Service) {
		s.Annotations = map[string]string{annotationType: "nlb", annotationTargetAttributes: attributePreserveClient + "=false"}
	}
	plain.nodes = []awssim.Rule{cidrRule("tcp", 30080, 30080, "0.0.0.0/0", client), cidrRule("icmp", 3, 4, "0.0.0.0/0", "kubernetes.io/rule/nlb/mtu")}
	return map[string]taken{
		"open to everybody, who comes by the load balancer's address": plain,
		"TCP beside UDP": mixed(),
		"TCP beside UDP, with checks of open ports":  spare,
		"classic with subnets of the same zones":     classic,
		"network, subnets of the same zones in vain": fixed,
	}
}

// TestTakeover works both ways: objects of AWS's own controller are found and not changed, and ours have the same names and tags, so that
// it finds them in turn.
func TestTakeover(t *testing.T) {
	t.Parallel()
	cases := takenCases()
	maps.Copy(cases, laterCases())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepare := func() (*world, *v1.Service) {
				w := newTestWorld(t, c.file, awssim.Options{})
				w.addNode(awssim.Spec{Name: "n1"})
				s := c.takenService()
				w.Apply(s)
				return w, s
			}
			theirs, s := prepare()
			node := instanceOf(theirs.nodes[0])
			c.putIn(theirs.sim, node)
			before := snapshot(theirs.sim)

			// A node may come late, as after a swap of controllers: nothing changes until it does.
			theirs.restart()
			theirs.server.ResetCalls()
			theirs.ensure(s)
			assert.Zero(t, theirs.server.Calls().Writes, "%v", theirs.server.Calls().ByOperation)
			theirs.update(s)
			assert.Zero(t, theirs.server.Calls().Writes, "%v", theirs.server.Calls().ByOperation)
			assert.Equal(t, before, snapshot(theirs.sim))

			ours, s := prepare()
			ours.ensure(s)
			if !c.oneWay {
				assert.Equal(t, before, snapshot(ours.sim), "what we make is what they make")
			}
			require.NoError(t, ours.remove(s))
			require.NoError(t, theirs.remove(s))
			assert.Empty(t, snapshot(theirs.sim), "and all of it goes with the Service")
			assert.Empty(t, theirs.server.Calls().Refused)
		})
	}
}

// TestUntaggedIsAdopted: a load balancer whose tags were removed is as its users left it.
func TestUntaggedIsAdopted(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.Tags = awssim.Tags{} })
	w.restart()
	w.unchanged(s, "adopted")
	w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.Tags = awssim.Tags{"kubernetes.io/cluster/two": "owned"} })
	w.restart()
	_, err := w.try(s)
	require.ErrorContains(t, err, `belongs to another cluster, "two" by its tags`)
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+eventNotOurs)
}

// TestLegacyCluster: with the older tag, everything new carries it as well, and objects with that tag only are ours.
func TestLegacyCluster(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "KubernetesClusterTag = simulated\n", awssim.Options{})
	id := w.sim.AddInstance(awssim.Spec{Name: "n1", Untagged: true, Tags: awssim.Tags{"KubernetesCluster": "simulated"}})
	m, err := w.instances.InstanceMetadata(t.Context(), bare("n1"))
	require.NoError(t, err)
	assert.Contains(t, m.ProviderID, id)
	w.nodes = append(w.nodes, withID("n1", m.ProviderID))
	for _, s := range []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081))} {
		w.Apply(s)
		w.ensure(s)
	}
	both := awssim.Tags{"KubernetesCluster": "simulated", "kubernetes.io/cluster/simulated": "owned", serviceTag: "default/classic"}
	assert.Equal(t, both, w.sim.Classics()[0].Tags)
	assert.Equal(t, "simulated", w.sim.TargetGroups()[0].Tags["KubernetesCluster"])
	assert.Equal(
		t, awssim.Tags{"KubernetesCluster": "simulated", "kubernetes.io/cluster/simulated": "owned"},
		w.group(classicGroupName(loadBalancerName(service("classic", nil)))).Tags,
	)
}

// TestOrphans: what no Service has, and nothing else.
func TestOrphans(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	var services []*v1.Service
	for _, s := range []*v1.Service{
		service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081)),
		nlb("living", nil, servicePort("http", 80, 30082)),
	} {
		w.Apply(s)
		services = append(services, w.ensure(s))
	}
	w.sim.AddTargetGroup(awssim.TargetGroup{
		Name: "k8s-default-gone-1", Protocol: "TCP", Type: "instance",
		Tags: awssim.Tags{"kubernetes.io/cluster/simulated": "owned", serviceTag: "default/gone"},
	})
	w.sim.AddTargetGroup(awssim.TargetGroup{
		Name: "k8s-default-gone-2", Protocol: "TCP", Type: "instance",
		Tags: awssim.Tags{"kubernetes.io/cluster/two": "owned", serviceTag: "default/gone"},
	})
	w.sim.AddNetwork("amadebyhand", "network", awssim.Tags{})
	w.restart()
	found, err := w.Orphans(t.Context(), services)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "default/gone", found[0].Name)
	found, err = w.Orphans(t.Context(), services[2:])
	require.NoError(t, err)
	kinds := []string{}
	for _, o := range found {
		kinds = append(kinds, o.Kind)
	}
	assert.Equal(t, []string{orphanClassic, orphanNetwork, orphanGroup, orphanGroup, orphanTargetGroup}, kinds)
	for _, o := range found {
		require.NoError(t, w.DeleteOrphan(t.Context(), o))
		require.NoError(t, w.DeleteOrphan(t.Context(), o), "what is gone is no error")
	}
	assert.Empty(t, w.sim.Classics())
	assert.Len(t, w.sim.Networks(), 2, "the living one, and the one by hand")
	assert.Len(t, w.sim.Groups(), 3, "the living one's, the nodes', and the extra one")
	require.ErrorContains(t, w.DeleteOrphan(t.Context(), contract.Orphan{Kind: "volume"}), "no kind")
}

// TestNoServiceClaimsALoadBalancer: nothing that the author of a Service writes leads to a load balancer of another Service: not its name,
// its host name, its tags, nor the node ports.
func TestNoServiceClaimsALoadBalancer(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	victims := []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081))}
	for i, s := range victims {
		w.Apply(s)
		victims[i] = w.ensure(s)
	}
	before := snapshot(w.sim)
	for _, victim := range victims {
		name := loadBalancerName(victim)
		thief := victim.DeepCopy()
		thief.Namespace, thief.Name, thief.UID, thief.ResourceVersion = "tenant", victim.Name, "uid-of-thief", ""
		thief.CreationTimestamp = metav1.Time{}
		for _, key := range []string{"load-balancer-id", "name", "arn", "target-group-arn"} {
			thief.Annotations[annotationPrefix+key] = name
		}
		thief.Annotations[annotationTags] = serviceTag + "=" + serviceName(victim) + ",kubernetes.io/cluster/simulated=owned,Name=" + name
		w.Apply(thief)
		w.ensure(thief)
		require.NoError(t, w.remove(thief))
	}
	assert.Equal(t, before, snapshot(w.sim))
	for _, s := range victims {
		w.unchanged(s, "served as before")
	}
}

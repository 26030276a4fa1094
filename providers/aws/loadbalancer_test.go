package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// unchanged demands that a reconciliation writes nothing, warm and after a restart.
func (w *world) unchanged(s *v1.Service, why string) {
	w.T.Helper()
	for _, restart := range []bool{false, true} {
		if restart {
			w.restart()
		}
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(w.T, w.server.Calls().Writes, "%s (restarted: %t): %v", why, restart, w.server.Calls().ByOperation)
	}
}

// change alters a Service where the provider and the API server know it.
func (w *world) change(s *v1.Service, change func(*v1.Service)) *v1.Service {
	now := w.Current(s).DeepCopy()
	change(now)
	_, err := w.Kube.CoreV1().Services(now.Namespace).Update(w.T.Context(), now, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	return w.Current(now)
}

// group returns a security group by its name.
func (w *world) group(name string) awssim.Group {
	for _, g := range w.sim.Groups() {
		if g.Name == name {
			return g
		}
	}
	return awssim.Group{}
}

func rules(g awssim.Group) []string {
	list := []string{}
	for _, r := range g.Rules {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %d-%d %s%s%s%s %s", r.Protocol, r.From, r.To, r.CIDR, r.CIDRv6, r.Group, r.PrefixList, r.Description)))
	}
	slices.Sort(list)
	return list
}

func startWorld(t *testing.T, file string, options awssim.Options) *world {
	t.Helper()
	return newTestWorld(t, file, options).started()
}

// startVirtual is startWorld inside a bubble of virtual time.
func startVirtual(t *testing.T, file string, options awssim.Options) *world {
	t.Helper()
	return newVirtualWorld(t, file, options).started()
}

// started has a security group of somebody and a node.
func (w *world) started() *world {
	w.T.Helper()
	w.sim.AddGroup(awssim.Group{ID: extraGroup, Name: "extra"})
	w.addNode(awssim.Spec{Name: "n1"})
	return w
}

// TestRestartsWriteNothing: what the existing controller writes at every restart or reconciliation, for nothing.
func TestRestartsWriteNothing(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*v1.Service{
		"attributes of a classic load balancer": service("classic", nil, servicePort("http", 80, 30080)),
		"every setting of a classic one":        richClassic(),
		"TLS without a policy":                  nlb("tls", map[string]string{annotationCertificate: someARN}, servicePort("https", 443, 30443)),
		"HTTP health check":                     nlb("http", map[string]string{annotationCheckProtocol: "http"}, servicePort("http", 80, 30080)),
		"lower-case health check, classic":      service("lower", map[string]string{annotationCheckProtocol: "http"}, servicePort("http", 80, 30080)),
		"local traffic":                         local(nlb("local", nil, servicePort("http", 80, 30080))),
		"every setting of a network one":        richNetwork(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, file := range []string{"", "NLBSecurityGroupMode = Managed\n", "ClusterServiceLoadBalancerHealthProbeMode = Shared\n"} {
				w := startWorld(t, file, awssim.Options{})
				s := s.DeepCopy()
				w.Apply(s)
				w.ensure(s)
				w.unchanged(s, file)
				assert.Empty(t, w.server.Calls().Refused)
			}
		})
	}
}

// TestMissingHealthCheck: an answer without a health check is repaired, and crashes nothing.
func TestMissingHealthCheck(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := service("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	w.sim.ChangeClassic(loadBalancerName(s), func(lb *awssim.ClassicLB) { lb.NoCheck = true })
	w.restart()
	w.server.ResetCalls()
	w.ensure(s)
	assert.Equal(t, 1, w.server.Calls().ByOperation["ELB ConfigureHealthCheck"])
}

// TestTLSToggle: a port changes between TCP and TLS on the same listener and the same target group.
func TestTLSToggle(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("https", 443, 30443))
	w.Apply(s)
	w.ensure(s)
	listener, group := w.sim.Listeners()[0].ARN, w.sim.TargetGroups()[0].ARN
	for _, certificate := range []string{someARN, otherARN, "", someARN} {
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationCertificate] = certificate })
		w.ensure(s)
		require.Len(t, w.sim.Listeners(), 1)
		require.Len(t, w.sim.TargetGroups(), 1)
		assert.Equal(t, listener, w.sim.Listeners()[0].ARN)
		assert.Equal(t, group, w.sim.TargetGroups()[0].ARN)
		assert.Equal(t, certificate != "", w.sim.Listeners()[0].Protocol == "TLS")
		w.unchanged(s, certificate)
	}
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationBackendProtocol] = "ssl" })
	w.ensure(s)
	assert.Equal(t, "TLS", w.sim.TargetGroups()[0].Protocol, "a target group of another protocol is another one")
	assert.Len(t, w.sim.TargetGroups(), 1)
	assert.Empty(t, w.server.Calls().Refused)
}

// TestHealthCheckChanges: each number alone is changed in place, the time-out is sent, and an API that refuses gets a new
// target group.
func TestHealthCheckChanges(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	group := w.sim.TargetGroups()[0].ARN
	for key, value := range map[string]string{
		annotationUnhealthyThreshold: "7", annotationHealthyThreshold: "5", annotationCheckTimeout: "8", annotationCheckInterval: "20",
		annotationCheckProtocol: "http", annotationCheckPath: "/x", annotationCheckPort: "8081",
	} {
		s = w.change(s, func(s *v1.Service) { s.Annotations[key] = value })
		w.server.ResetCalls()
		w.ensure(s)
		if key != annotationCheckPath { // its protocol may not have come yet
			assert.LessOrEqual(t, w.server.Calls().ByOperation["ELBv2 ModifyTargetGroup"], 1, key)
		}
		w.unchanged(s, key)
	}
	tg := w.sim.TargetGroups()[0]
	assert.Equal(t,
		[]any{group, "HTTP", "8081", "/x", 20, 8, 5, 7},
		[]any{tg.ARN, tg.CheckProtocol, tg.CheckPort, tg.CheckPath, tg.Interval, tg.Timeout, tg.Healthy, tg.Unhealthy},
	)

	old := startWorld(t, "", awssim.Options{FixedHealthChecks: true})
	s = nlb("web", nil, servicePort("http", 80, 30080))
	old.Apply(s)
	old.ensure(s)
	before := old.sim.TargetGroups()[0]
	s = old.change(s, func(s *v1.Service) { s.Annotations[annotationCheckProtocol] = "http" })
	old.ensure(s)
	require.Len(t, old.sim.TargetGroups(), 1)
	after := old.sim.TargetGroups()[0]
	assert.NotEqual(t, before.Name, after.Name)
	assert.Equal(t, after.ARN, old.sim.Listeners()[0].TargetGroup)
	assert.Len(t, after.Targets, 1)
	require.NoError(t, old.remove(s))
	assert.Empty(t, old.sim.TargetGroups())
}

// TestNodePorts: a node port that changes, or two that change places, need no new listener.
func TestNodePorts(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("a", 80, 30080), servicePort("b", 81, 30081))
	w.Apply(s)
	w.ensure(s)
	listeners := len(w.sim.Listeners())
	s = w.change(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30081, 30080 })
	w.ensure(s)
	assert.Len(t, w.sim.Listeners(), listeners)
	assert.Len(t, w.sim.TargetGroups(), 2)
	ports := map[int]int{}
	for _, l := range w.sim.Listeners() {
		for _, tg := range w.sim.TargetGroups() {
			if tg.ARN == l.TargetGroup {
				ports[l.Port] = tg.Port
			}
		}
	}
	assert.Equal(t, map[int]int{80: 30081, 81: 30080}, ports)
	w.unchanged(s, "swapped")
	assert.Empty(t, w.server.Calls().Refused)
}

// TestFixedAddresses: addresses are paired with subnets in the order of the annotation, at the creation alone.
func TestFixedAddresses(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	first, second := w.sim.AddElasticIP(), w.sim.AddElasticIP()
	s := nlb("web", map[string]string{annotationEIPs: first + ", " + second, annotationSubnets: "public-us-east-1c,public-us-east-1a"}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	assert.Equal(t, []awssim.Mapping{
		{Subnet: "subnet-00000000000000a4", Allocation: first},
		{Subnet: "subnet-00000000000000a0", Allocation: second},
	}, w.sim.Networks()[0].Mappings)
	w.unchanged(s, "addresses")

	inside := nlb("inside", map[string]string{
		annotationInternal: "true", annotationPrivateAddresses: "10.0.1.9", annotationSubnets: "private-us-east-1a",
	}, servicePort("http", 80, 30080))
	w.Apply(inside)
	w.ensure(inside)
	assert.Equal(t, []awssim.Mapping{{Subnet: "subnet-00000000000000a1", PrivateIP: "10.0.1.9"}}, w.sim.Networks()[1].Mappings)

	wrong := nlb("wrong", map[string]string{annotationEIPs: first}, servicePort("http", 80, 30080))
	w.Apply(wrong)
	w.Events()
	_, err := w.try(wrong)
	require.ErrorContains(t, err, "names 1 addresses for 3 subnets")
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+eventConfigError+" annotation "+annotationEIPs)
	assert.Empty(t, w.server.Calls().Refused)
}

// TestSubnets: discovery in the cloud, zones that load balancers do not know, and subnets that come later.
func TestSubnets(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	w.sim.AddSubnet(awssim.Subnet{Zone: "us-east-1-bos-1a", CIDR: "10.0.99.0/24", Tags: awssim.Tags{"kubernetes.io/cluster/simulated": ""}}, awssim.PublicTable)
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	assert.Len(t, w.sim.Networks()[0].Mappings, 3, "a local zone has no part in it")

	few := nlb("few", map[string]string{annotationSubnets: "public-us-east-1a"}, servicePort("http", 80, 30080))
	w.Apply(few)
	w.ensure(few)
	few = w.change(few, func(s *v1.Service) { s.Annotations[annotationSubnets] = "public-us-east-1a,public-us-east-1b" })
	w.ensure(few)
	assert.Len(t, w.sim.Networks()[1].Mappings, 2, "one more is added in place")
	w.Events()
	few = w.change(few, func(s *v1.Service) { s.Annotations[annotationSubnets] = "public-us-east-1b" })
	w.unchanged(few, "none is taken away")
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+services.EventFixed+" annotation "+annotationSubnets)

	w.sim.RemoveSubnets()
	w.restart()
	other := nlb("other", nil, servicePort("http", 80, 30080))
	w.Apply(other)
	_, err := w.try(other)
	require.ErrorContains(t, err, "no subnet can have the load balancer")
}

// TestScheme: the scheme is fixed at the creation; a later change is an event, and chooses no other subnets.
func TestScheme(t *testing.T) {
	t.Parallel()
	for _, s := range []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30080))} {
		w := startWorld(t, "", awssim.Options{})
		w.Apply(s)
		w.ensure(s)
		w.Events()
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationInternal] = "true" })
		w.unchanged(s, s.Name)
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+services.EventFixed+" annotation "+annotationInternal)
	}
}

// TestDualStack: a new load balancer offers both families where the Service and the subnets have them.
func TestDualStack(t *testing.T) {
	t.Parallel()
	both := func(name string, policy v1.IPFamilyPolicy, annotations map[string]string) *v1.Service {
		s := nlb(name, annotations, servicePort("http", 80, 30080))
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, &policy
		return s
	}
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	s := both("both", v1.IPFamilyPolicyPreferDualStack, nil)
	w.Apply(s)
	w.ensure(s)
	assert.Equal(t, "dualstack", w.sim.Networks()[0].AddressType)
	assert.Equal(t, "ipv4", w.sim.TargetGroups()[0].AddressType)
	front := descriptionFront + loadBalancerName(s)
	assert.Equal(t, []string{
		"icmp 3-4 0.0.0.0/0", "icmpv6 2-0 ::/0 " + front, "tcp 80-80 0.0.0.0/0", "tcp 80-80 ::/0 " + front,
	}, rules(w.group(managedGroupName("kubernetes", s))))
	assert.Contains(t, strings.Join(rules(w.group("nodes")), "\n"), "tcp 30080-30080 0.0.0.0/0")
	w.unchanged(s, "both families")

	six := nlb("six", nil, servicePort("http", 80, 30090))
	six.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
	w.Apply(six)
	w.ensure(six)
	assert.Equal(t, "ipv6", w.sim.TargetGroups()[1].AddressType)
	assert.Contains(t, strings.Join(rules(w.group("nodes")), "\n"), "tcp 30090-30090 ::/0")
	w.unchanged(six, "IPv6 alone")
	require.NoError(t, w.remove(six))

	w.Events()
	inside := both("inside", v1.IPFamilyPolicyPreferDualStack, map[string]string{annotationInternal: "true"})
	w.Apply(inside)
	w.ensure(inside)
	assert.Equal(t, "ipv4", w.sim.Networks()[1].AddressType)
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+eventSingleStack)
	required := both("required", v1.IPFamilyPolicyRequireDualStack, map[string]string{annotationInternal: "true"})
	w.Apply(required)
	_, err := w.try(required)
	require.ErrorContains(t, err, "IPv6", "AWS says which subnet lacks what")
}

// TestTargets: nodes come and go, and what AWS would refuse is not sent.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, s := range []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30080))} {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			count := func() int {
				if s.Name == "classic" {
					return len(w.sim.Classics()[0].Instances)
				}
				return len(w.sim.TargetGroups()[0].Targets)
			}
			for _, name := range []string{"n2", "n3"} {
				w.addNode(awssim.Spec{Name: name})
			}
			w.Apply(s)
			s := w.ensure(s)
			assert.Equal(t, 3, count())
			all := w.nodes
			w.nodes = all[:2]
			w.update(s)
			assert.Equal(t, 2, count())
			w.nodes = all
			w.update(s)
			assert.Equal(t, 3, count())

			// One that stopped stays, one that never ran is not registered, one without the tag is left out.
			require.NoError(t, w.sim.SetStatus(instanceOf(all[0]), "stopped"))
			w.restart()
			late := w.addNode(awssim.Spec{Name: "late", State: "stopped"})
			untagged := w.sim.AddInstance(awssim.Spec{Name: "untagged", Untagged: true})
			w.nodes = append(w.nodes, withID("untagged", "aws:///us-east-1a/"+untagged), withID("foreign", "other://1"), bare("new"))
			w.update(s)
			assert.Equal(t, 3, count())
			require.NoError(t, w.sim.SetStatus(instanceOf(late), "running"))
			w.restart()
			w.update(s)
			assert.Equal(t, 4, count())

			// No nodes at all change nothing.
			w.nodes = nil
			w.update(s)
			w.ensure(s)
			assert.Equal(t, 4, count())
			assert.Empty(t, w.server.Calls().Refused)
		})
	}
}

// TestFullTargetGroup: old targets go first, so that a full target group has room for new ones.
func TestFullTargetGroup(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	w.addNodes(600)
	all := w.nodes
	w.nodes = all[:500]
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	s = w.ensure(s)
	w.nodes = all[100:]
	w.update(s)
	assert.Len(t, w.sim.TargetGroups()[0].Targets, 500)
	w.nodes = all
	err := w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
	require.ErrorContains(t, err, "quota exceeded")
}

func TestTargetNodeLabels(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	edge := w.addNode(awssim.Spec{Name: "edge"})
	edge.Labels["pool"] = "edge"
	for _, s := range []*v1.Service{
		nlb("network", map[string]string{annotationNodeLabels: "pool=edge"}, servicePort("http", 80, 30080)),
		service("classic", map[string]string{annotationNodeLabels: "pool"}, servicePort("http", 80, 30081)),
	} {
		w.Apply(s)
		w.ensure(s)
	}
	require.Len(t, w.sim.TargetGroups()[0].Targets, 1)
	assert.Equal(t, instanceOf(edge), w.sim.TargetGroups()[0].Targets[0].ID)
	assert.Equal(t, []string{instanceOf(edge)}, w.sim.Classics()[0].Instances)
}

// TestMixedProtocols: TCP and UDP on different ports of one load balancer.
func TestMixedProtocols(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	udp := servicePort("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := nlb("dns", nil, udp, servicePort("web", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	assert.Equal(t, []string{"icmp 3-4 0.0.0.0/0", "tcp 80-80 0.0.0.0/0", "udp 53-53 0.0.0.0/0"}, rules(w.group(managedGroupName("kubernetes", s))))
	assert.Contains(t, rules(w.group("nodes")), "udp 30053-30053 0.0.0.0/0 "+descriptionClient+loadBalancerName(s))
	w.unchanged(s, "mixed")
	s = w.change(s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[1:] })
	w.ensure(s)
	assert.NotContains(t, strings.Join(rules(w.group("nodes")), "\n"), "30053")
}

// TestKindChange: the kind of a load balancer cannot change; the names of China's hosts do not confuse anybody.
func TestKindChange(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := service("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	s = w.ensure(s)
	w.sim.ChangeClassic(loadBalancerName(s), func(lb *awssim.ClassicLB) { lb.DNSName = "web-1.cn-north-1.elb.amazonaws.com.cn" })
	w.restart()
	s = w.ensure(s)
	assert.Equal(t, "web-1.cn-north-1.elb.amazonaws.com.cn", s.Status.LoadBalancer.Ingress[0].Hostname)
	for _, kind := range []string{typeNLB} {
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationType] = kind })
		_, err := w.try(s)
		require.ErrorContains(t, err, "change it back, or delete and create the Service")
	}
	assert.Empty(t, w.sim.Networks())
	require.NoError(t, w.remove(s), "whatever the annotation says by then")
	assert.Empty(t, w.sim.Classics())

	network := nlb("network", nil, servicePort("http", 80, 30080))
	w.Apply(network)
	network = w.ensure(network)
	network = w.change(network, func(s *v1.Service) { delete(s.Annotations, annotationType) })
	_, err := w.try(network)
	require.ErrorContains(t, err, "which is a network load balancer")
	require.NoError(t, w.remove(network))
	assert.Empty(t, w.sim.Networks())
	assert.Empty(t, w.sim.TargetGroups())
}

// TestElsewhere: Services of another controller are left alone; what was made for one before goes with it.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{typeExternal, typeNLBIP} {
		w := startWorld(t, "", awssim.Options{})
		s := service("web", map[string]string{annotationType: kind}, servicePort("http", 80, 30080))
		w.Apply(s)
		w.server.ResetCalls()
		_, err := w.try(s)
		require.ErrorIs(t, err, cloudprovider.ImplementedElsewhere)
		require.ErrorIs(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, s, w.nodes), cloudprovider.ImplementedElsewhere)
		assert.Zero(t, w.server.Calls().Total)
		require.NoError(t, w.remove(s))
		assert.Zero(t, w.server.Calls().Writes)

		before := nlb("before", nil, servicePort("http", 80, 30080))
		w.Apply(before)
		before = w.ensure(before)
		before = w.change(before, func(s *v1.Service) { s.Annotations[annotationType] = kind })
		require.NoError(t, w.remove(before))
		assert.Empty(t, w.sim.Networks(), "it is not left behind")
	}
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.sim.AddNetwork(loadBalancerName(s), "application", awssim.Tags{})
	_, err := w.try(s)
	require.ErrorContains(t, err, "of the type application")
	require.NoError(t, w.remove(s))
	assert.Len(t, w.sim.Networks(), 1)
}

// TestStates: a load balancer that is impaired goes on being shown; one that failed is an error.
func TestLoadBalancerStates(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{Activation: time.Hour})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	s = w.ensure(s)
	host := s.Status.LoadBalancer.Ingress[0].Hostname
	assert.Contains(t, host, ".elb.us-east-1.amazonaws.com", "it is shown while it is provisioned")
	assert.Nil(t, s.Status.LoadBalancer.Ingress[0].IPMode)
	for _, state := range []string{"active", "active_impaired"} {
		w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.State = state })
		w.restart()
		s = w.ensure(s)
		assert.Equal(t, host, s.Status.LoadBalancer.Ingress[0].Hostname, state)
	}
	w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.State = "failed" })
	w.restart()
	_, err := w.try(s)
	require.ErrorContains(t, err, "has the state failed")
}

// TestDeletionFinishes: whatever a broken deletion or creation left is found and goes.
func TestDeletionFinishes(t *testing.T) {
	t.Parallel()
	t.Run("a group that is in use for a while", func(t *testing.T) {
		t.Parallel()
		for _, s := range []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30080))} {
			synctest.Test(t, func(t *testing.T) {
				w := startVirtual(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{Release: 2 * time.Second})
				w.Apply(s)
				w.ensure(s)
				now := w.Current(s)
				w.interruptedDeletion(now)
				_, exists, err := w.loadBalancers.GetLoadBalancer(t.Context(), w.cluster, now)
				require.NoError(t, err)
				assert.True(t, exists, "its Service stays until all of it is gone")
				require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), w.cluster, now), "waiting is no failure")
				assert.Len(t, w.sim.Groups(), 2)
				assert.Empty(t, rules(w.group("nodes")))
			})
		}
	})
	t.Run("a load balancer that was deleted by hand", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
		s := nlb("web", nil, servicePort("http", 80, 30080), servicePort("alt", 81, 30081))
		w.Apply(s)
		w.ensure(s)
		arn := w.sim.Networks()[0].ARN
		w.sim.DeleteNetwork(arn)
		w.restart()
		require.NoError(t, w.remove(s))
		assert.Empty(t, w.sim.TargetGroups())
		assert.Len(t, w.sim.Groups(), 2)
		assert.Empty(t, rules(w.group("nodes")))
	})
	t.Run("a creation that never succeeded", func(t *testing.T) {
		t.Parallel()
		for _, s := range []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30080))} {
			w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
			w.Apply(s)
			w.sim.Deny("CreateLoadBalancer", true)
			_, err := w.try(s)
			require.ErrorContains(t, err, "not authorized")
			assert.Len(t, w.sim.Groups(), 3, "its group is there already")
			w.restart()
			require.NoError(t, w.remove(s))
			assert.Len(t, w.sim.Groups(), 2)
		}
	})
}

// TestDeletionSparesOthers: what carries no mark of the Service stays, and a missing group is no failure.
func TestDeletionSparesOthers(t *testing.T) {
	t.Parallel()
	t.Run("target groups of others with the same beginning", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{})
		s := nlb("website-one", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		for _, tags := range []awssim.Tags{
			{"kubernetes.io/cluster/simulated": "owned", serviceTag: "default/website-two"},
			{"kubernetes.io/cluster/two": "owned", serviceTag: "default/website-one"},
			{},
		} {
			w.sim.AddTargetGroup(awssim.TargetGroup{Name: fmt.Sprintf("k8s-default-websiteo-%d", len(w.sim.TargetGroups())), Protocol: "TCP", Type: "instance", Tags: tags})
		}
		w.restart()
		w.unchanged(s, "none of them is touched")
		require.NoError(t, w.remove(s))
		assert.Len(t, w.sim.TargetGroups(), 3)
	})
	t.Run("without any group", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{})
		s := service("web", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		w.sim.ChangeClassic(loadBalancerName(s), func(lb *awssim.ClassicLB) { lb.Groups = nil })
		w.restart()
		require.NoError(t, w.remove(s))
		assert.Empty(t, w.sim.Classics())
	})
}

// TestSharedProbe: load balancers that are checked through kube-proxy's port share its rule, which goes with the last.
func TestSharedProbe(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "ClusterServiceLoadBalancerHealthProbeMode = Shared\n", awssim.Options{})
	a, b := nlb("a", nil, servicePort("http", 80, 30080)), nlb("b", nil, servicePort("http", 80, 30081))
	w.Apply(a, b)
	w.ensure(a)
	w.ensure(b)
	w.unchanged(b, "an equal rule is there already")
	require.NoError(t, w.remove(a))
	assert.Contains(t, strings.Join(rules(w.group("nodes")), "\n"), "tcp 10256-10256", "the other one is checked through it")
	w.unchanged(b, "it is there still")
	require.NoError(t, w.remove(b))
	assert.Empty(t, rules(w.group("nodes")))
}

// TestSlowConsistency: EC2 does not show a new group to itself at once.
func TestSlowConsistency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{Lag: 200 * time.Millisecond})
		id := w.sim.AddInstance(awssim.Spec{Name: "n1"})
		require.Eventually(t, func() bool {
			_, err := w.instances.InstanceMetadata(t.Context(), withID("n1", "aws:///us-east-1a/"+id))
			return err == nil
		}, 10*time.Second, 20*time.Millisecond)
		w.nodes = append(w.nodes, withID("n1", "aws:///us-east-1a/"+id))
		for _, s := range []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30080))} {
			w.Apply(s)
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
			require.NoError(t, err, "patience, not a failure")
		}
		assert.Len(t, w.sim.Groups(), 3, "one group each, and the nodes'")

		// What was just made and does not show yet is deleted all the same.
		quick := nlb("quick", nil, servicePort("http", 80, 30081))
		w.Apply(quick)
		_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(quick), w.nodes)
		require.NoError(t, err)
		require.NoError(t, w.remove(quick))
		assert.Len(t, w.sim.Networks(), 1)
		assert.Len(t, w.sim.TargetGroups(), 1)
	})
}

// TestThrottlingIsApart: Elastic Load Balancing throttles with 400, EC2 with 503; neither holds the other back, and the
// throttled one slows down.
func TestThrottlingIsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startVirtual(t, "", awssim.Options{})
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, Operation: "ELB "})
		require.NoError(t, err)
		classic, network := service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081))
		w.Apply(classic, network)
		_, err = w.try(classic)
		require.ErrorContains(t, err, "rate limited")
		require.ErrorContains(t, err, "Throttling")
		require.ErrorContains(t, w.APIHealth(), "rate limit")
		began := time.Now()
		require.NoError(t, w.CheckAPI(t.Context()))
		_, err = w.instances.InstanceMetadata(t.Context(), withID("n1", w.nodes[0].Spec.ProviderID))
		require.NoError(t, err)
		assert.Less(t, time.Since(began), 2*time.Second, "EC2 answers on")
		w.server.ClearFaults()
		_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, Operation: "EC2 ", Count: 2})
		require.NoError(t, err)
		w.restart()
		w.ensure(network) // two refusals are waited for
		w.ensure(classic)
	})
}

// TestRefusedPermission: the message of a missing permission names the action and what to do.
func TestRefusedPermission(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	w.sim.Deny("CreateTargetGroup", true)
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	_, err := w.try(s)
	require.ErrorContains(t, err, "elasticloadbalancing:CreateTargetGroup")
	require.ErrorContains(t, err, "check the credential, its permissions")
	require.NoError(t, w.APIHealth(), "the credential as such is fine")
}

package aws

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// What serves goes on serving, whatever a call or an answer does not do.

// fault plays a fault until undo is called.
func (w *world) fault(f simkit.Fault) (undo func()) {
	id, err := w.server.AddFault(f)
	require.NoError(w.T, err)
	return func() { w.server.RemoveFault(id) }
}

// TestProtectedFromDeletion: a network load balancer that AWS does not delete goes on reaching its nodes.
func TestProtectedFromDeletion(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	before := rules(w.group("nodes"))
	w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.Attributes["deletion_protection.enabled"] = "true" })
	require.Error(t, w.remove(s))
	w.reached(s)
	assert.Equal(t, before, rules(w.group("nodes")))
	w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.Attributes["deletion_protection.enabled"] = "false" })
	require.NoError(t, w.remove(s))
	assert.Empty(t, rules(w.group("nodes")))
	assert.Len(t, w.sim.Groups(), 2)
}

// TestBlindMoment: targets stay while EC2 shows none of the nodes' instances, or none with the tag of the cluster, and the Service is
// told. Without nodes of its own by its labels it has none, as it asks.
func TestBlindMoment(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"network", "classic"} {
		for _, cause := range []string{"account", "tags"} {
			w := startWorld(t, "", awssim.Options{})
			w.addNode(awssim.Spec{Name: "n2"})
			s := service("web", nil, servicePort("http", 80, 30080))
			if kind == "network" {
				s.Annotations[annotationType] = typeNLB
			}
			w.Apply(s)
			w.ensure(s)
			count := func() int {
				if kind == "network" {
					return len(w.sim.TargetGroups()[0].Targets)
				}
				return len(w.sim.Classics()[0].Instances)
			}
			require.Equal(t, 2, count())
			before := rules(w.group("nodes"))
			if cause == "account" {
				w.sim.Blind()
			} else {
				for _, n := range w.nodes {
					w.sim.Change(instanceOf(n), func(i *awssim.Instance) { i.Tags = awssim.Tags{} })
				}
			}
			w.restart()
			w.Events()
			_ = w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes)
			assert.Equal(t, 2, count(), "%s %s: update", kind, cause)
			_, _ = w.try(s)
			assert.Equal(t, 2, count(), "%s %s: ensure", kind, cause)
			assert.Contains(t, strings.Join(w.Events(), "\n"), eventTargetsKept)
			assert.Equal(t, before, rules(w.group("nodes")))
		}
	}
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationNodeLabels] = "pool=none" })
	w.ensure(s)
	assert.Empty(t, w.sim.TargetGroups()[0].Targets)
}

// TestClusterNameChanges: the managed security group of a former --cluster-name goes when the load balancer has the new one, and with
// the Service.
func TestClusterNameChanges(t *testing.T) {
	t.Parallel()
	for _, ensured := range []bool{true, false} {
		w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
		s := nlb("web", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		require.Len(t, w.sim.Groups(), 3)
		w.cluster = "renamed"
		w.restart()
		if ensured {
			w.ensure(s)
			assert.Len(t, w.sim.Groups(), 3)
			assert.NotEmpty(t, w.group(managedGroupName("renamed", s)).ID)
		}
		require.NoError(t, w.remove(s))
		assert.Len(t, w.sim.Groups(), 2)
	}
}

// TestSecondLife: a Service comes back under its name after its finalizer was taken away. What is left of the first one is found as
// an orphan, its managed security group as well, and the second one's is none.
func TestSecondLife(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	first := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(first)
	w.ensure(first)
	w.Withdraw(first)
	require.NoError(t, w.Kube.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.restart()
	next := nlb("web", nil, servicePort("http", 80, 30080))
	next.UID = "next-life"
	w.Apply(next)
	_, err := w.try(next)
	require.ErrorContains(t, err, "used by another load balancer")
	require.Len(t, w.sim.Groups(), 4)
	found, err := w.Orphans(t.Context(), []*v1.Service{next})
	require.NoError(t, err)
	var names []string
	for _, o := range found {
		names = append(names, o.Kind+" "+o.Name)
		require.NoError(t, w.DeleteOrphan(t.Context(), o))
	}
	assert.Contains(t, names, "security group "+managedGroupName(w.cluster, first))
	assert.Len(t, w.sim.Groups(), 3)
	w.restart()
	w.ensure(next)
	assert.Len(t, w.sim.TargetGroups()[0].Targets, 1)
}

// TestHiddenSubnets: while EC2 does not show the subnets of a load balancer, no rule of its health checks is removed.
func TestHiddenSubnets(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := local(nlb("web", nil, servicePort("http", 80, 30080)))
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	w.Apply(s)
	w.ensure(s)
	before := rules(w.group("nodes"))
	w.restart()
	undo := w.fault(simkit.Fault{Kind: "empty-set", Operation: "EC2 DescribeSubnets"})
	w.update(s)
	assert.Equal(t, before, rules(w.group("nodes")))
	w.reached(s)
	undo()
	w.restart()
	w.unchanged(s, "the subnets show again")
}

// TestEmptyListingsWhileDeleting: an empty answer leaves nothing behind when a Service goes.
func TestEmptyListingsWhileDeleting(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"EC2 DescribeSecurityGroups", "ELBv2 DescribeTargetGroups", "ELBv2 DescribeLoadBalancers", "ELB DescribeLoadBalancers"} {
		for _, network := range []bool{false, true} {
			w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
			s := service("web", nil, servicePort("http", 80, 30080))
			if network {
				s.Annotations[annotationType] = typeNLB
			}
			w.Apply(s)
			w.ensure(s)
			w.restart()
			undo := w.fault(simkit.Fault{Kind: "empty-set", Operation: operation})
			err := w.remove(s)
			undo()
			if err != nil {
				require.NoError(t, w.remove(s), operation)
			}
			assert.Empty(t, w.sim.Networks(), operation)
			assert.Empty(t, w.sim.Classics(), operation)
			assert.Empty(t, w.sim.TargetGroups(), operation)
			assert.Len(t, w.sim.Groups(), 2, operation)
			assert.Empty(t, rules(w.group("nodes")), operation)
		}
	}
}

// TestOpeningsComeFirst: nodes let health checks and clients of now in until those of the next state get in, also when the new rules
// are refused, and where they do not fit into the security group at all.
func TestOpeningsComeFirst(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := local(nlb("web", nil, servicePort("http", 80, 30080)))
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	w.Apply(s)
	w.ensure(s)
	before := rules(w.group("nodes"))
	undo := w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "EC2 AuthorizeSecurityGroupIngress"})
	s = w.change(s, func(s *v1.Service) {
		s.Spec.Ports, s.Spec.HealthCheckNodePort = append(s.Spec.Ports, servicePort("b", 81, 30081)), 32001
	})
	_, err := w.try(s)
	require.Error(t, err)
	assert.Equal(t, before, rules(w.group("nodes")))
	undo()
	undo = w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "ELBv2 ModifyTargetGroup"})
	_, err = w.try(s)
	require.Error(t, err)
	assert.Subset(t, rules(w.group("nodes")), before, "the target group is checked by the former port still")
	w.reached(s)
	undo()
	w.ensure(s)
	assert.NotContains(t, w.ports("10.0.0.0/24"), 32000, "what is not needed any more is closed then")
	assert.Contains(t, w.ports("10.0.0.0/24"), 32001)

	for rooms, fits := range map[int]bool{4: false, 5: true} { // a full group
		w := startWorld(t, "", awssim.Options{GroupRules: rooms})
		s := nlb("web", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		before := rules(w.group("nodes"))
		s = w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
		_, err := w.try(s)
		if fits {
			require.NoError(t, err, "what goes makes room")
			assert.Equal(t, []int{30080}, w.ports("192.0.2.0/24"))
			assert.Empty(t, w.ports("0.0.0.0/0"))
			continue
		}
		require.ErrorContains(t, err, "DisableSecurityGroupIngress")
		require.ErrorContains(t, err, "for 1 network load balancers")
		assert.Equal(t, before, rules(w.group("nodes")), "it is as it was")
	}
}

// TestPreserveAnnotationGoes: the attribute by which nodes see addresses of the load balancer stays when its annotation goes, and
// these addresses go on getting in.
func TestPreserveAnnotationGoes(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := nlb(
		"web", map[string]string{annotationTargetAttributes: attributePreserveClient + "=false", annotationCheckPort: "10256"},
		servicePort("http", 80, 30080),
	)
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	w.Apply(s)
	w.ensure(s)
	require.Contains(t, w.ports("10.0.0.0/24"), 30080)
	s = w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationTargetAttributes) })
	w.ensure(s)
	require.Equal(t, "false", w.sim.TargetGroups()[0].Attributes[attributePreserveClient])
	assert.Contains(t, w.ports("10.0.0.0/24"), 30080)
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationTargetAttributes] = attributePreserveClient + "=true" })
	w.ensure(s)
	assert.NotContains(t, w.ports("10.0.0.0/24"), 30080, "until the annotation says otherwise")
	require.NoError(t, w.remove(s))
	assert.Empty(t, rules(w.group("nodes")))
}

// TestTagsOfControllers: no Service gives a load balancer, or its security group, tags by which other controllers find what is theirs.
func TestTagsOfControllers(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"karpenter.sh/discovery", "elbv2.k8s.aws/cluster", "service.k8s.aws/stack", "ingress.k8s.aws/stack", "eks:cluster-name", "topology.kubernetes.io/zone",
		"sigs.k8s.io/cluster-api-provider-aws/cluster/simulated", "k8s.io/cluster-autoscaler/enabled", "K8s.io/role/node",
	} {
		s := service("web", map[string]string{annotationTags: key + "=simulated,team=web"}, servicePort("http", 80, 30080))
		parsed, warnings, err := parseSettings(s, Config{})
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "web"}, parsed.tags, key)
		require.ErrorContains(t, warnings, key)
	}
	parsed, warnings, _ := parseSettings(service("web", map[string]string{annotationTags: "example.com/k8s.io=1,mykubernetes.io/team=web"}, servicePort("http", 80, 30080)), Config{})
	assert.Len(t, parsed.tags, 2)
	require.NoError(t, warnings)
}

// TestRoutesOfStoppedInstances: a route to an instance that is stopped is a black hole to EC2. A Node's stays its route, and the one
// of somebody else's instance stays theirs; without its Node it goes.
func TestRoutesOfStoppedInstances(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	one, gone := w.addNode(awssim.Spec{Name: "one"}), w.addNode(awssim.Spec{Name: "gone"})
	routes := map[string]*cloudprovider.Route{"10.244.1.0/24": routeTo(one, "10.244.1.0/24"), "10.244.2.0/24": routeTo(gone, "10.244.2.0/24")}
	for _, r := range routes {
		require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", r))
	}
	vpn := w.sim.AddInstance(awssim.Spec{Name: "vpn", Untagged: true})
	w.sim.ChangeTable(clusterTable, func(table *awssim.RouteTable) {
		table.Routes = append(table.Routes, &awssim.Route{CIDR: "10.244.9.0/24", Instance: vpn})
	})
	for _, id := range []string{instanceOf(one), instanceOf(gone), vpn} {
		require.NoError(t, w.sim.SetState(id, "stopped"))
	}
	w.Unregister(gone)
	w.restart()
	w.server.ResetCalls()
	for range 3 {
		list, err := w.routes.ListRoutes(t.Context(), "kubernetes")
		require.NoError(t, err)
		shown := map[string]bool{}
		for _, r := range list {
			shown[r.DestinationCIDR] = r.Blackhole
		}
		assert.Equal(t, map[string]bool{"10.244.1.0/24": false, "10.244.2.0/24": true}, shown)
		require.NoError(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routes["10.244.1.0/24"]))
		w.network.tables.InvalidateAll()
	}
	assert.Zero(t, w.server.Calls().Writes)
	assert.Equal(t, vpn, shownTable(w)["10.244.9.0/24"])
	require.ErrorContains(t, w.routes.CreateRoute(t.Context(), "kubernetes", "hint", routeTo(one, "10.244.9.0/24")), "not this cluster's")
}

// TestInstanceOfAnotherVPC: private names are those of one network. An instance of another one with a node's name is not the node's.
func TestInstanceOfAnotherVPC(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	name := "ip-10-0-1-5.ec2.internal"
	theirs := w.sim.AddInstance(awssim.Spec{Name: name})
	w.sim.Change(theirs, func(i *awssim.Instance) { i.VPC = "vpc-of-another" })
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := w.instances.InstanceMetadata(t.Context(), node)
	require.ErrorContains(t, err, "no instance with the tag")
	ours := w.sim.AddInstance(awssim.Spec{Name: name})
	w.restart()
	m, err := w.instances.InstanceMetadata(t.Context(), node)
	require.NoError(t, err)
	assert.Contains(t, m.ProviderID, ours)
}

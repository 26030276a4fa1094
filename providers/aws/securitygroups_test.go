package aws

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestClassicGroups: whose security groups a classic load balancer has, and what is written into them.
func TestClassicGroups(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := service("web", map[string]string{annotationTags: "team=web"}, servicePort("http", 80, 30080), servicePort("alt", 8080, 30081))
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", " 198.51.100.0/24 "}
	w.Apply(s)
	w.ensure(s)
	own := w.group(classicGroupName(loadBalancerName(s)))
	assert.Equal(t, awssim.Tags{"kubernetes.io/cluster/simulated": "owned", "team": "web"}, own.Tags, "no tag of the Service")
	assert.Equal(t, []string{
		"icmp 3-4 192.0.2.0/24", "icmp 3-4 198.51.100.0/24", "tcp 80-80 192.0.2.0/24", "tcp 80-80 198.51.100.0/24",
		"tcp 8080-8080 192.0.2.0/24", "tcp 8080-8080 198.51.100.0/24",
	}, rules(own))
	assert.Equal(t, []string{"-1 0-0 " + own.ID}, rules(w.group("nodes")), "nodes let the load balancer in")
	assert.Equal(t, []string{own.ID}, w.sim.Classics()[0].Groups)

	// By hand: rules for IPv4 go, others stay.
	w.sim.ChangeGroup(own.ID, func(g *awssim.Group) {
		g.Rules = append(g.Rules,
			awssim.Rule{Protocol: "tcp", From: 22, To: 22, CIDR: "10.0.0.0/8"},
			awssim.Rule{Protocol: "tcp", From: 80, To: 80, CIDRv6: "2001:db8::/32"},
			awssim.Rule{Protocol: "tcp", From: 80, To: 80, PrefixList: "pl-1"},
		)
	})
	w.restart()
	s = w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges, s.Spec.Ports = nil, s.Spec.Ports[:1] })
	w.ensure(s)
	assert.Equal(t, []string{"icmp 3-4 0.0.0.0/0", "tcp 80-80 0.0.0.0/0", "tcp 80-80 2001:db8::/32", "tcp 80-80 pl-1"}, rules(w.group(own.Name)))

	// Its own group goes when others take its place, and comes back.
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationGroups] = extraGroup })
	w.ensure(s)
	assert.Equal(t, []string{extraGroup}, w.sim.Classics()[0].Groups)
	assert.Empty(t, w.group(own.Name).ID)
	assert.Equal(t, []string{"-1 0-0 " + extraGroup + " " + descriptionSelf + "=" + loadBalancerName(s)}, rules(w.group("nodes")), "the rule of the former group is gone")
	assert.Empty(t, rules(w.group("extra")), "no rules are written into groups of others")
	s = w.change(s, func(s *v1.Service) {
		delete(s.Annotations, annotationGroups)
		s.Annotations[annotationExtraGroups] = extraGroup
	})
	w.ensure(s)
	assert.Equal(t, []string{w.group(own.Name).ID, extraGroup}, w.sim.Classics()[0].Groups)
	assert.Equal(t, []string{"-1 0-0 " + w.group(own.Name).ID}, rules(w.group("nodes")), "nor does the group that was named get in any more")
	w.unchanged(s, "groups")
	require.NoError(t, w.remove(s))
	assert.Empty(t, rules(w.group("nodes")))
	assert.Empty(t, w.sim.Classics())
	assert.Len(t, w.sim.Groups(), 2, "the extra group is not ours to delete")
	assert.Empty(t, w.server.Calls().Refused)
}

// TestGlobalGroup: the group of the cloud config serves all classic load balancers.
func TestGlobalGroup(t *testing.T) {
	t.Parallel()
	shared := startWorld(t, "ElbSecurityGroup = "+extraGroup+"\n", awssim.Options{})
	shared.sim.ChangeGroup(extraGroup, func(g *awssim.Group) { g.Tags["kubernetes.io/cluster/simulated"] = "owned" })
	a, b := service("a", nil, servicePort("http", 80, 30080)), service("b", nil, servicePort("http", 80, 30081))
	shared.Apply(a, b)
	shared.ensure(a)
	shared.ensure(b)
	assert.Len(t, shared.sim.Groups(), 2, "the global group serves all")
	require.NoError(t, shared.remove(a))
	assert.Equal(t, []string{"-1 0-0 " + extraGroup + " " + descriptionSelf + "=" + loadBalancerName(a)}, rules(shared.group("nodes")), "the other load balancer needs the rule")
	require.NoError(t, shared.remove(b))
	assert.NotEmpty(t, shared.group("extra").ID)
	assert.Empty(t, rules(shared.group("nodes")))
}

// TestNodeGroupsLeftAlone: with DisableSecurityGroupIngress nothing is written into the groups of nodes.
func TestNodeGroupsLeftAlone(t *testing.T) {
	t.Parallel()
	alone := startWorld(t, "DisableSecurityGroupIngress = true\n", awssim.Options{})
	for _, s := range []*v1.Service{service("a", nil, servicePort("http", 80, 30080)), nlb("b", nil, servicePort("http", 80, 30081))} {
		alone.Apply(s)
		alone.ensure(s)
		assert.Empty(t, rules(alone.group("nodes")), "the nodes' groups are left alone")
		require.NoError(t, alone.remove(s))
	}
}

// TestGroupOfAnotherCluster: a group with the right name and the wrong owner is an error, one without any is adopted.
func TestGroupOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := service("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	id := w.sim.AddGroup(awssim.Group{Name: classicGroupName(loadBalancerName(s)), Tags: awssim.Tags{"kubernetes.io/cluster/two": "owned"}})
	_, err := w.try(s)
	require.ErrorContains(t, err, "belongs to another cluster, two")
	w.sim.ChangeGroup(id, func(g *awssim.Group) { g.Tags = awssim.Tags{"kubernetes.io/cluster/simulated": "shared"} })
	w.restart()
	_, err = w.try(s)
	require.ErrorContains(t, err, "did not make it")
	w.sim.ChangeGroup(id, func(g *awssim.Group) { g.Tags = awssim.Tags{} })
	w.restart()
	w.ensure(s)
	assert.Equal(t, awssim.Tags{"kubernetes.io/cluster/simulated": "owned"}, w.group(classicGroupName(loadBalancerName(s))).Tags)
}

// tlsNetwork is a Service with TLS on a network load balancer, for one range.
func tlsNetwork() *v1.Service {
	s := nlb("web", map[string]string{annotationCertificate: someARN}, servicePort("https", 443, 30443))
	s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	return s
}

// TestNetworkGroups is the table of what NLBSecurityGroupMode does.
func TestNetworkGroups(t *testing.T) {
	t.Parallel()
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{})
		s := tlsNetwork()
		s.Annotations[annotationGroups] = extraGroup
		w.Apply(s)
		w.ensure(s)
		assert.Empty(t, w.sim.Networks()[0].Groups)
		assert.Contains(t, strings.Join(w.Events(), "\n"), annotationGroups+": has no effect")
	})
	t.Run("switched off again", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
		s := tlsNetwork()
		w.Apply(s)
		w.ensure(s)
		groups := w.sim.Networks()[0].Groups
		w.file = ""
		w.restart()
		w.unchanged(s, "what there is stays")
		assert.Equal(t, groups, w.sim.Networks()[0].Groups)
	})
	t.Run("switched on later", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "", awssim.Options{})
		s := tlsNetwork()
		w.Apply(s)
		w.ensure(s)
		w.file = "NLBSecurityGroupMode = Managed\n"
		w.restart()
		w.unchanged(s, "AWS cannot add groups later")
		require.NoError(t, w.remove(s))
	})
	t.Run("managed", func(t *testing.T) {
		t.Parallel()
		w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
		s := tlsNetwork()
		w.Apply(s)
		w.ensure(s)
		name := managedGroupName("kubernetes", s)
		assert.Equal(t, []string{"icmp 3-4 192.0.2.0/24", "tcp 443-443 192.0.2.0/24"}, rules(w.group(name)), "TLS is TCP to a security group")
		assert.Equal(t, managedGroupDescription, w.group(name).Description)

		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationGroups] = " " + extraGroup + " ," })
		w.ensure(s)
		assert.Equal(t, []string{extraGroup}, w.sim.Networks()[0].Groups)
		assert.Empty(t, w.group(name).ID, "its own group goes")
		assert.Empty(t, rules(w.group("extra")))
		s = w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroups) })
		w.ensure(s)
		assert.Equal(t, []string{w.group(name).ID}, w.sim.Networks()[0].Groups)
		assert.NotEmpty(t, w.group("extra").ID)
		require.NoError(t, w.remove(s))
		assert.Len(t, w.sim.Groups(), 2)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestRuleQuota: a full security group is told, with what to do.
func TestRuleQuota(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{GroupRules: 3})
	s := nlb("web", nil, servicePort("a", 80, 30080), servicePort("b", 81, 30081), servicePort("c", 82, 30082))
	w.Apply(s)
	_, err := w.try(s)
	require.ErrorContains(t, err, "quota exceeded")
	require.ErrorContains(t, err, awssim.NodeGroup)
}

// TestNoNodeGroup: a node whose groups all lack the tag is told, and the others are served.
func TestNoNodeGroup(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	one, two := w.sim.AddGroup(awssim.Group{Name: "one"}), w.sim.AddGroup(awssim.Group{Name: "two"})
	w.addNode(awssim.Spec{Name: "odd", Groups: []string{one, two}})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.restart()
	w.ensure(s)
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+eventNoNodeGroup+" node odd")
	assert.NotEmpty(t, rules(w.group("nodes")))
	assert.Len(t, w.sim.TargetGroups()[0].Targets, 2)
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

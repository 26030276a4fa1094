package aws

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	mastersGroup = "sg-0000000000000aaa1"
	gpuGroup     = "sg-0000000000000bbb1"
)

// ownedGroup adds a security group with the cluster's tag.
func (w *world) ownedGroup(id, name string, rules ...awssim.Rule) {
	w.sim.AddGroup(awssim.Group{ID: id, Name: name, Tags: awssim.Tags{"kubernetes.io/cluster/simulated": "owned"}, Rules: rules})
}

// ports are those of the nodes that a network lets in, by its rules.
func (w *world) ports(cidr string) []int {
	var ports []int
	for _, r := range w.group("nodes").Rules {
		if r.CIDR == cidr && r.Protocol == "tcp" {
			ports = append(ports, r.From)
		}
	}
	return ports
}

// reached sees to it that the health checks of a Service's load balancer reach all its targets, of which it has some.
func (w *world) reached(s *v1.Service) {
	w.T.Helper()
	assert.Empty(w.T, w.sim.CutOff(loadBalancerName(s)), "targets that %s does not reach: %v", s.Name, rules(w.group("nodes")))
}

// TestControlPlaneStaysInReach: what nodes and the control plane let in of each other stays, whichever security group a Service
// names, and by whichever annotation.
func TestControlPlaneStaysInReach(t *testing.T) {
	t.Parallel()
	all := func(group string) awssim.Rule { return awssim.Rule{Protocol: "-1", Group: group} }
	for _, c := range []struct{ annotation, group string }{
		{annotationGroups, awssim.NodeGroup},
		{annotationGroups, mastersGroup},
		{annotationExtraGroups, mastersGroup},
		{annotationExtraGroups, awssim.NodeGroup},
	} {
		for _, given := range []bool{true, false} { // the annotation stays until the Service goes, or goes before it
			w := startWorld(t, "", awssim.Options{})
			w.ownedGroup(mastersGroup, "masters", all(awssim.NodeGroup), all(mastersGroup))
			w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = []awssim.Rule{all(mastersGroup), all(awssim.NodeGroup)} })
			masters, nodes := rules(w.group("masters")), rules(w.group("nodes"))
			check := func(when string) {
				assert.Equal(t, masters, rules(w.group("masters")), "%v %s", c, when)
				assert.Subset(t, rules(w.group("nodes")), nodes, "%v %s", c, when)
			}
			s := service("tenant", map[string]string{c.annotation: c.group}, servicePort("http", 80, 30080))
			w.Apply(s)
			w.ensure(s)
			check("made")
			w.restart()
			w.addNode(awssim.Spec{Name: "n2"})
			w.update(s)
			check("nodes changed")
			if !given {
				s = w.change(s, func(s *v1.Service) { delete(s.Annotations, c.annotation) })
			}
			require.NoError(t, w.remove(s))
			check("gone")
			assert.Equal(t, nodes, rules(w.group("nodes")), "nothing else is left")
		}
	}
	// The same for a group that the operator gives to all classic load balancers.
	w := startWorld(t, "ElbSecurityGroup = "+extraGroup+"\n", awssim.Options{})
	w.ownedGroup(mastersGroup, "data base", all(extraGroup))
	s := service("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	require.NoError(t, w.remove(s))
	assert.Len(t, rules(w.group("data base")), 1)
	assert.Empty(t, rules(w.group("nodes")))
}

// TestSharedGroupOpensAllNodes: classic load balancers with one security group and different nodes leave each other's open, and
// nothing stays open when the last one goes.
func TestSharedGroupOpensAllNodes(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "ElbSecurityGroup = " + extraGroup + "\n"} {
		w := startWorld(t, file, awssim.Options{})
		w.ownedGroup(gpuGroup, "gpu")
		w.addNode(awssim.Spec{Name: "n2", Groups: []string{gpuGroup}}).Labels["pool"] = "gpu"
		w.nodes[0].Labels["pool"] = "usual"
		a := service("a", map[string]string{annotationNodeLabels: "pool=usual"}, servicePort("http", 80, 30080))
		b := service("b", map[string]string{annotationNodeLabels: "pool=gpu"}, servicePort("http", 80, 30081))
		if file == "" {
			a.Annotations[annotationGroups], b.Annotations[annotationGroups] = extraGroup, extraGroup
		}
		w.Apply(a, b)
		w.ensure(a)
		w.ensure(b)
		opened := func(name string) []string {
			var sources []string
			for _, r := range w.group(name).Rules {
				sources = append(sources, r.Group)
			}
			return sources
		}
		require.Equal(t, []string{extraGroup}, opened("nodes"), file)
		require.Equal(t, []string{extraGroup}, opened("gpu"), file)
		w.server.ResetCalls()
		for range 3 {
			w.update(a)
			w.update(b)
		}
		assert.Zero(t, w.server.Calls().Writes)
		w.reached(a)
		w.reached(b)
		w.restart()
		require.NoError(t, w.remove(a))
		w.reached(b)
		assert.Equal(t, []string{extraGroup}, opened("gpu"), file)
		w.restart()
		require.NoError(t, w.remove(b))
		assert.Empty(t, opened("nodes"), file)
		assert.Empty(t, opened("gpu"), file)
	}
}

// TestFormerGroupsGetInNoMore: a security group that stood for a load balancer before is let in no more when another one does,
// and the rules go with the load balancer, in groups of nodes without the cluster's tag as well.
func TestFormerGroupsGetInNoMore(t *testing.T) {
	t.Parallel()
	for _, tagged := range []bool{true, false} {
		w := startWorld(t, "", awssim.Options{})
		if !tagged {
			w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Tags = awssim.Tags{} })
		}
		w.sim.AddGroup(awssim.Group{ID: mastersGroup, Name: "second"})
		s := service("web", map[string]string{annotationGroups: extraGroup + "," + mastersGroup}, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		sources := func() []string {
			var list []string
			for _, r := range w.group("nodes").Rules {
				list = append(list, r.Group)
			}
			return list
		}
		require.Equal(t, []string{extraGroup}, sources())
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationGroups] = mastersGroup + "," + extraGroup })
		w.ensure(s)
		require.Equal(t, []string{mastersGroup}, sources(), "the order has changed")
		s = w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroups) })
		w.ensure(s)
		require.Equal(t, []string{w.group(classicGroupName(loadBalancerName(s))).ID}, sources(), "a group of its own")
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationGroups] = extraGroup })
		w.ensure(s)
		w.restart()
		// The last change and the deletion are one.
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationGroups] = mastersGroup })
		require.NoError(t, w.remove(s))
		assert.Empty(t, sources())
	}
}

// TestFormerGroupWithoutNodes: while no node is usable, nobody knows which groups are those of nodes, which let in the former group of a
// classic load balancer until one is.
func TestFormerGroupWithoutNodes(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	w.sim.AddGroup(awssim.Group{ID: mastersGroup, Name: "second"})
	s := service("web", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	nodes := w.nodes
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationGroups] = mastersGroup })
	for _, c := range []struct {
		nodes []*v1.Node
		want  string
	}{{nil, extraGroup}, {nodes, mastersGroup}} {
		w.nodes = c.nodes
		w.ensure(s)
		assert.Equal(t, []string{mastersGroup}, w.sim.Classics()[0].Groups)
		rules := w.group("nodes").Rules
		require.Len(t, rules, 1)
		assert.Equal(t, c.want, rules[0].Group)
	}
}

// TestNodesMoveToAnotherGroup: where nodes have other security groups than before, the former ones are closed, without the
// cluster's tag as well.
func TestNodesMoveToAnotherGroup(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Tags = awssim.Tags{} })
	w.sim.AddGroup(awssim.Group{ID: gpuGroup, Name: "fresh"})
	s := service("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	w.nodes = nil
	w.addNode(awssim.Spec{Name: "n9", Groups: []string{gpuGroup}})
	w.restart()
	w.update(s)
	assert.Empty(t, rules(w.group("nodes")), "nobody serves there any more")
	assert.Len(t, rules(w.group("fresh")), 1)
}

// TestEqualRulesOfTwo: a rule that two network load balancers need is there once, and stays when the one goes, or changes, that
// came first. With the last one it goes.
func TestEqualRulesOfTwo(t *testing.T) {
	t.Parallel()
	notes := func() map[string]string {
		return map[string]string{annotationCheckProtocol: "http", annotationCheckPort: "10256", annotationCheckPath: "/healthz"}
	}
	for _, restart := range []bool{false, true} {
		for _, goes := range []bool{false, true} {
			w := startWorld(t, "", awssim.Options{})
			a, b := nlb("a", notes(), servicePort("http", 80, 30080)), nlb("b", notes(), servicePort("http", 80, 30081))
			w.Apply(a, b)
			w.ensure(a)
			w.ensure(b)
			require.Contains(t, w.ports("10.0.0.0/24"), 10256)
			if restart {
				w.restart()
			}
			if goes {
				require.NoError(t, w.remove(a))
				assert.NotContains(t, w.ports("0.0.0.0/0"), 30080, "its own rules go")
			} else {
				a = w.change(a, func(s *v1.Service) { s.Annotations[annotationCheckPort] = "10257" })
				w.ensure(a)
				assert.Contains(t, w.ports("10.0.0.0/24"), 10257)
			}
			assert.Contains(t, w.ports("10.0.0.0/24"), 10256, "the other one's checks get in")
			w.reached(b)
			w.unchanged(b, "its rules are there, by whatever name")
			if !goes {
				require.NoError(t, w.remove(a))
				assert.Contains(t, w.ports("10.0.0.0/24"), 10256)
			}
			if restart {
				w.restart()
			}
			require.NoError(t, w.remove(b))
			assert.Empty(t, rules(w.group("nodes")))
		}
	}
}

// TestPortOfAnotherToCheck: a Service that checks the node port of another one takes nothing from it when it goes, whatever is wrong with
// that one.
func TestPortOfAnotherToCheck(t *testing.T) {
	t.Parallel()
	for _, faulty := range []bool{false, true} {
		w := startWorld(t, "", awssim.Options{})
		victim := nlb("victim", map[string]string{}, servicePort("http", 80, 30080))
		victim.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/24", "192.0.2.0/24"}
		tenant := nlb("tenant", map[string]string{annotationCheckPort: "30080"}, servicePort("http", 80, 30081))
		tenant.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.Apply(tenant, victim)
		w.ensure(tenant) // comes first, and makes what the other one needs as well
		w.ensure(victim)
		sound := victim
		if faulty {
			victim = w.change(victim, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"bad"} })
		}
		require.NoError(t, w.remove(tenant))
		for _, cidr := range []string{"10.0.0.0/24", "10.0.2.0/24", "10.0.4.0/24", "192.0.2.0/24"} {
			assert.Contains(t, w.ports(cidr), 30080, cidr)
		}
		w.reached(victim)
		if faulty {
			victim = w.change(victim, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = sound.Spec.LoadBalancerSourceRanges })
		}
		w.unchanged(victim, "nothing of it was touched")
		require.NoError(t, w.remove(victim))
		assert.Empty(t, rules(w.group("nodes")))
	}
}

// TestTooManySourceRanges: ranges that fit into no security group are refused before any rule is made of them.
func TestTooManySourceRanges(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"network", "classic"} {
		w := startWorld(t, "", awssim.Options{})
		s := service("web", nil)
		if kind == "network" {
			s.Annotations[annotationType] = typeNLB
		}
		for i := range 20 {
			s.Spec.Ports = append(s.Spec.Ports, servicePort(fmt.Sprint("p", i), int32(1000+i), int32(30000+i)))
		}
		for i := range 20000 {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("11.%d.%d.0/24", i/250, i%250))
		}
		w.Apply(s)
		_, err := w.try(s)
		require.ErrorContains(t, err, "20000 networks, which are 400000 rules for 20 ports")
		assert.Less(t, len(err.Error()), 1000)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventConfigError)
		assert.Zero(t, w.server.Calls().Writes)

		// As many as a group can hold are planned at once.
		s.Spec.Ports, s.Spec.LoadBalancerSourceRanges = s.Spec.Ports[:2], s.Spec.LoadBalancerSourceRanges[:500]
		_, _, err = parseSettings(s, Config{})
		require.NoError(t, err)
	}
	// Where no rules are written, their number does not matter.
	s := service("web", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30080))
	for i := range 2000 {
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("11.%d.%d.0/24", i/250, i%250))
	}
	_, _, err := parseSettings(s, Config{})
	require.NoError(t, err)
}

// TestOrphansOfAnotherVPC: two clusters in two networks of an account may have the same name. What lives in the other one is no
// orphan here, and is not deleted if it is asked for.
func TestOrphansOfAnotherVPC(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	tags := awssim.Tags{"kubernetes.io/cluster/simulated": "owned", "kubernetes.io/service-name": "shop/web"}
	network, classic := "a1111111122223333444455555555555", "a2222222222223333444455555555555"
	w.sim.AddNetwork(network, "network", tags)
	w.sim.AddClassic(awssim.ClassicLB{Name: classic, Tags: tags})
	found, err := w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, found, 2, "in this network they are orphans")

	w.sim.ChangeNetwork(network, func(lb *awssim.LoadBalancer) { lb.VPC = "vpc-of-another" })
	w.sim.ChangeClassic(classic, func(lb *awssim.ClassicLB) { lb.VPC = "vpc-of-another" })
	w.restart()
	none, err := w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, none)
	for _, o := range found {
		require.ErrorIs(t, w.DeleteOrphan(t.Context(), o), errNotOrphan)
	}
	assert.Len(t, w.sim.Networks(), 1)
	assert.Len(t, w.sim.Classics(), 1)
}

// TestTargetGroupOfAnotherCluster: of two clusters with the same name in one network, the nodes of one never serve clients of the
// other's load balancer, although their target groups have the same names.
func TestTargetGroupOfAnotherCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startVirtual(t, "", awssim.Options{})
		a := nlb("web", nil, servicePort("http", 80, 30080))
		w.Apply(a)
		w.ensure(a)
		require.Len(t, w.sim.TargetGroups()[0].Targets, 1)
		theirs := newVirtualWorld(t, "", awssim.Options{})
		theirs.sim, theirs.server, theirs.url, theirs.dial = w.sim, w.server, w.url, w.dial
		theirs.restart()
		theirs.addNode(awssim.Spec{Name: "other-1"})
		b := nlb("web", nil, servicePort("http", 80, 30080))
		b.UID = "another-uid"
		theirs.Apply(b)
		for range 2 {
			_, err := theirs.try(b)
			require.ErrorContains(t, err, "used by another load balancer")
			require.ErrorContains(t, err, loadBalancerName(a))
		}
		require.Len(t, w.sim.TargetGroups(), 1)
		assert.Len(t, w.sim.TargetGroups()[0].Targets, 1)
		// Its deletion leaves the other one's alone.
		require.NoError(t, theirs.remove(b))
		assert.Len(t, w.sim.TargetGroups(), 1)
		w.unchanged(a, "nothing of it was touched")
	})
}

// TestNamedGroupIsMissing: a security group that an annotation or the option names and that does not exist is told before anything
// is created each time.
func TestNamedGroupIsMissing(t *testing.T) {
	t.Parallel()
	missing := "sg-0123456789abcdef0"
	for name, c := range map[string]struct {
		file    string
		service *v1.Service
	}{
		"classic": {"", service("web", map[string]string{annotationGroups: missing}, servicePort("http", 80, 30080))},
		"extra":   {"", service("web", map[string]string{annotationExtraGroups: missing}, servicePort("http", 80, 30080))},
		"option":  {"ElbSecurityGroup = " + missing + "\n", service("web", nil, servicePort("http", 80, 30080))},
		"network": {"NLBSecurityGroupMode = Managed\n", nlb("web", map[string]string{annotationGroups: missing}, servicePort("http", 80, 30080))},
	} {
		w := startWorld(t, c.file, awssim.Options{})
		w.Apply(c.service)
		for range 2 {
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), w.cluster, w.Current(c.service), w.nodes) // does not wait
			require.ErrorContains(t, err, missing, name)
			assert.Contains(t, strings.Join(w.Events(), "\n"), eventConfigError, name)
		}
		assert.Zero(t, w.server.Calls().Writes, "%s: %v", name, w.server.Calls().ByOperation)
		_, err := w.PlanLoadBalancer(t.Context(), w.cluster, w.Current(c.service), w.nodes)
		require.ErrorContains(t, err, missing, name)
	}
}

// TestGroupOfAnotherClusterIsRefused: nodes let everything of a named security group in, so that no author of a Service opens them
// to another cluster's machines. A load balancer that has the group already keeps it.
func TestGroupOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := service("web", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.sim.ChangeGroup(extraGroup, func(g *awssim.Group) { g.Tags = awssim.Tags{"kubernetes.io/cluster/another": "owned"} })
	_, err := w.try(s)
	require.ErrorContains(t, err, "another cluster")
	assert.Empty(t, rules(w.group("nodes")))
	assert.Empty(t, w.sim.Classics())

	w.sim.ChangeGroup(extraGroup, func(g *awssim.Group) { g.Tags = awssim.Tags{"kubernetes.io/cluster/another": "shared"} })
	w.restart()
	w.ensure(s)
	w.sim.ChangeGroup(extraGroup, func(g *awssim.Group) { g.Tags = awssim.Tags{"kubernetes.io/cluster/another": "owned"} })
	w.restart()
	w.unchanged(s, "a load balancer that has the group, as after a takeover")
}

// TestTakeoverOfNamedGroups: AWS's own controller does not mark rules for groups chosen by users. They are found, not changed, and stay
// when the Service goes, with a finding: others may rely on them.
func TestTakeoverOfNamedGroups(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", "ElbSecurityGroup = " + extraGroup + "\n"} {
		w := startWorld(t, file, awssim.Options{})
		w.ownedGroup(mastersGroup, "masters", awssim.Rule{Protocol: "-1", Group: extraGroup})
		s := service("web", nil, servicePort("http", 80, 30080))
		if file == "" {
			s.Annotations[annotationGroups] = extraGroup
		}
		w.Apply(s)
		w.ensure(s)
		theirs := []awssim.Rule{{Protocol: "-1", Group: extraGroup}}
		w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = theirs })
		w.restart()
		w.unchanged(s, "what the other controller made")
		w.update(s)
		w.Events()
		require.NoError(t, w.remove(s))
		assert.Equal(t, theirs, w.group("nodes").Rules)
		assert.Len(t, w.group("masters").Rules, 1)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventRuleKept)
	}
}

// TestHealthFollowsRules: what the tests above rely on: the simulator's targets are healthy by the rules of their security groups.
func TestHealthFollowsRules(t *testing.T) {
	t.Parallel()
	for _, network := range []bool{false, true} {
		w := startWorld(t, "", awssim.Options{})
		s := service("web", nil, servicePort("http", 80, 30080))
		if network {
			s.Annotations[annotationType] = typeNLB
		}
		w.Apply(s)
		w.ensure(s)
		w.reached(s)
		w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = nil })
		assert.Len(t, w.sim.CutOff(loadBalancerName(s)), 1)
	}
	w := startWorld(t, "", awssim.Options{})
	many := []string{extraGroup}
	for range 5 {
		many = append(many, w.sim.AddGroup(awssim.Group{Name: fmt.Sprint("group-", len(many))}))
	}
	s := service("web", map[string]string{annotationGroups: strings.Join(many, ",")}, servicePort("http", 80, 30080))
	w.Apply(s)
	_, err := w.try(s)
	require.ErrorContains(t, err, "6 security groups, and the cloud takes at most 5")
}

// TestOpeningsComeFirst: nodes admit present health checks and clients until the next ones are admitted, also if the new rules are refused
// or do not fit into the group.
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
		assert.Empty(t, w.ports("0.0.0.0/0"), "former clients do not stay for want of room")
	}
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

// TestClosingIsTriedInEachGroup: a group that EC2 does not change when a Service goes keeps no other one open.
func TestClosingIsTriedInEachGroup(t *testing.T) {
	t.Parallel()
	for kind, s := range map[string]*v1.Service{
		"network": nlb("web", nil, servicePort("http", 80, 30080)), "classic": service("web", nil, servicePort("http", 80, 30080)),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.ownedGroup(gpuGroup, "fresh")
			w.addNode(awssim.Spec{Name: "n9", Groups: []string{gpuGroup}})
			w.Apply(s)
			w.restart()
			w.ensure(s)
			require.NotEmpty(t, rules(w.group("nodes")))
			require.NotEmpty(t, rules(w.group("fresh")))
			undo := w.fault(simkit.Fault{
				Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "EC2 RevokeSecurityGroupIngress", Names: awssim.NodeGroup,
			})
			require.Error(t, w.remove(s))
			assert.NotEmpty(t, rules(w.group("nodes")))
			assert.Empty(t, rules(w.group("fresh")))
			undo()
			require.NoError(t, w.remove(s))
			assert.Empty(t, slices.Concat(rules(w.group("nodes")), rules(w.group("fresh"))))
		})
	}
}

// TestAnotherGroupOnTheNodes: adding a group to nodes without a tagged group blocks nobody.
func TestAnotherGroupOnTheNodes(t *testing.T) {
	t.Parallel()
	for kind, s := range map[string]*v1.Service{
		"network": nlb("web", nil, servicePort("http", 80, 30080)), "classic": service("web", nil, servicePort("http", 80, 30080)),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Tags = nil })
			w.Apply(s)
			w.restart()
			w.ensure(s)
			before := rules(w.group("nodes"))
			require.NotEmpty(t, before)
			monitoring := w.sim.AddGroup(awssim.Group{Name: "monitoring"})
			for _, i := range w.sim.List() {
				w.sim.Edit(i.ID, func(i *awssim.Instance) { i.Interfaces[0].Groups = append(i.Interfaces[0].Groups, monitoring) })
			}
			w.restart()
			w.addNode(awssim.Spec{Name: "n2", Groups: []string{awssim.NodeGroup, monitoring}})
			w.update(s)
			w.ensure(s)
			assert.Equal(t, before, rules(w.group("nodes")))
			assert.Empty(t, rules(w.group("monitoring")))
			require.NoError(t, w.remove(s))
			assert.Empty(t, rules(w.group("nodes")))
		})
	}
}

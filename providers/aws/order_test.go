package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestGroupsInAnyOrder: AWS lists the security groups of a classic load balancer in any order, and nodes are opened to none but
// the one that stands for it.
func TestGroupsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := service("web", map[string]string{annotationExtraGroups: extraGroup}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	own := "-1 0-0 " + w.group(classicGroupName(loadBalancerName(s))).ID
	for i := range 8 { // one order in two would be the right one by chance
		w.restart()
		w.addNode(awssim.Spec{Name: fmt.Sprint("joiner-", i)})
		w.update(s)
		require.Equal(t, []string{own}, rules(w.group("nodes")), "not to everything of the extra group")
	}
	w.restart()
	require.NoError(t, w.remove(s))
	require.Empty(t, rules(w.group("nodes")))
}

// TestSharedGroupOfNodes: a load balancer may have the security group of the nodes themselves. The rule that was made for it
// goes with it; one that was there stays, because nodes may reach each other by it, and is told.
func TestSharedGroupOfNodes(t *testing.T) {
	t.Parallel()
	for _, byHand := range []bool{false, true} {
		w := startWorld(t, "", awssim.Options{})
		self := awssim.Rule{Protocol: "-1", Group: awssim.NodeGroup}
		if byHand {
			w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = []awssim.Rule{self} })
		}
		s := service("web", map[string]string{annotationGroups: awssim.NodeGroup}, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		w.unchanged(s, "a group that nodes and load balancer share")
		require.Len(t, w.group("nodes").Rules, 1)
		w.Events()
		require.NoError(t, w.remove(s))
		if !byHand {
			assert.Empty(t, rules(w.group("nodes")))
			continue
		}
		assert.Equal(t, []awssim.Rule{self}, w.group("nodes").Rules)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventRuleKept)
	}
}

// TestNamedGroupGoesByItself: the rule for a named group goes with the last load balancer that has it, also when the others
// are not in memory.
func TestNamedGroupGoesByItself(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	a := service("a", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30080))
	b := service("b", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30081))
	w.Apply(a, b)
	w.ensure(a)
	w.ensure(b)
	w.restart()
	require.NoError(t, w.remove(a))
	assert.Equal(t, []string{"-1 0-0 " + extraGroup + " " + descriptionSelf + "=" + loadBalancerName(a)}, rules(w.group("nodes")), "the other load balancer needs it")
	w.restart()
	require.NoError(t, w.remove(b))
	assert.Empty(t, rules(w.group("nodes")))
}

// TestTargetGroupsOutliveBalancers: a target group that still shows its deleted load balancer, and is refused for it, goes in
// the end, also when the program restarts in between; without its Service it is an orphan.
func TestTargetGroupsOutliveBalancers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		prepare := func() (*world, *v1.Service) {
			w := startVirtual(t, "", awssim.Options{Release: 2 * time.Second})
			s := nlb("web", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443))
			w.Apply(s)
			s = w.ensure(s)
			w.interruptedDeletion(s)
			require.Len(t, w.sim.TargetGroups(), 2)
			w.restart()
			return w, s
		}
		w, s := prepare()
		_, exists, err := w.loadBalancers.GetLoadBalancer(t.Context(), w.cluster, s)
		require.NoError(t, err)
		assert.True(t, exists, "the Service stays for as long as anything is left")
		assert.Eventually(t, func() bool { return w.remove(s) == nil && len(w.sim.TargetGroups()) == 0 }, 20*time.Second, 50*time.Millisecond)

		w, _ = prepare()
		found, err := w.Orphans(t.Context(), nil)
		require.NoError(t, err)
		targetGroups := 0
		for _, o := range found {
			if o.Kind == orphanTargetGroup {
				targetGroups++
			}
		}
		require.Equal(t, 2, targetGroups)
		assert.Eventually(t, func() bool {
			for _, o := range found {
				if w.DeleteOrphan(t.Context(), o) != nil {
					return false
				}
			}
			return len(w.sim.TargetGroups()) == 0
		}, 20*time.Second, 50*time.Millisecond)
		assert.Empty(t, rules(w.group("nodes")))
	})
}

// interruptedDeletion deletes a Service until its load balancer is gone, and no further.
func (w *world) interruptedDeletion(s *v1.Service) {
	ctx, cancel := context.WithCancel(w.T.Context())
	done := make(chan error, 1)
	go func() { done <- w.loadBalancers.EnsureLoadBalancerDeleted(ctx, w.cluster, s) }()
	require.Eventually(w.T, func() bool { return len(w.sim.Networks())+len(w.sim.Classics()) == 0 }, 10*time.Second, time.Millisecond)
	cancel()
	require.Error(w.T, <-done)
}

// TestOrphansAreLookedAtAgain: what people took over since it was found is left alone.
func TestOrphansAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	for _, s := range []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081))} {
		w.Apply(s)
		w.ensure(s)
	}
	found, err := w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, found, 3)
	w.sim.ChangeNetwork(w.sim.Networks()[0].Name, func(lb *awssim.LoadBalancer) { lb.Tags = awssim.Tags{} })
	w.sim.ChangeClassic(w.sim.Classics()[0].Name, func(lb *awssim.ClassicLB) { lb.Tags = awssim.Tags{"kubernetes.io/cluster/two": "owned"} })
	w.sim.ChangeGroup(w.group(classicGroupName(w.sim.Classics()[0].Name)).ID, func(g *awssim.Group) { g.Tags = awssim.Tags{} })
	for _, o := range found {
		require.ErrorIs(t, w.DeleteOrphan(t.Context(), o), errNotOrphan, o.Kind)
	}
	assert.Len(t, w.sim.Networks(), 1)
	assert.Len(t, w.sim.Classics(), 1)
}

// TestFittingTimeouts: a check of a network load balancer is over before the next one begins, whoever chooses its time-out.
func TestFittingTimeouts(t *testing.T) {
	t.Parallel()
	for interval, want := range map[string]int{"5": 4, "10": 9, "11": 10, "30": 10} {
		w := startWorld(t, "", awssim.Options{})
		s := nlb("web", map[string]string{annotationCheckInterval: interval}, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		assert.Equal(t, want, w.sim.TargetGroups()[0].Timeout, "interval %s", interval)
		w.unchanged(s, interval)
	}
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationCheckInterval] = "5" })
	w.ensure(s)
	assert.Equal(t, 4, w.sim.TargetGroups()[0].Timeout)
	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationCheckInterval] = "20" })
	w.ensure(s)
	assert.Equal(t, 4, w.sim.TargetGroups()[0].Timeout, "what fits stays")
	assert.Empty(t, w.server.Calls().Refused)

	s = nlb("slow", map[string]string{annotationCheckInterval: "10", annotationCheckTimeout: "10"}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.server.ResetCalls()
	_, err := w.try(s)
	require.ErrorContains(t, err, "not shorter than "+annotationCheckInterval+", which is 10")
	assert.Zero(t, w.server.Calls().Writes)
	assert.Contains(t, strings.Join(w.Events(), "\n"), eventConfigError)
}

// TestSubnetsOfTheSameZones: the subnets of a classic load balancer are replaced by others of the same zones, one zone after
// the other, because it never has two of a zone, nor none.
func TestSubnetsOfTheSameZones(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := service("web", map[string]string{annotationSubnets: "public-us-east-1a,public-us-east-1b,public-us-east-1c"}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	for _, names := range []string{"private-us-east-1a,private-us-east-1b,private-us-east-1c", "public-us-east-1b,private-us-east-1c", "private-us-east-1a,private-us-east-1b", "public-us-east-1c"} {
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationSubnets] = names })
		w.ensure(s)
		var have []string
		for _, n := range w.sim.Subnets() {
			if slices.Contains(w.sim.Classics()[0].Subnets, n.ID) {
				have = append(have, n.Tags["Name"])
			}
		}
		assert.ElementsMatch(t, strings.Split(names, ","), have)
		w.unchanged(s, names)
	}
	assert.Empty(t, w.server.Calls().Refused)

	s = w.change(s, func(s *v1.Service) { s.Annotations[annotationSubnets] = "private-us-east-1c" })
	w.Events()
	w.unchanged(s, "the only subnet stays")
	assert.Contains(t, strings.Join(w.Events(), "\n"), "does not replace the only subnet by another one of the same zone")
	assert.Empty(t, w.server.Calls().Refused)
}

// TestSubnetPlan is the table of the calls that replace subnets.
func TestSubnetPlan(t *testing.T) {
	t.Parallel()
	zones := map[string]string{"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}
	for _, c := range []struct{ have, want, steps string }{
		{"a1", "a1", ""},
		{"a1", "a2", ""},
		{"a1", "b1", "+b1 -a1"},
		{"a1", "a2,b1", "+b1 -a1 +a2"},
		{"a1,b1", "a2", "-a1 +a2 -b1"},
		{"a1,b1", "a2,b2", "-a1 +a2 -b1 +b2"},
		{"a1,b1", "c1", "+c1 -a1,b1"},
		{"a1,gone", "a2,c1", "+c1 -a1 +a2 -gone"},
	} {
		var steps []string
		lb := &elbtypes.LoadBalancerDescription{LoadBalancerName: aws.String("a1"), Subnets: strings.Split(c.have, ",")}
		for _, s := range classicSubnetSteps(lb, desiredClassic{subnets: strings.Split(c.want, ","), zones: zones}) {
			switch in := s.input.(type) {
			case *elb.AttachLoadBalancerToSubnetsInput:
				steps = append(steps, "+"+strings.Join(in.Subnets, ","))
			case *elb.DetachLoadBalancerFromSubnetsInput:
				steps = append(steps, "-"+strings.Join(in.Subnets, ","))
			}
		}
		assert.Equal(t, c.steps, strings.Join(steps, " "), "%s to %s", c.have, c.want)
	}
}

package aws

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

func ports(n int, first int32) []v1.ServicePort {
	list := make([]v1.ServicePort, n)
	for i := range list {
		list[i] = servicePort(fmt.Sprintf("p%d", i), 80+int32(i), first+int32(i))
	}
	return list
}

// TestLoadBalancersCost counts the calls of what happens most.
func TestLoadBalancersCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, loadBalancersCost) // what is read again after a minute does not count
}

func loadBalancersCost(t *testing.T) {
	w := startVirtual(t, "DisableSecurityGroupIngress = true\n", awssim.Options{})
	w.limits = unlimited
	w.restart()
	var all []*v1.Service
	for i := range 50 {
		s := nlb(fmt.Sprintf("s%d", i), nil, ports(5, int32(30000+10*i))...)
		w.Apply(s)
		all = append(all, s)
	}
	w.server.ResetCalls()
	for i, s := range all {
		all[i] = w.ensure(s)
	}
	t.Logf("50 NLBs with 5 ports each are made by %d writes and %d reads: %v", w.server.Calls().Writes, w.server.Calls().Reads, w.server.Calls().ByOperation)
	assert.Equal(t, 50*(1+3*5), w.server.Calls().Writes-w.server.Calls().ByOperation["ELBv2 ModifyLoadBalancerAttributes"])

	ensureAll := func() {
		w.server.ResetCalls()
		for _, s := range all {
			w.ensure(s)
		}
	}
	ensureAll() // the listeners that were made are read once
	ensureAll()
	assert.Zero(t, w.server.Calls().Writes)
	assert.LessOrEqual(t, w.server.Calls().Reads, 60, "%v", w.server.Calls().ByOperation)
	t.Logf("50 unchanged NLBs: %d reads", w.server.Calls().Reads)

	w.addNode(awssim.Spec{Name: "joiner"})
	w.server.ResetCalls()
	for _, s := range all {
		w.update(s)
	}
	calls := w.server.Calls()
	t.Logf("a node joins 50 NLBs with 5 ports each: %v", calls.ByOperation)
	assert.Equal(t, 250, calls.ByOperation["ELBv2 RegisterTargets"], "one for each target group")
	assert.Equal(t, 250, calls.Writes)
	assert.LessOrEqual(t, calls.Reads, 30)

	w.restart()
	ensureAll()
	assert.Zero(t, w.server.Calls().Writes)
	t.Logf("50 unchanged NLBs with 5 ports each after a restart: %v", w.server.Calls().ByOperation)
	assert.LessOrEqual(t, w.server.Calls().ByOperation["ELBv2 DescribeTags"], 4, "tags are read in batches")
	assert.LessOrEqual(t, w.server.Calls().Reads, 50*(2+5)+15)
	assert.Empty(t, w.server.Calls().Refused)
}

// TestUnchangedCost: one Service that is as it should be.
func TestUnchangedCost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service             *v1.Service
		warm, afterARestart int
	}{
		// After a restart: 2 and 1 for each port of its own, besides listings that all share.
		"network, 3 ports": {nlb("network", nil, ports(3, 30080)...), 0, 5},
		"classic, 3 ports": {service("classic", nil, ports(3, 30080)...), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.Apply(c.service)
			s := w.ensure(c.service)
			w.ensure(s)
			w.server.ResetCalls()
			w.ensure(s)
			assert.Equal(t, c.warm, w.server.Calls().Total)
			w.restart()
			w.server.ResetCalls()
			w.ensure(s)
			by := w.server.Calls().ByOperation
			own := by["ELBv2 DescribeListeners"] + by["ELBv2 DescribeLoadBalancerAttributes"] + by["ELBv2 DescribeTargetHealth"] + by["ELB DescribeLoadBalancerAttributes"]
			t.Logf("%s after a restart: %d reads of its own, %d in all: %v", name, own, w.server.Calls().Reads, by)
			assert.Equal(t, c.afterARestart, own)
			assert.LessOrEqual(t, w.server.Calls().Reads, own+10)
			assert.Zero(t, w.server.Calls().Writes)
		})
	}
}

// TestGoneNodesCostNothing: a Node whose instance is gone, or that runs on Fargate, makes no load balancer read the account
// again and again.
func TestGoneNodesCostNothing(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	gone := w.addNode(awssim.Spec{Name: "gone"})
	w.sim.Remove(instanceOf(gone))
	w.nodes = append(w.nodes, withID("f", "aws:///us-east-1a/x/fargate-10.0.0.7"))
	w.restart()
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	s = w.ensure(s)
	w.ensure(s)
	w.server.ResetCalls()
	for range 5 {
		w.ensure(s)
		w.update(s)
	}
	assert.Zero(t, w.server.Calls().Total, "%v", w.server.Calls().ByOperation)
	require.Len(t, w.sim.TargetGroups()[0].Targets, 1)
}

// TestUnknownGroupsAreNotOpened: several Services share the picture of security groups.
func TestNodeRulesCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, nodeRulesCost) // groups are read again after a minute, which a busy machine took in real time
}

func nodeRulesCost(t *testing.T) {
	w := startVirtual(t, "", awssim.Options{GroupRules: 1000})
	w.server.ResetCalls()
	for i := range 20 {
		s := nlb(fmt.Sprintf("s%d", i), nil, ports(3, int32(30000+10*i))...)
		w.Apply(s)
		w.ensure(s)
	}
	calls := w.server.Calls()
	assert.Equal(t, 1, calls.ByOperation["EC2 DescribeSecurityGroups"])
	assert.Equal(t, 20, calls.ByOperation["EC2 AuthorizeSecurityGroupIngress"], "all rules of a Service by one call")
}

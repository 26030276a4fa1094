package main

import (
	"context"
	"fmt"
	"regexp"

	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

// probe finds out whether moto lacks something of AWS: shows is how that was seen, or empty where moto has it.
type probe struct {
	what, effect string
	try          func(ctx context.Context, m *moto) (shows string, err error)
}

// probes are asked of every version, so that nothing is said of one that was not seen.
func probes(vpc, subnet string) []probe {
	return []probe{
		{
			"the network topology of instances", "labels of the network topology",
			func(ctx context.Context, m *moto) (string, error) {
				_, err := m.ask(ctx, ec2Service, "DescribeInstanceTopology")
				return answered(err), nil
			},
		},
		{
			"credentials that are refused", "credentials that are wrong, expired or lack a permission",
			func(ctx context.Context, m *moto) (string, error) {
				_, err := m.ask(ctx, ec2Service, "DescribeVpcs") // signed by nobody
				return reportTaken("a request without a signature", err)
			},
		},
		{
			"time that load balancers take to be provisioned, and answers that lag", "waiting for a network load balancer, and for what a read does not show yet",
			func(ctx context.Context, m *moto) (string, error) { return m.probeActive(ctx, subnet) },
		},
		{
			"security groups that are in use, and values out of range, which AWS refuses",
			"waiting until a deleted load balancer lets its security group go; limits of values",
			func(ctx context.Context, m *moto) (string, error) { return m.probeInUse(ctx, vpc, subnet) },
		},
	}
}

var status = regexp.MustCompile(`HTTP \d+`)

// answered is how a refusal shows; empty for none.
func answered(err error) string {
	if err == nil {
		return ""
	}
	return "it answers with " + status.FindString(err.Error())
}

// reportTaken reports that a call succeeded which AWS refuses.
func reportTaken(what string, err error) (string, error) {
	if err != nil {
		return "", nil //nolint:nilerr // the refusal is what AWS does as well
	}
	return what + " is taken", nil
}

// probeActive makes a network load balancer and looks at it at once.
func (m *moto) probeActive(ctx context.Context, subnet string) (string, error) {
	arn, err := m.firstText(ctx, "member/LoadBalancerArn", elb2Service, "CreateLoadBalancer", "Name", "probe", "Type", "network", "Subnets.member.1", subnet)
	if err != nil {
		return "", err
	}
	state, err := m.firstText(ctx, "State/Code", elb2Service, "DescribeLoadBalancers", "LoadBalancerArns.member.1", arn)
	if err != nil {
		return "", err
	}
	if _, err := m.ask(ctx, elb2Service, "DeleteLoadBalancer", "LoadBalancerArn", arn); err != nil {
		return "", err
	}
	if state != "active" {
		return "", nil
	}
	return "the first read after its creation shows a network load balancer, and that it is active", nil
}

// probeInUse deletes the security group of a classic load balancer, and sets a health check that AWS refuses.
func (m *moto) probeInUse(ctx context.Context, vpc, subnet string) (string, error) {
	group, err := m.firstText(ctx, "groupId", ec2Service, "CreateSecurityGroup", "GroupName", "probe", "GroupDescription", "probe", "VpcId", vpc)
	if err != nil {
		return "", err
	}
	if _, err := m.ask(ctx, elbService, "CreateLoadBalancer", "LoadBalancerName", "probe", "Subnets.member.1", subnet, "SecurityGroups.member.1", group,
		"Listeners.member.1.Protocol", "TCP", "Listeners.member.1.LoadBalancerPort", "80", "Listeners.member.1.InstancePort", "30080"); err != nil {
		return "", err
	}
	_, inUse := m.ask(ctx, ec2Service, "DeleteSecurityGroup", "GroupId", group)
	_, outOfRange := m.ask(ctx, elbService, "ConfigureHealthCheck", "LoadBalancerName", "probe", "HealthCheck.Target", "TCP:30080",
		"HealthCheck.Interval", "1", "HealthCheck.Timeout", "200", "HealthCheck.UnhealthyThreshold", "99", "HealthCheck.HealthyThreshold", "99")
	if _, err := m.ask(ctx, elbService, "DeleteLoadBalancer", "LoadBalancerName", "probe"); err != nil {
		return "", err
	}
	if inUse != nil || outOfRange != nil {
		return "", nil //nolint:nilerr // the refusals are what AWS does as well
	}
	return "the deletion of such a group and a health check with a time-out of 200 s every second are taken", nil
}

// lacks asks all probes.
func (m *moto) lacks(ctx context.Context, vpc, subnet string) ([]results.Lack, error) {
	var all []results.Lack
	for _, p := range probes(vpc, subnet) {
		shows, err := p.try(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("finding out whether moto has %s: %w", p.what, err)
		}
		if shows != "" {
			all = append(all, results.Lack{What: p.what, Shows: shows, Effect: p.effect})
		}
	}
	return append(all, results.Lack{
		What: "machines behind its load balancers", Shows: "its addresses resolve to nothing", Effect: "traffic through a load balancer",
	}), nil
}

package aws

import "github.com/anyccm/cloud-controller-manager/providers/kit/conformance"

// plannedWrites are the writes that each kind of planned change makes.
var plannedWrites = []conformance.PlannedWrites{
	{Change: `create security group .*\(`, Writes: []string{"EC2 CreateSecurityGroup", "EC2 AuthorizeSecurityGroupIngress"}},
	{Change: `change security group (\S+) .*\(rules: 0 more`, Writes: []string{"EC2 RevokeSecurityGroupIngress"}},
	{Change: `change security group (\S+) .*, 0 less\)`, Writes: []string{"EC2 AuthorizeSecurityGroupIngress"}},
	{Change: `change security group (\S+)`, Writes: []string{"EC2 AuthorizeSecurityGroupIngress", "EC2 RevokeSecurityGroupIngress"}},
	{
		Change: `delete security group (\S+)`,
		Writes: []string{"EC2 DeleteSecurityGroup"},
		Beside: []conformance.Beside{
			{Write: "EC2 RevokeSecurityGroupIngress", Of: "securityGroup nodes $1", Most: 1},
		},
		Because: "the rules of other groups that name it go first",
	},
	{
		Change: `create classic load balancer (\S+) \((?:internet-facing|internal),`,
		Writes: []string{"ELB CreateLoadBalancer", "ELB ConfigureHealthCheck", "ELB RegisterInstancesWithLoadBalancer"},
	},
	{Change: `change classic load balancer (\S+) \(creating listeners`, Writes: []string{"ELB CreateLoadBalancerListeners"}},
	{Change: `change classic load balancer (\S+) \(registering instances`, Writes: []string{"ELB RegisterInstancesWithLoadBalancer"}},
	{Change: `change classic load balancer (\S+) \(attaching subnets`, Writes: []string{"ELB AttachLoadBalancerToSubnets"}},
	{Change: `change classic load balancer (\S+) \(adding tags`, Writes: []string{"ELB AddTags"}},
	{Change: `change classic load balancer (\S+) \(creating the policy`, Writes: []string{"ELB CreateLoadBalancerPolicy"}},
	{
		Change: `change classic load balancer (\S+) \(setting security groups`,
		Writes: []string{"ELB ApplySecurityGroupsToLoadBalancer"},
	},
	{Change: `change classic load balancer (\S+) \(setting the health check`, Writes: []string{"ELB ConfigureHealthCheck"}},
	{
		Change: `change classic load balancer (\S+) \(setting the policy of TLS`,
		Writes: []string{"ELB SetLoadBalancerPoliciesOfListener"},
	},
	{Change: `change classic load balancer (\S+) \(changing attributes`, Writes: []string{"ELB ModifyLoadBalancerAttributes"}},
	{
		Change: `change classic load balancer (\S+) \(switching .* the PROXY protocol`,
		Writes: []string{"ELB SetLoadBalancerPoliciesForBackendServer"},
	},
	{Change: `change classic load balancer (\S+) \(deleting listeners`, Writes: []string{"ELB DeleteLoadBalancerListeners"}},
	{Change: `change classic load balancer (\S+) \(deregistering`, Writes: []string{"ELB DeregisterInstancesFromLoadBalancer"}},
	{Change: `change classic load balancer (\S+) \(detaching subnets`, Writes: []string{"ELB DetachLoadBalancerFromSubnets"}},
	{
		Change: `create network load balancer (\S+) \((?:internet-facing|internal),`,
		Writes: []string{"ELBv2 CreateLoadBalancer"},
		Beside: []conformance.Beside{
			{Write: "EC2 AuthorizeSecurityGroupIngress", Of: "securityGroup nodes", Most: 1},
		},
		Because: "which rules the nodes' groups need follows from the group of the load balancer, which is made first",
	},
	{Change: "create listener", Writes: []string{"ELBv2 CreateTargetGroup", "ELBv2 RegisterTargets", "ELBv2 CreateListener"}},
	{Change: `change network load balancer \S+ \(creating target group (\S+)\)`, Writes: []string{"ELBv2 CreateTargetGroup"}},
	{Change: `change network load balancer \S+ \(registering targets`, Writes: []string{"ELBv2 RegisterTargets"}},
	{Change: `change network load balancer \S+ \(creating the listener of port (\d+)`, Writes: []string{"ELBv2 CreateListener"}},
	{Change: `change network load balancer \S+ \(changing the listener of port (\d+)`, Writes: []string{"ELBv2 ModifyListener"}},
	{
		Change: `change network load balancer \S+ \(changing attributes of target group`,
		Writes: []string{"ELBv2 ModifyTargetGroupAttributes"},
	},
	{Change: `change network load balancer \S+ \(changing attributes`, Writes: []string{"ELBv2 ModifyLoadBalancerAttributes"}},
	{
		Change: `change network load balancer \S+ \(changing the health check of target group`,
		Writes: []string{"ELBv2 ModifyTargetGroup"},
	},
	{Change: `change network load balancer \S+ \(setting security groups`, Writes: []string{"ELBv2 SetSecurityGroups"}},
	{Change: `change network load balancer \S+ \(deleting the listener`, Writes: []string{"ELBv2 DeleteListener"}},
	{Change: `change network load balancer \S+ \(deleting target group`, Writes: []string{"ELBv2 DeleteTargetGroup"}},
	{Change: `change network load balancer \S+ \(deregistering`, Writes: []string{"ELBv2 DeregisterTargets"}},
}

// readAgain are the reasons for which a read is made again within a step.
var readAgain = []conformance.ReadAgain{
	{Reads: "ELB DescribeLoadBalancers", After: "ELB CreateLoadBalancer", Because: "the answer to a creation has the name alone"},
	{
		Reads:   "ELB DescribeLoadBalancerAttributes",
		After:   "ELB ModifyLoadBalancerAttributes",
		Because: "attributes are compared with what the cloud made of them",
	},
	{Reads: "ELB DescribeTags", After: "ELB AddTags", Because: "tags are compared with what the cloud made of them"},
}

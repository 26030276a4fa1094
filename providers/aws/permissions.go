package aws

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	prefixEC2 = "ec2:"
	prefixELB = "elasticloadbalancing:"
)

// permissions are the actions of IAM that the credential must be allowed: those of the calls in this package, and those
// that AWS checks besides them. A test holds them against the calls.
func permissions() []registry.Permission {
	with := func(prefix string, names ...string) []string {
		for i := range names {
			names[i] = prefix + names[i]
		}
		return names
	}
	return []registry.Permission{
		{For: "start and nodes", Needs: with(prefixEC2, "DescribeInstances", "DescribeAvailabilityZones")},
		{For: "network topology of nodes", Needs: with(prefixEC2, "DescribeInstanceTopology"), Only: "labels of the network topology are wanted"},
		{For: "nodes on Fargate", Needs: with(prefixEC2, "DescribeNetworkInterfaces"), Only: "the cluster has such nodes"},
		{
			For: "subnets and security groups of load balancers",
			Needs: with(
				prefixEC2, "DescribeSubnets", "DescribeRouteTables", "DescribeSecurityGroups", "CreateSecurityGroup", "DeleteSecurityGroup", "AuthorizeSecurityGroupIngress",
				"RevokeSecurityGroupIngress", "CreateTags",
			),
		},
		{
			For: "classic load balancers", Needs: with(prefixELB, "DescribeLoadBalancers", "DescribeTags", "CreateLoadBalancer",
				"DeleteLoadBalancer", "AddTags", "DescribeLoadBalancerAttributes", "ModifyLoadBalancerAttributes",
				"RegisterInstancesWithLoadBalancer", "DeregisterInstancesFromLoadBalancer", "CreateLoadBalancerListeners", "DeleteLoadBalancerListeners", "ConfigureHealthCheck",
				"ApplySecurityGroupsToLoadBalancer",
				"AttachLoadBalancerToSubnets", "DetachLoadBalancerFromSubnets", "CreateLoadBalancerPolicy", "SetLoadBalancerPoliciesForBackendServer", "SetLoadBalancerPoliciesOfListener"),
			Beyond: with(prefixELB, "DescribeTags"), Without: "load balancers are told by their names, which carry the UID of the Service; tags by annotation are given again after a restart",
		},
		{
			For: "network load balancers", Needs: with(prefixELB, "DescribeLoadBalancers", "DescribeTags", "CreateLoadBalancer",
				"DeleteLoadBalancer", "AddTags", "DescribeLoadBalancerAttributes", "ModifyLoadBalancerAttributes",
				"SetSecurityGroups", "SetSubnets", "DescribeTargetGroups", "CreateTargetGroup", "ModifyTargetGroup", "DeleteTargetGroup", "DescribeTargetGroupAttributes",
				"ModifyTargetGroupAttributes",
				"DescribeTargetHealth", "RegisterTargets", "DeregisterTargets", "DescribeListeners", "CreateListener", "ModifyListener", "DeleteListener"),
			Beyond: with(prefixELB, "DescribeTags", "SetSubnets"), Without: "as above; subnets that an annotation names later are not added",
		},
		{For: "the first load balancer of an account", Needs: []string{"iam:CreateServiceLinkedRole"}, Only: "the role AWSServiceRoleForElasticLoadBalancing does not exist yet"},
		{
			For:    "routes",
			Needs:  with(prefixEC2, "DescribeRouteTables", "CreateRoute", "ReplaceRoute", "DeleteRoute", "ModifyInstanceAttribute", "ModifyNetworkInterfaceAttribute"),
			Only:   "routes.clusterCIDR is set",
			Beyond: with(prefixEC2, "ReplaceRoute", "ModifyNetworkInterfaceAttribute"), Without: "a route that leads elsewhere is deleted and made again; nodes with several interfaces get no route",
		},
		{For: "tags of instances", Needs: with(prefixEC2, "CreateTags", "DeleteTags"), Only: "the controller tagging runs"},
		{For: "a role", Needs: []string{"sts:AssumeRole"}, Only: "RoleARN is set"},
	}
}

// policyActions are the actions of the policy on the page, which leaves out what not every cluster needs.
func policyActions() []string {
	var actions []string
	for _, p := range permissions() {
		if p.Only == "" || p.For == "network topology of nodes" {
			actions = append(actions, p.Needs...)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// policyDocument is the policy of IAM for nodes and load balancers. What reads must be allowed everywhere, for AWS knows no
// narrower form of it; what writes is allowed within one region.
func policyDocument() string {
	var reads, writes []string
	for _, a := range policyActions() {
		if _, name, _ := strings.Cut(a, ":"); strings.HasPrefix(name, "Describe") {
			reads = append(reads, a)
		} else {
			writes = append(writes, a)
		}
	}
	type statement struct {
		Sid, Effect string
		Action      []string
		Resource    string
		Condition   map[string]map[string]string `json:",omitempty"`
	}
	text, err := json.MarshalIndent(map[string]any{"Version": "2012-10-17", "Statement": []statement{
		{"Read", "Allow", reads, "*", nil},
		{"Change", "Allow", writes, "*", map[string]map[string]string{"StringEquals": {"aws:RequestedRegion": "REGION"}}},
	}}, "", "  ")
	if err != nil {
		panic(err) // texts can be encoded
	}
	return "```json\n" + string(text) + "\n```\n"
}

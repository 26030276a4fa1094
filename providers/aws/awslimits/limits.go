// Package awslimits lists the limits of AWS that this program or its simulator knows.
package awslimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	balancingModel = "AWS's model of Elastic Load Balancing v2"
	balancingPage  = "AWS: Elastic Load Balancing quotas"
	groupsPage     = "AWS: Amazon VPC quotas, security groups"
	tagsPage       = "AWS: Tag your Amazon EC2 resources, tag restrictions"
	refused        = "refused"
	resource       = "a resource"
	raise          = "have the quota raised, or delete what nobody needs"
)

// ClassicIdle is the longest idle time-out of a classic load balancer, in seconds. So AWS's user guide says (Configure the idle connection
// timeout); its API reference and the model of its SDKs say 3,600. A Service that has the larger one may be served already.
const ClassicIdle = 4000

// Rows that are asked by name.
var (
	Tags = limits.Limit{
		What: "tags", Within: resource, Path: "Tags", Max: 50, Unit: limits.Objects,
		Source: tagsPage, Program: refused, Advice: "ask for fewer tags",
	}
	TagKey = limits.Limit{
		What: "the key of a tag", Path: "Tags[].Key", Max: 128, Unit: limits.Characters,
		Source: tagsPage, Program: refused,
	}
	TagValue = limits.Limit{
		What: "the value of a tag", Path: "Tags[].Value", Max: 256, Unit: limits.Characters,
		Source: tagsPage, Program: refused,
	}
	CheckPath = limits.Limit{
		What: "the path of a health check", Path: "HealthCheckPath", Max: 1024, Unit: limits.Characters,
		Source: balancingModel, Program: refused,
	}
	// AttributeValue is that of network load balancers; the prefix of access logs is the only one that is a text of the user's.
	AttributeValue = limits.Limit{
		What: "the value of an attribute", Max: 1024, Unit: limits.Characters, Source: balancingModel, Program: refused,
	}
	ClassicGroups = limits.Limit{
		What: "security groups", Within: "a classic load balancer", Path: "SecurityGroups", Operation: "ELB ", Max: 5, Unit: limits.Objects,
		Source: balancingPage,
		Soft:   true, Advice: "name fewer groups",
	}
	Listeners = limits.Limit{
		What: "listeners", Within: "a network load balancer", Max: 50, Unit: limits.Objects,
		Source: balancingPage, Soft: true, Program: "is tried, and a warning says so", Advice: "give the Service fewer ports",
	}
	Targets = limits.Limit{
		What: "targets", Within: "a network load balancer in a zone", Max: 500, Unit: limits.Objects, Source: balancingPage, Soft: true,
		Advice: "choose nodes by the annotation target-node-labels",
	}
	NetworkLoadBalancers = limits.Limit{
		What: "network load balancers", Within: "a region", Max: 50, Unit: limits.Objects,
		Source: balancingPage, Soft: true, Advice: raise,
	}
	TargetGroups = limits.Limit{
		What: "target groups", Within: "a region", Max: 3000, Unit: limits.Objects,
		Source: balancingPage, Soft: true, Advice: raise,
	}
	Groups = limits.Limit{
		What: "security groups", Within: "a region", Max: 2500, Unit: limits.Objects,
		Source: groupsPage, Soft: true, Advice: raise,
	}
	GroupRules = limits.Limit{
		What: "rules without a raised quota", Within: "a security group", Max: 60, Unit: limits.Objects, Source: groupsPage, Soft: true,
		Advice: "use fewer and larger networks, or have the quota raised",
	}
	GroupRulesEver = limits.Limit{
		What: "rules whatever the quota", Within: "a security group", Max: 1000, Unit: limits.Objects, Source: groupsPage, Program: refused,
		Advice: "use fewer and larger networks",
	}
)

// Table lists all limits.
var Table = limits.Table{
	Tags, TagKey, TagValue,
	{What: "tags of EC2", Within: resource, Path: "*Tag", Max: 50, Unit: limits.Objects, Source: tagsPage, Program: refused},
	{What: "the key of a tag of EC2", Path: "*Tag[].Key", Max: 128, Unit: limits.Characters, Source: tagsPage, Program: refused},
	{What: "the value of a tag of EC2", Path: "*Tag[].Value", Max: 256, Unit: limits.Characters, Source: tagsPage, Program: refused},
	{
		What: "the name of a security group", Path: "GroupName", Max: 255, Unit: limits.Characters,
		Source: "AWS: EC2 API reference, CreateSecurityGroup", Program: limits.Below,
	},
	{
		What: "the description of a security group", Path: "GroupDescription", Max: 255, Unit: limits.Characters,
		Source: "AWS: EC2 API reference, CreateSecurityGroup", Program: limits.Below,
	},
	{
		What: "the name of a load balancer or target group", Operation: "ELBv2 Create", Path: "Name", Max: 32, Unit: limits.Characters,
		Source: balancingModel, Program: "is cut",
	},
	CheckPath, AttributeValue,
	{
		What: "attributes", Within: "a call", Operation: "ELBv2 Modify", Path: "Attributes", Max: 20, Unit: limits.Items,
		Source: balancingModel, Program: limits.Below,
	},
	ClassicGroups, Listeners, Targets, NetworkLoadBalancers, TargetGroups, Groups, GroupRules, GroupRulesEver,
}

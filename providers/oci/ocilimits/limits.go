// Package ocilimits lists the limits of Oracle Cloud that this program or its simulator knows.
package ocilimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	balancing   = "Oracle Cloud: Load Balancing API reference"
	network     = "Oracle Cloud: Network Load Balancing API reference"
	core        = "Oracle Cloud: Core Services API reference"
	quotas      = "Oracle Cloud: Limits by service"
	tagging     = "Oracle Cloud: Tagging Overview, Limits on Tags"
	cut         = "is cut"
	refused     = "refused"
	tried       = "is tried, and a warning says so"
	lists       = "/securityLists"
	balancers   = "/loadBalancers"
	networks    = "/networkLoadBalancers"
	oneBalancer = "a load balancer"
	fewerRules  = "use fewer and larger networks, or name another security list for the subnet"
	fewerPorts  = "give the Service fewer ports, or share them between several Services"
)

// Rows that are asked by name.
var (
	Title = limits.Limit{
		What: "the display name of a load balancer", Operation: "oadBalancers", Path: "displayName", Max: 1024, Unit: limits.Characters,
		Source: balancing, Program: cut,
	}
	GroupName = limits.Limit{
		What: "the display name of a network security group", Operation: "/networkSecurityGroups", Path: "displayName", Max: 255, Unit: limits.Characters,
		Source: core, Program: cut,
	}
	FreeformTags = limits.Limit{
		What: "free-form tags", Within: "a resource", Path: "freeformTags{}", Max: 10, Unit: limits.Items, Source: tagging, Program: refused,
		Advice: "ask for fewer",
	}
	TagKey = limits.Limit{
		What: "the key of a free-form tag", Path: "freeformTags{}", Max: 100, Unit: limits.Characters, Source: tagging, Program: refused,
	}
	TagValue = limits.Limit{
		What: "the value of a free-form tag", Path: "freeformTags.*", Max: 256, Unit: limits.Characters, Source: tagging, Program: refused,
	}
	RuleDescription = limits.Limit{
		What: "the description of a rule", Path: "*ules[].description", Max: 255, Unit: limits.Characters, Source: core, Program: "the mark is left out",
	}
	Listeners = limits.Limit{
		What: "listeners", Within: oneBalancer, Operation: " " + balancers, Path: "listeners{}", Max: 16, Unit: limits.Objects,
		Source: quotas, Soft: true, Program: tried,
		Advice: fewerPorts,
	}
	BackendSets = limits.Limit{
		What: "backend sets", Within: oneBalancer, Operation: " " + balancers, Path: "backendSets{}", Max: 16, Unit: limits.Objects,
		Source: quotas, Soft: true, Program: tried,
		Advice: fewerPorts,
	}
	// Backends are those of all backend sets.
	Backends = limits.Limit{
		What: "backends", Within: oneBalancer, Max: 1024, Unit: limits.Objects, Source: quotas, Soft: true, Program: limits.Explained,
		Advice: "each port of the Service has each node; give the Service fewer ports, or choose its nodes",
	}
	SetBackends = limits.Limit{
		What: "backends", Within: "a backend set", Operation: "oadBalancers", Path: "*backends", Max: 512, Unit: limits.Items, Source: quotas,
		Program: "the others receive no traffic, which an event tells",
	}
	RuleSetItems = limits.Limit{
		What: "rules", Within: "a rule set", Operation: " " + balancers, Path: "*items", Max: 50, Unit: limits.Items, Source: balancing,
		Program: refused, Advice: "use several rule sets",
	}
	RuleSetName = limits.Limit{
		What: "the name of a rule set", Operation: " " + balancers, Path: "ruleSets{}", Max: 32, Unit: limits.Characters, Source: balancing,
		Program: refused,
	}
	NetworkListeners = limits.Limit{
		What: "listeners", Within: "a network load balancer", Operation: networks, Path: "listeners{}", Max: 50, Unit: limits.Objects,
		Source: quotas, Soft: true, Program: tried,
		Advice: fewerPorts,
	}
	GroupRules = limits.Limit{
		What: "rules", Within: "a network security group", Max: 120, Unit: limits.Objects,
		Source: quotas, Advice: "use fewer and larger networks",
	}
	RulesAtOnce = limits.Limit{
		What: "rules", Within: "a call", Operation: "/networkSecurityGroups", Path: "securityRules", Max: 25, Unit: limits.Items,
		Source: core, Program: "are sent in several calls",
	}
	Groups = limits.Limit{
		What: "network security groups", Within: oneBalancer, Path: "networkSecurityGroupIds", Max: 5, Unit: limits.Items, Source: quotas,
		Program: refused,
	}
	ListName = limits.Limit{
		What: "the display name of a security list", Operation: lists, Path: "displayName", Max: 255, Unit: limits.Characters,
		Source: core, Program: limits.Below,
	}
	IngressRules = limits.Limit{
		What: "ingress rules", Within: "a security list", Operation: lists, Path: "ingressSecurityRules", Max: 200, Unit: limits.Items,
		Source: quotas, Program: refused, Advice: fewerRules,
	}
	EgressRules = limits.Limit{
		What: "egress rules", Within: "a security list", Operation: lists, Path: "egressSecurityRules", Max: 200, Unit: limits.Items,
		Source: quotas, Program: refused, Advice: fewerRules,
	}
)

// Table lists all limits.
var Table = limits.Table{
	Title, GroupName, FreeformTags, TagKey, TagValue, RuleDescription, Listeners, BackendSets, Backends, NetworkListeners,
	GroupRules, RulesAtOnce, Groups, IngressRules, EgressRules, SetBackends,
	{
		What: "rules", Within: "a call that removes them", Operation: "/networkSecurityGroups", Path: "securityRuleIds", Max: 25, Unit: limits.Items,
		Source: core, Program: "are removed in several calls",
	},
	RuleSetItems,
	{
		What: "subnets", Within: oneBalancer, Operation: " " + balancers, Path: "subnetIds", Max: 2, Unit: limits.Items,
		Source: balancing, Program: limits.Below,
	},
	ListName,
	{
		What: "the name of a listener", Operation: " " + balancers, Path: "listeners{}", Max: 255, Unit: limits.Characters,
		Source: balancing, Program: limits.Below,
	},
	{
		What: "the name of an added listener", Operation: balancers + "/{id}/listeners", Path: "name",
		Max: 255, Unit: limits.Characters, Source: balancing, Program: limits.Below,
	},
	{
		What: "the name of a backend set", Operation: " " + balancers, Path: "backendSets{}",
		Max: 32, Unit: limits.Characters, Source: balancing, Program: limits.Below,
	},
	{
		What: "the name of an added backend set", Operation: balancers + "/{id}/backendSets", Path: "name",
		Max: 32, Unit: limits.Characters, Source: balancing, Program: limits.Below,
	},
	RuleSetName,
	{
		What: "the name of an added rule set", Operation: balancers + "/{id}/ruleSets", Path: "name",
		Max: 32, Unit: limits.Characters, Source: balancing, Program: refused,
	},
	{
		What: "the name of a part of a network load balancer", Operation: networks + "/{id}/", Path: "name",
		Max: 32, Unit: limits.Characters, Source: network, Program: limits.Below,
	},
	{
		What: "the name of a listener of a network load balancer", Operation: networks, Path: "listeners{}",
		Max: 32, Unit: limits.Characters, Source: network, Program: limits.Below,
	},
	{
		What: "the name of a backend set of a network load balancer", Operation: networks, Path: "backendSets{}",
		Max: 32, Unit: limits.Characters, Source: network, Program: limits.Below,
	},
}

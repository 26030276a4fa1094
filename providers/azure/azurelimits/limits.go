// Package azurelimits lists the limits of Azure that this program or its simulator knows.
package azurelimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	namesPage     = "Azure: Naming rules and restrictions for Azure resources, Microsoft.Network"
	tagsPage      = "Azure: Use tags to organize your Azure resources, Limitations"
	networkLimits = "Azure: Azure subscription and service limits, Networking limits"
	refused       = "refused"
)

// Rows that are asked by name.
var (
	Name = limits.Limit{
		What: "a name", Path: "*[].name", Max: 80, Unit: limits.Characters, Source: namesPage, Program: refused,
		Advice: "shorten --cluster-name, or what the cloud config calls load balancers",
	}
	Tags = limits.Limit{
		What: "tags", Within: "a resource", Path: "tags{}", Max: 50, Unit: limits.Items, Source: tagsPage, Program: refused,
		Advice: "ask for fewer by annotation or in the cloud config, or remove some by hand",
	}
	TagName  = limits.Limit{What: "the name of a tag", Path: "tags{}", Max: 512, Unit: limits.Characters, Source: tagsPage, Program: refused}
	TagValue = limits.Limit{What: "the value of a tag", Path: "tags.*", Max: 256, Unit: limits.Characters, Source: tagsPage, Program: refused}

	SecurityRules = limits.Limit{
		What: "rules", Within: "a network security group", Operation: securityGroups, Path: "properties.securityRules", Max: 1000, Unit: limits.Items,
		Source: networkLimits, Program: refused, Advice: sourceAdvice,
	}
	Sources = limits.Limit{
		What: "source addresses", Within: "a network security group", Max: 4000, Unit: limits.Objects, Source: networkLimits, Program: refused,
		Advice: sourceAdvice,
	}
	Destinations = limits.Limit{
		What: "destination addresses", Within: "a network security group", Max: 4000, Unit: limits.Objects, Source: networkLimits, Program: refused,
		Advice: sourceAdvice,
	}
	RuleDescription = limits.Limit{
		What: "the description of a rule", Path: "*securityRules[].properties.description", Max: 140, Unit: limits.Characters,
		Source: "Azure: REST API of network security groups, SecurityRulePropertiesFormat", Program: "is packed",
	}
	Routes = limits.Limit{
		What: "routes", Within: "a route table", Operation: "routeTables", Path: "properties.routes", Max: 400, Unit: limits.Items, Source: networkLimits,
		Soft: true, Program: limits.Explained, Advice: "have the limit raised, or use a network plugin that needs no routes",
	}
	BalancerRules = limits.Limit{
		What: "rules", Within: "a load balancer", Operation: loadBalancers, Path: "properties.loadBalancingRules", Max: 1500, Unit: limits.Items,
		Source: networkLimits, Program: refused, Advice: balancerAdvice,
	}
	Frontends = limits.Limit{
		What: "frontends", Within: "a load balancer", Operation: loadBalancers, Path: "properties.frontendIPConfigurations", Max: 600, Unit: limits.Items,
		Source: networkLimits, Program: refused, Advice: balancerAdvice,
	}
	PoolAddresses = limits.Limit{
		What: "addresses", Within: "a backend pool", Path: "*loadBalancerBackendAddresses", Max: 5000, Unit: limits.Items, Source: networkLimits,
		Program: "the others receive no traffic, which an event tells",
	}
	LinkAddresses = limits.Limit{
		What: "addresses", Within: "a private link service", Operation: "privateLinkServices", Path: "properties.ipConfigurations", Max: 8,
		Unit: limits.Items, Source: "Azure: What is Azure Private Link service, Limitations", Program: refused,
	}
)

const (
	securityGroups = "networkSecurityGroups"
	loadBalancers  = "loadBalancers"
	balancerAdvice = "use several load balancers, or give Services fewer ports"
	sourceAdvice   = "use fewer and larger networks, or another security group for a part of the Services"
)

// Table lists all limits.
var Table = limits.Table{
	Name, Tags, TagName, TagValue, SecurityRules, Sources, Destinations, RuleDescription, LinkAddresses, Routes, BalancerRules, Frontends,
	PoolAddresses,
}

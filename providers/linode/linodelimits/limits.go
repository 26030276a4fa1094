// Package linodelimits lists the limits of Linode that this program or its simulator knows.
package linodelimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	api      = "Linode's API reference"
	firewall = "/firewalls"
	balancer = "/nodebalancers"
	cut      = "is cut"
	refused  = "refused"
)

// Rows that are asked by name.
var (
	NodeLabel = limits.Limit{
		What: "the label of a node", Operation: balancer, Path: "*nodes[].label", Max: 32, Unit: limits.Characters, Source: api, Program: cut,
	}
	Tag = limits.Limit{What: "a tag", Path: "tags[]", Max: 50, Unit: limits.Characters, Source: api, Program: refused}
	// FirewallRules are those of both directions.
	FirewallRules = limits.Limit{
		What: "rules", Within: "a firewall", Max: 25, Unit: limits.Objects, Source: api, Program: refused, Advice: "use fewer ports, or fewer and larger networks",
	}
	RuleAddresses = limits.Limit{
		What: "networks", Within: "a rule of a firewall", Max: 255, Unit: limits.Objects, Source: api, Program: "are spread over several rules",
	}
	RulePorts = limits.Limit{
		What: "ports", Within: "a rule of a firewall", Max: 15, Unit: limits.Objects, Source: api, Program: "are spread over several rules",
	}
	RuleLabel = limits.Limit{
		What: "the label of a rule", Operation: firewall, Path: "*bound[].label", Max: 32, Unit: limits.Characters, Source: api, Program: cut,
	}
	RuleDescription = limits.Limit{
		What: "the description of a rule", Operation: firewall, Path: "*bound[].description", Max: 100, Unit: limits.Characters, Source: api, Program: cut,
	}
)

// Table lists all limits.
var Table = limits.Table{
	NodeLabel, Tag, FirewallRules, RuleAddresses, RulePorts, RuleLabel, RuleDescription,
	{What: "the label of a NodeBalancer", Operation: balancer, Path: "label", Max: 32, Unit: limits.Characters, Source: api, Program: cut},
	{What: "the label of a firewall", Operation: firewall, Path: "label", Max: 32, Unit: limits.Characters, Source: api, Program: cut},
}

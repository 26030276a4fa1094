// Package gcelimits lists the limits of Compute Engine that this program or its simulator knows.
package gcelimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	api    = "Compute Engine: API reference"
	quotas = "Google Cloud: Load balancing, quotas and limits"
)

// Rows used by name.
var (
	RulePorts = limits.Limit{
		What: "ports", Within: "a forwarding rule", Operation: "forwardingRules", Path: "ports", Max: 5, Unit: limits.Items, Source: api,
		Program: "the rule gets all ports, and the firewall those of the Service",
	}
	PoolCreation = limits.Limit{
		What: "instances", Within: "the creation of a target pool", Operation: "POST targetPools", Path: "instances", Max: 200, Unit: limits.Items,
		Source: "Compute Engine's answer to the creation of a larger pool", Program: "are added in several calls",
	}
	PoolChange = limits.Limit{
		What: "instances", Within: "a change of a target pool", Operation: "targetPools/{name}/addInstance", Path: "instances", Max: 1000, Unit: limits.Items,
		Source: "Compute Engine's answer to a larger change of a pool", Program: "are added in several calls",
	}
	GroupMembers = limits.Limit{
		What: "instances", Within: "an instance group", Operation: "instanceGroups", Path: "instances", Max: 1000, Unit: limits.Objects, Source: quotas,
		Program: "the others receive no traffic, which an event tells",
	}
	SourceRanges = limits.Limit{
		What: "source ranges", Within: "a firewall rule", Operation: "firewalls", Path: "sourceRanges", Max: 5000, Unit: limits.Items,
		Source: "Google Cloud: Cloud Next Generation Firewall, quotas and limits", Program: "refused", Advice: "use fewer and larger networks",
	}
)

// Table lists all limits.
var Table = limits.Table{
	{
		What: "the name of a firewall", Operation: "POST firewalls", Path: "name", Max: 63, Unit: limits.Characters, Source: api, Program: "is made to fit",
	},
	{
		What: "the name of a target pool", Operation: "POST targetPools", Path: "name", Max: 63, Unit: limits.Characters, Source: api,
		Program: "is made to fit",
	},
	{What: "the value of a label", Path: "labels.*", Max: 63, Unit: limits.Characters, Source: api, Program: "is made to fit"},
	{
		What: "backends", Within: "a backend service", Operation: "backendServices", Path: "backends", Max: 50, Unit: limits.Items, Source: quotas,
		Program: limits.Below,
	},
	RulePorts, PoolChange, PoolCreation, GroupMembers, SourceRanges,
}

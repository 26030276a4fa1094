// Package digitaloceanlimits lists the limits of DigitalOcean that this program or its simulator knows.
package digitaloceanlimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	description   = "DigitalOcean's published OpenAPI description"
	firewallsPage = "DigitalOcean: Cloud Firewalls, Limits"
	firewalls     = "/firewalls"
	refused       = "refused"
)

// Rows that are asked by name.
var (
	Name = limits.Limit{
		What: "the name of a load balancer", Operation: "/load_balancers", Path: "name", Max: 255, Unit: limits.Characters, Source: description,
		Program: refused,
	}
	Tag = limits.Limit{What: "a tag", Path: "tags[]", Max: 255, Unit: limits.Characters, Source: description, Program: refused}
	// FirewallRules are those of both directions.
	FirewallRules = limits.Limit{
		What: "rules", Within: "a firewall", Operation: firewalls, Max: 50, Unit: limits.Objects, Source: firewallsPage, Program: "are joined, then refused",
	}
	FirewallTags = limits.Limit{
		What: "tags", Within: "a firewall", Operation: firewalls, Path: "tags", Max: 5, Unit: limits.Items, Source: firewallsPage, Program: refused,
	}
	FirewallDroplets = limits.Limit{
		What: "droplets", Within: "a firewall", Operation: firewalls, Path: "droplet_ids", Max: 10, Unit: limits.Items, Source: firewallsPage,
		Program: limits.Below,
	}
	RuleSources = limits.Limit{
		What: "sources", Within: "a rule of a firewall", Operation: firewalls, Path: "inbound_rules[].sources.addresses", Max: 1000, Unit: limits.Items,
		Source: firewallsPage, Program: "as many as fit", Advice: "the others stay shut out; use fewer and larger networks",
	}
)

// Table lists all limits.
var Table = limits.Table{
	Name, Tag, FirewallRules, FirewallTags, FirewallDroplets, RuleSources,
}

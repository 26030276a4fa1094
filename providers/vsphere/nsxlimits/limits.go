// Package nsxlimits lists the limits of NSX that this program or its simulator knows.
package nsxlimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	api     = "NSX API: ManagedResource and Tag"
	size    = "VMware: NSX-T Data Center Edge Type and Load Balancer capacity planning, release 2.5"
	refused = "refused"
	large   = "a LARGE load balancer service"
	alarm   = "NSX does not put one more in force, and an event quotes its alarm"
	advice  = "use a larger service, or one on another gateway"
)

// Rows that are asked by name.
var (
	DisplayName = limits.Limit{
		What: "the display name of an object", Path: "*display_name", Max: 255, Unit: limits.Characters, Source: api, Program: refused,
		Advice: "shorten --cluster-name or the Service's name",
	}
	Tags = limits.Limit{
		What: "tags", Within: "an object", Path: "*tags", Max: 30, Unit: limits.Items, Source: api, Program: refused,
		Advice: "configure fewer tags",
	}
	// Servers and Members are those of the one size of which every release has the same numbers.
	Servers = limits.Limit{What: "virtual servers", Within: large, Max: 1000, Unit: limits.Objects, Source: size, Program: alarm, Advice: advice}
	Members = limits.Limit{What: "members of pools", Within: large, Max: 7500, Unit: limits.Objects, Source: size, Program: alarm, Advice: advice}

	Scope = limits.Limit{What: "the scope of a tag", Path: "*tags[].scope", Max: 128, Unit: limits.Characters, Source: api, Program: refused}
	Tag   = limits.Limit{What: "a tag", Path: "*tags[].tag", Max: 256, Unit: limits.Characters, Source: api, Program: refused}
)

// Table lists all limits.
var Table = limits.Table{
	DisplayName, Tags, Scope, Tag, Servers, Members,
	{What: "the description of an object", Path: "*description", Max: 1024, Unit: limits.Characters, Source: api, Program: limits.Below},
}

// Package cloudstacklimits lists the limits of CloudStack that this program or its simulator knows.
package cloudstacklimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const description = "CloudStack's description of its API (listApis), length of the parameter"

// Text is that of every parameter which is a text and has no row of its own.
var Text = limits.Limit{What: "a text", Max: 255, Unit: limits.Characters, Source: description}

// Table lists all limits.
var Table = limits.Table{
	{
		What: "the name of a rule", Operation: "LoadBalancerRule", Path: "name", Max: 255, Unit: limits.Characters,
		Source: description, Program: limits.Below,
	},
	{
		What: "the description of a rule", Operation: "LoadBalancerRule", Path: "description", Max: 4096, Unit: limits.Characters,
		Source: description, Program: limits.Below,
	},
	{
		What: "the name of a stickiness policy", Operation: "LBStickinessPolicy", Path: "name", Max: 255, Unit: limits.Characters,
		Source: description, Program: limits.Below,
	},
	{
		What: "the description of a stickiness policy", Operation: "LBStickinessPolicy", Path: "description", Max: 255, Unit: limits.Characters,
		Source: description, Program: limits.Below,
	},
}

// Package ibmlimits lists the limits of IBM Cloud that this program or its simulator knows.
package ibmlimits

import "github.com/anyccm/cloud-controller-manager/registry/limits"

const (
	quotas       = "IBM Cloud: Quotas and service limits for VPC"
	loadBalancer = "a load balancer"
	group        = "a security group"
	refused      = "refused"
)

// Rows that are asked by name.
var (
	Name = limits.Limit{
		What: "a name", Path: "name", Max: 63, Unit: limits.Characters, Source: "IBM Cloud: VPC API, names of resources", Program: "is cut",
	}
	PoolName = limits.Limit{
		What: "the name of a pool", Path: "pools[].name", Max: 63, Unit: limits.Characters, Source: "IBM Cloud: VPC API, names of resources",
		Program: limits.Below,
	}
	Listeners = limits.Limit{
		What: "listeners", Within: loadBalancer, Path: "listeners", Max: 10, Unit: limits.Objects, Source: quotas, Program: refused,
		Advice: "give the Service fewer ports, or share them between several Services",
	}
	Pools   = limits.Limit{What: "pools", Within: loadBalancer, Path: "pools", Max: 10, Unit: limits.Objects, Source: quotas, Program: refused}
	Members = limits.Limit{
		What: "members", Within: "a pool", Path: "*members", Max: 50, Unit: limits.Items, Source: quotas, Program: "the others receive no traffic, which an event tells",
	}
	Subnets = limits.Limit{
		What: "subnets", Within: loadBalancer, Path: "subnets", Max: 15, Unit: limits.Items, Source: quotas, Program: refused, Advice: "name fewer subnets",
	}
	Groups = limits.Limit{
		What: "security groups", Within: loadBalancer, Path: "security_groups", Max: 5, Unit: limits.Objects, Source: quotas, Program: refused,
		Advice: "name fewer groups",
	}
	Rules = limits.Limit{
		What: "rules", Within: group, Operation: "/security_groups", Path: "rules", Max: 250, Unit: limits.Objects, Source: quotas, Program: refused,
		Advice: "each network needs one for each port; use fewer and larger networks",
	}
)

// Rows of what an account may be given more of.
var (
	LoadBalancers = limits.Limit{
		What: "load balancers", Within: "a region", Max: 50, Unit: limits.Objects, Source: quotas, Soft: true, Program: limits.Explained,
	}
	VPCGroups = limits.Limit{
		What: "security groups", Within: "a VPC", Max: 100, Unit: limits.Objects, Source: quotas, Soft: true, Program: limits.Explained,
	}
)

// Table lists all limits.
var Table = limits.Table{Name, PoolName, Listeners, Pools, Members, Subnets, Groups, Rules, LoadBalancers, VPCGroups}

package aws

import "github.com/anyccm/cloud-controller-manager/registry/events"

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: "LoadBalancerNodeSecurityGroupMissing", Type: "Warning",
			What: "An instance has several security groups, none with the cluster's tag. None is opened for the load balancer.",
			Do:   "Tag one of them.",
		},
		{
			On: "Service", Reason: "LoadBalancerTargetsKept", Type: "Warning",
			What: "EC2 shows none of the nodes' instances, or none with the cluster's tag. The load balancer keeps its targets.",
			Do:   "Check the tags of the instances, the account and the region.",
		},
		{
			On: "Service", Reason: "LoadBalancerSecurityRuleKept", Type: "Warning",
			What: "A load balancer with a group from an annotation or the option ElbSecurityGroup was deleted. A security group of the nodes still admits that group, by a rule without a mark of the load balancer. Or a rule of a network load balancer stays because another Service may need it, whose settings or subnets cannot be read.",
			Do:   "Remove the rule if neither nodes nor other machines need it; see to the Service that the event names.",
		},
	}
}

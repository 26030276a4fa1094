package aws

import "github.com/anyccm/cloud-controller-manager/registry/events"

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: "LoadBalancerNodeSecurityGroupMissing", Type: "Warning",
			What: "An instance has several security groups and none with the tag of the cluster, so none is opened for the load balancer.",
			Do:   "Tag one of them.",
		},
		{
			On: "Service", Reason: "LoadBalancerTargetsKept", Type: "Warning",
			What: "EC2 shows none of the nodes' instances, or none with the tag of the cluster, so what the load balancer has registered stays.",
			Do:   "Check the tags of the instances, the account and the region.",
		},
		{
			On: "Service", Reason: "LoadBalancerSecurityRuleKept", Type: "Warning",
			What: "A security group of the nodes still lets all of a group in after the deletion of a load balancer that had that group by annotation or by the option ElbSecurityGroup; the rule is not marked as made for it.",
			Do:   "Remove the rule if neither nodes nor other machines need it.",
		},
	}
}

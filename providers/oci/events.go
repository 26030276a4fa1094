package oci

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Events without a row here are written by several providers, and have theirs in package events.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"

	eventFailed = "LoadBalancerFailed"
	eventLeft   = "LoadBalancerLeftBehind"

	eventTooMany = "LoadBalancerMembersLimited"

	eventRefused = "LoadBalancerWorkFailed"
	eventNoNodes = "LoadBalancerWithoutNodes"

	eventRulesLeft = "LoadBalancerRulesLeftBehind"
	eventOtherKind = "LoadBalancerOfOtherType"
	eventUnmarked  = "LoadBalancerWithoutMark"
)

// eventRows returns the events of this provider alone.
func eventRows() []events.Row {
	row := func(reason, means, do string) events.Row {
		return events.Row{On: "Service", Reason: reason, Type: "Warning", What: means, Do: do}
	}
	return []events.Row{
		row(eventRefused, "The cloud began a change of the load balancer, and it failed.", "Fix the fault named in the event."),
		row(eventRulesLeft, "When the Service was deleted, a security list or a network security group could not be read, or kept rules that may be somebody else's.",
			"Remove the rules for its ports there, if the subnet or the group still exists and nobody needs them."),
		row(eventOtherKind, "The Service has a load balancer of the type that it requested before. It is no longer managed, except for its nodes.",
			"Restore the annotation, or delete and create the Service."),
		row(eventUnmarked, "A load balancer is made without the mark of the cluster, because the tags that are asked for leave no room for it. It is served and "+
			"deleted as one that Oracle's own controller made: `orphans` does not list it.", "Ask for fewer free-form tags before the load balancer is made."),
		row(eventNoNodes, "No node can receive the traffic of the Service. The backends are not changed.", "Check the label selector and the nodes."),
	}
}

package oci

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events that several providers write have their rows in package events.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"

	eventFailed = "LoadBalancerFailed"
	eventLeft   = "LoadBalancerLeftBehind"

	// These are ours.
	eventRefused = "LoadBalancerWorkFailed"
	eventNoNodes = "LoadBalancerWithoutNodes"

	eventRulesLeft = "LoadBalancerRulesLeftBehind"
	eventOtherKind = "LoadBalancerOfOtherType"
)

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	row := func(reason, means, do string) events.Row {
		return events.Row{On: "Service", Reason: reason, Type: "Warning", What: means, Do: do}
	}
	return []events.Row{
		row(eventRefused, "The cloud began a change of the load balancer and gave it up.", "Set right what the event names."),
		row(eventRulesLeft, "A security list or a network security group could not be looked at when the Service went.",
			"Remove what is left of its ports there, if the subnet or the group still exists."),
		row(eventOtherKind, "The Service has a load balancer of the type that it asked for before. It is served no further; its nodes are kept up to date.",
			"Set the annotation back, or make the Service again."),
		row(eventNoNodes, "No node can receive the traffic of the Service. The backends stay as they are.", "Look at the label selector, and at the nodes."),
	}
}

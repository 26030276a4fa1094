package ibm

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events; those of several providers have their rows in package events.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"
	eventFailed      = "LoadBalancerFailed"
	eventLeft        = "LoadBalancerLeftBehind"
	eventTooMany     = "LoadBalancerMembersLimited"

	// Our own reasons.
	eventGone      = "LoadBalancerDeletedByHand"
	eventOtherKind = "LoadBalancerKindKept"
	eventClosed    = "LoadBalancerPortsClosed"
	eventStranger  = "LoadBalancerNodeWithoutInstance"
	eventStray     = "LoadBalancerMembersRemoved"

	// Reasons of IBM's own controller.
	eventVerifying = "VerifyingCloudLoadBalancerFailed"
	eventNormal    = "CloudVPCLoadBalancerNormalEvent"
)

// eventRows are the events that only this provider writes.
func eventRows() []events.Row {
	row := func(reason, means, do string) events.Row {
		return events.Row{On: "Service", Reason: reason, Type: "Warning", What: means, Do: do}
	}
	return []events.Row{
		row(eventGone, "The load balancer in the Service's status no longer exists, and another one is created.", "Replace the old host name by the new one, such as in DNS."),
		row(eventVerifying, "The load balancer has not been online/active for 5 minutes or more, or does not exist.", "Check it in the console."),
		{On: "Service", Reason: eventNormal, Type: "Normal", What: "The load balancer is online and active again.", Do: "Nothing."},
		row(eventClosed, "No rule of the security groups that the Service names lets anybody reach one of its ports.", "Add a rule to one of the groups."),
		row(eventStranger, "No instance, or more than one, has the name of a node. The node does not become a member; an existing member with its address or instance stays.", "Name the node as its instance in the VPC of the cluster."),
		{On: "Service", Reason: eventStray, Type: "Normal", What: "Members that belong to no node with traffic, such as manually created ones, are removed.", Do: "Nothing, unless somebody needs them."},
		row(eventOtherKind, "The Service asks for a network load balancer and has an application load balancer, which is kept.", "Delete and create the Service to change it, which changes its address."),
	}
}

package ibm

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events that several providers write have their rows in package events.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"
	eventFailed      = "LoadBalancerFailed"
	eventLeft        = "LoadBalancerLeftBehind"

	// These are ours.
	eventGone      = "LoadBalancerDeletedByHand"
	eventTooMany   = "LoadBalancerMembersLimited"
	eventOtherKind = "LoadBalancerKindKept"
	eventClosed    = "LoadBalancerPortsClosed"
	eventStranger  = "LoadBalancerNodeWithoutInstance"
	eventStray     = "LoadBalancerMembersRemoved"

	// These are those of IBM's own controller.
	eventVerifying = "VerifyingCloudLoadBalancerFailed"
	eventNormal    = "CloudVPCLoadBalancerNormalEvent"
)

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	row := func(reason, means, do string) events.Row {
		return events.Row{On: "Service", Reason: reason, Type: "Warning", What: means, Do: do}
	}
	return []events.Row{
		row(eventGone, "The load balancer that the Service shows is there no longer, and another one is made.", "Point what led to the old host name to the new one."),
		row(eventVerifying, "The load balancer has been offline, or in another status than online/active, for 5 minutes and more, or is not there.", "Look into it in the console."),
		{On: "Service", Reason: eventNormal, Type: "Normal", What: "The load balancer is online and active again.", Do: "Nothing."},
		row(eventTooMany, "A pool takes 50 members, and there are more nodes.", "Choose the nodes by annotation, or by externalTrafficPolicy."),
		row(eventClosed, "No rule of the security groups that the Service names lets anybody reach one of its ports.", "Add a rule to one of the groups."),
		row(eventStranger, "No instance, or more than one, has the name of a node. It becomes no member; one that it is, by the address or the instance that it tells, stays.", "Name the node as its instance in the VPC of the cluster."),
		{On: "Service", Reason: eventStray, Type: "Normal", What: "Members belong to no node that receives traffic, as those that were made by hand, and are taken away.", Do: "Nothing, unless somebody needs them."},
		row(eventOtherKind, "The Service asks for a network load balancer and has an application load balancer, which is kept.", "Make the Service again to change it, which changes its address."),
	}
}

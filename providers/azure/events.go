package azure

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events.
const (
	eventIgnored      = "LoadBalancerAnnotationIgnored"
	eventConfigError  = "LoadBalancerConfigError"
	eventSourceRanges = "InvalidSourceRanges"
	eventConflict     = "ConflictConfiguration"
	eventFrontendKept = "DeletingFrontendIPConfiguration"
	eventRuleKept     = "SecurityRuleKept"
	eventNoPlace      = "FailedToFindLoadBalancerForNode"
	eventTooMany      = "LoadBalancerMembersLimited"
	eventPoolFailed   = "LoadBalancerBackendPoolUpdateFailed"
	eventPoolUpdated  = "LoadBalancerBackendPoolUpdated"
)

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{On: "Service", Reason: eventSourceRanges, Type: "Warning", What: "Invalid source networks were left out.", Do: "Correct them; host bits must be zero."},
		{On: "Service", Reason: eventConflict, Type: "Warning", What: "Service tags and networks are both given.", Do: "Both may connect; keep one to be clear."},
		{On: "Service", Reason: eventFrontendKept, Type: "Warning", What: "A frontend of the Service stays, because another owner's rule uses it.", Do: "Remove that rule, then the frontend."},
		{
			On: "Service", Reason: eventRuleKept, Type: "Warning", What: "A security rule still contains a further address of a deleted Service.",
			Do: "Remove the address from the rule, unless another cluster needs it.",
		},
		{On: "Service", Reason: eventNoPlace, Type: "Warning", What: "With several load balancers, nodes are behind none of them, or one of them has no node.", Do: "Correct primaryVMSet or nodeSelector in the cloud config."},
		{On: "Service", Reason: eventPoolUpdated, Type: "Normal", What: "With several load balancers: the pool of a Service with externalTrafficPolicy Local has the nodes with an endpoint."},
		{On: "Service", Reason: eventPoolFailed, Type: "Warning", What: "That pool could not be changed. It is retried.", Do: "See the message."},
	}
}

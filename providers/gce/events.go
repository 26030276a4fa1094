package gce

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events that several providers write have their rows in package events.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"

	// These are Google's own controller's.
	eventByHand = "LoadBalancerManualChange"
	eventMixed  = "LoadBalancerMixedProtocolNotSupported"
)

// markPrefix begins the mark of a cluster.
const markPrefix = "anyccm:"

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: eventByHand, Type: "Normal",
			What: "The network is another project's, and the credential may not change its firewall rules.",
			Do:   "Run the command in the message as an administrator of that project. It is said once.",
		},
		{
			On: "Service", Reason: eventMixed, Type: "Warning",
			What: "The ports of the Service have different protocols, and these load balancers have one.",
			Do:   "Use TCP or UDP for all ports, and two Services for both.",
		},
	}
}

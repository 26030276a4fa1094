package cloudstack

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events that several providers write have their rows in package events.
const (
	eventConfigError   = "LoadBalancerConfigError"
	eventIgnored       = "LoadBalancerAnnotationIgnored"
	eventRangesIgnored = "LoadBalancerSourceRangesIgnored"

	eventOutside     = "NodesOutsideNetwork"
	eventRefused     = "LoadBalancerRuleRefused"
	eventAddress     = "PublicIPUnusable"
	eventAddressKept = "PublicIPKept"
	eventBlocked     = "NetworkACLBlocks"
)

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: eventOutside, Type: "Warning",
			What: "Nodes are in other networks than the load balancer, and receive no traffic from it.",
			Do:   "Connect their virtual machines to the network.",
		},
		{
			On: "Service", Reason: eventRefused, Type: "Warning",
			What: "CloudStack refuses a port of the Service; the other ports are served.",
			Do:   "Do as the message says: virtual routers refuse UDP, port 8081 and ports that another rule of the address has.",
		},
		{
			On: "Service", Reason: eventAddress, Type: "Warning",
			What: "The address that the Service names cannot be used, or no other is to be had.",
			Do:   "Name an address of the network that is free or has room, or ask for a higher limit.",
		},
		{
			On: "Service", Reason: eventAddressKept, Type: "Normal",
			What: "The address stays although the Service is gone: others use it, or it was not taken for this Service.",
			Do:   "Release it in CloudStack if nobody needs it.",
		},
		{
			On: "Service", Reason: eventBlocked, Type: "Warning",
			What: "The network ACL list of the VPC tier keeps clients out, or lets others in than the Service asks for, and is not changed.",
			Do:   "Change the list or the item that the message names, or give the tier a list of its own.",
		},
	}
}

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
			Do:   "Follow the message. Virtual routers refuse UDP, port 8081 and ports of another rule of the address.",
		},
		{
			On: "Service", Reason: eventAddress, Type: "Warning",
			What: "The address that the Service names cannot be used, or no address is available.",
			Do:   "Name an address of the network that is free or has room, or ask for a higher limit.",
		},
		{
			On: "Service", Reason: eventAddressKept, Type: "Normal",
			What: "The address stays after the deletion of the Service: others use it, or it was not acquired for this Service.",
			Do:   "Release it in CloudStack if nobody needs it.",
		},
		{
			On: "Service", Reason: eventBlocked, Type: "Warning",
			What: "The network ACL list of the VPC tier blocks clients, or admits others than the Service allows. It is not changed.",
			Do:   "Change the list or the item that the message names, or give the tier a list of its own.",
		},
	}
}

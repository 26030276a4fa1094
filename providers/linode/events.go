package linode

import "github.com/anyccm/cloud-controller-manager/registry/events"

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Node", Reason: "CIDRNotAvailable", Type: "Warning",
			What: "The Node gets no pod range: none is free, or its Linode has no IPv6 range.",
			Do:   "The message names the ways out.",
		},
		{
			On: "Node", Reason: "CIDRAssignmentFailed", Type: "Warning",
			What: "The pod range could not be written on the Node.",
			Do:   "It is tried again by itself.",
		},
		{
			On: "Service", Reason: "NodeBalancerIPChangeIgnored", Type: "Warning",
			What: "The annotation names another address than the NodeBalancer has, which cannot change.",
			Do:   "Delete and create the Service to change it.",
		},
	}
}

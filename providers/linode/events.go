package linode

import "github.com/anyccm/cloud-controller-manager/registry/events"

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: "NodeBalancerIPChangeIgnored", Type: "Warning",
			What: "The annotation names another address than the NodeBalancer has, which cannot change.",
			Do:   "Delete and create the Service to change it.",
		},
	}
}

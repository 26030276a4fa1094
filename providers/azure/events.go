package azure

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events.
const (
	eventIgnored      = "LoadBalancerAnnotationIgnored"
	eventConfigError  = "LoadBalancerConfigError"
	eventSourceRanges = "InvalidSourceRanges"
	eventConflict     = "ConflictConfiguration"
	eventFrontendKept = "DeletingFrontendIPConfiguration"
)

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row {
	return []events.Row{
		{On: "Service", Reason: eventSourceRanges, Type: "Warning", What: "Networks that may connect are not legal, and were left out.", Do: "Correct them; host bits must be zero."},
		{On: "Service", Reason: eventConflict, Type: "Warning", What: "Service tags and networks are both given.", Do: "Both may connect; keep one to be clear."},
		{On: "Service", Reason: eventFrontendKept, Type: "Warning", What: "A frontend of the Service stays, because somebody else's rule uses it.", Do: "Remove that rule, then the frontend."},
	}
}

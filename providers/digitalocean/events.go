package digitalocean

import "github.com/anyccm/cloud-controller-manager/registry/events"

const (
	// eventConfigError and eventIgnored are told by services.Judged.
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"
)

func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: "FirewallPortClosed", Type: "Warning",
			What: "A port of the Service stays closed in the public access firewall, perhaps to some of its clients: the firewall does not support the protocol, is full or somebody else's, or the Service's annotation is not a boolean.",
			Do:   "The message names the possible remedies.",
		},
	}
}

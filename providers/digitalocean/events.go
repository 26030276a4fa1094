package digitalocean

import "github.com/anyccm/cloud-controller-manager/registry/events"

const (
	// eventConfigError and eventIgnored are written by services.Judged; the cloud's page lists the constants of this folder.
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"

	eventFirewall = "FirewallPortClosed"
)

func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: eventFirewall, Type: "Warning",
			What: "A port of the Service stays closed in the public access firewall, perhaps to some of its clients: the firewall does not support the protocol, is full or somebody else's, or the Service's annotation is not a boolean.",
			Do:   "The message names the possible remedies.",
		},
	}
}

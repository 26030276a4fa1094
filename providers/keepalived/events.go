package keepalived

import "github.com/anyccm/cloud-controller-manager/registry/events"

const (
	eventConfigError  = "LoadBalancerConfigError"
	eventIgnored      = "LoadBalancerAnnotationIgnored"
	eventNoAddress    = "NoAddressAvailable"
	eventAddressInUse = "AddressInUse"
	eventOutside      = "AddressOutsidePools"
	eventSingleStack  = "LoadBalancerSingleStack"
	eventNodeLeftOut  = "NodeAnnouncesNothing"
)

// eventRows are the events that only this provider writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: eventNoAddress, Type: "Warning",
			What: "No pool has an address for the Service: none is configured for its namespace, it has none of the family, or all of its addresses are in use.",
			Do:   "The message names the pool. Enlarge it, or delete Services of type LoadBalancer; it is tried again within seconds.",
		},
		{
			On: "Service", Reason: eventAddressInUse, Type: "Warning",
			What: "The Service's requested or present address is in use by another one, and cannot be shared. A present address stays.",
			Do:   "Choose another address, or free this one; it is tried again within seconds.",
		},
		{
			On: "Node", Reason: eventNodeLeftOut, Type: "Warning",
			What: "The Node is left out of keepalived.conf: it has no InternalIP of keepalived's address family, or an older Node has the same.",
			Do:   "Have kubelet report the address (`--node-ip`), or leave the Node out by `KEEPALIVED_NODE_SELECTOR`.",
		},
		{
			On: "Service", Reason: eventOutside, Type: "Normal",
			What: "The requested address is in none of the pools of the Service's namespace. It is used nevertheless.",
			Do:   "Make sure that nobody else uses it.",
		},
	}
}

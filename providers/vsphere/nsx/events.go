package nsx

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events about load balancers and routes.
const (
	eventConfigError = "LoadBalancerConfigError"
	// eventNoAddress: the pool has no free address.
	eventNoAddress = "LoadBalancerAddressPoolExhausted"
	// eventNotRealized: NSX accepted the object, but cannot realize it.
	eventNotRealized = "LoadBalancerNotRealized"
	// eventRouteNotRealized: the same for a route.
	eventRouteNotRealized = "RouteNotRealized"
)

// EventRows are the events of NSX alone; those of several clouds have their rows in package events.
func EventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: eventNoAddress, Type: "Warning",
			What: "The IP pool of the Service's class has no free address. The failed allocation was deleted.",
			Do:   "Enlarge the pool in NSX, or choose another class by `loadbalancer.vmware.io/class`.",
		},
		{
			On: "Service", Reason: eventNotRealized, Type: "Warning",
			What: "NSX accepted an object of the load balancer, but cannot realize it. The message contains its alarms.",
			Do:   "Follow the alarms in NSX, such as a limit of the load balancer service's size.",
		},
		{
			On: "Node", Reason: eventRouteNotRealized, Type: "Warning",
			What: "NSX accepted the route to the node's Pods, but cannot realize it. The message contains its alarms.",
			Do:   "Follow the alarms of the tier-1 gateway in NSX.",
		},
	}
}

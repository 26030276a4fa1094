package gce

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Events that several providers write are declared in package events.
const (
	eventConfigError = "LoadBalancerConfigError"

	// Reasons that Google's own controller uses as well.
	eventByHand = "LoadBalancerManualChange"
	eventMixed  = "LoadBalancerMixedProtocolNotSupported"

	eventOptionsIgnored = "ILBOptionsIgnored"

	// Reasons that only this program uses.
	eventGroupShared  = "InstanceGroupShared"
	eventGroupFull    = "InstanceGroupFull"
	eventZoneWaits    = "ZoneNotReachable"
	eventNoForwarding = "InstanceDoesNotForward"
)

// eventRows are the events that only this provider writes.
func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: eventByHand, Type: "Normal",
			What: "The network belongs to another project, and the credential may not change its firewall rules.",
			Do:   "Run the command in the message as an administrator of that project. This is reported once.",
		},
		{
			On: "Service", Reason: eventMixed, Type: "Warning",
			What: "The ports of the Service have different protocols, and these load balancers have one.",
			Do:   "Use TCP or UDP for all ports, and two Services for both.",
		},
		{
			On: "Service", Reason: eventOptionsIgnored, Type: "Warning",
			What: "The network is a legacy one without subnets. The annotations about subnet and global access have no effect.",
			Do:   "Remove the annotations.",
		},
		{
			On: "Service", Reason: eventGroupShared, Type: "Warning",
			What: "An instance group of internal load balancers has members that are not nodes of this cluster. They stay and get traffic.",
			Do:   "Give the other cluster an ID of its own, or remove the instances from the group.",
		},
		{
			On: "Service", Reason: eventGroupFull, Type: "Warning",
			What: "A zone has more nodes than an instance group holds. The last ones by name get no traffic from internal load balancers.",
			Do:   "Use the label named in the message to choose which nodes receive traffic, or use more zones.",
		},
		{
			On: "Service", Reason: eventZoneWaits, Type: "Warning",
			What: "A zone is unreachable, so that its instances are unknown. Its nodes neither join nor leave the load balancer; those of other zones do.",
			Do:   "Nothing: the change is applied when the zone answers. This is reported once.",
		},
		{
			On: "Node", Reason: eventNoForwarding, Type: "Warning",
			What: "The Node gets a route to its pods, but its instance may not forward packets. The cloud drops them.",
			Do:   "Set `canIpForward` on the instance, which must be stopped or created again for that.",
		},
	}
}

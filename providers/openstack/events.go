package openstack

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events on Services. Those documented by OpenStack's own controller keep its names.
const (
	eventConfigError     = "LoadBalancerConfigError"
	eventIgnored         = "LoadBalancerAnnotationIgnored"
	eventRangesIgnored   = "LoadBalancerSourceRangesIgnored"
	eventSingleStack     = "LoadBalancerSingleStack"
	eventForcedInternal  = "LoadBalancerForcedInternal"
	eventZoneIgnored     = "LoadBalancerAvailabilityZonesIgnored"
	eventFloatingSkipped = "LoadBalancerFloatingIPSkipped"
	eventRename          = "LoadBalancerRename"
	eventRecreated       = "LoadBalancerRecreated"
	eventFailover        = "LoadBalancerFailover"
	eventBroken          = "LoadBalancerError"
	eventNoMonitor       = "LoadBalancerHealthMonitorMissing"
	eventShared          = "LoadBalancerShared"
)

func eventRows() []events.Row {
	return []events.Row{
		{
			On: "Service", Reason: eventRecreated, Type: "Warning",
			What: "Octavia could not build the load balancer; it is deleted and created again.",
			Do:   "Nothing, unless it happens again: then ask the cloud.",
		},
		{
			On: "Service", Reason: eventFailover, Type: "Warning",
			What: "The load balancer is in ERROR. A failover was started, which keeps its address.",
			Do:   "Nothing.",
		},
		{
			On: "Service", Reason: eventBroken, Type: "Warning",
			What: "The load balancer is in ERROR, and the credential may not start a failover. It may still work, but cannot be changed.",
			Do:   "Ask an administrator of the cloud to run the command in the message.",
		},
		{
			On: "Service", Reason: eventForcedInternal, Type: "Warning",
			What: "There is no external network for a floating address. The Service shows the internal address.",
			Do:   "Set `floating-network-id`, or make the Service internal.",
		},
		{
			On: "Service", Reason: eventFloatingSkipped, Type: "Warning",
			What: "An IPv6 address gets no floating address.",
			Do:   "No action needed; set the internal annotation to silence it.",
		},
		{
			On: "Service", Reason: eventZoneIgnored, Type: "Warning",
			What: "This Octavia, or its provider, does not support availability zones.",
			Do:   "Remove the annotation.",
		},
		{
			On: "Service", Reason: eventNoMonitor, Type: "Warning",
			What: "ExternalTrafficPolicy is Local and there are no health monitors, so connections are lost.",
			Do:   "Set `enable-health-monitor` or `create-monitor`.",
		},
		{
			On: "Service", Reason: eventShared, Type: "Warning",
			What: "The load balancer is shared with a Service of another namespace that has not agreed to it; it stays shared.",
			Do:   "Set the annotation in the message on that Service, or use a load balancer of its own.",
		},
		{
			On: "Service", Reason: eventRename, Type: "Warning",
			What: "The name of the cluster has changed; the load balancer and its parts are renamed.",
			Do:   "Nothing.",
		},
	}
}

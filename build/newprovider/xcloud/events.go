package xcloud

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events that several providers write have their rows in package events.
const (
	eventConfigError = "LoadBalancerConfigError"       // load balancers
	eventIgnored     = "LoadBalancerAnnotationIgnored" // load balancers
)

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row { return nil }

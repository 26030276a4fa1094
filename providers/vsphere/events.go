package vsphere

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events; those of several providers have their rows in package events.

// eventRows are the events of this provider alone.
func eventRows() []events.Row { return nsxEventRows() }

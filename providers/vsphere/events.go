package vsphere

import "github.com/anyccm/cloud-controller-manager/registry/events"

// Reasons of events that several providers write have their rows in package events.

// eventRows are the events that this provider alone writes.
func eventRows() []events.Row { return nsxEventRows() }

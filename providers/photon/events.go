package photon

import "github.com/anyccm/cloud-controller-manager/registry/events"

// eventRows are the events that this provider alone writes: none, for those about nodes are common to all clouds.
func eventRows() []events.Row { return nil }

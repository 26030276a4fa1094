package ovirt

import "github.com/anyccm/cloud-controller-manager/registry/events"

// eventRows are the events of this provider alone: none, because those about nodes are common to all clouds.
func eventRows() []events.Row { return nil }

package xcloud

import "github.com/anyccm/cloud-controller-manager/registry/events"

// eventRows are the events of this provider only.
func eventRows() []events.Row { return nil }

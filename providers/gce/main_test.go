package gce

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestMain(m *testing.M) {
	if tier.All() {
		_, _ = readDiscovery() // before any bubble, because it runs a command
	}
	conformance.Main(m, Name)
}

// newCloud creates the cloud without the guard.
func newCloud(in registry.Inputs) (*cloud, error) { return maker().New(in) }

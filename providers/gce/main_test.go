package gce

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestMain(m *testing.M) {
	if tier.All() {
		_, _ = readDiscovery() // outside of any bubble, for it runs a command
	}
	conformance.Main(m, Name)
}

// newCloud makes the cloud without the guard.
func newCloud(in registry.Inputs) (*cloud, error) { return maker().New(in) }

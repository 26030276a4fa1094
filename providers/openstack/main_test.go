package openstack

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestMain(m *testing.M) { conformance.Main(m, Name) }

// newCloud makes the cloud without the guard.
func newCloud(in registry.Inputs) (*cloud, error) { return maker().New(in) }

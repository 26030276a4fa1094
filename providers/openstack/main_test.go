package openstack

import (
	"testing"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestMain(m *testing.M) {
	pace = waiting.Pace{Least: time.Millisecond, Most: 20 * time.Millisecond, Patience: time.Second}
	conformance.Main(m, Name)
}

// newCloud makes the cloud without the guard.
func newCloud(in registry.Inputs) (*cloud, error) { return maker().New(in) }

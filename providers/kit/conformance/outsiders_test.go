package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestOutsiders: a cloud has each hook, or says why there is no such thing, and not both.
func TestOutsiders(t *testing.T) {
	t.Parallel()
	f := &Fixture{Provider: registry.Provider{Features: registry.Features{LoadBalancers: registry.Done}}}
	f.Lacks = map[string]string{"Claims": "why", "Reserve": "why", "OwnershipTags": "why", "Additions": "why"}
	require.ErrorContains(t, f.checkOutsiders(), "Share: the fixture has it, or Lacks says why")
	f.Lacks["Share"] = "why"
	require.NoError(t, f.checkOutsiders())
	f.Share = func(_, _ *v1.Service) {}
	require.ErrorContains(t, f.checkOutsiders(), "Share: ")
	f.Share = nil
	f.Provider.Features.Instances = registry.Done
	f.Lacks["AddInterface"], f.Lacks["TwinOf"] = "why", "why"
	require.ErrorContains(t, f.checkOutsiders(), "Capitals: the fixture has it, or Lacks says why")
	f.Capitals = "Worker-A1"
	require.NoError(t, f.checkOutsiders())
	f.Lacks["Sharing"] = "why"
	require.ErrorContains(t, f.checkOutsiders(), "there is no hook Sharing")
}

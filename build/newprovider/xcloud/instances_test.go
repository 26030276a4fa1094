package xcloud

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/build/newprovider/xcloud/xcloudsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// tryNodes configures the suite's tests of nodes.
func tryNodes(t testing.TB, sim *xcloudsim.Sim, f *conformance.Fixture) {
	t.Helper()
	instanceOf := func(providerID string) string {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		return id
	}
	f.AddInstance = func(name string) string { return providerIDPrefix + sim.AddInstance(name) }
	f.TwinOf, f.Capitals = f.AddInstance, "Worker-A1"
	f.RemoveInstance = func(id string) { sim.RemoveInstanceByID(instanceOf(id)) }
	f.Resize = func(id string) { require.NoError(t, sim.SetType(instanceOf(id), "large")) }
	f.PowerOff = func(id string) { require.NoError(t, sim.SetStatus(instanceOf(id), "stopped")) }
	f.InstanceListing = "GET /v1/instances"
	f.RefuseAccount = func() { sim.SetToken("another") }
	f.OtherAccount = sim.RemoveInstances
	f.MalformedIDs = []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "A"}
}

// TestListingBreaksOff: a listing with fewer entries than its total is an error, so that missing instances do not count as gone.
func TestListingBreaksOff(t *testing.T) {
	t.Parallel()
	const count = 60 // more than a page
	sim, server := xcloudsim.New(testToken, 0)
	a, err := newAPI(Config{URL: server.Start(t), Token: schema.NewSecret(testToken)}, registry.Inputs{})
	require.NoError(t, err)
	for n := range count {
		sim.AddInstance(fmt.Sprintf("node-%d", n))
	}
	all, pages, err := a.instances(t.Context())
	require.NoError(t, err)
	require.Len(t, all, count)
	_, err = server.AddFault(simkit.Fault{Kind: "cut-list", From: pages})
	require.NoError(t, err)
	_, _, err = a.instances(t.Context())
	require.ErrorContains(t, err, "broke off")
}

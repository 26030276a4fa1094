package oci

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const testFingerprint = "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34"

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := ocisim.New(testFingerprint)
	network := simkit.NewNetwork()
	config := sim.CloudConfig(network.Serve(t, server))
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(), CallsPerInstance: 2,
		Inputs: func() registry.Inputs { return inputs(config) },
	}
	instanceOf := func(providerID string) string {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		return id
	}
	f.AddInstance = func(name string) string { return providerIDPrefix + sim.AddInstance(name) }
	f.RemoveInstance = func(id string) { require.NoError(t, sim.Terminate(instanceOf(id))) }
	f.PowerOff = func(id string) { require.NoError(t, sim.SetState(instanceOf(id), "STOPPED")) }
	f.InstanceListing = "GET /instances"
	f.RefuseAccount = func() { sim.SetFingerprint("another") }
	f.OtherAccount = func() { sim.SetBlind(true) }
	f.MalformedIDs = []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "worker", bareIDPrefix}
	return f
}

// inputs are those of a program with a cloud config.
func inputs(config string) registry.Inputs {
	in := conformance.Inputs(nil, nil)
	in.File = []byte(config)
	return in
}

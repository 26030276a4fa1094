package gce

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const testToken = "gce-token"

// activation is how long operations take in tests, about.
const activation = 2 * time.Second

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, newFixture)
}

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) {
	t.Parallel()
	conformance.Soak(t, newFixture)
}

// testInputs are the inputs of a provider with a gce.conf.
func testInputs(file string, env map[string]string) registry.Inputs {
	in := conformance.Inputs(nil, env)
	in.File = []byte(file)
	return in
}

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := gcesim.New(testToken, activation)
	judge(t, sim)
	network := simkit.NewNetwork()
	url := network.Serve(t, server)
	file, env := sim.CloudConfig(url), sim.Environment(url)
	number := 0
	return &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(),
		Inputs: func() registry.Inputs { return testInputs(file, env) },
		AddInstance: func(name string) string {
			number++
			return sim.AddInstance(gcesim.Spec{Name: name, Zone: fmt.Sprintf("%s-%c", gcesim.Region, 'a'+number%3)})
		},
		RemoveInstance:  sim.RemoveInstanceByID,
		PowerOff:        func(id string) { require.NoError(t, sim.SetStatus(id, "TERMINATED")) },
		InstanceListing: "GET aggregated/instances",
		RefuseAccount:   func() { sim.SetToken("another") },
		OtherAccount:    sim.RemoveInstances,
		MalformedIDs: []string{
			providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "a/b/c/d", providerIDPrefix + "my-project/us-central1-a/", providerIDPrefix + "A/b/c",
			providerIDPrefix + "another-project/us-central1-a/worker-1",
		},
	}
}

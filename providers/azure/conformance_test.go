package azure

import (
	"testing"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const testSecret = "azure-secret"

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, newFixture)
}

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) {
	t.Parallel()
	conformance.Soak(t, newFixture)
}

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := azuresim.New(testSecret, 3*time.Second)
	network := simkit.NewNetwork()
	url := network.Serve(t, server)
	more := map[string]any{} // keys of azure.json
	f := &conformance.Fixture{
		OnlyThere: []string{`has no subnet `, `has no public IP address`, `and only one Service may; remove it`, `there is no subnet `, `^listing private link services: `},
		Sim:       server, Network: network, Provider: Description(), Everybody: []string{"from Internet[", `"sourceAddressPrefix":"Internet"`},
		HostBits: "Azure's own controller lets nobody in by it, and so do we",
		Inputs:   func() registry.Inputs { return inputs(configWith(t, sim.CloudConfig(url), more)) },
		Routes:   func() {}, // the inputs have ClusterCIDR, the cloud config a route table
	}
	tryNodes(t, sim, f)
	tryLoadBalancers(t, sim, f)
	tryTranscripts(t, sim, f, more)
	f.TakenOver = leftCases(sim)
	return tryOthers(sim, f)
}

// inputs are those of a program with a cloud config.
func inputs(config string) registry.Inputs {
	in := conformance.Inputs(nil, nil)
	in.File, in.ClusterCIDR = []byte(config), conformance.ClusterCIDR
	return in
}

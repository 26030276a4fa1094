package vsphere

import (
	"testing"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

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
	sim, server := vspheresim.New(vspheresim.Options{NSX: true, Activation: 700 * time.Millisecond, Seed: simkit.SeedOf(t)})
	sim.Tag("k8s-region", "eu", sim.Datacenter("DC0"))
	sim.Tag("k8s-zone", "eu-1", sim.Cluster("DC0"))
	network := simkit.NewNetwork()
	url, routes := network.Serve(t, server), ""
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(),
		PlannedWrites: plannedWrites, ReadAgain: readAgain,
		Transcripts: transcripts, Untranscribed: untranscribed, Secrets: []string{vspheresim.Password, vspheresim.NSXPassword},
		Scenarios: scenarios(t, sim.NSX), Names: func() map[string]string { return identities(sim.NSX) },
		Inputs: func() registry.Inputs {
			in := conformance.Inputs(nil, nil)
			in.File = []byte(sim.CloudConfig(url) + "labels: {zone: k8s-zone, region: k8s-region}\n" + routes)
			return in
		},
	}
	tryNodes(t, sim, f)
	tryNSX(t, sim.NSX, f)
	tryInterfaces(sim, f)
	f.Routes = func() { routes = "route:\n  routerPath: " + nsxsim.Tier1 + "\n" }
	f.StateWithoutInstance = func(state, _ string) string { return state } // pools know addresses alone
	return f
}

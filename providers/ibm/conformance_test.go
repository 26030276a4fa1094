package ibm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const testKey = "ibm-key"

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := ibmsim.New(testKey, 0)
	network := simkit.NewNetwork()
	address := network.Serve(t, server)
	file := sim.CloudConfig(address)
	f := &conformance.Fixture{
		OnlyThere: []string{`the cluster has no subnet in this zone`, `^no node has the label or the zone`, `in the VPC of the cluster$`},
		OwnNames:  true, ClusterInSettings: true, OtherCluster: func() { file = strings.ReplaceAll(file, "clusterID = "+ibmsim.Cluster, "clusterID = restored") },
		ChosenName:   map[string]string{annotationName: "shop"},
		SourceRanges: conformance.FeatureCase{ClosesLater: "a security group that a load balancer has cannot be deleted, and a load balancer without any is open to more"},
		Filters:      []string{postGroup, attach}, Everybody: []string{`"` + defaults + `"`, `"port_max":53,"protocol":"tcp","remote":{"cidr_block":"0.0.0.0/0"`},
		Sim: server, Network: network, Provider: Description(),
		Transcripts: transcripts, Secrets: []string{testKey}, Scenarios: scenarios(t, sim), Untranscribed: untranscribed,
		PlannedWrites: plannedWrites, ReadAgain: readAgain,
		Names: func() map[string]string { return identities(sim) }, Unserved: notToAll(), Interrupts: interrupts(),
		Inputs: func() registry.Inputs {
			in := conformance.Inputs(nil, sim.Environment(address))
			in.File = []byte(file)
			return in
		},
	}
	f.Fixed = fixedCases()
	tryNodes(t, sim, f)
	tryLoadBalancers(t, sim, f)
	f.TakenOver = leftBalancers(t, sim, f)
	return tryOthers(t, sim, f)
}

// tryNodes says how the suite tries nodes.
func tryNodes(t testing.TB, sim *ibmsim.Sim, f *conformance.Fixture) {
	t.Helper()
	instanceOf := func(providerID string) string {
		_, _, worker, ok := splitProviderID(providerID)
		require.True(t, ok)
		return worker
	}
	f.AddInstance = func(name string) string { return ibmsim.ProviderID(sim.AddInstance(name)) }
	f.RemoveInstance = func(id string) { sim.Remove(instanceOf(id)) }
	f.Resize = func(id string) {
		sim.Edit(instanceOf(id), func(i *ibmsim.Instance) { i.Profile = "bx2-8x32" })
	}
	f.PowerOff = func(id string) { require.NoError(t, sim.SetStatus(instanceOf(id), "stopped")) }
	f.InstanceListing = "GET /v1/instances"
	f.RefuseAccount = func() { sim.SetKey("another") }
	f.OtherAccount = sim.SwitchAccount
	f.MalformedIDs = []string{providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "A"}
}

package vsphere

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

const withZones = `
global: {server: "SERVER1", user: ccm@vsphere.local, password: ccm-password}
labels: {zone: k8s-zone, region: k8s-region}
`

func TestZones(t *testing.T) {
	inWorld(t, withZones, nil, func(w *testWorld) {
		sim := w.sims[0]
		m := sim.Add(vspheresim.Spec{Name: "worker"})
		sim.Tag("k8s-region", "eu", sim.Datacenter("DC0"))
		sim.Tag("other", "x", sim.Datacenter("DC0"))
		w.start()
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, `there is no category of tags named "k8s-zone"; create it, or correct labels.zone of the cloud config`)

		sim.Tag("k8s-zone", "pool-a", sim.Pool("DC0"))
		w.Later()
		got, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		assert.Equal(w, []string{"pool-a", "eu"}, []string{got.Zone, got.Region}, "the host has no zone, the resource pool has one")

		sim.Tag("k8s-zone", "host-a", sim.HostOf(m))
		sim.Tag("k8s-zone", "cluster-a", sim.Cluster("DC0"))
		time.Sleep(2 * tagsAge)
		got, err = w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		assert.Equal(w, []string{"cluster-a", "eu"}, []string{got.Zone, got.Region}, "until there is a region the outer one counts")
		w.requireNothingRefused()
	})
}

func TestZonesOfTheFolder(t *testing.T) {
	inWorld(t, withZones, nil, func(w *testWorld) {
		sim := w.sims[0]
		sim.Add(vspheresim.Spec{Name: "worker"})
		sim.Tag("k8s-region", "eu", sim.Folder("DC0"))
		w.start()
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.Error(w, err)
		sim.Tag("k8s-zone", "a", sim.Datacenter("DC0"))
		w.Later()
		got, err := w.Metadata(conformance.NewNode("worker", ""))
		require.NoError(w, err)
		assert.Equal(w, []string{"a", "eu"}, []string{got.Zone, got.Region})
	})
}

func TestMissingZoneIsAnError(t *testing.T) {
	inWorld(t, withZones, nil, func(w *testWorld) {
		sim := w.sims[0]
		sim.Add(vspheresim.Spec{Name: "worker"})
		sim.Tag("k8s-region", "eu", sim.Datacenter("DC0"))
		sim.Tag("k8s-zone", "elsewhere", sim.Datastores("DC0"))
		w.start()
		_, err := w.Metadata(conformance.NewNode("worker", ""))
		require.ErrorContains(w, err, "vSphere zone category k8s-zone does not match any tags for mo: host-")
		require.ErrorContains(w, err, "attach tags of the categories k8s-zone and k8s-region")
	})
}

// TestSeveralTagsOfACategory on one object: always the same one counts.
func TestSeveralTagsOfACategory(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			inWorld(t, withZones, nil, func(w *testWorld) {
				sim := w.sims[0]
				sim.Add(vspheresim.Spec{Name: "worker"})
				sim.Tag("k8s-region", "eu", sim.Datacenter("DC0"))
				for _, zone := range []string{"c", "a", "b"} {
					sim.Tag("k8s-zone", zone, sim.Cluster("DC0"))
				}
				w.start()
				got, err := w.Metadata(conformance.NewNode("worker", ""))
				require.NoError(w, err)
				assert.Equal(w, "a", got.Zone)
			})
		})
	}
}

// TestManyNodesCostFewCalls: a start and the initialisation of 200 nodes with zones, in a vCenter with 600 virtual machines; and all of
// them again, later. In the full tier there are 1,000 of 3,000.
func TestManyNodesCostFewCalls(t *testing.T) {
	nodes := 200
	if tier.All() {
		nodes = 1000
	}
	inWorld(t, withZones, nil, func(w *testWorld) {
		sim := w.sims[0]
		sim.Seed(3 * nodes)
		sim.Tag("k8s-region", "eu", sim.Datacenter("DC0"))
		sim.Tag("k8s-zone", "a", sim.Cluster("DC0"))
		w.start()
		initialise := func() {
			for i := range nodes {
				got, err := w.Metadata(conformance.NewNode(fmt.Sprintf("node-%d", i+1), ""))
				require.NoError(w, err)
				require.Equal(w, "a", got.Zone)
			}
		}
		initialise()
		assert.LessOrEqual(w, w.calls(), 15, "%v", w.servers[0].Calls().ByOperation)
		assert.Equal(w, 1, w.servers[0].Calls().ByOperation["Login"])

		w.servers[0].ResetCalls()
		w.Later()
		assert.LessOrEqual(w, w.calls(), 3+3*nodes/100, "vCenter keeps account of changes: %v", w.servers[0].Calls().ByOperation)
		for _, what := range []string{"nothing has changed", "some has changed"} {
			w.servers[0].ResetCalls()
			time.Sleep(70 * time.Second)
			initialise()
			assert.LessOrEqual(w, w.calls(), 4, "%s: %v", what, w.servers[0].Calls().ByOperation)
			assert.Zero(w, w.servers[0].Calls().ByOperation[vspheresim.Listing], what)
			for i := range 3 {
				sim.PowerOff(sim.Instance(fmt.Sprintf("node-%d", 2*nodes+i)))
			}
		}
		assert.Zero(w, w.servers[0].Calls().Writes)
	})
}

package vsphere

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// askTags asks about a node as the controller of labels does, for tags as well.
func (w *testWorld) askTags(n *v1.Node) (told map[string]string, err error) {
	_, err = w.API.InstanceMetadata(contract.WithTags(w.Context(), &told), n)
	return told, err
}

// TestTagsOfMachines: a tag is told as the value of its category, and what is no single value as one that no label can have.
func TestTagsOfMachines(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		sim := w.sims[0]
		m := sim.Add(vspheresim.Spec{Name: "worker"})
		sim.SetTags(m.Ref, map[string]string{"team": "shop"})
		sim.Tag("backup", "weekly", m.Ref)
		sim.Tag("backup", "daily", m.Ref)
		sim.Tag("rack", "7", sim.HostOf(m))
		sim.Tag("audit", "daily", m.Ref) // the same name in another category
		w.start()
		told, err := w.askTags(conformance.NewNode("worker", ""))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "shop", "backup": "daily, weekly", "audit": "daily"}, told)
		w.requireNothingRefused()
	})
}

// TestTagsOfOneVCenter: what another vCenter does not tell holds up nobody's new Node but its own.
func TestTagsOfOneVCenter(t *testing.T) {
	inWorld(t, twoVCenters, []vspheresim.Options{{}, {}}, func(w *testWorld) {
		machines := make([]*vspheresim.Machine, 2)
		for n, sim := range w.sims {
			machines[n] = sim.Add(vspheresim.Spec{Name: fmt.Sprintf("worker-%d", n+1), UUID: fmt.Sprintf("4230aaaa-3f21-5a6b-9c0d-00000000000%d", n+1)})
			sim.SetTags(machines[n].Ref, map[string]string{"team": "shop"})
		}
		w.start()
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		for _, m := range machines {
			require.NoError(t, indexer.Add(nodeOf(m)))
			w.RequireMetadata(nodeOf(m))
		}
		w.cloud.instances.nodes.SetLister(listers.NewNodeLister(indexer))
		w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "tag-association"})
		told, err := w.askTags(conformance.NewNode("worker-2", ""))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "shop"}, told)
		_, err = w.askTags(conformance.NewNode("worker-1", ""))
		require.ErrorContains(t, err, "tag-association")
		told, err = w.askTags(nodeOf(machines[0]))
		require.NoError(t, err, "an initialised Node keeps its labels")
		assert.Empty(t, told)
	})
}

// TestTagsWithoutNames: where the names of some tags cannot be read, a new Node waits and is not told that it has none.
func TestTagsWithoutNames(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		sim := w.sims[0]
		m := sim.Add(vspheresim.Spec{Name: "worker"})
		sim.SetTags(m.Ref, map[string]string{"team": "shop"})
		w.start()
		w.fail(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "tagging/tag/"})
		_, err := w.askTags(conformance.NewNode("worker", ""))
		require.ErrorContains(t, err, "tagging/tag/", "a new Node waits")
	})
}

// TestTagsOfNewMachine: one that no listing has shown yet has its tags as well.
func TestTagsOfNewMachine(t *testing.T) {
	inWorld(t, "", nil, func(w *testWorld) {
		sim := w.sims[0]
		for n := range 9 {
			sim.Add(vspheresim.Spec{Name: fmt.Sprintf("other-%d", n)})
		}
		w.start()
		w.cloud.api.vcenters[0].known.page = 1 // a listing costs more than a single read
		_, err := w.askTags(conformance.NewNode("other-0", ""))
		require.NoError(t, err)
		m := sim.Add(vspheresim.Spec{Name: "worker", UUID: "4230aaaa-3f21-5a6b-9c0d-000000000001"})
		sim.SetTags(m.Ref, map[string]string{"team": "shop"})
		told, err := w.askTags(conformance.NewNode("worker", "vsphere://4230aaaa-3f21-5a6b-9c0d-000000000001"))
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"team": "shop"}, told)
	})
}

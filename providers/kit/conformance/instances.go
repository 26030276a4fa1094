package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

func runInstances(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "metadata by name, then by provider ID", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		id := w.AddInstance("worker")
		node := bareNode("worker")
		first, err := w.instances().InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Equal(t, id, first.ProviderID)
		assert.True(t, contains(first.NodeAddresses, v1.NodeInternalIP), "a node needs an internal address")
		for _, label := range []string{first.InstanceType, first.Region, first.Zone} {
			assert.Empty(t, validation.IsValidLabelValue(label), label)
		}
		node.Spec.ProviderID = first.ProviderID
		w.restart()
		second, err := w.instances().InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Equal(t, first, second, "metadata does not depend on how the instance was found")
		w.requireNothingRefused()
	})

	virtual(t, "life cycle", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		node := w.addNode(t.Context(), "worker", nil)
		w.AddInstance("other")
		w.requireExists(node, true)
		down, err := w.instances().InstanceShutdown(t.Context(), node)
		require.NoError(t, err)
		assert.False(t, down)

		w.PowerOff(node.Spec.ProviderID)
		w.restart()
		w.requireExists(node, true)
		down, err = w.instances().InstanceShutdown(t.Context(), node)
		require.NoError(t, err)
		assert.True(t, down)

		w.RemoveInstance(node.Spec.ProviderID)
		w.restart()
		w.requireExists(node, false)
		_, err = w.instances().InstanceMetadata(t.Context(), node)
		require.ErrorIs(t, err, cloudprovider.InstanceNotFound)
	})
	runInstanceIDs(t, newFixture)
	runInstanceNames(t, newFixture)
	runNodeLabels(t, newFixture)
	runServingCertificates(t, newFixture)
	runInstanceAddresses(t, newFixture)
	runInstanceSharing(t, newFixture)
	runInstanceFaults(t, newFixture)
}

// runInstanceIDs: what is not known to be gone is not called gone.
func runInstanceIDs(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "a node without an instance is not found, and not gone", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		w.AddInstance("other")
		node := bareNode("ghost")
		_, err := w.instances().InstanceMetadata(t.Context(), node)
		require.ErrorIs(t, err, cloudprovider.InstanceNotFound)
		_, err = w.instances().InstanceExists(t.Context(), node)
		require.Error(t, err, "without a provider ID nothing is certain")
	})

	virtual(t, "foreign and malformed provider IDs", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		w.AddInstance("worker")
		w.Sim.ResetCalls()
		node := bareNode("worker")
		node.Spec.ProviderID = "elsewhere://42"
		w.requireExists(node, true)
		down, err := w.instances().InstanceShutdown(t.Context(), node)
		require.NoError(t, err)
		assert.False(t, down)
		m, err := w.instances().InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Nil(t, m, "a tainted node of another cloud is skipped")
		node.Spec.Taints, node.Status.Addresses = nil, []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}
		m, err = w.instances().InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Equal(t, node.Status.Addresses, m.NodeAddresses, "and an untainted one keeps what it has")

		for _, id := range w.MalformedIDs {
			node.Spec.ProviderID = id
			_, err := w.instances().InstanceExists(t.Context(), node)
			require.Error(t, err, id)
			_, err = w.instances().InstanceMetadata(t.Context(), node)
			require.Error(t, err, id)
		}
		assert.Zero(t, w.Sim.Calls().Total, "none of this costs a call")
	})
}

// runInstanceAddresses: what a Node has already is not written.
func runInstanceAddresses(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "addresses as the API server stores them are not written", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		node := w.addNode(t.Context(), "worker", nil)
		reported := node.Status.Addresses
		var kinds []v1.NodeAddressType
		for _, a := range reported {
			if !slices.Contains(kinds, a.Type) {
				kinds = append(kinds, a.Type)
			}
		}
		slices.Reverse(kinds)
		var stored []v1.NodeAddress // grouped by type, in whatever order of types
		for _, kind := range kinds {
			for _, a := range reported {
				if a.Type == kind {
					stored = append(stored, a)
				}
			}
		}
		node.Status.Addresses = stored
		m, err := w.instances().InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Empty(t, m.NodeAddresses)

		node.Status.Addresses = slices.DeleteFunc(slices.Clone(stored), func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP })
		m, err = w.instances().InstanceMetadata(t.Context(), node)
		require.NoError(t, err)
		assert.Equal(t, reported, m.NodeAddresses, "what is missing is written")
	})
}

// runInstanceSharing: Nodes share answers, but no instance.
func runInstanceSharing(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "an instance is one node's alone", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		first := w.addNode(t.Context(), "worker", nil)
		second := bareNode("second")
		second.Spec.ProviderID = first.Spec.ProviderID
		w.shown = []*v1.Node{first, second}
		w.restart()
		_, err := w.instances().InstanceMetadata(t.Context(), second)
		require.ErrorContains(t, err, "is already that of node worker")
		_, err = w.instances().InstanceMetadata(t.Context(), first)
		require.NoError(t, err)
	})

	virtual(t, "many questions at once share their answers", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		const n = 300
		w.Sim.Seed(n)
		w.AddInstance("known")
		_, err := w.instances().InstanceMetadata(t.Context(), bareNode("known"))
		require.NoError(t, err)
		calls := w.Sim.Calls().Total
		all := func() {
			var group sync.WaitGroup
			for i := range n {
				group.Go(func() {
					_, err := w.instances().InstanceMetadata(t.Context(), bareNode(fmt.Sprintf("node-%d", i+1)))
					assert.NoError(t, err)
				})
			}
			group.Wait()
		}
		all()
		assert.LessOrEqual(t, w.Sim.Calls().Total, calls+n*w.CallsPerInstance, "what one listing told is not asked again")
		if w.CallsPerInstance > 0 {
			_, err = w.instances().InstanceMetadata(t.Context(), bareNode("known")) // the listing may have become old meanwhile
			require.NoError(t, err)
			calls = w.Sim.Calls().Total
			all()
			assert.Equal(t, calls, w.Sim.Calls().Total, "nor is what was asked of each")
		}
	})
}

// runInstanceFaults: no failure makes a living node look gone.
func runInstanceFaults(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	faults := []simkit.Fault{
		{Kind: simkit.FaultStatus, Status: 500},
		{Kind: simkit.FaultStatus, Status: 503},
		{Kind: simkit.FaultStatus, Status: 429, RetryAfter: 60},
		{Kind: simkit.FaultStatus, Status: 401},
		{Kind: simkit.FaultStatus, Status: 403},
		{Kind: simkit.FaultReset},
		{Kind: simkit.FaultLost},
		{Kind: simkit.FaultCut},
		{Kind: simkit.FaultHTML},
		{Kind: simkit.FaultHTML, Status: 404},
		// The address of the listing is wrong, that of a single read is not.
		{Kind: simkit.FaultStatus, Status: 404, Operation: readFixture(t, newFixture, func(f *Fixture) string { return f.InstanceListing }) + "$"},
	}
	for _, kind := range readFixture(t, newFixture, func(f *Fixture) []string { return sortedKeys(f.Sim.Distortions()) }) {
		faults = append(faults, simkit.Fault{Kind: kind})
	}
	for _, fault := range faults {
		name := strings.TrimSpace(fmt.Sprint("no living node is gone during ", fault.Kind, " ", fault.Status))
		virtual(t, name, func(t *testing.T) {
			w := newWorld(t, newFixture(t))
			node := w.addNode(t.Context(), "worker", nil)
			w.failCalls(fault)
			for range 2 {
				exists, err := w.instances().InstanceExists(t.Context(), node)
				assert.True(t, exists || err != nil, "an answer from memory or an error, but never gone")
				w.restart()
				exists, err = w.instances().InstanceExists(t.Context(), node)
				assert.True(t, exists || err != nil, "nor after a restart")
			}
			w.Sim.ClearFaults()
			w.restart()
			w.requireExists(node, true)
		})
	}
}

func (w *world) requireExists(node *v1.Node, want bool) {
	w.t.Helper()
	exists, err := w.instances().InstanceExists(w.t.Context(), node)
	require.NoError(w.t, err)
	require.Equal(w.t, want, exists)
}

func contains(list []v1.NodeAddress, kind v1.NodeAddressType) bool {
	return slices.ContainsFunc(list, func(a v1.NodeAddress) bool { return a.Type == kind })
}

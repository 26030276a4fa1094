package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// Twins holds hooks by which names of instances are tried. TwinOf and Capitals are each set, or Lacks says why the cloud has no such thing.
type Twins struct {
	// TwinOf starts another instance with a name, which lets kubelet register the same Node, and returns its provider ID.
	TwinOf func(name string) (providerID string)
	// Capitals is the name of an instance whose kubelet registers it in small letters, as kubelets do.
	Capitals string
	// SystemUUID returns the system UUID that kubelet reports on an instance; nil where that tells no two with one name apart.
	SystemUUID func(providerID string) string
}

// runInstanceNames: a name that several instances have makes none of them a Node's by chance.
func runInstanceNames(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.TwinOf != nil }) {
		virtual(t, "two instances have the Node's name", func(t *testing.T) { runTwins(t, newFixture(t), false) })
		virtual(t, "two instances have the Node's name, the other way round", func(t *testing.T) { runTwins(t, newFixture(t), true) })
		for _, restart := range []string{"", ", restart"} {
			virtual(t, "a Node's instance gets a twin"+restart, func(t *testing.T) { runTwinOfNode(t, newFixture(t), restart != "") })
		}
	}
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.Capitals != "" }) {
		virtual(t, "a name in capitals", func(t *testing.T) { runCapitals(t, newFixture(t)) })
	}
}

// runTwins: what has no provider ID is not initialised as one of two, until one is gone or kubelet tells which it runs on.
func runTwins(t *testing.T, f *Fixture, twinFirst bool) {
	t.Helper()
	w := newWorld(t, f)
	start, startTwin := f.AddInstance, f.TwinOf
	if twinFirst {
		start, startTwin = startTwin, start
	}
	ids := []string{start("worker"), startTwin("worker")}
	require.NotEqual(t, ids[0], ids[1])
	for range 2 {
		requireUndecided(w, bareNode("worker"), ids...)
		_, err := w.instances().InstanceExists(t.Context(), bareNode("worker"))
		require.Error(t, err, "without a provider ID nothing is certain")
		w.restart()
	}
	for _, id := range ids {
		node := bareNode("worker")
		node.Spec.ProviderID = id // as kubelet has it with --provider-id
		requireIs(w, node, id)
		if f.SystemUUID != nil {
			node.Spec.ProviderID, node.Status.NodeInfo.SystemUUID = "", f.SystemUUID(id)
			requireIs(w, node, id)
		}
	}
	w.RemoveInstance(ids[0])
	letTwinsPass()
	requireIs(w, bareNode("worker"), ids[1])
	w.requireNothingRefused()
}

// runTwinOfNode: a Node with a provider ID is that instance's, whatever becomes of another one with its name.
func runTwinOfNode(t *testing.T, f *Fixture, restart bool) {
	t.Helper()
	w := newWorld(t, f)
	node := w.addNode(t.Context(), "worker", nil)
	own := node.Spec.ProviderID
	pass := func() {
		if letTwinsPass(); restart {
			w.restart()
		}
	}
	requireUp := func(why string) {
		pass()
		requireIs(w, node, own)
		w.requireExists(node, true)
		down, err := w.instances().InstanceShutdown(t.Context(), node)
		require.NoError(t, err)
		require.False(t, down, why)
	}
	twin := f.TwinOf("worker")
	require.NotEqual(t, own, twin)
	requireUp("it has a twin")
	w.PowerOff(twin)
	requireUp("the twin is stopped")
	w.RemoveInstance(twin)
	requireUp("the twin is gone")
	f.TwinOf("worker")
	w.RemoveInstance(own)
	pass()
	w.requireExists(node, false)
}

// runCapitals: kubelets register in small letters, and of two names the one that is the same comes first or none.
func runCapitals(t *testing.T, f *Fixture) {
	t.Helper()
	w := newWorld(t, f)
	small := strings.ToLower(f.Capitals)
	require.NotEqual(t, small, f.Capitals)
	id := w.AddInstance(f.Capitals)
	requireIs(w, bareNode(small), id)
	node := bareNode(small)
	node.Spec.ProviderID = id
	w.restart()
	requireIs(w, node, id)
	w.requireExists(node, true)
	if f.TwinOf == nil {
		return
	}
	same := f.TwinOf(small)
	letTwinsPass()
	if m, err := w.instances().InstanceMetadata(t.Context(), bareNode(small)); err == nil {
		assert.Equal(t, same, m.ProviderID, "the name that is the same comes first")
	} else {
		requireUndecided(w, bareNode(small), id, same)
	}
	requireIs(w, node, id)
}

// letTwinsPass lets what was remembered of instances become old.
func letTwinsPass() { time.Sleep(10 * time.Minute) }

// requireIs: a Node is that instance.
func requireIs(w *world, node *v1.Node, id string) {
	w.t.Helper()
	m, err := w.instances().InstanceMetadata(w.t.Context(), node)
	require.NoError(w.t, err)
	require.NotNil(w.t, m)
	require.Equal(w.t, id, m.ProviderID)
}

// requireUndecided: a Node is initialised as no instance, and the error names all that it may be.
func requireUndecided(w *world, node *v1.Node, ids ...string) {
	w.t.Helper()
	m, err := w.instances().InstanceMetadata(w.t.Context(), node)
	require.Error(w.t, err, "it is one of two, by chance")
	assert.Nil(w.t, m)
	for _, id := range ids {
		assert.ErrorContains(w.t, err, id, "the error names both")
	}
}

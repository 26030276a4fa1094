package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// runKubelets is about what a kubelet may write, and about machines with several interfaces.
func runKubelets(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		virtual(t, name+" and addresses that Nodes do not have", func(t *testing.T) { runFalseAddresses(t, newFixture(t), name) })
	}
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.AddInterface != nil }) {
		for _, name := range readFixture(t, newFixture, serviceNames) {
			virtual(t, name+" and a second interface", func(t *testing.T) { runSecondInterface(t, newFixture(t), name) })
		}
	}
}

// falseAddresses are addresses that a Node tells of and its machine does not have.
func falseAddresses(other *v1.Node) map[string][]v1.NodeAddress {
	return map[string][]v1.NodeAddress{
		"none": nil, "another node's": other.Status.Addresses,
		"a stranger's": {
			{Type: v1.NodeInternalIP, Address: "10.66.66.66"},
			{Type: v1.NodeInternalIP, Address: "2001:db8:6666::66"},
			{Type: v1.NodeExternalIP, Address: "203.0.113.66"},
			{Type: v1.NodeHostName, Address: "stranger"},
		},
	}
}

// runFalseAddresses: what a Node tells in its status becomes neither a backend nor an opening.
func runFalseAddresses(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	s := w.Services[name].Service
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	honest := w.nodes
	tell := func(addresses []v1.NodeAddress, liar int) {
		w.nodes = []*v1.Node{honest[0], honest[1]}
		w.nodes[liar] = honest[liar].DeepCopy()
		w.nodes[liar].Status.Addresses = addresses
		w.shown = w.nodes
		w.restart()
	}
	tell(honest[0].Status.Addresses, 0)
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	before := w.Snapshot()
	w.Sim.ResetCalls()
	for liar := range honest {
		for what, addresses := range falseAddresses(honest[1-liar]) {
			tell(addresses, liar)
			w.update(ctx, s, func() {})
			w.ensure(ctx, s, nil)
			assert.Equal(t, before, w.Snapshot(), what)
		}
	}
	w.requireNoWrites("machines have what they had")
	w.goes(ctx, s)
	w.remove(ctx, s, nil)
	assert.Empty(t, w.Snapshot(), "nothing is left")
	next := featureService(w.SourceRanges.With)
	w.forget(ctx, s)
	w.createService(ctx, next)
	tell(falseAddresses(honest[1])["a stranger's"], 0)
	w.ensure(ctx, next, nil)
	assert.NotContains(t, w.Snapshot(), ".66.66", "when it is made")
}

// runSecondInterface: a machine that gets a second interface, in another subnet, keeps its addresses in front of that one's, and is
// reached as before, by a Service that is served already and by the next one.
func runSecondInterface(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	s := w.Services[name].Service
	node := w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	before, first := w.Snapshot(), internalAddress(node.Status.Addresses)
	w.AddInterface(node.Spec.ProviderID)
	w.restart()
	silent := node.DeepCopy()
	silent.Status.Addresses = nil // the guard leaves out what a Node says already
	m, err := w.instances().InstanceMetadata(ctx, silent)
	require.NoError(t, err)
	assert.Equal(t, first, internalAddress(m.NodeAddresses), "%v", m.NodeAddresses)
	node.Status.Addresses = m.NodeAddresses
	w.Sim.ResetCalls()
	w.update(ctx, s, func() {})
	w.ensure(ctx, s, nil)
	w.requireNoWrites("it is reached as before")
	w.goes(ctx, s)
	w.remove(ctx, s, nil)
	w.forget(ctx, s)
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	assert.Equal(t, before, w.Snapshot())
}

// internalAddress is the first internal address of a list.
func internalAddress(list []v1.NodeAddress) string {
	for _, a := range list {
		if a.Type == v1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

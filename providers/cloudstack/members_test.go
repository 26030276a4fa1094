package cloudstack

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
)

// TestMachinesThatCannotServeKeepNobodyOut: one machine that is destroyed, in another network, or without any interface keeps no other one
// out.
func TestMachinesThatCannotServeKeepNobodyOut(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		destroyed := w.addNode("worker-3")
		w.addNode("worker-4", w.sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "second"}))
		bare := w.addNode("worker-5")
		idOf := func(n *v1.Node) string { return strings.TrimPrefix(n.Spec.ProviderID, providerIDPrefix) }
		w.sim.Edit(idOf(bare), func(v *cloudstacksim.VM) { v.NICs = nil })
		require.NoError(t, w.sim.SetStatus(idOf(destroyed), "Destroyed"))
		s := w.requireServed(w.serve("web", port("http", 80, 30080)))
		assert.Len(t, w.sim.Rules()[0].Members, 2)
		require.NoError(t, w.sim.SetStatus(idOf(destroyed), "Running"))
		w.waitUntilForgotten()
		w.requireServed(s)
		assert.Len(t, w.sim.Rules()[0].Members, 3)
		// A machine is destroyed between the listing and the assignment.
		w.addNode("worker-6")
		require.NoError(t, w.sim.SetStatus(idOf(w.addNode("worker-7")), "Destroyed"))
		w.waitUntilForgotten()
		w.requireServed(s)
		assert.Len(t, w.sim.Rules()[0].Members, 4)
	})
}

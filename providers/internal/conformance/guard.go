package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// limited is a policy whose limits show without waiting.
var limited = guard.Policy{Confirmations: 3, Window: time.Hour, MaxShare: 0.2, Floor: 2}

// guardedWorld has n nodes that are older than any grace period.
func guardedWorld(t *testing.T, f *Fixture, n int, policy guard.Policy) *world {
	t.Helper()
	w := newWorld(t, f)
	for i := range n {
		w.addNode(t.Context(), fmt.Sprintf("worker-%d", i), nil)
	}
	for i, node := range w.nodes {
		node.UID = "" // the name serves
		node.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour - time.Duration(i)))
	}
	w.policy = policy
	w.restart()
	return w
}

// pass plays one pass of the lifecycle loop over nodes that are not ready, and returns the names of those that the
// framework would delete.
func (w *world) pass(nodes []*v1.Node) []string {
	var deleted []string
	for _, n := range nodes {
		if exists, err := w.instances().InstanceExists(w.t.Context(), n); err == nil && !exists {
			deleted = append(deleted, n.Name)
		}
	}
	return deleted
}

func runGuard(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	t.Run("one of ten goes after three answers", func(t *testing.T) {
		t.Parallel()
		w := guardedWorld(t, newFixture(t), 10, limited)
		w.pass(w.nodes) // all are seen
		w.RemoveInstance(w.nodes[3].Spec.ProviderID)
		w.restart()
		w.pass(w.nodes[4:])
		var passes [][]string
		for range 3 {
			passes = append(passes, w.pass(w.nodes[3:4]))
		}
		assert.Equal(t, [][]string{nil, nil, {w.nodes[3].Name}}, passes)
	})
	t.Run("a newborn is kept", func(t *testing.T) {
		t.Parallel()
		policy := limited
		policy.GracePeriod = time.Hour * 24
		w := guardedWorld(t, newFixture(t), 3, policy)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
	})
	t.Run("another account: every instance vanishes", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{2, 3, 10} {
			w := guardedWorld(t, newFixture(t), n, limited)
			w.OtherAccount()
			w.restart()
			for range 5 {
				assert.Empty(t, w.pass(w.nodes), "%d nodes", n)
			}
		}
	})
	t.Run("half the cluster vanishes", func(t *testing.T) {
		t.Parallel()
		w := guardedWorld(t, newFixture(t), 10, limited)
		for _, n := range w.nodes[:5] {
			w.RemoveInstance(n.Spec.ProviderID)
		}
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
		policy := limited
		policy.MaxShare = 1
		w.policy = policy
		w.restart()
		var deleted []string
		for range 3 {
			deleted = append(deleted, w.pass(w.nodes)...)
		}
		assert.Len(t, deleted, 5, "the operator has lifted the limit")
	})
	t.Run("the account cannot be read", func(t *testing.T) {
		t.Parallel()
		w := guardedWorld(t, newFixture(t), 1, limited)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		w.RefuseAccount()
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
	})
	t.Run("the only node of a cluster goes", func(t *testing.T) {
		t.Parallel()
		w := guardedWorld(t, newFixture(t), 1, limited)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		assert.Empty(t, w.pass(w.nodes))
		assert.Empty(t, w.pass(w.nodes))
		assert.Len(t, w.pass(w.nodes), 1)
	})
	t.Run("flapping answers", func(t *testing.T) {
		t.Parallel()
		w := guardedWorld(t, newFixture(t), 10, limited)
		for range 3 { // two calls out of three say that a living instance is gone
			w.restart()
			w.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: 404, Operation: "{id}", Count: 2})
			for range 4 {
				assert.Empty(t, w.pass(w.nodes[:1]))
			}
			w.Sim.ClearFaults()
		}
	})
	t.Run("a stale listing", func(t *testing.T) {
		t.Parallel()
		w := guardedWorld(t, newFixture(t), 3, limited)
		w.pass(w.nodes) // a listing is in memory
		id := w.AddInstance("late")
		late := bareNode("late")
		late.Spec.ProviderID, late.Spec.Taints, late.CreationTimestamp = id, nil, metav1.NewTime(time.Now().Add(-time.Hour))
		for range 5 {
			assert.Empty(t, w.pass([]*v1.Node{late}), "what the listing does not know yet is no ghost")
		}
		w.requireExists(late, true)
	})
	t.Run("dry run", func(t *testing.T) {
		t.Parallel()
		policy := limited
		policy.DryRun = true
		w := guardedWorld(t, newFixture(t), 5, policy)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
	})
	t.Run("the selector", func(t *testing.T) {
		t.Parallel()
		policy := limited
		policy.NodeSelector = "pool=ours"
		w := guardedWorld(t, newFixture(t), 3, policy)
		w.nodes[0].Labels = map[string]string{"pool": "ours"}
		for _, n := range w.nodes[1:] {
			w.RemoveInstance(n.Spec.ProviderID)
		}
		w.Sim.ResetCalls()
		for range 5 {
			assert.Empty(t, w.pass(w.nodes[1:]))
		}
		m, err := w.instances().InstanceMetadata(t.Context(), bareNode("worker-1"))
		require.NoError(t, err)
		assert.Nil(t, m)
		assert.Zero(t, w.Sim.Calls().Total, "nodes outside the selector cost no call")
	})
}

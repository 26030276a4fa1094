package conformance

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// strictPolicy is a policy whose limits show without waiting.
var strictPolicy = guard.Policy{Confirmations: 3, Window: time.Hour, MaxShare: 0.2, Floor: 2}

// newGuardedWorld returns a world with n nodes that are older than any grace period.
func newGuardedWorld(t *testing.T, f *Fixture, n int, policy guard.Policy) *world {
	t.Helper()
	w := newWorld(t, f)
	for i := range n {
		w.addNode(t.Context(), fmt.Sprintf("worker-%d", i), nil)
	}
	for i, node := range w.nodes {
		node.UID = "" // the name serves
		node.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour - time.Duration(i)))
	}
	w.shown = w.nodes
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

// passAtOnce is a pass in which the loop's workers ask at the same time.
func (w *world) passAtOnce(nodes []*v1.Node) []string {
	const workers = 20
	var mu sync.Mutex
	var group sync.WaitGroup
	var deleted []string
	slots := make(chan struct{}, workers)
	for _, n := range nodes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			gone := w.pass([]*v1.Node{n})
			mu.Lock()
			defer mu.Unlock()
			deleted = append(deleted, gone...)
		})
	}
	group.Wait()
	return deleted
}

func runGuard(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "one of ten goes after three answers", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 10, strictPolicy)
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
	virtual(t, "a Node younger than the grace period is kept", func(t *testing.T) {
		policy := strictPolicy
		policy.GracePeriod = time.Hour * 24
		w := newGuardedWorld(t, newFixture(t), 3, policy)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
	})
	virtual(t, "another account: every instance vanishes", func(t *testing.T) {
		for _, n := range []int{2, 3, 10} {
			w := newGuardedWorld(t, newFixture(t), n, strictPolicy)
			w.OtherAccount()
			w.restart()
			for range 5 {
				assert.Empty(t, w.pass(w.nodes), "%d nodes", n)
			}
		}
	})
	virtual(t, "half the cluster vanishes", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 10, strictPolicy)
		for _, n := range w.nodes[:5] {
			w.RemoveInstance(n.Spec.ProviderID)
		}
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
		policy := strictPolicy
		policy.MaxShare = 1
		w.policy = policy
		w.restart()
		var deleted []string
		for range 3 {
			deleted = append(deleted, w.pass(w.nodes)...)
		}
		assert.Len(t, deleted, 5, "the operator has lifted the limit")
	})
	runGuardAnnounced(t, newFixture)
	runGuardCosts(t, newFixture)
	runGuardLimits(t, newFixture)
	runGuardDoubts(t, newFixture)
	runGuardPolicies(t, newFixture)
	runGuardCredentials(t, newFixture)
}

// runGuardAnnounced: an announcement lifts the limits, and proves nothing.
func runGuardAnnounced(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "an announced removal of every node", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 6, strictPolicy)
		for _, n := range w.nodes {
			n.Spec.Taints = []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: v1.TaintEffectNoSchedule}}
			w.RemoveInstance(n.Spec.ProviderID)
		}
		w.restart()
		assert.Empty(t, w.pass(w.nodes))
		assert.Empty(t, w.pass(w.nodes))
		assert.Len(t, w.pass(w.nodes), 6)
	})
	virtual(t, "an announced removal of a node that lives", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 3, strictPolicy)
		w.nodes[0].Spec.Taints = []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: v1.TaintEffectNoSchedule}}
		for range 5 {
			assert.Empty(t, w.pass(w.nodes[:1]))
		}
	})
}

// runGuardCosts: many Nodes that go at once cost few calls.
func runGuardCosts(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "fifty nodes cost one proof each", func(t *testing.T) {
		const vanished, others = 50, 210
		w := newGuardedWorld(t, newFixture(t), vanished+2, strictPolicy)
		w.Sim.Seed(others)
		for i := range others { // the cluster is large enough that fifty are no share of it
			n := bareNode(fmt.Sprintf("seeded-%d", i))
			n.Spec.Taints = nil
			w.shown = append(w.shown, n)
		}
		for _, n := range w.nodes[:vanished] {
			w.RemoveInstance(n.Spec.ProviderID)
		}
		w.restart()
		w.pass(w.nodes[vanished:])
		w.Sim.ResetCalls()
		var deleted []string
		for range 3 {
			deleted = append(deleted, w.passAtOnce(w.nodes[:vanished])...)
		}
		assert.Len(t, deleted, vanished)
		assert.LessOrEqual(t, w.Sim.Calls().Total, 75, "listings first, then one read of each")
	})
}

// runUnlisted: listings lack what exists, as one does that a filter or a lost permission empties, while kubelets are silent. Each instance
// is read alone once, which serves for as long as a listing would; then single reads stay within one budget, and no Node goes.
func runUnlisted(t *testing.T, f *Fixture) {
	t.Helper()
	const nodes, span, mostSingles = 20, 5 * time.Minute, 1 // a second: the least nodes.Cloud.Price of all clouds
	w := newGuardedWorld(t, f, nodes, strictPolicy)
	w.pass(w.nodes)
	time.Sleep(2 * time.Minute) // or what is remembered would answer
	w.Sim.ResetCalls()
	w.pass(w.nodes)
	listing := w.Sim.Calls().Total
	ids := make([]string, nodes)
	for i, n := range w.nodes {
		ids[i] = path.Base(n.Spec.ProviderID)
	}
	w.failCalls(simkit.Fault{Kind: simkit.FaultUnlisted, Names: strings.Join(ids, ",")})
	w.restart()
	w.Sim.ResetCalls()
	passes := 0
	for began := time.Now(); time.Since(began) < span; time.Sleep(monitorPeriod) {
		assert.Empty(t, w.pass(w.nodes))
		passes++
	}
	calls := w.Sim.Calls()
	t.Logf("%d calls in %s, a listing is %d: %v", calls.Total, span, listing, calls.ByOperation)
	assert.LessOrEqual(t, calls.Total, passes*listing+nodes+int(span.Seconds())*mostSingles)
}

const (
	// monitorPeriod is how often the framework asks for Nodes that are not ready.
	monitorPeriod = 5 * time.Second
	// leasePeriod is how long a kubelet is silent before its Node is not ready.
	leasePeriod = 40 * time.Second
)

// runGuardLimits: fifty Nodes go within 20 s of being asked for, with the cloud's published limits in force and the provider
// keeping to them.
func runGuardLimits(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "nodes that listings lack", func(t *testing.T) { runUnlisted(t, newFixture(t)) })
	if !readFixture(t, newFixture, func(f *Fixture) bool { return f.Limited != nil }) {
		return
	}
	virtual(t, "fifty nodes go within 20 s under the published limits", func(t *testing.T) {
		const vanished, others, most, limit = 50, 210, 75, 20 * time.Second
		w := newGuardedWorld(t, newFixture(t), vanished+2, strictPolicy)
		w.Sim.Seed(others)
		for i := range others {
			n := bareNode(fmt.Sprintf("seeded-%d", i))
			n.Spec.Taints = nil
			w.shown = append(w.shown, n)
		}
		w.Limited()
		w.restart()
		w.pass(w.nodes) // the provider runs
		for _, n := range w.nodes[:vanished] {
			w.RemoveInstance(n.Spec.ProviderID)
		}
		time.Sleep(leasePeriod)
		w.Sim.ResetCalls()
		began, left := time.Now(), slices.Clone(w.nodes[:vanished])
		for len(left) > 0 && time.Since(began) < 2*limit {
			tick := time.Now()
			deleted := w.passAtOnce(left)
			left = slices.DeleteFunc(left, func(n *v1.Node) bool { return slices.Contains(deleted, n.Name) })
			if len(left) > 0 {
				time.Sleep(max(0, monitorPeriod-time.Since(tick)))
			}
		}
		assert.Empty(t, left)
		assert.LessOrEqual(t, time.Since(began), limit)
		calls := w.Sim.Calls()
		assert.LessOrEqual(t, calls.Total, most)
		for _, c := range calls.Latest {
			assert.NotEqual(t, http.StatusTooManyRequests, c.Status, "the provider keeps to the limits by itself")
		}
	})
}

// runGuardDoubts: what is no evidence deletes nothing.
func runGuardDoubts(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "a witness is read after the suspicion", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 10, strictPolicy)
		w.pass(w.nodes) // all were seen
		w.OtherAccount()
		time.Sleep(time.Minute) // or what is remembered would answer
		for range 5 {
			assert.Empty(t, w.pass(w.nodes[:1]), "what was seen before says nothing of the credential now")
		}
	})
	virtual(t, "the credential is refused", func(t *testing.T) {
		policy := strictPolicy
		policy.MaxShare = 1 // no limit holds what a provider calls gone
		w := newGuardedWorld(t, newFixture(t), 3, policy)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		w.RefuseAccount()
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
	})
	virtual(t, "the only node of a cluster is held, for nothing shows whose account answers", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 1, strictPolicy)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
		w.policy.MaxShare = 1
		w.restart()
		assert.Empty(t, w.pass(w.nodes))
		assert.Empty(t, w.pass(w.nodes))
		assert.Len(t, w.pass(w.nodes), 1, "the operator has lifted the limit")
	})
	virtual(t, "flapping answers", func(t *testing.T) { runFlappingAnswers(t, newFixture(t)) })
	virtual(t, "a stale listing", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 3, strictPolicy)
		w.pass(w.nodes) // a listing is in memory
		id := w.AddInstance("late")
		late := bareNode("late")
		late.Spec.ProviderID, late.Spec.Taints, late.CreationTimestamp = id, nil, metav1.NewTime(time.Now().Add(-time.Hour))
		for range 5 {
			assert.Empty(t, w.pass([]*v1.Node{late}), "what the listing does not know yet is no ghost")
		}
		w.requireExists(late, true)
	})
}

// runFlappingAnswers: listings say again and again that a living instance is gone, and reads of it alone that it lives. That its Node
// goes where these deny it, too, shows that the answers of the listings counted. Where the provider sees by itself that something is
// missing in a listing, that is an error each time.
func runFlappingAnswers(t *testing.T, f *Fixture) {
	t.Helper()
	w := newGuardedWorld(t, f, 10, strictPolicy)
	node := w.nodes[0]
	id := path.Base(node.Spec.ProviderID)
	const tries = 12
	// passes returns whether the Node was deleted, how many calls asked for its instance alone, and how often there was no answer.
	passes := func() (deleted bool, single, failed int) {
		w.restart()
		w.Sim.ResetCalls()
		w.failCalls(simkit.Fault{Kind: simkit.FaultUnlisted, Names: id})
		defer w.Sim.ClearFaults()
		for range tries {
			exists, err := w.instances().InstanceExists(t.Context(), node)
			if err != nil {
				failed++
			}
			deleted = deleted || (err == nil && !exists)
			time.Sleep(monitorPeriod)
		}
		for _, c := range w.Sim.Calls().Latest {
			if strings.Contains(c.URL+c.Body, id) {
				single++
			}
		}
		return deleted, single, failed
	}
	for range 3 {
		deleted, single, failed := passes()
		assert.False(t, deleted)
		if failed == tries {
			return
		}
		require.Positive(t, single, "%v", w.Sim.Calls().ByOperation)
	}
	w.failCalls(simkit.Fault{Kind: simkit.FaultVanished, Names: id})
	deleted, _, _ := passes()
	assert.True(t, deleted, "%v", w.Sim.Calls().ByOperation)
}

// runGuardPolicies: what the operator excludes is left alone.
func runGuardPolicies(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "dry run", func(t *testing.T) {
		policy := strictPolicy
		policy.DryRun = true
		w := newGuardedWorld(t, newFixture(t), 5, policy)
		w.RemoveInstance(w.nodes[0].Spec.ProviderID)
		for range 5 {
			assert.Empty(t, w.pass(w.nodes))
		}
	})
	virtual(t, "the selector", func(t *testing.T) {
		policy := strictPolicy
		policy.NodeSelector = "pool=ours"
		w := newGuardedWorld(t, newFixture(t), 3, policy)
		w.nodes[0].Labels = map[string]string{"pool": "ours"}
		for _, n := range w.nodes[1:] {
			w.RemoveInstance(n.Spec.ProviderID)
		}
		time.Sleep(time.Second) // the provider before has ended its session
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

// kubelet makes Nodes look as their kubelets leave them, and waits until everybody has heard of that and no answer of before serves.
func kubelet(status v1.ConditionStatus, nodes ...*v1.Node) {
	for _, n := range nodes {
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
	}
	time.Sleep(time.Minute)
}

// runGuardCredentials: another credential takes the place of the first one while the program runs, and kubelets stop for a while.
func runGuardCredentials(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	marked := func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Effect: v1.TaintEffectNoExecute}}
	}
	virtual(t, "another account while running", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 10, strictPolicy)
		kubelet(v1.ConditionTrue, w.nodes...)
		w.pass(w.nodes)
		marked(w.nodes[1])
		w.OtherAccount()
		for round := range 3 {
			kubelet(v1.ConditionUnknown, w.nodes[:round+1]...)
			for range 5 {
				assert.Empty(t, w.pass(w.nodes[:round+1]))
			}
		}
	})
	virtual(t, "a part of the account while running", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 30, strictPolicy)
		kubelet(v1.ConditionTrue, w.nodes...)
		w.pass(w.nodes)
		for _, n := range w.nodes[26:] {
			w.RemoveInstance(n.Spec.ProviderID)
		}
		marked(w.nodes[26])
		kubelet(v1.ConditionUnknown, w.nodes[26:28]...)
		w.Sim.ResetCalls()
		for range 3 {
			assert.Empty(t, w.pass(w.nodes[26:28]), "others are ready although their instances are not seen")
		}
		assert.LessOrEqual(t, w.Sim.Calls().Total, 20)
		// Now their machines are missed, too, as they are where they are really gone.
		kubelet(v1.ConditionUnknown, w.nodes[28:]...)
		assert.Len(t, w.pass(w.nodes[26:28]), 2)
	})
	virtual(t, "a credential that sees a part of the machines", func(t *testing.T) { runPartSeen(t, newFixture(t)) })
	virtual(t, "a credential that lists a part of the machines and may read none", func(t *testing.T) { runNoneReadable(t, newFixture(t)) })
	virtual(t, "an announced removal of all nodes but those that are ready", func(t *testing.T) {
		w := newGuardedWorld(t, newFixture(t), 8, strictPolicy)
		kubelet(v1.ConditionTrue, w.nodes...)
		w.pass(w.nodes)
		for _, n := range w.nodes[2:] {
			marked(n)
			w.RemoveInstance(n.Spec.ProviderID)
		}
		kubelet(v1.ConditionUnknown, w.nodes[2:]...)
		assert.Empty(t, w.pass(w.nodes[2:]))
		assert.Empty(t, w.pass(w.nodes[2:]))
		assert.Len(t, w.pass(w.nodes[2:]), 6)
	})
}

// blindFor is for how long a credential does not see what it saw before.
const blindFor = 10 * time.Minute

// runPartSeen: while one kubelet is silent, half of the instances are not seen any more. Its Node stays, and an event says why.
func runPartSeen(t *testing.T, f *Fixture) {
	t.Helper()
	w := newGuardedWorld(t, f, 10, strictPolicy)
	kubelet(v1.ConditionTrue, w.nodes...)
	w.pass(w.nodes)
	for _, n := range w.nodes[5:] {
		w.RemoveInstance(n.Spec.ProviderID)
	}
	kubelet(v1.ConditionUnknown, w.nodes[5])
	for began := time.Now(); time.Since(began) < blindFor; time.Sleep(monitorPeriod) {
		assert.Empty(t, w.pass(w.nodes[5:6]))
	}
	list, err := w.kube.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(list.Items, func(e v1.Event) bool {
		return e.Reason == guard.EventNodeDeletionHeld && e.InvolvedObject.Name == w.nodes[5].Name &&
			strings.Contains(e.Message, "the credential sees only a part of the cluster")
	}), "an event says why: %v", list.Items)
}

// runNoneReadable: listings lack the instance of a silent kubelet, and whoever reads it alone is forbidden to. That is no absence.
func runNoneReadable(t *testing.T, f *Fixture) {
	t.Helper()
	w := newGuardedWorld(t, f, 10, strictPolicy)
	kubelet(v1.ConditionTrue, w.nodes...)
	w.pass(w.nodes)
	id := path.Base(w.nodes[5].Spec.ProviderID)
	w.failCalls(simkit.Fault{Kind: simkit.FaultUnlisted, Names: id})
	w.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Names: id})
	kubelet(v1.ConditionUnknown, w.nodes[5])
	for began := time.Now(); time.Since(began) < blindFor; time.Sleep(monitorPeriod) {
		assert.Empty(t, w.pass(w.nodes[5:6]))
	}
}

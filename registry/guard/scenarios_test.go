package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// kubeletGrace is how long a Node looks ready after its machine is gone.
const kubeletGrace = 50 * time.Second

// shownCloud shows instances by the names of their Nodes.
type shownCloud struct {
	fake.Cloud

	mu      sync.Mutex
	hidden  map[string]bool
	failure error
	// account is the error of a call that needs nothing but the account.
	account error
	// failing are Nodes that cannot be asked about.
	failing map[string]bool
	// senseless are Nodes with an ID that no call is made for.
	senseless map[string]bool
	// listing is set for a cloud where listing all instances is cheap; listed is when it was, and unlisted what was hidden then.
	listing  bool
	listed   time.Time
	unlisted map[string]bool
	// listings counts those, singles the reads that no listing could answer.
	listings, singles int
}

func (c *shownCloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// InstanceExists answers as the shared view of a provider does: from a listing that is young enough, or by one where many are asked
// about together, else by a single read.
func (c *shownCloud) InstanceExists(ctx context.Context, n *v1.Node) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := evidence.From(ctx)
	if c.senseless[n.Name] {
		return false, errors.New("this is no ID")
	}
	if !d.MemoryOnly && (c.failure != nil || c.failing[n.Name]) {
		return false, cmp.Or(c.failure, assert.AnError)
	}
	listed := !d.ListedSince.IsZero()
	if listed && c.listing && !d.MemoryOnly && c.listed.Before(d.ListedSince) {
		c.listings++
		c.listed, c.unlisted = time.Now(), maps.Clone(c.hidden)
	}
	switch {
	case listed && !c.listed.IsZero() && !c.listed.Before(d.ListedSince):
		return !c.unlisted[n.Name], nil
	case d.MemoryOnly:
		return false, evidence.ErrUnread
	case !listed:
		c.singles++
	}
	return !c.hidden[n.Name], nil
}

// CheckAPI makes a call that needs no more than the account.
func (c *shownCloud) CheckAPI(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.account
}

// hide makes instances invisible, as to a credential with fewer rights.
func (c *shownCloud) hide(nodes ...*v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		c.hidden[n.Name] = true
	}
}

// show takes it back.
func (c *shownCloud) show(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		delete(c.hidden, n)
	}
}

func (c *shownCloud) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return false, nil }

func (c *shownCloud) InstanceMetadata(_ context.Context, n *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hidden[n.Name] {
		return nil, fmt.Errorf("node %s: %w", n.Name, cloudprovider.InstanceNotFound)
	}
	return &cloudprovider.InstanceMetadata{ProviderID: n.Spec.ProviderID}, c.failure
}

// cluster plays the framework's loops over Nodes whose instances come and go.
type cluster struct {
	t      *testing.T
	policy Policy
	cloud  *shownCloud
	guard  *Cloud
	events *record.FakeRecorder
	nodes  cache.Indexer
	began  time.Time
	// notReady is when the kubelet of a Node stops, or is taken for stopped; until is when it works again.
	notReady, until map[string]time.Time
	deleted         map[string]time.Duration
	pass            int
	// asked answers the framework.
	asked cloudprovider.InstancesV2
}

func newCluster(t *testing.T, n int, change func(*Policy)) *cluster {
	t.Helper()
	c := &cluster{
		t: t, policy: DefaultPolicy(), cloud: &shownCloud{hidden: map[string]bool{}, listing: true}, began: time.Now(),
		nodes:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		notReady: map[string]time.Time{}, until: map[string]time.Time{}, deleted: map[string]time.Duration{},
	}
	if change != nil {
		change(&c.policy)
	}
	c.join("n", n)
	c.lead()
	return c
}

// lead makes a guard that remembers nothing, as a new leader has it.
func (c *cluster) lead() {
	c.guard = Wrap(c.cloud, Facts{Provider: "shown", ProviderIDPrefixes: []string{"shown://"}, Policy: c.policy})
	c.events = record.NewFakeRecorder(100000)
	start(c.guard, c.nodes, c.events)
	c.asked, _ = c.guard.ForControllers().InstancesV2()
	c.addresses()
}

func (c *cluster) join(prefix string, n int) {
	for i := range n {
		name := fmt.Sprintf("%s%03d", prefix, i)
		require.NoError(c.t, c.nodes.Add(&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
			Spec:       v1.NodeSpec{ProviderID: "shown://" + name},
			Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
		}))
	}
}

// each changes the Nodes whose names begin so, from the first to before the last number.
func (c *cluster) each(from, to int, change func(*v1.Node)) {
	for i := from; i < to; i++ {
		object, exists, err := c.nodes.GetByKey(fmt.Sprintf("%s%03d", "n", i))
		require.NoError(c.t, err)
		if node, ok := object.(*v1.Node); ok && exists {
			node = node.DeepCopy()
			change(node)
			require.NoError(c.t, c.nodes.Update(node))
		}
	}
}

func taint(key string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
	}
}

// vanish takes instances away; their kubelets are missed later.
func (c *cluster) vanish(n *v1.Node) {
	c.cloud.hidden[n.Name] = true
	c.notReady[n.Name] = time.Now().Add(kubeletGrace)
}

// spell makes a living kubelet look stopped for a while.
func (c *cluster) spell(n *v1.Node) {
	c.notReady[n.Name], c.until[n.Name] = time.Now(), time.Now().Add(time.Minute)
}

func (c *cluster) list() []*v1.Node {
	var all []*v1.Node
	for _, object := range c.nodes.List() {
		if n, ok := object.(*v1.Node); ok {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// addresses is a cycle of the loop that asks about the Nodes that are initialised.
func (c *cluster) addresses() {
	in, _ := c.guard.InstancesV2()
	for _, n := range c.list() {
		_, _ = in.InstanceMetadata(c.t.Context(), n)
	}
}

// run lets time pass, with a pass of the lifecycle loop every 5 s and an address cycle every 5 minutes.
func (c *cluster) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Second) {
		for _, n := range c.list() {
			at, stopped := c.notReady[n.Name]
			back, returns := c.until[n.Name]
			down := stopped && !time.Now().Before(at) && (!returns || time.Now().Before(back))
			if down == isReady(n) {
				n = n.DeepCopy()
				n.Status.Conditions[0].Status = map[bool]v1.ConditionStatus{true: v1.ConditionUnknown, false: v1.ConditionTrue}[down]
				require.NoError(c.t, c.nodes.Update(n))
			}
			if !down {
				continue
			}
			exists, err := c.asked.InstanceExists(c.t.Context(), n)
			require.NoError(c.t, err, "the framework logs each error")
			if !exists {
				c.deleted[n.Name] = time.Since(c.began)
				require.NoError(c.t, c.nodes.Delete(n))
			}
		}
		if c.pass++; c.pass%60 == 0 {
			c.addresses()
		}
	}
}

// within returns how many Nodes were deleted from one time to another, since the beginning.
func (c *cluster) within(from, to time.Duration) int {
	n := 0
	for _, at := range c.deleted {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// drainEvents returns the texts of the events so far.
func (c *cluster) drainEvents() string {
	var all []string
	for len(c.events.Events) > 0 {
		all = append(all, <-c.events.Events)
	}
	return strings.Join(all, "\n")
}

func TestAnnouncedRemovalIsNotHeld(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		nodes, leave, perMinute int
		change                  func(*Policy)
		mark                    func(*v1.Node)
	}{
		"autoscaler, 10 of 30":           {30, 10, 10, nil, taint("ToBeDeletedByClusterAutoscaler")},
		"autoscaler, 60 of 100":          {100, 60, 10, nil, taint("ToBeDeletedByClusterAutoscaler")},
		"all workers to zero":            {10, 10, 10, nil, taint("ToBeDeletedByClusterAutoscaler")},
		"Karpenter, every node":          {20, 20, 5, nil, taint("karpenter.sh/disrupted")},
		"Karpenter before v1":            {20, 20, 5, nil, taint("karpenter.sh/disruption")},
		"out of service":                 {10, 5, 5, nil, taint("node.kubernetes.io/out-of-service")},
		"being deleted, with finalizers": {10, 10, 10, nil, func(n *v1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"a key of the operator's": {10, 10, 10, func(p *Policy) { p.PlannedKeys = []string{"example.com/leaving"} }, func(n *v1.Node) {
			n.Annotations = map[string]string{"example.com/leaving": ""}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, s.nodes, s.change)
				for from := 0; from < s.leave; from += s.perMinute {
					c.each(from, from+s.perMinute, s.mark)
					c.each(from, from+s.perMinute, c.vanish)
					c.join(fmt.Sprintf("new%d-", from), map[bool]int{true: s.perMinute}[strings.HasPrefix(name, "Karpenter")])
					c.run(time.Minute)
				}
				c.run(90 * time.Second)
				assert.Len(t, c.deleted, s.leave)
				assert.NotContains(t, c.drainEvents(), EventNodeDeletionHeld)
			})
		})
	}
}

func TestUnannouncedLossIsHeldForATime(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct{ nodes, vanish, join int }{
		"a rack, 30 %":           {100, 30, 0},
		"blue/green":             {10, 10, 10},
		"small cluster, 4 of 5":  {5, 4, 0},
		"all but one of hundred": {100, 99, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, s.nodes, nil)
				c.join("green", s.join)
				c.each(0, s.vanish, c.vanish)
				hold := kubeletGrace + c.policy.HoldTime
				c.run(hold + 30*time.Minute)
				assert.Zero(t, c.within(0, hold))
				assert.Len(t, c.deleted, s.vanish, "they go without anybody's help")
				assert.LessOrEqual(t, c.within(hold, hold+time.Minute+5*time.Second), 7, "at a bounded rate")
				assert.Contains(t, c.drainEvents(), "--node-deletion-hold-time")
				assert.LessOrEqual(t, c.cloud.singles, s.vanish*7+60, "few calls meanwhile")
			})
		})
	}
}

func TestSmallLossIsNotHeld(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct{ nodes, vanish int }{
		"one of many": {100, 1}, "a fifth": {100, 20}, "small cluster, up to 3": {5, 3}, "one of two": {2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, s.nodes, nil)
				c.each(0, s.vanish, c.vanish)
				c.run(kubeletGrace + 20*time.Second)
				assert.Len(t, c.deleted, s.vanish)
				assert.LessOrEqual(t, c.cloud.singles, s.vanish+2, "one proof for each, and a witness")
				assert.Empty(t, c.drainEvents())
			})
		})
	}
}

// TestContradictionOutlastsReadiness: Nodes that were ready for long while the cloud called their instances gone are not deleted
// when their kubelets stop to answer, all at once or one alone.
func TestContradictionOutlastsReadiness(t *testing.T) {
	t.Parallel()
	for _, hidden := range []int{1, 4, 15} {
		t.Run(strconv.Itoa(hidden), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 100, nil)
				c.each(0, hidden, func(n *v1.Node) { c.cloud.hidden[n.Name] = true })
				c.lead()
				c.run(time.Hour)
				c.each(0, hidden, c.spell)
				c.run(2 * time.Minute)
				assert.Empty(t, c.deleted)
				assert.Contains(t, c.drainEvents(), EventNodeDeletionHeld)
			})
		})
	}
}

// TestOthersNodesAreNoWitnesses: another release's Nodes may be in another account.
func TestOthersNodesAreNoWitnesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 7, func(p *Policy) { p.NodeSelector = "pool=a" })
		c.each(0, 3, func(n *v1.Node) { n.Labels = map[string]string{"pool": "a"} })
		c.lead()
		c.run(time.Minute)
		c.each(0, 3, func(n *v1.Node) { c.cloud.hidden[n.Name] = true })
		c.each(0, 3, c.spell)
		c.run(10 * time.Minute)
		assert.Empty(t, c.deleted)
	})
}

func TestAnotherAccountDeletesNothing(t *testing.T) {
	t.Parallel()
	for name, hidden := range map[string]int{"another account": 20, "another project, one node seen": 19, "a part is seen": 10, "a few are seen": 16} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 20, nil)
				c.each(0, hidden, func(n *v1.Node) { c.cloud.hidden[n.Name] = true })
				c.lead()
				for round := range 4 { // kubelets of living machines are restarted
					c.each(round*4, round*4+4, c.spell)
					c.run(11 * time.Minute)
				}
				c.run(2 * time.Hour)
				assert.Empty(t, c.deleted)
				assert.Contains(t, c.drainEvents(), EventNodeDeletionHeld)
			})
		})
	}
}

func TestVanishedClusterIsHeldUntilAPersonActs(t *testing.T) {
	t.Parallel()
	for n, long := range map[int]time.Duration{1: 12 * time.Hour, 2: 2 * time.Hour, 10: 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, n, nil)
			c.each(0, n, c.vanish)
			c.run(long)
			assert.Empty(t, c.deleted, "%d nodes", n)
			told := c.drainEvents()
			assert.Contains(t, told, "kubectl delete node")
			assert.Contains(t, told, "--node-deletion-max-share=1")

			c.policy.MaxShare = 1
			c.lead()
			c.run(time.Minute)
			assert.Len(t, c.deleted, n)
		})
	}
}

func TestNewLeaderBeginsTheHoldAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100, nil)
		c.each(0, 30, c.vanish)
		c.run(12 * time.Minute)
		c.lead()
		c.run(14 * time.Minute)
		assert.Empty(t, c.deleted)
		c.run(10 * time.Minute)
		assert.Len(t, c.deleted, 30)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30, nil)
		c.each(0, 10, taint("ToBeDeletedByClusterAutoscaler"))
		c.each(0, 10, c.vanish)
		c.run(kubeletGrace + 7*time.Second)
		c.lead()
		c.run(30 * time.Second)
		assert.Len(t, c.deleted, 10, "what was announced goes under the new leader too")
	})
}

func TestSuspectThatComesBackProlongsTheHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, nil)
		c.each(0, 10, c.vanish)
		c.run(10 * time.Minute)
		delete(c.cloud.hidden, "n003")
		c.run(13 * time.Minute)
		assert.Empty(t, c.deleted, "10 + 13 minutes, but only 13 in which nothing contradicted")
		c.run(10 * time.Minute)
		assert.Len(t, c.deleted, 9)
	})
}

func TestOutageIsNoProof(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, nil)
		c.each(0, 2, c.vanish)
		c.cloud.failure = assert.AnError
		c.run(time.Hour)
		assert.Empty(t, c.deleted)
		c.cloud.failure = nil
		c.run(30 * time.Second)
		assert.Len(t, c.deleted, 2)
	})
}

func TestSlowLossIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100, nil)
		for i := range 40 { // 40 within 10 minutes
			c.each(i, i+1, c.vanish)
			c.run(15 * time.Second)
		}
		// A fifth may go. Each waits for the kubelets that still look ready though their machines are gone too.
		assert.LessOrEqual(t, len(c.deleted), 20)
		assert.GreaterOrEqual(t, len(c.deleted), 12)
		c.run(40 * time.Minute)
		assert.Len(t, c.deleted, 40)
	})
}

func TestDryRunDeletesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, func(p *Policy) { p.DryRun = true })
		c.each(0, 2, c.vanish)
		c.run(time.Hour)
		assert.Empty(t, c.deleted)
		assert.Contains(t, c.drainEvents(), "--node-deletion-dry-run keeps it")
	})
}

// TestNodesDeletedByHandHoldNoOthers: once a person has deleted the Nodes that were held, the next loss is judged for itself.
func TestNodesDeletedByHandHoldNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100, nil)
		c.each(0, 30, c.vanish)
		c.run(3 * time.Minute)
		require.Empty(t, c.deleted)
		for _, n := range c.list()[:30] {
			require.NoError(t, c.nodes.Delete(n))
		}
		c.drainEvents()
		c.run(30 * time.Second)
		c.each(50, 51, c.vanish)
		c.run(kubeletGrace + time.Minute)
		assert.Len(t, c.deleted, 1)
		assert.Empty(t, c.drainEvents())
	})
}

package guard

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// TestAgeIsThatOfOurOwnKnowledge: a clock that runs ahead of the API server's makes no Node older, one that runs behind none younger.
func TestAgeIsThatOfOurOwnKnowledge(t *testing.T) {
	t.Parallel()
	for name, created := range map[string]time.Duration{"ours is right": 0, "ours is ahead": -time.Hour, "ours is behind": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 20, nil)
				c.run(time.Minute)
				c.join("new", 1)
				joined := c.list()[20].DeepCopy()
				joined.CreationTimestamp = metav1.NewTime(time.Now().Add(created))
				require.NoError(t, c.nodes.Update(joined))
				c.vanish(joined)
				c.notReady[joined.Name] = time.Now()
				c.run(c.policy.GracePeriod - time.Second)
				assert.Empty(t, c.deleted)
				c.run(15 * time.Second)
				assert.Len(t, c.deleted, 1)
			})
		})
	}
}

// TestLyingKubeletHoldsNothing: what nobody but a kubelet says of an instance is no contradiction.
func TestLyingKubeletHoldsNothing(t *testing.T) {
	t.Parallel()
	for name, taints := range map[string][]v1.Taint{
		"not initialized":              {{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule}},
		"registered as if it had been": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 50, nil)
				c.run(time.Minute)
				c.join("liar", 1)
				liar := c.list()[0].DeepCopy()
				liar.Spec.Taints = taints
				require.NoError(t, c.nodes.Update(liar))
				c.cloud.hide(liar)
				tellNode(c.guard, liar, false)
				c.run(20 * time.Minute)
				c.each(0, 2, c.vanish)
				c.run(kubeletGrace + 20*time.Second)
				assert.Len(t, c.deleted, 2)
				assert.NotContains(t, c.drainEvents(), EventNodeDeletionHeld)
			})
		})
	}
}

// TestContradictionByANodeOfBefore: a Node that was initialized before this process began counts, though it was never seen since.
func TestContradictionByANodeOfBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 50, nil)
		c.cloud.hide(c.list()[47:]...)
		c.lead()
		for _, n := range c.list() {
			tellNode(c.guard, n, true)
		}
		c.each(47, 49, c.spell)
		c.run(time.Hour)
		assert.Empty(t, c.deleted)
	})
}

// TestNodesAreHeardOf: by the informer of the cluster's Nodes, which tells those that were there before.
func TestNodesAreHeardOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		named := func(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
		kube := fake.NewClientset(named("before"))
		g := guarded(&cloud{})
		stop := make(chan struct{})
		defer close(stop)
		factory := informers.NewSharedInformerFactory(kube, 0)
		g.stop = stop
		g.SetInformers(factory)
		factory.Start(stop)
		synctest.Wait()
		time.Sleep(time.Minute)
		_, err := kube.CoreV1().Nodes().Create(t.Context(), named("after"), metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		joined := time.Now()
		time.Sleep(time.Minute)
		assert.Equal(t, joined.Add(-time.Minute), knownSince(g, named("before")))
		assert.Equal(t, joined, knownSince(g, named("after")))
		assert.False(t, isKnownByKubeletAlone(g, named("before")))
		assert.True(t, isKnownByKubeletAlone(g, named("after")))
		recordExists(g, named("after"))
		assert.False(t, isKnownByKubeletAlone(g, named("after")))
	})
}

// TestDepartedNodesAreForgotten: nothing is remembered of Nodes that are no more.
func TestDepartedNodesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30, nil)
		c.each(0, 3, c.vanish)
		c.run(time.Hour)
		require.Len(t, c.deleted, 3)
		known, _ := countRecords(c.guard)
		assert.Equal(t, 27, known)
	})
}

// TestNodesThatNobodyAsksAboutAreForgotten: where the node controllers are off, Nodes come and go, and nothing of them stays.
func TestNodesThatNobodyAsksAboutAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		for i := range 50 {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "short-lived", UID: types.UID(strconv.Itoa(i))}}
			require.NoError(t, c.nodes.Add(n))
			tellNode(c.guard, n, false)
			require.NoError(t, c.nodes.Delete(n))
			time.Sleep(2 * sweepPause)
		}
		known, _ := countRecords(c.guard)
		assert.LessOrEqual(t, known, 5)
	})
}

// TestDepartedContradictionsAreForgotten: what was ready for long while it was called gone is remembered until the Node has gone.
func TestDepartedContradictionsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30, nil)
		c.each(0, 3, func(n *v1.Node) { c.cloud.hidden[n.Name] = true })
		c.run(time.Hour)
		_, missed := countRecords(c.guard)
		require.Equal(t, 3, missed)
		for _, n := range c.list()[:3] {
			require.NoError(t, c.nodes.Delete(n))
		}
		c.run(20 * time.Minute)
		_, missed = countRecords(c.guard)
		assert.Zero(t, missed)
	})
}

// TestNodeMadeAgainIsNew: one that was deleted and made again while nobody watched comes as a change of the old one.
func TestNodeMadeAgainIsNew(t *testing.T) {
	t.Parallel()
	g := guarded(&cloud{})
	before, now := node("alpha://1", false), node("alpha://1", false)
	before.UID, now.UID = "1", "2"
	tellNode(g, before, true)
	knownSince(g, now) // asked about before the informer has told
	tellChange(g, before, now)
	assert.False(t, isKnownByKubeletAlone(g, before))
	assert.True(t, isKnownByKubeletAlone(g, now))
}

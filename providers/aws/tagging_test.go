package aws

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// taggingWorld runs the tagging controller on a fake API server.
type taggingWorld struct {
	*world

	tags string
	stop context.CancelFunc
}

func startTagging(t *testing.T, flags map[string]string, prepare func(*taggingWorld)) *taggingWorld {
	t.Helper()
	w := &taggingWorld{world: newVirtualWorld(t, "", awssim.Options{}), tags: "key1=value1"}
	if prepare != nil {
		prepare(w)
	}
	w.run(flags)
	return w
}

// run begins to tag, with nothing in memory.
func (w *taggingWorld) run(flags map[string]string) {
	w.T.Helper()
	in := testInputs(w.sim, w.url, w.sim.CloudConfig(w.url), nil)
	in.Flags = map[string]string{"tags": w.tags, "resources": "instance"}
	maps.Copy(in.Flags, flags)
	in.Dial = w.dial
	c, err := newCloud(in)
	require.NoError(w.T, err)
	c.kube = w.Kube
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	w.T.Cleanup(cancel)
	factory := informers.NewSharedInformerFactory(w.Kube, 0)
	c.SetInformers(factory)
	started, err := c.StartController(ctx, taggingController)
	require.NoError(w.T, err)
	require.True(w.T, started)
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), c.tagging.informer.HasSynced)
	w.cloud = c
}

// create registers a node with the API server.
func (w *taggingWorld) create(name, providerID string, age time.Duration, labels map[string]string) {
	w.T.Helper()
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
		Spec:       v1.NodeSpec{ProviderID: providerID},
	}
	_, err := w.Kube.CoreV1().Nodes().Create(w.T.Context(), n, metav1.CreateOptions{})
	require.NoError(w.T, err)
}

func (w *taggingWorld) tagsOf(id string) awssim.Tags {
	for _, i := range w.sim.List() {
		if i.ID == id {
			return i.Tags
		}
	}
	return nil
}

func (w *taggingWorld) eventually(what string, ok func() bool) {
	w.T.Helper()
	require.Eventually(w.T, ok, 20*time.Second, 10*time.Millisecond, what)
}

func (w *taggingWorld) labelled(name string) bool {
	n, err := w.Kube.CoreV1().Nodes().Get(w.T.Context(), name, metav1.GetOptions{})
	return err == nil && n.Labels[taggingLabel] == checksum(w.tagging.wanted)
}

func TestTagging(t *testing.T) {
	t.Parallel()
	for _, batching := range []string{"false", "true"} {
		t.Run("batching "+batching, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				flags := map[string]string{"tagging-controller-enable-batching": batching, "tagging-controller-concurrent-node-syncs": "2"}
				w := startTagging(t, flags, nil)
				id := w.sim.AddInstance(awssim.Spec{Name: "one"})
				w.create("one", "aws:///us-east-1a/"+id, 0, nil)
				w.eventually("the instance is tagged and the node labelled", func() bool { return w.tagsOf(id)["key1"] == "value1" && w.labelled("one") })
				n, err := w.Kube.CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, "9767c4972ba72e87ab553bad2afde741", n.Labels[taggingLabel])

				// Other tags: tagged again; what the flag no longer names stays.
				w.stop()
				w.tags = "key1=value1,key2=value2"
				w.run(flags)
				w.eventually("the new tag", func() bool { return w.tagsOf(id)["key2"] == "value2" && w.labelled("one") })

				// The same tags: nothing is done.
				w.stop()
				w.server.ResetCalls()
				w.run(flags)
				second := w.sim.AddInstance(awssim.Spec{Name: "two"})
				w.create("two", "aws:///us-east-1a/"+second, 0, nil)
				w.eventually("the second node", func() bool { return w.labelled("two") })
				assert.Equal(t, 1, w.server.Calls().ByOperation["EC2 CreateTags"])

				// The Node goes: its tags go, others stay.
				require.NoError(t, w.Kube.CoreV1().Nodes().Delete(t.Context(), "one", metav1.DeleteOptions{}))
				w.eventually("the tags are gone", func() bool { return w.tagsOf(id)["key1"] == "" })
				assert.Equal(t, awssim.Tags{"kubernetes.io/cluster/simulated": "owned"}, w.tagsOf(id))
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestTaggingOddNodes: what has no instance to tag costs nothing and holds nobody up.
func TestTaggingOddNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startTagging(t, nil, nil)
		w.create("fargate", "aws:///us-east-1a/x/fargate-10.0.0.1", 0, nil)
		w.create("unnamed", "", 0, nil)
		w.create("kwok", "aws:///us-east-1a/i-kwok", 0, nil)
		w.create("old", "aws:///us-east-1a/i-0123456789abcdef0", time.Hour, nil)
		w.create("done", "aws:///us-east-1a/i-0123456789abcdef1", 0, map[string]string{taggingLabel: checksum(w.tagging.wanted)})
		id := w.sim.AddInstance(awssim.Spec{Name: "good"})
		w.create("good", "aws:///us-east-1a/"+id, 0, nil)
		w.eventually("the good one is tagged", func() bool { return w.labelled("good") })
		w.eventually("the others are dropped", func() bool { return w.tagging.queue.Len() == 0 })
		assert.LessOrEqual(t, w.server.Calls().ByOperation["EC2 CreateTags"], 3)
		w.tagging.enqueue(cache.DeletedFinalStateUnknown{Key: "good", Obj: withID("good", "aws:///us-east-1a/"+id)}, true)
		w.eventually("a Node whose deletion was missed counts, too", func() bool { return w.tagsOf(id)["key1"] == "" })
		w.tagging.enqueue(cache.DeletedFinalStateUnknown{Key: "odd", Obj: "no node"}, true)
	})
}

// TestTaggingYoungNodes: EC2 may not know an instance yet whose node is there already.
func TestTaggingYoungNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startTagging(t, nil, nil)
		w.create("new", "aws:///us-east-1a/i-0123456789abcdef0", 0, nil)
		w.eventually("it is tried again", func() bool { return w.server.Calls().ByOperation["EC2 CreateTags"] > 3 })
	})
}

// TestTaggingGivesUp: nine more tries, and no more.
func TestTaggingGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startTagging(t, nil, nil)
		w.sim.Deny("CreateTags", true)
		id := w.sim.AddInstance(awssim.Spec{Name: "one"})
		w.create("one", "aws:///us-east-1a/"+id, 0, nil)
		w.eventually("all tries are made", func() bool { return w.server.Calls().ByOperation["EC2 CreateTags"] == 1+taggingRequeues })
		w.eventually("and forgotten", func() bool { return w.tagging.queue.NumRequeues(taggingItem{"one", id, false}) == 0 })
	})
}

// TestTaggingBatches: many nodes cost few calls, and one that is gone does not keep the others without tags.
func TestTaggingBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startTagging(t, map[string]string{"tagging-controller-enable-batching": "true"}, func(w *taggingWorld) {
			for i := range 120 {
				id := w.sim.AddInstance(awssim.Spec{Name: fmt.Sprintf("n%d", i)})
				w.create(fmt.Sprintf("n%d", i), "aws:///us-east-1a/"+id, time.Hour, nil)
				if i == 7 {
					w.sim.Remove(id)
				}
			}
		})
		w.eventually("all but one are tagged", func() bool {
			nodes, err := w.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: taggingLabel})
			return err == nil && len(nodes.Items) == 119
		})
		assert.Less(t, w.server.Calls().ByOperation["EC2 CreateTags"], 120)
	})
}

// TestTaggingFlags: what the controller cannot run with ends the program; while it is off, the flags mean nothing.
func TestTaggingFlags(t *testing.T) {
	t.Parallel()
	sim, _ := awssim.New(newRegion(awssim.Options{}))
	in := testInputs(sim, "http://127.0.0.1:1", "", nil)
	c, err := newCloud(in)
	require.NoError(t, err)
	_, err = c.StartController(t.Context(), taggingController)
	require.ErrorContains(t, err, "--tags")
	require.ErrorContains(t, err, "--resources")
	started, err := c.StartController(t.Context(), "another")
	require.NoError(t, err)
	assert.False(t, started)
	for flag, values := range map[string][]string{
		"tags": {"novalue", "=x"}, "resources": {"volume"}, "tagging-controller-rate-limit": {"-1", "x"}, "tagging-controller-burst-limit": {"-1", "1.5"},
		"tagging-controller-concurrent-node-syncs": {"0", "x"}, "tagging-controller-enable-batching": {"maybe"},
	} {
		for _, v := range values {
			in.Flags = map[string]string{flag: v}
			require.ErrorContains(t, Description().Validate(in), "--"+flag, v)
		}
	}
	limited := &tagging{config: taggingConfig{RateLimit: 0.5, Burst: 1}}
	limiter := limited.limiter()
	first, second := limiter.When(taggingItem{node: "a"}), limiter.When(taggingItem{node: "b"})
	assert.Less(t, first, time.Second)
	assert.Greater(t, second, time.Second, "also those that are the first wait")
	assert.False(t, (&tagging{config: taggingConfig{RateLimit: 1}}).isRateLimited(), "one limit alone has no effect")
}

// TestTaggingKeepsLabels: a label that cannot be written is tried again.
func TestTaggingKeepsLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startTagging(t, nil, nil)
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 503, Operation: "EC2 CreateTags", Count: 2})
		require.NoError(t, err)
		id := w.sim.AddInstance(awssim.Spec{Name: "one"})
		w.create("one", "aws:///us-east-1a/"+id, 0, nil)
		w.eventually("after failures", func() bool { return w.labelled("one") })
		require.NoError(t, w.tagging.labelNode(t.Context(), taggingItem{node: "none"}), "a node that went needs no label")
		assert.True(t, apierrors.IsNotFound(func() error {
			_, err := w.Kube.CoreV1().Nodes().Get(t.Context(), "none", metav1.GetOptions{})
			return err
		}()))
	})
}

package guard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestObserverKeepsTheTaint: the observer gets the tags that come with the metadata, and while it fails a new Node gets none.
func TestObserverKeepsTheTaint(t *testing.T) {
	t.Parallel()
	tags := map[string]string{"team": "shop"}
	g := guarded(&cloud{metadata: func(ctx context.Context) (*cloudprovider.InstanceMetadata, error) {
		err := contract.TellTags(ctx, func() (map[string]string, error) { return tags, nil })
		return &cloudprovider.InstanceMetadata{ProviderID: "alpha://1"}, err
	}})
	failure := errors.New("not now")
	var told map[string]string
	observe := func(_ context.Context, _ *v1.Node, _ *cloudprovider.InstanceMetadata, tags map[string]string) error {
		told = tags
		return failure
	}
	g.ObserveMetadata(observe, true)
	in, _ := g.InstancesV2()
	_, err := in.InstanceMetadata(t.Context(), node("", true))
	require.ErrorIs(t, err, failure, "the Node would be initialised")
	assert.Equal(t, tags, told)
	failure = nil
	g.ObserveMetadata(observe, false)
	_, err = in.InstanceMetadata(t.Context(), node("", true))
	require.NoError(t, err)
	assert.Nil(t, told, "tags that nobody asks for are not read")
}

// TestFrequentPassesHoldNobody: with --node-monitor-period below the pause between two searches, Nodes that are lost one after another
// go in time, and no event says that nothing was seen.
func TestFrequentPassesHoldNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100, nil)
		c.run(time.Minute)
		in, _ := c.guard.InstancesV2()
		const lost, period = 15, 2 * time.Second
		for pass := range 30 {
			for _, n := range c.list()[:lost-len(c.deleted)] {
				var number int
				_, err := fmt.Sscanf(n.Name, "n%d", &number)
				require.NoError(t, err)
				if number > pass {
					continue
				}
				n = n.DeepCopy()
				n.Status.Conditions[0].Status = v1.ConditionUnknown
				require.NoError(t, c.nodes.Update(n))
				c.cloud.hide(n)
				if exists, err := in.InstanceExists(t.Context(), n); err == nil && !exists {
					c.deleted[n.Name] = time.Duration(pass-number) * period
					require.NoError(t, c.nodes.Delete(n))
				}
			}
			time.Sleep(period)
		}
		assert.Len(t, c.deleted, lost)
		for name, after := range c.deleted {
			assert.LessOrEqual(t, after, 20*time.Second, name)
		}
		assert.Empty(t, c.drainEvents())
	})
}

// TestOldCopiesDeleteNobody: a pass takes the Nodes at its start, and the framework deletes by name. Whoever has the name by then, or is
// ready again, stays.
func TestOldCopiesDeleteNobody(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1.Node){
		"made again, and not ready yet": func(n *v1.Node) { n.UID = types.UID("another") },
		"ready again":                   func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionTrue },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 30, nil)
				c.run(time.Minute)
				in, _ := c.guard.InstancesV2()
				old := c.list()[0].DeepCopy()
				old.Status.Conditions[0].Status = v1.ConditionUnknown
				require.NoError(t, c.nodes.Update(old))
				c.cloud.hide(old)
				ask := func() {
					exists, err := in.InstanceExists(t.Context(), old)
					require.Error(t, err)
					assert.True(t, exists)
				}
				ask()
				time.Sleep(5 * time.Second)
				ask()
				time.Sleep(5 * time.Second)
				now := old.DeepCopy()
				change(now)
				require.NoError(t, c.nodes.Update(now))
				ask()
				require.NoError(t, c.nodes.Update(old))
				_, _ = in.InstanceExists(t.Context(), old)
				time.Sleep(25 * time.Second)
				exists, err := in.InstanceExists(t.Context(), old)
				require.NoError(t, err, "but for that it would have gone")
				assert.False(t, exists)
			})
		})
	}
}

// TestRestartsDoNotDelayWhatWasAnnounced: the grace period is not for Nodes that were there before this process, if they are removed on
// purpose.
func TestRestartsDoNotDelayWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		initial bool
		age     time.Duration
		gone    int
	}{
		"there before": {true, time.Hour, 10}, "joined": {false, time.Hour, 0}, "new": {true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 30, nil)
				c.each(0, 10, taint("ToBeDeletedByClusterAutoscaler"))
				c.each(0, 10, c.vanish)
				c.run(kubeletGrace)
				c.each(0, 10, func(n *v1.Node) { n.CreationTimestamp = metav1.NewTime(time.Now().Add(-s.age)) })
				c.lead()
				for _, n := range c.list() {
					tellNode(c.guard, n, s.initial)
				}
				c.run(15 * time.Second)
				assert.Len(t, c.deleted, s.gone)
				c.run(15 * time.Second)
				assert.Len(t, c.deleted, 10)
			})
		})
	}
}

// TestNewInstancesProlongNoHold: an instance that the cloud does not show everywhere at first takes back nothing that was said of others.
func TestNewInstancesProlongNoHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100, nil)
		c.run(time.Minute)
		in, _ := c.guard.InstancesV2()
		c.each(0, 30, c.vanish)
		for i := range 10 {
			c.join(fmt.Sprintf("new%d-", i), 1)
			object, _, err := c.nodes.GetByKey(fmt.Sprintf("new%d-000", i))
			require.NoError(t, err)
			n, _ := object.(*v1.Node)
			tellNode(c.guard, n, false)
			c.cloud.hide(n)
			_, err = in.InstanceMetadata(t.Context(), n)
			require.ErrorIs(t, err, cloudprovider.InstanceNotFound)
			c.cloud.show(n.Name)
			_, err = in.InstanceMetadata(t.Context(), n)
			require.NoError(t, err)
			c.run(3 * time.Minute)
		}
		assert.Len(t, c.deleted, 30)
	})
}

// TestManySuspectsCostLittle: a pass over the suspects of a large cluster looks at no more Nodes than it needs for each.
func TestManySuspectsCostLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 400, nil)
		all := c.list()
		freezeNodes(c.guard, append(all[:2:2], make([]*v1.Node, 2000)...)...) // looking at one that is nil crashes
		in, _ := c.guard.InstancesV2()
		for _, n := range all {
			exists, err := in.InstanceExists(t.Context(), n)
			require.NoError(t, err)
			assert.True(t, exists)
		}
		c.each(2, 400, func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionUnknown })
		gone := c.list()[2:]
		c.cloud.hide(gone...)
		c.cloud.listed = time.Time{} // what was listed before shows them
		for _, n := range gone {
			assert.NotPanics(t, func() {
				_, err := in.InstanceExists(t.Context(), n)
				assert.ErrorContains(t, err, "the Node is kept")
			})
		}
	})
}

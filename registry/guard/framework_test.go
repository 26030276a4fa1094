package guard

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// logged returns what something writes to the log.
func logged(t *testing.T, do func()) string {
	t.Helper()
	state := klog.CaptureState()
	defer state.Restore()
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	do()
	klog.Flush()
	return log.String()
}

// TestKeptNodesAreLoggedOnce: a Node that is held, or that the cloud cannot judge, is one line when that begins and one when it ends.
func TestKeptNodesAreLoggedOnce(t *testing.T) {
	for name, s := range map[string]struct {
		begin func(*cluster)
		end   func(*cluster)
	}{
		"held": {func(c *cluster) { c.each(0, 30, c.vanish) }, func(c *cluster) {
			for _, n := range c.list()[:30] {
				c.cloud.show(n.Name)
			}
		}},
		"the cloud fails": {
			func(c *cluster) {
				c.each(0, 30, func(n *v1.Node) { c.notReady[n.Name] = time.Now() })
				c.cloud.failure = errors.New("no such region")
			},
			func(c *cluster) { c.cloud.failure = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := logged(t, func() {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 100, nil)
					c.run(time.Minute)
					s.begin(c)
					c.run(10 * time.Minute)
					s.end(c)
					c.run(10 * time.Minute)
				})
			})
			assert.Len(t, regexp.MustCompile(`(?m)^I.*the Node is kept" node="n007"`).FindAllString(log, -1), 1, log)
			assert.Len(t, regexp.MustCompile(`(?m)^I.*exists after all" node="n007"`).FindAllString(log, -1), 1, log)
			assert.NotRegexp(t, `(?m)^E`, log)
			assert.LessOrEqual(t, strings.Count(log, "\n"), 60)
		})
	}
}

// TestChangingErrorsAreLoggedLessAndLessOften: errors with the number of each call do not fill the log.
func TestChangingErrorsAreLoggedLessAndLessOften(t *testing.T) {
	log := logged(t, func() {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 10, nil)
			c.each(0, 1, func(n *v1.Node) { c.notReady[n.Name] = time.Now() })
			for began := time.Now(); time.Since(began) < time.Hour; c.run(5 * time.Second) {
				c.cloud.failure = errors.New("request " + time.Now().String())
			}
			asked, _ := c.guard.ForControllers().InstancesV2()
			c.cloud.failure = nil
			shutdown, err := asked.InstanceShutdown(t.Context(), c.list()[0])
			require.NoError(t, err)
			assert.False(t, shutdown)
		})
	})
	lines := strings.Count(log, "the Node is kept")
	assert.GreaterOrEqual(t, lines, 5)
	assert.LessOrEqual(t, lines, 12, "of 720 passes")
}

// TestShutdownOfKeptNodesIsNotAsked: the framework asks after it has heard that an instance exists.
func TestShutdownOfKeptNodesIsNotAsked(t *testing.T) {
	t.Parallel()
	down := &downCloud{cloud: &cloud{exists: func(context.Context) (bool, error) { return false, errors.New("no") }}}
	asked, _ := guarded(down.cloud).ForControllers().InstancesV2()
	framed, _ := asked.(*quietInstances)
	framed.inner = down
	for _, want := range []bool{false, true} {
		n := node("alpha://1", false)
		exists, err := asked.InstanceExists(t.Context(), n)
		require.NoError(t, err)
		assert.True(t, exists)
		shutdown, err := asked.InstanceShutdown(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, want, shutdown)
		down.exists = func(context.Context) (bool, error) { return true, nil }
	}
}

type downCloud struct{ *cloud }

func (*downCloud) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return true, nil }

// TestHoldsHaveTwoEnds: whoever was told that a Node is held was told how that may end, and is told how it did.
func TestHoldsHaveTwoEnds(t *testing.T) {
	t.Parallel()
	const deleted = "the Node is deleted now: what held it has ended"
	for name, s := range map[string]struct {
		foretold string
		change   func(*cluster)
		after    time.Duration
		how      string
		ended    int
	}{
		"they come back": {"others are seen and ready", func(c *cluster) {
			for _, n := range c.list()[:30] {
				c.cloud.show(n.Name)
			}
		}, time.Minute, "the Node stays: its instance was seen again", 30},
		"the time is over": {"If they stay away for 15m0s", func(*cluster) {}, 30 * time.Minute, deleted, 30},
		"some are deleted by hand": {"deleted by hand or new Nodes join, the rest go at once", func(c *cluster) {
			for _, n := range c.list()[:20] {
				require.NoError(t, c.nodes.Delete(n))
			}
		}, 2 * time.Minute, deleted, 10},
		"new Nodes join": {"deleted by hand or new Nodes join, the rest go at once", func(c *cluster) { c.join("more", 50) }, 2 * time.Minute, deleted, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 100, nil)
				c.each(0, 30, c.vanish)
				c.run(5 * time.Minute)
				held := c.drainEvents()
				assert.Contains(t, held, EventNodeDeletionHeld)
				assert.Contains(t, held, s.foretold)
				assert.Contains(t, held, "the instances of 30 of 100 Nodes vanished within 10m0s without being announced, more than the 20 that are allowed")
				s.change(c)
				c.run(s.after)
				assert.Equal(t, s.ended, strings.Count(c.drainEvents(), "Normal "+EventNodeDeletionHoldEnded+" "+s.how))
			})
		})
	}
}

// TestNothingIsSaidOfLoadBalancersThatAreNotThere: the framework takes an update that nothing speaks against for one that was made.
func TestNothingIsSaidOfLoadBalancersThatAreNotThere(t *testing.T) {
	t.Parallel()
	failure := errors.New("no")
	for name, c := range map[string]struct {
		served      bool
		fails, want error
	}{
		"served": {true, nil, nil}, "served, and the update fails": {true, failure, failure},
		"not served": {false, nil, cloudprovider.ImplementedElsewhere}, "not served, and the update fails": {false, failure, failure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guarded(&cloud{update: func() error { return c.fails }})
			lb, _ := g.ForControllers().LoadBalancer()
			given := serviceNamed("web")
			now := given.DeepCopy()
			now.Spec.Type = v1.ServiceTypeLoadBalancer
			if c.served {
				now.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			}
			stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			require.NoError(t, stored.Add(now))
			showServices(g.loadBalancers, stored, true)
			err := lb.UpdateLoadBalancer(t.Context(), "c", given, nodesNamed("a"))
			require.ErrorIs(t, err, c.want)
		})
	}
}

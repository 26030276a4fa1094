package guard

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/component-base/metrics"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// showMetrics registers the metrics of a cloud, and returns what shows their values by name and reason.
func showMetrics(t *testing.T, c *Cloud) func() map[string]float64 {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	c.RegisterMetrics(registry.MustRegister, registry.CustomMustRegister)
	return func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		all := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				words := []string{f.GetName()}
				for _, l := range m.GetLabel() {
					if l.GetName() == "reason" {
						words = append(words, l.GetValue())
					}
				}
				all[strings.Join(words, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		return all
	}
}

// TestCountersBeginAtZero: the first increase of a counter shows only where the counter was there before. What only the replica that
// leads can know is there on no other one.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	shown := showMetrics(t, guarded(&cloud{}))
	want := map[string]float64{"anyccm_guard_node_deletions_allowed_total": 0, "anyccm_guard_node_initializations_failed_total": 0}
	for _, why := range []string{"young", "unconfirmed", "pace", "share", "all", "contradiction", "account", "dry-run"} {
		want["anyccm_guard_node_deletions_held_total "+why] = 0
	}
	assert.Equal(t, want, shown())
}

func TestNodesThatWaitAreCounted(t *testing.T) {
	t.Parallel()
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	g := guarded(&cloud{metadata: func(context.Context) (*cloudprovider.InstanceMetadata, error) {
		return nil, errors.New("no such instance")
	}})
	shown := showMetrics(t, g)
	g.ownership.setLister(listers.NewNodeLister(nodes))
	assert.Subset(t, shown(), map[string]float64{
		"anyccm_guard_uninitialized_nodes": 0, "anyccm_guard_oldest_uninitialized_node_timestamp_seconds": 0,
		"anyccm_guard_held_nodes share": 0, "anyccm_guard_held_nodes all": 0, "anyccm_guard_held_nodes contradiction": 0,
		"anyccm_guard_held_nodes account": 0, "anyccm_guard_held_nodes dry-run": 0,
	})
	assert.NotContains(t, shown(), "anyccm_guard_held_nodes young", "it ends by itself")

	for i, id := range []string{"alpha://1", "", "", "other://4"} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), CreationTimestamp: metav1.Unix(int64(1000-100*i), 0),
		}, Spec: v1.NodeSpec{ProviderID: id}}
		if i > 0 {
			n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}
		}
		require.NoError(t, nodes.Add(n))
	}
	instances, _ := g.InstancesV2()
	waits, _, err := nodes.GetByKey("2")
	require.NoError(t, err)
	node, ok := waits.(*v1.Node)
	require.True(t, ok)
	_, err = instances.InstanceMetadata(t.Context(), node)
	require.Error(t, err)
	assert.Subset(t, shown(), map[string]float64{
		"anyccm_guard_uninitialized_nodes": 2, "anyccm_guard_oldest_uninitialized_node_timestamp_seconds": 800,
		"anyccm_guard_node_initializations_failed_total": 1,
	}, "two of ours wait, the oldest was made at 800; another cloud's is its own affair")
}

// TestHeldNodesAreCounted: while the cluster vanishes, each Node counts as held, and none after its instance or the Node itself is
// known again or gone. What is held for seconds on each deletion does not count.
func TestHeldNodesAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, nil)
		held := func() int { return countHeld(c.guard) }
		c.each(0, 4, c.vanish)
		most := 0
		c.run(30 * time.Second)
		assert.Zero(t, held(), "nothing is held yet that would not go by itself")
		for range 20 {
			c.run(time.Minute)
			most = max(most, held())
		}
		assert.Equal(t, 4, most)
		require.NoError(t, c.nodes.Delete(c.list()[0]))
		c.run(2 * time.Second)
		assert.Equal(t, 3, held(), "a Node that is gone is not held, however it went")
		c.cloud.mu.Lock()
		c.cloud.hidden = map[string]bool{}
		c.cloud.mu.Unlock()
		c.notReady = map[string]time.Time{}
		c.run(10 * time.Minute)
		assert.Zero(t, held(), "the instances are seen again")
	})
}

// TestRetainedIsNoOrphan: what was kept as its author wanted costs money on purpose.
func TestRetainedIsNoOrphan(t *testing.T) {
	t.Parallel()
	g := Wrap(&marked{}, Facts{Provider: "alpha", Policy: DefaultPolicy()})
	shown := showMetrics(t, g)
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{
		Name: "s", Namespace: "n", UID: "1", Annotations: map[string]string{contract.AnnotationRetain: "true"},
	}}
	balancers, _ := g.LoadBalancer()
	require.NoError(t, balancers.EnsureLoadBalancerDeleted(t.Context(), "c", service))
	require.NoError(t, g.countOrphansOnce(listers.NewServiceLister(store)))
	assert.InDelta(t, 1, shown()["anyccm_guard_orphans"], 0, "the load balancer of a Service of which nobody knows")
}

// marked is a cloud with the load balancers of the Services 1 and 2.
type marked struct{ cloud }

func (*marked) Orphans(_ context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	left := map[string]bool{"1": true, "2": true}
	for _, s := range services {
		if s.Spec.Type == v1.ServiceTypeLoadBalancer {
			delete(left, string(s.UID))
		}
	}
	return make([]contract.Orphan, len(left)), nil
}
func (*marked) DeleteOrphan(context.Context, contract.Orphan) error { return nil }

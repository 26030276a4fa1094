package guard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// setBench is a guarded cloud with the stand-in that the framework's controller of Services is shown.
type setBench struct {
	*testing.T
	inner   *seeing
	guarded *Cloud
	lb      cloudprovider.LoadBalancer
	store   cache.Store
	view    informers.SharedInformerFactory
	handler cache.ResourceEventHandler
	told    int
}

func newSetBench(t *testing.T) *setBench {
	t.Helper()
	b := &setBench{T: t, inner: &seeing{}}
	b.guarded, _ = translating(b.inner)
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), time.Hour)
	b.store = factory.Core().V1().Nodes().Informer().GetStore()
	b.guarded.ownership.setLister(factory.Core().V1().Nodes().Lister())
	b.view = b.guarded.ServiceNodes(factory)
	b.handler = setHandler(b.guarded.loadBalancers, cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { b.Error("a Node that comes is told as a change of the stand-in") },
		UpdateFunc: func(before, now any) {
			assert.NotEqual(b, before.(*v1.Node).Spec.ProviderID, now.(*v1.Node).Spec.ProviderID, "the controller looks at no other change")
			b.told++
		},
		DeleteFunc: func(any) { b.Error("a Node that goes is told as a change of the stand-in") },
	})
	b.lb, _ = b.guarded.LoadBalancer()
	return b
}

// change puts a Node where the informer has it, or takes it away where there is none now, and reports whether the controller hears of it.
func (b *setBench) change(before, now *v1.Node) bool {
	b.Helper()
	told := b.told
	switch {
	case before == nil:
		require.NoError(b, b.store.Add(now))
		b.handler.OnAdd(now, false)
	case now == nil:
		require.NoError(b, b.store.Delete(before))
		b.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: before.Name, Obj: before})
	default:
		require.NoError(b, b.store.Update(now))
		b.handler.OnUpdate(before, now)
	}
	return b.told > told
}

// shown are the Nodes that the controller is shown.
func (b *setBench) shown() []*v1.Node {
	b.Helper()
	list, err := b.view.Core().V1().Nodes().Lister().List(everything)
	require.NoError(b, err)
	return list
}

// update acts like the controller when the stand-in changes, and returns the names of the Nodes passed to the cloud.
func (b *setBench) update() string {
	b.Helper()
	require.NoError(b, b.lb.UpdateLoadBalancer(b.Context(), "c", asking(nil), b.shown()))
	return b.inner.nodes
}

// TestStandIn: the framework sees one object, which is another one where other Nodes may receive traffic, and the cloud gets these.
func TestStandIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newSetBench(t)
		assert.Empty(t, b.shown(), "so that the framework says that there are no Nodes")
		a, c := labelled("a", nil), labelled("c", nil)
		assert.True(t, b.change(nil, a))
		assert.True(t, b.change(nil, c))
		two := b.shown()
		require.Len(t, two, 1)
		assert.Equal(t, "all 2 nodes", two[0].Name)
		assert.Equal(t, "a,c", b.update())

		assert.False(t, b.change(a, a), "an informer shows everything again from time to time")
		beat := a.DeepCopy()
		beat.ResourceVersion = "2"
		assert.False(t, b.change(a, beat), "a kubelet lives")
		assert.Equal(t, two, b.shown())

		foreign := labelled("f", nil)
		foreign.Spec.ProviderID = "beta://f"
		assert.False(t, b.change(nil, foreign), "another cloud's")
		assert.Equal(t, two, b.shown())
		assert.Equal(t, "a,c", b.update())

		uninitialized := labelled("d", nil)
		uninitialized.Spec.ProviderID = ""
		assert.True(t, b.change(nil, uninitialized))
		assert.NotEqual(t, two, b.shown())
		d := labelled("d", nil)
		assert.True(t, b.change(uninitialized, d), "it has its provider ID now")
		assert.Equal(t, "a,c,d", b.update())
		three := b.shown()

		excluded := labelled("d", map[string]string{v1.LabelNodeExcludeBalancers: ""})
		assert.True(t, b.change(d, excluded))
		assert.Equal(t, "a,c", b.update())
		assert.Equal(t, two, b.shown(), "the same Nodes have the same stand-in")
		assert.True(t, b.change(excluded, labelled("d", map[string]string{v1.LabelNodeExcludeBalancers: "false"})))
		assert.Equal(t, three, b.shown())

		assert.True(t, b.change(c, nil))
		assert.Equal(t, "a,d", b.update())
		assert.Len(t, setNodes(b.guarded.loadBalancers), 2)
	})
}

// TestLeavingNodes: a Node that is about to go changes nothing by itself, and leaves with the next change.
func TestLeavingNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newSetBench(t)
		a, c, d := labelled("a", nil), labelled("c", nil), labelled("d", nil)
		for _, n := range []*v1.Node{a, c, d} {
			b.change(nil, n)
		}
		tainted, deleted := c.DeepCopy(), d.DeepCopy()
		tainted.Spec.Taints = []v1.Taint{{Key: contract.TaintToBeDeleted}}
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		assert.False(t, b.change(c, tainted))
		assert.False(t, b.change(d, deleted))
		assert.Equal(t, "a", b.update(), "whoever asks gets the Nodes of now")
		assert.True(t, b.change(tainted, c), "it stays after all")
		assert.Equal(t, "a,c", b.update())
	})
}

// TestCopiesBehindTheStandIn: the cloud gets Nodes as they are now, or were a moment ago, and all Services get one list.
func TestCopiesBehindTheStandIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newSetBench(t)
		a := labelled("a", nil)
		b.change(nil, a)
		first, all := b.guarded.loadBalancers.expandNodes(b.shown())
		assert.True(t, all)
		again, _ := b.guarded.loadBalancers.expandNodes(b.shown())
		assert.Same(t, &first[0], &again[0])
		now := labelled("a", map[string]string{"pool": "edge"})
		b.change(a, now)
		time.Sleep(setMaxAge)
		newest, _ := b.guarded.loadBalancers.expandNodes(b.shown())
		assert.Same(t, now, newest[0])
		given := []*v1.Node{a}
		ours, all := b.guarded.loadBalancers.expandNodes(given)
		assert.False(t, all)
		assert.Equal(t, given, ours, "what a command lists is taken as it is")
	})
}

// TestLabelsBehindTheStandIn: a selector follows labels of all Nodes that may receive traffic, and keeps no list of them.
func TestLabelsBehindTheStandIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newSetBench(t)
		edge := map[string]string{"pool": "edge"}
		a, c := labelled("a", edge), labelled("c", nil)
		b.change(nil, a)
		b.change(nil, c)
		s := asking(map[string]string{portable.BackendSelector: "pool=edge"})
		_, err := b.lb.EnsureLoadBalancer(t.Context(), "c", s, b.shown())
		require.NoError(t, err)
		assert.Equal(t, "a", b.inner.nodes)
		assert.Empty(t, followedCalls(b.guarded.loadBalancers)[0].nodes)
		now := labelled("c", edge)
		assert.False(t, b.change(c, now), "the framework looks at no labels")
		tellLabels(b.guarded.loadBalancers, c, now)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, "a,c", b.inner.nodes)
	})
}

// TestNodesThatJoinDuringAReconciliation: what is under way applies them before it ends, and asks for nothing where they are the same.
func TestNodesThatJoinDuringAReconciliation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newSlowCloud()
		inner.ensures = 10 * time.Second
		g := Wrap(inner, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: DefaultPolicy()})
		factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), time.Hour)
		store, view := factory.Core().V1().Nodes().Informer().GetStore(), g.ServiceNodes(factory)
		heard := setHandler(g.loadBalancers, cache.ResourceEventHandlerFuncs{})
		join := func(name string) {
			n := nodesNamed(name)[0]
			assert.NoError(t, store.Add(n))
			heard.OnAdd(n, false)
		}
		shown := func() []*v1.Node {
			list, err := view.Core().V1().Nodes().Lister().List(everything)
			assert.NoError(t, err)
			return list
		}
		join("a")
		service, lb := serviceNamed("web"), g.loadBalancers
		service.Spec.Type = v1.ServiceTypeLoadBalancer
		go func() {
			time.Sleep(2 * time.Second)
			assert.NoError(t, lb.UpdateLoadBalancer(context.Background(), "c", service, shown()), "the same")
			time.Sleep(3 * time.Second)
			join("b")
			assert.NoError(t, lb.UpdateLoadBalancer(context.Background(), "c", service, shown()))
		}()
		_, err := lb.EnsureLoadBalancer(t.Context(), "c", service, shown())
		require.NoError(t, err)
		assert.Equal(t, []string{"ensure web a", "update web a,b"}, inner.calls)
	})
}

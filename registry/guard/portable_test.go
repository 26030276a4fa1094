package guard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const internalOf = "alpha/internal"

// seeing is a cloud that remembers the Services that it got to see.
type seeing struct {
	fake.Cloud
	seen     []*v1.Service
	nodes    string
	informed informers.SharedInformerFactory
}

func (c *seeing) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *seeing) GetLoadBalancer(_ context.Context, _ string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	c.seen = append(c.seen, s)
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, true, nil
}

func (c *seeing) EnsureLoadBalancer(_ context.Context, _ string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	c.seen, c.nodes = append(c.seen, s), namesOf(nodes)
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}}, nil
}

func (c *seeing) UpdateLoadBalancer(_ context.Context, _ string, s *v1.Service, nodes []*v1.Node) error {
	c.seen, c.nodes = append(c.seen, s), namesOf(nodes)
	return nil
}

func (c *seeing) EnsureLoadBalancerDeleted(_ context.Context, _ string, s *v1.Service) error {
	c.seen = append(c.seen, s)
	return nil
}

func (c *seeing) Orphans(_ context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	c.seen = append(c.seen, services...)
	return nil, nil
}

func (*seeing) DeleteOrphan(context.Context, contract.Orphan) error { return nil }

func (c *seeing) MarkedLoadBalancers(_ context.Context, services []*v1.Service) ([]contract.MarkedLoadBalancer, error) {
	c.seen = append(c.seen, services...)
	return nil, nil
}

func (*seeing) RemarkLoadBalancer(context.Context, contract.MarkedLoadBalancer, types.UID) error {
	return nil
}

func (c *seeing) PlanLoadBalancer(_ context.Context, _ string, s *v1.Service, nodes []*v1.Node) (contract.Plan, error) {
	c.seen, c.nodes = append(c.seen, s), namesOf(nodes)
	return contract.Plan{Changes: []contract.Planned{{Action: contract.PlanCreate}}}, nil
}

func (c *seeing) SetInformers(f informers.SharedInformerFactory) { c.informed = f }

// translating puts a guard above a cloud that knows one portable annotation of its own.
func translating(c cloudprovider.Interface) (*Cloud, *record.FakeRecorder) {
	alpha := portable.Cloud{Title: "Alpha", Rows: []schema.AnnotationRow{{
		Key: internalOf, Spec: schema.Spec{Kind: schema.KindBool},
		Serves: []schema.Serves{{
			Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: "false", portable.SchemeInternal: "true"},
		}},
	}}}
	g := Wrap(c, Facts{
		Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: DefaultPolicy(),
		Translate: func(s *v1.Service) portable.Translation { return portable.Translate(alpha, s) },
	})
	events := record.NewFakeRecorder(100)
	g.reports.setRecorder(events)
	return g, events
}

func asking(annotations map[string]string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", Annotations: annotations},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer},
	}
}

func labelled(name string, pairs map[string]string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pairs}, Spec: v1.NodeSpec{ProviderID: "alpha://" + name}}
}

func drained(events *record.FakeRecorder) (all []string) {
	for {
		select {
		case e := <-events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// narrowing is a cloud that shuts out clients also where a Service is refused.
type narrowing struct {
	seeing
	narrowed int
	err      error
}

func (c *narrowing) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *narrowing) NarrowLoadBalancer(context.Context, string, *v1.Service) error {
	c.narrowed++
	return c.err
}

// TestRefusedServicesAreNarrowed: what the guard refuses for another reason keeps no client in whom the Service no longer lets in.
func TestRefusedServicesAreNarrowed(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*v1.Service{
		"an annotation of the guard's": asking(map[string]string{contract.AnnotationIPMode: "nonsense"}),
		"a portable annotation":        asking(map[string]string{portable.Scheme: "nonsense"}),
		"a selector":                   asking(map[string]string{portable.BackendSelector: "pool in (edge)"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &narrowing{}
			g, _ := translating(inner)
			lb, _ := g.LoadBalancer()
			_, err := lb.EnsureLoadBalancer(t.Context(), "c", s, []*v1.Node{labelled("a", nil)})
			require.ErrorContains(t, err, "annotation")
			assert.Equal(t, 1, inner.narrowed, "it is narrowed")
			assert.Empty(t, inner.seen)
			inner.err = errors.New("it stays open")
			_, err = lb.EnsureLoadBalancer(t.Context(), "c", s, []*v1.Node{labelled("a", nil)})
			require.ErrorContains(t, err, "annotation")
			require.ErrorContains(t, err, "it stays open")
		})
	}
}

// TestDisownedServicesAreNotNarrowed: neither one that is refused for another annotation, nor one whose annotation cannot be read, nor one
// that was disowned since.
func TestDisownedServicesAreNotNarrowed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ given, now map[string]string }{
		"disowned":           {given: map[string]string{contract.AnnotationIPMode: "nonsense", contract.AnnotationDisown: "true"}},
		"disowned, it seems": {given: map[string]string{contract.AnnotationDisown: "yes"}},
		"disowned since":     {given: map[string]string{contract.AnnotationIPMode: "nonsense"}, now: map[string]string{contract.AnnotationDisown: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &narrowing{}
			g, _ := translating(inner)
			s := asking(c.given)
			if c.now != nil {
				now := asking(c.now)
				now.Spec.Type = v1.ServiceTypeLoadBalancer
				stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				require.NoError(t, stored.Add(now))
				showServices(g.loadBalancers, stored, true)
			}
			_, err := g.loadBalancers.EnsureLoadBalancer(t.Context(), "c", s, nil)
			require.ErrorContains(t, err, "annotation")
			assert.Zero(t, inner.narrowed)
		})
	}
}

// TestProvidersSeeTranslatedServices: by every call, and by their informers.
func TestProvidersSeeTranslatedServices(t *testing.T) {
	t.Parallel()
	inner := &seeing{}
	g, events := translating(inner)
	s := asking(map[string]string{portable.Scheme: "internal"})
	lb, _ := g.LoadBalancer()
	ctx := t.Context()
	_, err := lb.EnsureLoadBalancer(ctx, "c", s, nil)
	require.NoError(t, err)
	_, _, err = lb.GetLoadBalancer(ctx, "c", s)
	require.NoError(t, err)
	require.NoError(t, lb.UpdateLoadBalancer(ctx, "c", s, []*v1.Node{labelled("a", nil)}))
	_, err = g.PlanLoadBalancer(ctx, "c", s, nil)
	require.NoError(t, err)
	_, err = g.Orphans(ctx, []*v1.Service{s})
	require.NoError(t, err)
	_, err = g.MarkedLoadBalancers(ctx, []*v1.Service{s})
	require.NoError(t, err)
	require.NoError(t, lb.EnsureLoadBalancerDeleted(ctx, "c", s))

	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
	g.SetInformers(factory)
	require.NoError(t, factory.Core().V1().Services().Informer().GetStore().Add(s))
	services := inner.informed.Core().V1().Services()
	listed, err := services.Lister().List(labels.Everything())
	require.NoError(t, err)
	got, err := services.Lister().Services("default").Get("web")
	require.NoError(t, err)
	in, err := services.Lister().Services("default").List(labels.Everything())
	require.NoError(t, err)
	stored := services.Informer().GetStore().List()
	inner.seen = append(inner.seen, append(append(listed, got), in...)...)
	for _, o := range stored {
		one, ok := o.(*v1.Service)
		require.True(t, ok)
		inner.seen = append(inner.seen, one)
	}
	assert.Len(t, inner.seen, 11)
	for i, seen := range inner.seen {
		assert.Equal(t, "true", seen.Annotations[internalOf], "%d", i)
	}
	assert.Len(t, s.Annotations, 1, "the Service itself stays as it is")
	assert.Empty(t, drained(events))
}

// TestNothingAskedChangesNothing: of a Service without portable annotations the provider gets to see the very object that the
// framework has, by every call, so that nothing that it asks of the cloud can differ.
func TestNothingAskedChangesNothing(t *testing.T) {
	t.Parallel()
	inner := &seeing{}
	g, events := translating(inner)
	s := asking(map[string]string{internalOf: "true", "example.com/note": "x", portable.Prefix + "ip-mode": "Proxy"})
	nodes := []*v1.Node{labelled("a", nil), labelled("b", nil)}
	lb, _ := g.LoadBalancer()
	status, err := lb.EnsureLoadBalancer(t.Context(), "c", s, nodes)
	require.NoError(t, err)
	assert.Len(t, status.Ingress, 2, "the status is the cloud's")
	assert.Equal(t, "a,b", inner.nodes)
	_, _, err = lb.GetLoadBalancer(t.Context(), "c", s)
	require.NoError(t, err)
	require.NoError(t, lb.UpdateLoadBalancer(t.Context(), "c", s, nodes))
	_, err = g.PlanLoadBalancer(t.Context(), "c", s, nodes)
	require.NoError(t, err)
	_, err = g.Orphans(t.Context(), []*v1.Service{s})
	require.NoError(t, err)
	require.NoError(t, lb.EnsureLoadBalancerDeleted(t.Context(), "c", s))
	assert.Len(t, inner.seen, 6)
	for i, seen := range inner.seen {
		assert.Same(t, s, seen, "%d", i)
	}
	assert.Empty(t, drained(events))
}

func TestHandlersSeeTranslatedServices(t *testing.T) {
	t.Parallel()
	inner := &seeing{}
	g, _ := translating(inner)
	s := asking(map[string]string{portable.Scheme: "internal"})
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(s), 0)
	g.SetInformers(factory)
	heard := make(chan string, 10)
	_, err := inner.informed.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		one, ok := o.(*v1.Service)
		assert.True(t, ok)
		heard <- one.Annotations[internalOf]
	}})
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	assert.Equal(t, "true", <-heard)
}

// TestRefusedServicesReachNoProvider: what cannot be served creates and changes nothing; nodes still come and go, and the load
// balancer can be deleted.
func TestRefusedServicesReachNoProvider(t *testing.T) {
	t.Parallel()
	inner := &seeing{}
	g, events := translating(inner)
	s := asking(map[string]string{portable.SecurityGroups: "web", portable.Scheme: "internal", portable.Algorithm: portable.SourceIP})
	lb, _ := g.LoadBalancer()
	const refused = `annotation anyccm.io/load-balancer-security-groups: "web" cannot be served on Alpha, so that nothing is created or changed; remove it`
	_, err := lb.EnsureLoadBalancer(t.Context(), "c", s, nil)
	require.EqualError(t, err, refused)
	assert.Empty(t, inner.seen)
	assert.Equal(t, []string{
		`Warning LoadBalancerAnnotationIgnored annotation anyccm.io/load-balancer-algorithm: "source-ip" has no effect on Alpha; remove it`,
		"Warning LoadBalancerConfigError " + refused,
	}, drained(events))
	plan, err := g.PlanLoadBalancer(t.Context(), "c", s, nil)
	require.EqualError(t, err, refused)
	assert.Empty(t, plan.Changes)
	assert.Len(t, plan.Findings, 3, "what is said, and where the scheme comes from")
	require.NoError(t, lb.UpdateLoadBalancer(t.Context(), "c", s, []*v1.Node{labelled("a", nil)}))
	require.NoError(t, lb.EnsureLoadBalancerDeleted(t.Context(), "c", s))
	assert.Len(t, inner.seen, 2)
	assert.Equal(t, "true", inner.seen[0].Annotations[internalOf])
}

// TestLeftAloneSaysNothing: a Service that is disowned is not judged.
func TestLeftAloneSaysNothing(t *testing.T) {
	t.Parallel()
	g, events := translating(&seeing{})
	lb, _ := g.LoadBalancer()
	disowned := asking(map[string]string{portable.SecurityGroups: "web", contract.AnnotationDisown: "true"})
	_, err := lb.EnsureLoadBalancer(t.Context(), "c", disowned, nil)
	require.NoError(t, err)
	assert.Empty(t, drained(events))
}

func TestHostnameInTheStatus(t *testing.T) {
	t.Parallel()
	g, _ := translating(&seeing{})
	lb, _ := g.LoadBalancer()
	s := asking(map[string]string{portable.Hostname: "web.example.com"})
	want := &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: "web.example.com"}}}
	status, err := lb.EnsureLoadBalancer(t.Context(), "c", s, nil)
	require.NoError(t, err)
	assert.Equal(t, want, status)
	status, _, err = lb.GetLoadBalancer(t.Context(), "c", s)
	require.NoError(t, err)
	assert.Equal(t, want, status)
}

func TestBackendSelector(t *testing.T) {
	t.Parallel()
	inner := &seeing{}
	g, events := translating(inner)
	lb, _ := g.LoadBalancer()
	s := asking(map[string]string{portable.BackendSelector: "pool in (edge)"})
	edge, other := map[string]string{"pool": "edge"}, map[string]string{"pool": "batch"}
	nodes := []*v1.Node{labelled("a", edge), labelled("b", other), labelled("c", edge)}
	_, err := lb.EnsureLoadBalancer(t.Context(), "c", s, nodes)
	require.NoError(t, err)
	assert.Equal(t, "a,c", inner.nodes)
	require.NoError(t, lb.UpdateLoadBalancer(t.Context(), "c", s, nodes[:2]))
	assert.Equal(t, "a", inner.nodes)
	assert.Empty(t, drained(events))

	const refused = `annotation anyccm.io/load-balancer-backend-selector: "pool in (edge)" matches none of the 1 nodes that may receive traffic, ` +
		`so that the load balancer stays as it is; change it, or label nodes`
	calls := len(inner.seen)
	_, err = lb.EnsureLoadBalancer(t.Context(), "c", s, nodes[1:2])
	require.EqualError(t, err, refused)
	assert.Equal(t, []string{"Warning LoadBalancerConfigError " + refused}, drained(events))
	require.EqualError(t, lb.UpdateLoadBalancer(t.Context(), "c", s, nodes[1:2]), refused)
	assert.Equal(t, []string{"Warning LoadBalancerConfigError " + refused}, drained(events))
	_, err = g.PlanLoadBalancer(t.Context(), "c", s, nodes[1:2])
	require.EqualError(t, err, refused)
	assert.Empty(t, drained(events), "a plan writes nothing")
	assert.Len(t, inner.seen, calls, "the provider was not asked, so that the previous backends stay")

	unreadable := asking(map[string]string{portable.BackendSelector: "pool in edge"})
	require.ErrorContains(t, lb.UpdateLoadBalancer(t.Context(), "c", unreadable, nodes), "is not a label selector")
	assert.Len(t, inner.seen, calls, "which nodes are meant is not known, so that none joins")
	assert.Len(t, drained(events), 1)

	_, err = lb.EnsureLoadBalancer(t.Context(), "c", s, nil)
	require.NoError(t, err, "where there are no nodes at all the selector is not to blame")
}

// TestLabelsChangeDuringAReconciliation: what is under way applies them before it ends.
func TestLabelsChangeDuringAReconciliation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newSlowCloud()
		inner.ensures = 10 * time.Second
		g, _ := translating(inner)
		lb, _ := g.LoadBalancer()
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		g.ownership.setLister(listers.NewNodeLister(store))
		edge, other := map[string]string{"pool": "edge"}, map[string]string{"pool": "batch"}
		a, b := labelled("a", edge), labelled("b", other)
		require.NoError(t, store.Add(a))
		require.NoError(t, store.Add(b))
		s := asking(map[string]string{portable.BackendSelector: "pool=edge"})
		go func() {
			time.Sleep(5 * time.Second)
			now := labelled("b", edge)
			assert.NoError(t, store.Update(now))
			tellLabels(g.loadBalancers, b, now)
		}()
		_, err := lb.EnsureLoadBalancer(t.Context(), "c", s, []*v1.Node{a, b})
		require.NoError(t, err)
		assert.Equal(t, "a,b", inner.nodesOf("web"))
	})
}

// TestLabelsAreFollowed: the framework tells of Nodes that come and go, and not of labels.
func TestLabelsAreFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &seeing{}
		g, events := translating(inner)
		lb, _ := g.LoadBalancer()
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		g.ownership.setLister(listers.NewNodeLister(store))
		edge, other := map[string]string{"pool": "edge"}, map[string]string{"pool": "batch"}
		a, b := labelled("a", edge), labelled("b", other)
		require.NoError(t, store.Add(a))
		require.NoError(t, store.Add(b))
		s := asking(map[string]string{portable.BackendSelector: "pool=edge"})
		_, err := lb.EnsureLoadBalancer(t.Context(), "c", s, []*v1.Node{a, b})
		require.NoError(t, err)
		assert.Equal(t, "a", inner.nodes)
		relabel := func(before *v1.Node, pairs map[string]string) *v1.Node {
			now := labelled(before.Name, pairs)
			require.NoError(t, store.Update(now))
			tellLabels(g.loadBalancers, before, now)
			time.Sleep(time.Second)
			synctest.Wait()
			return now
		}
		b = relabel(b, edge)
		assert.Equal(t, "a,b", inner.nodes, "the framework's copy of the Node is older than its labels")
		calls := len(inner.seen)
		b = relabel(b, map[string]string{"pool": "edge", "more": "x"})
		assert.Len(t, inner.seen, calls, "no selector looks at that label")
		a = relabel(a, other)
		assert.Equal(t, "b", inner.nodes)
		relabel(b, other)
		assert.Equal(t, "b", inner.nodes, "nobody would be left")
		assert.NotEmpty(t, drained(events))
		relabel(a, edge)
		assert.Equal(t, "a", inner.nodes)
		calls = len(inner.seen)
		require.NoError(t, lb.EnsureLoadBalancerDeleted(t.Context(), "c", s))
		relabel(labelled("a", edge), other)
		assert.Len(t, inner.seen, calls+1, "what is deleted follows nothing")
	})
}

// TestFailedLabelChange: nobody else tries a change of labels again that fails at once, and nobody else tells of it.
func TestFailedLabelChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := newSlowCloud()
		g, events := translating(inner)
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		g.ownership.setLister(listers.NewNodeLister(store))
		edge, other := map[string]string{"pool": "edge"}, map[string]string{"pool": "batch"}
		a, b := labelled("a", edge), labelled("b", other)
		require.NoError(t, store.Add(a))
		require.NoError(t, store.Add(b))
		_, err := g.loadBalancers.EnsureLoadBalancer(t.Context(), "c", asking(map[string]string{portable.BackendSelector: "pool=edge"}), []*v1.Node{a, b})
		require.NoError(t, err)
		inner.failures["web"] = []error{errors.New("no")}
		now := labelled("b", edge)
		require.NoError(t, store.Update(now))
		tellLabels(g.loadBalancers, b, now)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, "a,b", inner.nodesOf("web"))
		told := drained(events)
		require.Len(t, told, 1)
		assert.Contains(t, told[0], "Warning UpdateLoadBalancerFailed")
		assert.Zero(t, g.UpdatesUnderWay())
	})
}

// following is a guarded cloud with a Service whose selector leaves the first of two Nodes.
type following struct {
	*seeing
	guard *Cloud
	s     *v1.Service
}

func newFollowing(t *testing.T) *following {
	t.Helper()
	f := &following{seeing: &seeing{}, s: asking(map[string]string{portable.BackendSelector: "pool=edge"})}
	f.guard, _ = translating(f.seeing)
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	f.guard.ownership.setLister(listers.NewNodeLister(store))
	nodes := []*v1.Node{labelled("a", map[string]string{"pool": "edge"}), labelled("b", map[string]string{"pool": "batch"})}
	for _, n := range nodes {
		require.NoError(t, store.Add(n))
	}
	_, err := f.guard.loadBalancers.EnsureLoadBalancer(t.Context(), "c", f.s, nodes)
	require.NoError(t, err)
	return f
}

// relabel lets the second Node have the label, and returns how many calls the provider got for that.
func (f *following) relabel() int {
	before := len(f.seen)
	tellLabels(
		f.guard.loadBalancers, labelled("b", map[string]string{"pool": "batch"}), labelled("b", map[string]string{"pool": "edge"}),
	)
	time.Sleep(time.Minute)
	synctest.Wait()
	return len(f.seen) - before
}

// TestDisownedFollowsNoLabels: a change of labels is not applied to a load balancer that was disowned since.
func TestDisownedFollowsNoLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowing(t)
		disown(t, f.guard.loadBalancers, f.s)
		assert.Zero(t, f.relabel())
		assert.Empty(t, followedCalls(f.guard.loadBalancers), "what is remembered of it")
	})
}

// TestDeadServiceFollowsNoLabels: the framework skips the deletion of a load balancer that is not there; its Service is dead all the same.
func TestDeadServiceFollowsNoLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowing(t)
		l := f.guard.loadBalancers
		showServices(l, cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), true)
		setProvider(l, &without{f.seeing})
		_, exists, err := l.GetLoadBalancer(t.Context(), "c", f.s)
		require.NoError(t, err)
		require.False(t, exists, "the framework calls nothing else then")
		assert.Empty(t, followedCalls(l), "what is remembered of it")
		assert.Zero(t, f.relabel(), "calls for a Service that is no more")
	})
}

// without is a cloud whose load balancer somebody deleted.
type without struct{ *seeing }

func (*without) GetLoadBalancer(context.Context, string, *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	return nil, false, nil
}

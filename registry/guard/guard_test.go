package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/fake"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

// cloud is a provider whose answers a test chooses.
type cloud struct {
	fake.Cloud
	exists   func(context.Context) (bool, error)
	metadata func(context.Context) (*cloudprovider.InstanceMetadata, error)
	ensure   func(context.Context) (*v1.LoadBalancerStatus, error)
	update   func() error
	routes   func() ([]*cloudprovider.Route, error)
}

func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)   { return c, true }
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }
func (c *cloud) Routes() (cloudprovider.Routes, bool)             { return c, true }
func (c *cloud) InstanceExists(ctx context.Context, _ *v1.Node) (bool, error) {
	return c.exists(ctx)
}

func (c *cloud) InstanceMetadata(ctx context.Context, _ *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return c.metadata(ctx)
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, _ string, _ *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return c.ensure(ctx)
}

func (c *cloud) UpdateLoadBalancer(context.Context, string, *v1.Service, []*v1.Node) error {
	return c.update()
}

func (c *cloud) ListRoutes(context.Context, string) ([]*cloudprovider.Route, error) {
	return c.routes()
}

func guarded(c *cloud) *Cloud {
	return Wrap(c, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: DefaultPolicy()})
}

// TestFrequentQuestionsGetNewAnswers: who has the framework ask more often than it does by default is not told the same each time, and
// who has it ask less often pays no more than before.
func TestFrequentQuestionsGetNewAnswers(t *testing.T) {
	t.Parallel()
	for period, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: 2 * time.Second, 4 * time.Second: 8 * time.Second, 5 * time.Second: 0, time.Minute: 0,
	} {
		var got time.Duration
		policy := DefaultPolicy()
		policy.MonitorPeriod = period
		c := Wrap(&cloud{exists: func(ctx context.Context) (bool, error) {
			got = evidence.From(ctx).Within
			return true, nil
		}}, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: policy})
		instances, _ := c.InstancesV2()
		_, err := instances.InstanceExists(t.Context(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.NodeSpec{ProviderID: "alpha://1"},
		})
		require.NoError(t, err)
		assert.Equal(t, want, got, "asked every %s", period)
	}
}

func node(providerID string, tainted bool) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1.NodeSpec{ProviderID: providerID}}
	if tainted {
		n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}
	}
	return n
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  *cloudprovider.InstanceMetadata
		err     error
		refused string
	}{
		"good":           {&cloudprovider.InstanceMetadata{ProviderID: "alpha://1"}, nil, ""},
		"nothing":        {nil, nil, "returned no metadata for node n"},
		"no provider ID": {&cloudprovider.InstanceMetadata{}, nil, `returned provider ID "" for node n, which does not begin with alpha://`},
		"foreign ID":     {&cloudprovider.InstanceMetadata{ProviderID: "beta://1"}, nil, `returned provider ID "beta://1"`},
		"error":          {nil, cloudprovider.InstanceNotFound, "instance not found"},
	} {
		instances, _ := guarded(&cloud{
			metadata: func(context.Context) (*cloudprovider.InstanceMetadata, error) { return c.answer, c.err },
		}).InstancesV2()
		got, err := instances.InstanceMetadata(t.Context(), node("", true))
		if c.refused == "" {
			require.NoError(t, err, name)
			assert.Equal(t, c.answer, got)
			continue
		}
		require.ErrorContains(t, err, c.refused, name)
		if c.err != nil {
			require.ErrorIs(t, err, c.err)
		}
	}
}

func TestForeignNodesNeverReachTheProvider(t *testing.T) {
	t.Parallel()
	instances, _ := guarded(&cloud{}).InstancesV2() // every question would crash
	n := node("beta://1", false)
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}
	exists, err := instances.InstanceExists(t.Context(), n)
	require.NoError(t, err)
	assert.True(t, exists)
	shutdown, err := instances.InstanceShutdown(t.Context(), n)
	require.NoError(t, err)
	assert.False(t, shutdown)
	m, err := instances.InstanceMetadata(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, n.Status.Addresses, m.NodeAddresses)
	m, err = instances.InstanceMetadata(t.Context(), node("beta://1", true))
	require.NoError(t, err)
	assert.Nil(t, m)
}

func TestUnchangedAddressesAreNotWritten(t *testing.T) {
	t.Parallel()
	hostname, internal := v1.NodeAddress{Type: v1.NodeHostName, Address: "n"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.0.0.1"}
	dual := []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "198.18.0.1"}, internal, {Type: v1.NodeExternalIP, Address: "2001:db8::1"}}
	grouped := []v1.NodeAddress{internal, dual[0], dual[2]} // as the API server stores them
	instances, _ := guarded(&cloud{metadata: func(context.Context) (*cloudprovider.InstanceMetadata, error) {
		return &cloudprovider.InstanceMetadata{ProviderID: "alpha://1", NodeAddresses: dual}, nil
	}}).InstancesV2()
	for name, c := range map[string]struct {
		has     []v1.NodeAddress
		tainted bool
		want    []v1.NodeAddress
		nodeIP  string
	}{
		"the same":                      {dual, false, nil, ""},
		"grouped by type":               {grouped, false, nil, ""},
		"grouped, other types first":    {[]v1.NodeAddress{dual[0], dual[2], internal}, false, nil, ""},
		"the hostname is the kubelet's": {append([]v1.NodeAddress{hostname}, grouped...), false, nil, ""},
		"another order within a type":   {[]v1.NodeAddress{internal, dual[2], dual[0]}, false, dual, ""},
		"one is missing":                {dual[:1], false, dual, ""},
		"one is too many":               {append(slices.Clone(dual), v1.NodeAddress{Type: v1.NodeExternalIP, Address: "192.0.2.1"}), false, dual, ""},
		"another type":                  {[]v1.NodeAddress{dual[0], {Type: v1.NodeInternalIP, Address: "2001:db8::1"}, internal}, false, dual, ""},
		"a new node":                    {nil, true, dual, ""},
		"a new node, same":              {dual, true, dual, ""},
		"--node-ip, written":            {[]v1.NodeAddress{dual[2], internal}, false, nil, "2001:db8::1"},
		"--node-ip, changed":            {[]v1.NodeAddress{dual[0], internal}, false, dual, "2001:db8::1"},
		"--node-ip, new":                {dual, false, dual, "2001:db8::1"},
		"--node-ip, taken away":         {[]v1.NodeAddress{dual[2], internal}, false, dual, ""},
		"--node-ip of no instance":      {dual, false, dual, "192.0.2.1"},
	} {
		n := node("alpha://1", c.tainted)
		n.Status.Addresses = c.has
		if c.nodeIP != "" {
			n.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: c.nodeIP}
		}
		m, err := instances.InstanceMetadata(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, c.want, m.NodeAddresses, name)
	}
	assert.Len(t, dual, 3)
}

func TestPanicsBecomeErrors(t *testing.T) {
	t.Parallel()
	g := guarded(&cloud{}) // calling a nil function panics
	instances, _ := g.InstancesV2()
	_, err := instances.InstanceExists(t.Context(), node("alpha://1", false))
	require.ErrorIs(t, err, errPanic)
	_, err = instances.InstanceMetadata(t.Context(), node("alpha://1", false))
	require.ErrorIs(t, err, errPanic)
	lb, _ := g.LoadBalancer()
	for range 2 {
		_, err = lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{}, nil)
		require.ErrorIs(t, err, errPanic, "and the lock of the Service is free again")
	}
	routes, _ := g.Routes()
	_, err = routes.ListRoutes(t.Context(), "c")
	require.ErrorIs(t, err, errPanic)
}

func TestLoadBalancerAnswers(t *testing.T) {
	t.Parallel()
	var nothing *v1.LoadBalancerStatus
	lb, _ := guarded(&cloud{ensure: func(context.Context) (*v1.LoadBalancerStatus, error) { return nothing, nil }}).LoadBalancer()
	_, err := lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}, nil)
	require.ErrorContains(t, err, "returned no status for Service ns/s")

	retry := cloudproviderapi.NewRetryError("later", time.Minute)
	lb, _ = guarded(&cloud{ensure: func(context.Context) (*v1.LoadBalancerStatus, error) { return nil, retry }}).LoadBalancer()
	_, err = lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{}, nil)
	assert.Same(t, retry, err, "the framework reads the delay from the error")

	lb, _ = guarded(&cloud{update: func() error { return errors.New("called") }}).LoadBalancer()
	require.NoError(
		t,
		lb.UpdateLoadBalancer(t.Context(), "c", &v1.Service{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}, nil),
		"a Service that is being deleted gets no backends",
	)
	require.EqualError(t, lb.UpdateLoadBalancer(t.Context(), "c", &v1.Service{}, nil), "called")
}

func TestCommonAnnotations(t *testing.T) {
	t.Parallel()
	require.NoError(t, contract.Annotations.Defaults())
	calls := 0
	lb, _ := guarded(&cloud{
		ensure: func(context.Context) (*v1.LoadBalancerStatus, error) { calls++; return &v1.LoadBalancerStatus{}, nil },
		update: func() error { calls++; return nil },
	}).LoadBalancer()
	service := func(key, value string) *v1.Service {
		return &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Annotations: map[string]string{key: value}},
			Status:     v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
		}
	}
	disowned := service(contract.AnnotationDisown, "true")
	status, err := lb.EnsureLoadBalancer(t.Context(), "c", disowned, nil)
	require.NoError(t, err)
	assert.Equal(t, &disowned.Status.LoadBalancer, status)
	require.NoError(t, lb.UpdateLoadBalancer(t.Context(), "c", disowned, nil))
	require.NoError(t, lb.EnsureLoadBalancerDeleted(t.Context(), "c", disowned))
	require.NoError(t, lb.EnsureLoadBalancerDeleted(t.Context(), "c", service(contract.AnnotationRetain, "true")))
	err = lb.EnsureLoadBalancerDeleted(t.Context(), "c", service(contract.AnnotationProtect, "true"))
	require.ErrorContains(t, err, "the load balancer of Service ns/s is protected: remove the annotation anyccm.io/protect-load-balancer")
	_, err = lb.EnsureLoadBalancer(t.Context(), "c", service(contract.AnnotationRetain, "maybe"), nil)
	require.ErrorContains(t, err, `annotation anyccm.io/retain-load-balancer: "maybe" is not a boolean`)
	require.Error(t, lb.EnsureLoadBalancerDeleted(t.Context(), "c", service(contract.AnnotationRetain, "maybe")), "in doubt nothing is deleted")
	assert.Zero(t, calls)
	for _, harmless := range []*v1.Service{service(contract.AnnotationRetain, "true"), service(contract.AnnotationProtect, "true")} {
		_, err = lb.EnsureLoadBalancer(t.Context(), "c", harmless, nil)
		require.NoError(t, err)
	}
	assert.Equal(t, 2, calls)
}

func TestIPMode(t *testing.T) {
	t.Parallel()
	vip, proxy := v1.LoadBalancerIPModeVIP, v1.LoadBalancerIPModeProxy
	ingress := func(ip, host string, mode *v1.LoadBalancerIPMode) v1.LoadBalancerIngress {
		return v1.LoadBalancerIngress{IP: ip, Hostname: host, IPMode: mode}
	}
	for name, c := range map[string]struct {
		setting          string
		before, from, to v1.LoadBalancerIngress
	}{
		"new":                                {"", v1.LoadBalancerIngress{}, ingress("192.0.2.1", "", nil), ingress("192.0.2.1", "", nil)},
		"filled in by the API server":        {"", ingress("192.0.2.1", "", &vip), ingress("192.0.2.1", "", nil), ingress("192.0.2.1", "", &vip)},
		"an API server that knows no mode":   {"", ingress("192.0.2.1", "", nil), ingress("192.0.2.1", "", nil), ingress("192.0.2.1", "", nil)},
		"another address":                    {"", ingress("192.0.2.1", "", &vip), ingress("192.0.2.2", "", nil), ingress("192.0.2.2", "", nil)},
		"the setting":                        {"Proxy", ingress("192.0.2.1", "", &vip), ingress("192.0.2.1", "", nil), ingress("192.0.2.1", "", &proxy)},
		"the setting wins over the provider": {"VIP", v1.LoadBalancerIngress{}, ingress("192.0.2.1", "", &proxy), ingress("192.0.2.1", "", &vip)},
		"the setting is withdrawn":           {"", ingress("192.0.2.1", "", &proxy), ingress("192.0.2.1", "", nil), ingress("192.0.2.1", "", nil)},
		"a hostname has none":                {"Proxy", v1.LoadBalancerIngress{}, ingress("", "a.example", nil), ingress("", "a.example", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lb, _ := guarded(&cloud{ensure: func(context.Context) (*v1.LoadBalancerStatus, error) {
				return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{c.from}}, nil
			}}).LoadBalancer()
			s := &v1.Service{Status: v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{c.before}}}}
			if c.setting != "" {
				s.Annotations = map[string]string{contract.AnnotationIPMode: c.setting}
			}
			status, err := lb.EnsureLoadBalancer(t.Context(), "c", s, nil)
			require.NoError(t, err)
			assert.Equal(t, []v1.LoadBalancerIngress{c.to}, status.Ingress)
		})
	}
}

// limited is a failure that says when to come back.
type limited struct{ time.Duration }

func (limited) Error() string            { return "rate limited" }
func (l limited) RetryIn() time.Duration { return l.Duration }

func TestTheFrameworkComesBackWhenTheCloudAllowsIt(t *testing.T) {
	t.Parallel()
	for wait, hinted := range map[time.Duration]bool{40 * time.Second: true, 0: false} {
		lb, _ := guarded(&cloud{ensure: func(context.Context) (*v1.LoadBalancerStatus, error) {
			return nil, fmt.Errorf("creating: %w", limited{wait})
		}}).LoadBalancer()
		_, err := lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{}, nil)
		require.ErrorContains(t, err, "creating: rate limited")
		retry, ok := errors.AsType[*cloudproviderapi.RetryError](err)
		require.Equal(t, hinted, ok)
		if ok {
			assert.Equal(t, wait, retry.RetryAfter())
		}
	}
}

// TestWhatSomebodyWaitsForGoesFirst: new Nodes and new Services before those that work already.
func TestWhatSomebodyWaitsForGoesFirst(t *testing.T) {
	t.Parallel()
	var urgent []bool
	g := guarded(&cloud{
		metadata: func(ctx context.Context) (*cloudprovider.InstanceMetadata, error) {
			urgent = append(urgent, priority.IsUrgent(ctx))
			return &cloudprovider.InstanceMetadata{ProviderID: "alpha://1"}, nil
		},
		ensure: func(ctx context.Context) (*v1.LoadBalancerStatus, error) {
			urgent = append(urgent, priority.IsUrgent(ctx))
			return &v1.LoadBalancerStatus{}, nil
		},
	})
	instances, _ := g.InstancesV2()
	lb, _ := g.LoadBalancer()
	for _, fresh := range []bool{true, false} {
		_, _ = instances.InstanceMetadata(t.Context(), node("alpha://1", fresh))
		s := &v1.Service{}
		if !fresh {
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		}
		_, err := lb.EnsureLoadBalancer(t.Context(), "c", s, nil)
		require.NoError(t, err)
	}
	assert.Equal(t, []bool{true, true, false, false}, urgent)
}

// TestWhatFailsAgainAndAgainIsRoutine: what cannot be made, as beyond a quota, does not starve everything else; work that goes on, and
// only asks for more time, has not failed.
func TestWhatFailsAgainAndAgainIsRoutine(t *testing.T) {
	t.Parallel()
	const tries = 20
	for name, c := range map[string]struct {
		err    error
		urgent bool
	}{
		"beyond the quota": {errors.New("quota exceeded"), false},
		"under way":        {cloudproviderapi.NewRetryError("it is being built", time.Second), true},
	} {
		var services, nodes []bool
		g := guarded(&cloud{
			ensure: func(ctx context.Context) (*v1.LoadBalancerStatus, error) {
				services = append(services, priority.IsUrgent(ctx))
				return nil, c.err
			},
			metadata: func(ctx context.Context) (*cloudprovider.InstanceMetadata, error) {
				nodes = append(nodes, priority.IsUrgent(ctx))
				return nil, errors.New("quota exceeded")
			},
		})
		lb, _ := g.LoadBalancer()
		instances, _ := g.InstancesV2()
		for range tries {
			_, err := lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "1"}}, nil)
			require.Error(t, err)
			_, err = instances.InstanceMetadata(t.Context(), node("alpha://1", true))
			require.Error(t, err)
		}
		assert.True(t, services[0] && nodes[0], name)
		assert.Equal(t, c.urgent, services[tries-1], name)
		assert.False(t, nodes[tries-1], name)
	}
}

func TestRoutesWithoutContentAreRefused(t *testing.T) {
	t.Parallel()
	routes, _ := guarded(&cloud{routes: func() ([]*cloudprovider.Route, error) { return []*cloudprovider.Route{nil}, nil }}).Routes()
	_, err := routes.ListRoutes(t.Context(), "c")
	require.ErrorContains(t, err, "empty route")
}

// permanent is a failure that no repetition mends.
type permanent struct{}

func (permanent) Error() string   { return "quota" }
func (permanent) Temporary() bool { return false }

func TestRoutesAreTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			failures []error
			calls    int
			fails    bool
		}{
			"success":   {nil, 1, false},
			"a hiccup":  {[]error{errors.New("503"), errors.New("503")}, 3, false},
			"for good":  {[]error{errors.New("1"), errors.New("2"), errors.New("3"), errors.New("4"), errors.New("5")}, 4, true},
			"permanent": {[]error{fmt.Errorf("creating: %w", permanent{})}, 1, true},
			"a crash":   {[]error{errPanic}, 1, true},
		} {
			calls := 0
			err := retry(t.Context(), func(context.Context) error {
				calls++
				if calls <= len(c.failures) {
					return c.failures[calls-1]
				}
				return nil
			})
			assert.Equal(t, c.calls, calls, name)
			assert.Equal(t, c.fails, err != nil, name)
		}
	})
}

func TestOneServiceAtATime(t *testing.T) {
	t.Parallel()
	var inside, most atomic.Int32
	lb, _ := guarded(&cloud{ensure: func(context.Context) (*v1.LoadBalancerStatus, error) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		return &v1.LoadBalancerStatus{}, nil
	}}).LoadBalancer()
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			_, err := lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: "same"}}, nil)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	assert.Equal(t, int32(1), most.Load())
	assert.Zero(t, lb.(*loadBalancers).locks.Held(), "nothing is kept for Services that nobody works on")
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		instances, _ := guarded(&cloud{exists: func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }}).InstancesV2()
		began := time.Now()
		_, err := instances.InstanceExists(context.Background(), node("alpha://1", false))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, instanceDeadline, time.Since(began))

		release := make(chan struct{})
		lb, _ := guarded(&cloud{
			ensure: func(context.Context) (*v1.LoadBalancerStatus, error) { <-release; return &v1.LoadBalancerStatus{}, nil },
		}).LoadBalancer()
		go func() { _, _ = lb.EnsureLoadBalancer(context.Background(), "c", &v1.Service{}, nil) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = lb.EnsureLoadBalancer(ctx, "c", &v1.Service{}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded, "waiting for the other worker ends with the context")
		close(release)
	})
}

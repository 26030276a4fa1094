package app

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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
	"k8s.io/component-base/featuregate"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func provider(name string, change func(*registry.Provider)) registry.Provider {
	p := registry.Provider{
		Name: name, Title: name, ProviderIDPrefixes: []string{name + "://"}, Features: registry.Features{LoadBalancers: registry.Done},
		Validate: func(registry.Inputs) error { return nil },
		New: func(registry.Inputs) (cloudprovider.Interface, error) {
			return nil, errors.New("not opened in this test")
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func newManager(t *testing.T, providers ...registry.Provider) *manager {
	t.Helper()
	r := &registry.Registry{}
	for _, p := range providers {
		require.NoError(t, r.Add(p))
	}
	return &manager{providers: r, policy: guard.DefaultPolicy(), stderr: &bytes.Buffer{}, exit: func(int) {}}
}

// Tests that build commands do not run in parallel: the framework's feature gates are global, and each command declares their flag again.

// check parses arguments and returns the program's error for them.
func check(t *testing.T, m *manager, args ...string) error {
	t.Helper()
	m.args = args
	cmd, err := m.command(nil)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(args); err != nil {
		return cmd.FlagErrorFunc()(cmd, err)
	}
	return m.validate()
}

// TestGuardKnowsThePeriod: the framework's flag sets how often Nodes that are not ready are checked.
func TestGuardKnowsThePeriod(t *testing.T) {
	for want, args := range map[time.Duration][]string{5 * time.Second: nil, time.Second: {"--node-monitor-period=1s"}} {
		var got time.Duration
		m := newManager(t, provider("alpha", func(p *registry.Provider) {
			p.Validate = func(in registry.Inputs) error {
				got = in.Guard.MonitorPeriod
				return nil
			}
		}))
		require.NoError(t, check(t, m, args...))
		assert.Equal(t, want, got)
	}
}

// TestApproverNeedsAttestation: the approver is refused on a cloud that does not attest its instances.
func TestApproverNeedsAttestation(t *testing.T) {
	args := []string{"--controllers=*,kubelet-serving-approver"}
	err := check(t, newManager(t, provider("alpha", nil)), args...)
	require.ErrorContains(t, err, "--controllers names kubelet-serving-approver, and alpha approves nothing")
	attests := provider("alpha", func(p *registry.Provider) { p.Features.ServingCertificates = registry.Done })
	require.NoError(t, check(t, newManager(t, attests), args...))
}

// TestAdditionalLabelsGate: a framework without a switch for its own correction of labels leaves them to this program.
func TestAdditionalLabelsGate(t *testing.T) {
	t.Parallel()
	gates := featuregate.NewFeatureGate()
	assert.False(t, correctsAdditional(gates), "this framework has none")
	for _, on := range []bool{false, true} {
		gates = featuregate.NewFeatureGate()
		require.NoError(t, gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{additionalLabelsGate: {Default: on}}))
		assert.Equal(t, on, correctsAdditional(gates))
	}
}

// TestRulesForTags: faults of the rules refuse the start, all together with the others.
func TestRulesForTags(t *testing.T) {
	alpha := provider("alpha", func(p *registry.Provider) {
		p.InstanceTags.Called, p.NodeLabels = "tags", []string{"example.com/switch"}
	})
	m := newManager(t, alpha)
	require.NoError(t, check(t, m, "--node-labels-from-tags=team=example.com/team,cluster-autoscaler"))
	assert.True(t, m.labels.rules.Any())
	err := check(t, newManager(t, alpha), "--node-labels-from-tags=team,a=pool",
		"--node-labels-from-tags=b=kubernetes.io/os,c=example.com/switch", "--node-selector=pool=x",
		"--controllers=*,-node-label-controller", "--concurrent-service-syncs=0")
	for _, want := range []string{
		`"team": use`, `"a=pool": `, `"b=kubernetes.io/os": `, `"c=example.com/switch": `, "needs node-label-controller", "--concurrent-service-syncs=0",
	} {
		require.ErrorContains(t, err, want)
	}
	for _, tags := range []registry.InstanceTags{{}, {Called: "tags", Elsewhere: "another service"}} {
		none := provider("alpha", func(p *registry.Provider) { p.InstanceTags = tags })
		require.ErrorContains(t, check(t, newManager(t, none), "--node-labels-from-tags=a=b"), "the instances of alpha show no tags")
	}
}

func TestValidate(t *testing.T) {
	routes := func(p *registry.Provider) { p.Features.Routes = registry.Done }
	for name, c := range map[string]struct {
		providers []registry.Provider
		args      []string
		want      []string
	}{
		"defaults":                 {[]registry.Provider{provider("alpha", nil)}, nil, nil},
		"one provider is the one":  {[]registry.Provider{provider("alpha", nil)}, []string{"--cloud-provider="}, nil},
		"of two one must be named": {[]registry.Provider{provider("alpha", nil), provider("beta", nil)}, nil, []string{"--cloud-provider is missing; linked providers: alpha, beta"}},
		"unknown provider": {
			[]registry.Provider{provider("alpha", nil)},
			[]string{"--cloud-provider=alpah", "--concurrent-service-syncs=0"},
			[]string{`unknown --cloud-provider "alpah"; linked providers: alpha; did you mean "alpha"?`},
		},
		"no workers": {
			[]registry.Provider{provider("alpha", nil)},
			[]string{"--concurrent-service-syncs=0", "--concurrent-node-syncs=0", "--concurrent-node-lifecycle-syncs=0", "--concurrent-node-status-updates=0"},
			[]string{"--concurrent-service-syncs=0", "--concurrent-node-syncs=0", "--concurrent-node-lifecycle-syncs=0", "--concurrent-node-status-updates=0"},
		},
		"senseless limits": {
			[]registry.Provider{provider("alpha", nil)},
			[]string{"--node-deletion-confirmations=0", "--node-deletion-max-share=2", "--node-deletion-window=1s", "--node-selector=a in"},
			[]string{"--node-deletion-confirmations=0", "--node-deletion-max-share=2", "--node-deletion-window=1s", `--node-selector "a in"`},
		},
		"a selector of nothing": {[]registry.Provider{provider("alpha", nil)}, []string{"--node-selector=a=b,a=c"}, []string{`--node-selector "a=b,a=c": matches no Node`}},
		"mode without a class":  {[]registry.Provider{provider("alpha", nil)}, []string{"--load-balancer-class-mode=named"}, []string{"--load-balancer-class-mode=named: needs --load-balancer-class"}},
		"class without a mode": {
			[]registry.Provider{provider("alpha", nil)},
			[]string{"--load-balancer-class=example.com/x"},
			[]string{"has no effect with --load-balancer-class-mode=unclassed"},
		},
		"unknown mode, bad class": {
			[]registry.Provider{provider("alpha", nil)},
			[]string{"--load-balancer-class=x y", "--load-balancer-class-mode=both"},
			[]string{"--load-balancer-class-mode=both: use unclassed, named or named-and-unclassed"},
		},
		"only exclusions":             {[]registry.Provider{provider("alpha", nil)}, []string{"--controllers=-service"}, []string{"--controllers=-service: starts no controller"}},
		"an alias is a controller":    {[]registry.Provider{provider("alpha", nil)}, []string{"--controllers=service"}, nil},
		"all but one":                 {[]registry.Provider{provider("alpha", nil)}, []string{"--controllers=*,-route"}, nil},
		"routes without a range":      {[]registry.Provider{provider("alpha", routes)}, nil, []string{"--cluster-cidr is missing: provider alpha manages routes"}},
		"routes with a range":         {[]registry.Provider{provider("alpha", routes)}, []string{"--cluster-cidr=10.0.0.0/16"}, nil},
		"routes switched off":         {[]registry.Provider{provider("alpha", routes)}, []string{"--configure-cloud-routes=false"}, nil},
		"route controller off":        {[]registry.Provider{provider("alpha", routes)}, []string{"--controllers=*,-node-route-controller"}, nil},
		"cloud config does not exist": {[]registry.Provider{provider("alpha", nil)}, []string{"--cloud-config=/nowhere/at/all"}, []string{"--cloud-config: open /nowhere/at/all"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(t, newManager(t, c.providers...), c.args...)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Len(t, schema.Problems(err), len(c.want))
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestDefaultsAndTheCommandLine(t *testing.T) {
	m := newManager(t, provider("alpha", nil))
	require.NoError(t, check(t, m))
	assert.InDelta(t, kubeQPS, m.options.Generic.ClientConnection.QPS, 0)
	assert.Equal(t, int32(nodeWorkers), m.options.NodeController.ConcurrentNodeSyncs)
	assert.Equal(t, int32(nodeStatusWorkers), m.options.NodeController.ConcurrentNodeStatusUpdates)
	assert.Equal(t, "10", m.cmd.Flags().Lookup("concurrent-node-status-updates").DefValue)
	assert.False(t, m.options.Generic.Debugging.EnableProfiling)

	m = newManager(t, provider("alpha", nil))
	require.NoError(t, check(t, m, "--kube-api-qps=7", "--concurrent-node-syncs=3", "--concurrent-node-status-updates=4"))
	assert.InDelta(t, 7, m.options.Generic.ClientConnection.QPS, 0)
	assert.Equal(t, int32(3), m.options.NodeController.ConcurrentNodeSyncs)
	assert.Equal(t, int32(4), m.options.NodeController.ConcurrentNodeStatusUpdates)
}

func TestProviderFlags(t *testing.T) {
	withFlag := func(flag string) func(*registry.Provider) {
		return func(p *registry.Provider) {
			p.Options = []schema.OptionRow{{Flag: flag, Spec: schema.Spec{Kind: schema.KindString, Help: "Help."}}}
		}
	}
	for flag, of := range map[string]string{"kubeconfig": "the framework", "filename": "a command", "node-deletion-confirmations": "us"} {
		_, err := newManager(t, provider("alpha", withFlag(flag))).command(nil)
		require.ErrorContains(t, err, "flag --"+flag+` of provider "alpha" already belongs to`, of)
	}

	var got registry.Inputs
	m := newManager(t, provider("alpha", func(p *registry.Provider) {
		withFlag("alpha-url")(p)
		p.Validate = func(in registry.Inputs) error { got = in; return nil }
	}), provider("beta", withFlag("beta-url")))
	require.NoError(t, check(t, m, "--cloud-provider=alpha", "--alpha-url=x", "--beta-url=y"))
	assert.Equal(t, map[string]string{"alpha-url": "x"}, got.Flags, "a provider sees its own flags")
}

func TestServiceSelection(t *testing.T) {
	t.Parallel()
	const finalizer = "service.kubernetes.io/load-balancer-cleanup"
	for mode, served := range map[string][]bool{ // without a class, our class, another class
		unclassed: {true, false, false}, named: {false, true, false}, namedAndUnclassed: {true, true, false},
	} {
		for i, class := range []*string{nil, new("example.com/ours"), new("example.com/other")} {
			s := &v1.Service{
				ObjectMeta: metav1.ObjectMeta{Finalizers: []string{finalizer, "mine"}},
				Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, LoadBalancerClass: class},
			}
			selection := serviceSelection{mode: mode, class: "example.com/ours"}
			selection.apply(s)
			assert.Equal(t, served[i], s.Spec.LoadBalancerClass == nil, "%s %d", mode, i)
			assert.Equal(t, served[i], slices.Contains(s.Finalizers, finalizer), "the finalizer of another controller is none of our business")
			assert.Contains(t, s.Finalizers, "mine")
			for range 3 {
				again := s.DeepCopy()
				selection.apply(again)
				assert.Equal(t, s, again, "%s %d: a transform may run any number of times", mode, i)
			}
		}
	}
	was := &v1.Service{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{finalizer}}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeClusterIP}}
	(&serviceSelection{mode: named, class: "example.com/ours"}).apply(was)
	assert.Equal(t, []string{finalizer}, was.Finalizers, "a Service that is no load balancer any more is cleaned up")
}

// TestServicesOfOtherControllers: the framework does not see Services of other controllers, because it would write to them before the cloud
// can decline. It sees those with its finalizer, to remove that.
func TestServicesOfOtherControllers(t *testing.T) {
	t.Parallel()
	selection := serviceSelection{mode: unclassed, leaves: func(s *v1.Service) bool { return s.Annotations["by"] == "others" }}
	for name, c := range map[string]struct {
		by         string
		finalizers []string
		shown      bool
	}{
		"another's":             {"others", nil, false},
		"another's, written on": {"others", []string{"service.kubernetes.io/load-balancer-cleanup"}, true},
		"ours":                  {"us", nil, true},
	} {
		s := &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"by": c.by}, Finalizers: c.finalizers},
			Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer},
		}
		selection.apply(s)
		assert.Equal(t, c.shown, s.Spec.LoadBalancerClass == nil, name)
		again := s.DeepCopy()
		selection.apply(again)
		assert.Equal(t, s, again, "a transform may run any number of times")
		assert.Equal(t, c.finalizers, s.Finalizers)
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Labels: map[string]string{"a": "b", "e": "n"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"f"},
			ManagedFields: []metav1.ManagedFieldsEntry{{}},
		},
		Spec: v1.NodeSpec{
			ProviderID: "x://1", PodCIDRs: []string{"10.0.0.0/24"}, Taints: []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}},
		},
		Status: v1.NodeStatus{
			NodeInfo: v1.NodeSystemInfo{SystemUUID: "uuid", KubeletVersion: "v1"},
			Images:   []v1.ContainerImage{{}}, Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n"}},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Message: "long"}},
		},
	}
	want := node.DeepCopy()
	want.Status.NodeInfo.KubeletVersion = ""
	want.ManagedFields, want.Status.Images, want.Status.Conditions[0].Message = nil, nil, ""
	got, err := trim(node)
	require.NoError(t, err)
	assert.Equal(t, want, got, "what is written back or asked about stays")
}

type fakeAPI struct {
	mu     sync.Mutex
	err    error
	checks int
}

func (f *fakeAPI) CheckAPI(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checks++
	return f.err
}

func (f *fakeAPI) APIHealth() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeAPI) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeAPI) countChecks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checks
}

func TestAPIWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &fakeAPI{}
		api.set(errors.New("the credential is refused"))
		var events []string
		var published atomic.Pointer[apiStatus]
		w := &apiWatch{
			api:     api,
			report:  func(_, reason, _ string) { events = append(events, reason) },
			publish: func(s *apiStatus) error { published.Store(s); return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.run(ctx); close(done) }()

		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"CloudAPIUnavailable"}, events, "an outage is one event")
		assert.LessOrEqual(t, api.countChecks(), 20, "the cloud is asked less and less often")
		assert.GreaterOrEqual(t, api.countChecks(), 8)
		assert.Contains(t, published.Load().Reason, "the credential is refused")
		plain := httptest.NewRequestWithContext(ctx, http.MethodGet, "/healthz", nil)
		asked := httptest.NewRequestWithContext(ctx, http.MethodGet, "/healthz?cloud-api", nil)
		require.NoError(t, w.Check(plain), "kubelet must not restart the program for an outage of the cloud")
		require.Error(t, w.Check(asked))

		api.set(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"CloudAPIUnavailable", "CloudAPIAvailable"}, events)
		require.NoError(t, w.Check(asked))
		assert.True(t, published.Load().Usable)
		before := api.countChecks()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, before, api.countChecks(), "while everything works nothing is asked")
		cancel()
		<-done
	})
}

// TestControllersOfTheCloud: a cloud's controllers have names and aliases. The one for pod ranges is on unless disabled; an enabled one
// with classes gets their Services; a name without effect is accepted.
func TestControllersOfTheCloud(t *testing.T) {
	p := provider("alpha", func(p *registry.Provider) {
		p.Controllers = []registry.Controller{
			{Name: "ranges-controller", Aliases: []string{"ranges"}, PodRanges: true},
			{Name: "classes-controller", Aliases: []string{"classes"}, Classes: []string{"example.com/one", "example.com/two"}},
			{Name: "nothing", Unneeded: "there is nothing to do"},
		}
	})
	for args, want := range map[string]struct {
		ranges, classes bool
	}{
		"--controllers=*":                            {true, false},
		"--controllers=*,-ranges":                    {false, false},
		"--controllers=*,-ranges-controller,nothing": {false, false},
		"--controllers=service":                      {false, false},
		"--controllers=service,ranges,classes":       {true, true},
		"--controllers=*,classes-controller":         {true, true},
	} {
		m := newManager(t, p)
		require.NoError(t, check(t, m, args), args)
		assert.Equal(t, want.ranges, m.enabledControllers().Has("ranges-controller"), args)
		assert.Equal(t, want.classes, m.enabledControllers().Has("classes-controller"), args)
		s := serviceSelection{mode: unclassed, more: m.classesOfControllers()}
		assert.Equal(t, want.classes, s.selects(new("example.com/two")), args)
		assert.True(t, s.selects(nil), args)
		assert.False(t, s.selects(new("example.com/three")), args)
	}
}

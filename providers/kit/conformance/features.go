package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// FeatureCase is how a feature of load balancers shows.
type FeatureCase struct {
	// Prepare sets the cloud up for it; nil where nothing is needed.
	Prepare func()
	// With are annotations that the Service needs for it, Without those of one that does without.
	With, Without map[string]string
	// Shows is part of the snapshot, or of the Service's status as JSON, where the feature is in force, and of neither where it is
	// not. Source ranges show by themselves. Without a cloud outside of the cluster it may be empty: an address alone shows neither
	// protocols nor who may come in, and the Service is served without a warning.
	Shows string
	// ClosesLater is why openings of a Service that goes close only with its load balancer, or after it.
	ClosesLater string
	// Scope is where the rules of source ranges stand.
	Scope Scope
	// Settles is how long a loop of the provider takes until rules are as the Services of the API server ask, which it follows then; 0 where
	// the reconciliation of a Service writes its rules.
	Settles time.Duration
	// FullTier is set where only the full tier tries it.
	FullTier bool
}

// settle waits for the loop that writes rules, where one does.
func (c FeatureCase) settle() { time.Sleep(c.Settles) }

// sourceRange is the range used in tests of source ranges.
const sourceRange = "203.0.113.0/24"

// runFeatures: what the description says is done can be done, and what it does not say is refused or told of.
func runFeatures(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "Features", func(t *testing.T) {
		f := newFixture(t)
		require.NoError(t, f.checkFeatures())
	})
	if readFixture(t, newFixture, (*Fixture).hasNodes) {
		virtual(t, "Zones", func(t *testing.T) {
			w := newWorld(t, newFixture(t))
			w.AddInstance("worker-1")
			m, err := w.instances().InstanceMetadata(t.Context(), bareNode("worker-1"))
			require.NoError(t, err)
			assert.Equal(t, w.Provider.Features.Zones == registry.Done, m.Zone != "", "zone %q", m.Zone)
		})
	}
	if !readFixture(t, newFixture, (*Fixture).hasLoadBalancers) {
		return
	}
	for name, try := range map[string]func(*Fixture) (registry.Support, FeatureCase, func(*v1.Service)){
		"UDP": func(f *Fixture) (registry.Support, FeatureCase, func(*v1.Service)) {
			return f.Provider.Features.UDP, f.UDP, func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }
		},
		"DualStack": func(f *Fixture) (registry.Support, FeatureCase, func(*v1.Service)) {
			return f.Provider.Features.DualStack, f.DualStack, func(s *v1.Service) {
				s.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
				s.Spec.IPFamilyPolicy = new(v1.IPFamilyPolicyRequireDualStack)
			}
		},
		"SourceRanges": func(f *Fixture) (registry.Support, FeatureCase, func(*v1.Service)) {
			c := f.SourceRanges
			if f.outside() { // kube-proxy keeps other clients from an address
				c.Shows = sourceRange
			}
			return f.Provider.Features.SourceRanges, c, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{sourceRange} }
		},
	} {
		virtual(t, name, func(t *testing.T) {
			f := newFixture(t)
			support, c, ask := try(f)
			runFeature(t, f, support, c, ask)
		})
	}
}

// runFeature tries one feature of load balancers: ask makes a Service ask for it.
func runFeature(t *testing.T, f *Fixture, support registry.Support, c FeatureCase, ask func(*v1.Service)) {
	t.Helper()
	if c.Prepare != nil {
		c.Prepare()
	}
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	asking, plain := featureService(c.With), featureService(c.Without)
	ask(asking)
	if support != registry.Done {
		w.requireUnserved(asking)
		return
	}
	require.True(t, c.Shows != "" || !f.outside(), "the fixture says how the feature shows")
	shown := func(s *v1.Service) string {
		w.createService(ctx, s)
		status := w.ensure(ctx, s, nil)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		w.requireNothingRefused()
		all := w.Snapshot() + string(text)
		if c.Shows == "" {
			assert.NotEmpty(t, status.Ingress)
			assert.False(t, w.warned(ctx, s), "a warning on what is served")
		}
		w.remove(ctx, s, nil)
		require.NoError(t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
		return all
	}
	if without, with := shown(plain), shown(asking); c.Shows != "" {
		assert.NotContains(t, without, c.Shows)
		assert.Contains(t, with, c.Shows)
	}
}

func featureService(annotations map[string]string) *v1.Service {
	s := Service("featured", maps.Clone(annotations), Port("dns", 53, 30053))
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []v1.IPFamily{v1.IPv4Protocol}, new(v1.IPFamilyPolicySingleStack)
	return s
}

// requireUnserved: what is not done is an error of the reconciliation, or a warning on the Service.
func (w *world) requireUnserved(s *v1.Service) {
	w.t.Helper()
	ctx := w.t.Context()
	w.createService(ctx, s)
	_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
	w.requireNoCrash(err)
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); err != nil && !later {
		return
	}
	assert.True(w.t, w.warned(ctx, s), "what is asked for is neither served nor refused, and no event says so")
}

// warned reports whether an event warns of a Service.
func (w *world) warned(ctx context.Context, s *v1.Service) bool {
	w.t.Helper()
	return len(w.warnings(ctx, s)) > 0
}

// warnings returns the warning events of a Service.
func (w *world) warnings(ctx context.Context, s *v1.Service) (texts []string) {
	w.t.Helper()
	for _, e := range w.events(ctx, s) {
		if e.Type == v1.EventTypeWarning {
			texts = append(texts, e.Message)
		}
	}
	return texts
}

// events are those of a Service.
func (w *world) events(ctx context.Context, s *v1.Service) []v1.Event {
	w.t.Helper()
	time.Sleep(time.Second) // events take a moment
	list, err := w.kube.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	return slices.DeleteFunc(list.Items, func(e v1.Event) bool { return e.InvolvedObject.Name != s.Name })
}

// checkFeatures compares what the description says with what the provider offers, and with what the fixture can try.
func (f *Fixture) checkFeatures() error {
	cloud, err := f.open(trustingPolicy)
	if err != nil {
		return err
	}
	_, nodes := cloud.InstancesV2()
	_, loadBalancers := cloud.LoadBalancer()
	_, routes := cloud.Routes()
	features := f.Provider.Features
	problems := []error{f.Provider.CheckFeatures(), f.checkOutsiders()}
	for _, c := range []struct {
		what       string
		said       registry.Support
		done, able bool
	}{
		{"nodes", features.Instances, nodes, f.AddInstance != nil},
		{"load balancers", features.LoadBalancers, loadBalancers, len(f.Services) > 0},
		{"routes", features.Routes, routes || features.Routes == registry.Done, f.Routes != nil}, // an option may have to ask for them
	} {
		if (c.said == registry.Done) != c.done {
			problems = append(problems, fmt.Errorf("%s: the description says %q, and the provider offers them: %t", c.what, c.said, c.done))
		}
		if c.said == registry.Done && !c.able {
			problems = append(problems, fmt.Errorf("%s: the fixture lacks what trying them takes", c.what))
		}
	}
	if !f.hasNodes() && !f.hasLoadBalancers() && !f.hasRoutes() {
		problems = append(problems, errors.New("the description says that nothing is done"))
	}
	return errors.Join(problems...)
}

package conformance

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// illegal are values that the table of the portable annotations refuses on every cloud. A text without a form has none: another
// annotation is illegal then.
var illegal = map[string]string{
	portable.Address: "nowhere", portable.CheckPath: "ready", portable.CheckPort: "http", portable.CheckInterval: "20",
	portable.CheckTimeout: "4", portable.HealthyThreshold: "0", portable.UnhealthyThreshold: "0", portable.IdleTimeout: "90",
	portable.Certificate: portable.SecretPrefix + "Not a name",
	portable.TLSPorts:    "nowhere", portable.BackendSelector: "pool in edge", portable.Hostname: "Not a name", portable.Tags: "web",
}

// illegalFor is an annotation with an illegal value: of the row where it has any.
func illegalFor(row schema.AnnotationRow) map[string]string {
	switch {
	case len(row.Choices) > 0:
		return map[string]string{row.Key: "neither"}
	case illegal[row.Key] == "":
		return map[string]string{portable.Hostname: illegal[portable.Hostname]}
	}
	return map[string]string{row.Key: illegal[row.Key]}
}

// runPortableChanges: what a Service that is served by portable annotations may become later.
func runPortableChanges(t *testing.T, newFixture func(t testing.TB) *Fixture, row schema.AnnotationRow) {
	t.Helper()
	name := strings.TrimPrefix(row.Key, portable.Prefix)
	virtual(t, name+" and the cloud's own", func(t *testing.T) { runPortableReplaced(t, newFixture(t), row.Key) })
	virtual(t, name+" illegal later", func(t *testing.T) { runPortableBroken(t, newFixture(t), row) })
}

// newPortableWorld returns a world with a Service that is served by a portable annotation; nil where the cloud refuses it. before is what
// the cloud holds without it.
func newPortableWorld(t *testing.T, f *Fixture, key string) (served *world, provider registry.Provider, s *v1.Service, before string) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	w.nodes[0].Labels = map[string]string{"pool": "edge"}
	provider, err := registry.Linked().Lookup(w.cloud.ProviderName())
	require.NoError(t, err)
	_, asked := portableCase(f, w.kube, key)
	s = portableService("portable", asked)
	if registry.Translate(provider, registry.Inputs{}, s).Err != nil {
		return nil, provider, nil, ""
	}
	before = w.Snapshot()
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	return w, provider, s, before
}

// runPortableReplaced: the cloud's own annotations in the place of the portable ones write nothing, in whichever order, and neither
// does a restart in between.
func runPortableReplaced(t *testing.T, f *Fixture, key string) {
	t.Helper()
	w, provider, s, _ := newPortableWorld(t, f, key)
	if w == nil || len(provider.Cloud().Pairs(key)) == 0 {
		return // the cloud has none of its own
	}
	ctx, state := t.Context(), w.Snapshot()
	translated := registry.Translate(provider, registry.Inputs{}, s).Service
	own := maps.Clone(translated.Annotations)
	for _, row := range portable.Annotations.Rows() {
		delete(own, row.Key)
	}
	both := maps.Clone(s.Annotations)
	maps.Copy(both, own)
	for i, annotations := range []map[string]string{both, own, s.Annotations} {
		w.changeService(ctx, s, func(now *v1.Service) {
			for _, all := range []map[string]string{s.Annotations, own} {
				maps.DeleteFunc(now.Annotations, func(k, _ string) bool { _, set := all[k]; return set })
			}
			maps.Copy(now.Annotations, annotations)
			now.Spec.LoadBalancerIP = ""
			if i < 2 {
				now.Spec.LoadBalancerIP = translated.Spec.LoadBalancerIP
			}
		})
		judged := registry.Translate(provider, registry.Inputs{}, w.service(ctx, s))
		require.NoError(t, judged.Err, "%d", i)
		assert.NotContains(t, oneText(judged.Warnings), "contradict", "%d", i)
		for _, restarted := range []bool{false, true} {
			if restarted {
				w.restart()
			}
			w.Sim.ResetCalls()
			w.ensure(ctx, s, nil)
			w.requireNoWrites("it says the same")
			assert.Equal(t, state, w.Snapshot(), "%d", i)
		}
	}
	w.remove(ctx, s, nil)
}

func oneText(errs []error) string {
	var b strings.Builder
	for _, err := range errs {
		b.WriteString(err.Error() + "\n")
	}
	return b.String()
}

// runPortableBroken: a Service that is served, and of which an annotation becomes illegal, stays as it is. Nodes still join it, unless
// it is the selector itself that cannot be read; what is illegal says nothing of which nodes may receive traffic. It is deleted without
// a remainder, whatever its annotations say by then.
func runPortableBroken(t *testing.T, f *Fixture, row schema.AnnotationRow) {
	t.Helper()
	w, _, s, empty := newPortableWorld(t, f, row.Key)
	if w == nil {
		return // it is refused from the start
	}
	ctx := t.Context()
	good, breaks := s.Annotations[row.Key], illegalFor(row)
	spoil := func() {
		w.changeService(ctx, s, func(now *v1.Service) { maps.Copy(now.Annotations, breaks) })
	}
	refused := func(why string) {
		w.Sim.ResetCalls()
		before := w.Snapshot()
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
		require.Error(t, err, why)
		w.requireNoWrites(why)
		assert.Equal(t, before, w.Snapshot(), why)
	}
	for _, restarted := range []bool{false, true} {
		spoil()
		if restarted {
			w.restart()
		}
		refused("what is refused changes nothing")
		w.addNode(ctx, map[bool]string{false: "worker-3", true: "worker-4"}[restarted], nil)
		err := w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
		w.waitForUpdates()
		if row.Key == portable.BackendSelector {
			require.ErrorContains(t, err, portable.BackendSelector, "which nodes are meant is not known")
		} else {
			require.NoError(t, err)
		}
		joined := w.Snapshot()
		w.changeService(ctx, s, func(now *v1.Service) {
			for key := range breaks {
				delete(now.Annotations, key)
			}
			now.Annotations[row.Key] = good
		})
		w.Sim.ResetCalls()
		w.ensure(ctx, s, nil)
		w.requireNoWrites("the nodes had joined, and nothing else had changed")
		assert.Equal(t, joined, w.Snapshot())
	}
	spoil()
	refused("nor does it later")
	w.remove(ctx, s, nil)
	assert.Equal(t, empty, w.Snapshot(), "nothing is left behind")
}

// together are portable annotations that each cloud may take one by one, and not together.
var together = []map[string]string{
	{portable.CheckInterval: "5s", portable.CheckTimeout: "10s"},
	{portable.CheckInterval: "5s", portable.CheckTimeout: "5s"},
	{portable.HealthyThreshold: "4", portable.UnhealthyThreshold: "5", portable.ProxyProtocol: portable.ProxyV2},
	{portable.CheckPath: "/ready", portable.CheckProtocol: portable.CheckTCP},
	{portable.Subnet: "a b"},
	{portable.Certificate: "a b"},
	{portable.SecurityGroups: "a,,b"},
	{portable.CheckProtocol: portable.CheckHTTPS, portable.CheckInterval: "11s", portable.CheckTimeout: "12s"},
}

// runPortableTogether: what the provider itself refuses of annotations that were translated is told by the event as validate tells it,
// by the names of the portable annotations.
func runPortableTogether(t *testing.T, f *Fixture) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	provider, err := registry.Linked().Lookup(w.cloud.ProviderName())
	require.NoError(t, err)
	for i, annotations := range together {
		s := portableService("together", annotations)
		s.UID = types.UID(fmt.Sprintf("3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0c%d", i))
		_, refused := registry.CheckServiceOf(provider, registry.Inputs{}, s)
		if refused == nil || registry.Translate(provider, registry.Inputs{}, s).Err != nil {
			continue
		}
		w.createService(ctx, s)
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
		require.Error(t, err)
		for _, problem := range schema.Problems(refused) {
			assert.Contains(t, problem.Error(), portable.Prefix)
			w.requireEvent("LoadBalancerConfigError", problem.Error())
		}
		require.NoError(t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
	}
}

package conformance

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// samples are legal values of portable annotations that no cloud has by itself.
var samples = map[string]string{
	portable.Scheme: portable.SchemeInternal, portable.Name: "portable", portable.Address: "192.0.2.50", portable.Network: "4de7ac8b-495b-4884-9a69-1050c6793cd6",
	portable.Subnet: "4de7ac8b-495b-4884-9a69-1050c6793cd7", portable.SecurityGroups: "web", portable.ProxyProtocol: portable.ProxyV1,
	portable.CheckProtocol: portable.CheckHTTP, portable.CheckPath: "/ready", portable.CheckPort: portable.NodePort, portable.CheckInterval: "20s",
	portable.CheckTimeout: "4s", portable.HealthyThreshold: "4", portable.UnhealthyThreshold: "4", portable.IdleTimeout: "90s",
	portable.Algorithm: portable.LeastConnections, portable.Certificate: "web", portable.TLSPorts: "https", portable.BackendSelector: "pool=edge",
	portable.Hostname: "web.example.com", portable.Tags: "team=web",
}

// PortableCase is a Service that asks for a portable annotation on one cloud.
type PortableCase struct {
	// Value is a legal one there; empty means the common sample.
	Value string
	// With are further annotations that it needs.
	With map[string]string
	// Without are the annotations of the Service that it is compared with; nil means With.
	Without map[string]string
	// Prepare makes what the value names, in the cloud and in the cluster, and returns the case that names it.
	Prepare func(kube clientset.Interface) PortableCase
	// Seen is set where the cloud does so by itself, so that nothing differs: it says what is missing in the cloud, which holds the
	// load balancer of the Service by then, and "" if all is as it was asked for.
	Seen func() string
}

// runPortable: a legal value of each portable annotation reaches the cloud just as the cloud's own annotation does, or an event says
// that it cannot be served. The fast tier takes the translation for it, because what comes after it is the guard's and the same for all
// clouds, and what a cloud makes of its own annotations its checklist tries.
func runPortable(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, row := range portable.Annotations.Rows() {
		name := strings.TrimPrefix(row.Key, portable.Prefix)
		virtual(t, name+" translated", func(t *testing.T) { runTranslation(t, newFixture(t), row) })
	}
	virtual(t, "refused by the provider, as validate says it", func(t *testing.T) { runRefusedTogether(t, newFixture(t)) })
	if !triesAll(t, newFixture) {
		return
	}
	virtual(t, "taken back", func(t *testing.T) { runTakenBack(t, newFixture(t)) })
	virtual(t, "refused by the provider", func(t *testing.T) { runPortableTogether(t, newFixture(t)) })
	virtual(t, "a misspelt annotation", func(t *testing.T) { runMisspelt(t, newFixture(t)) })
	for _, row := range portable.Annotations.Rows() {
		name := strings.TrimPrefix(row.Key, portable.Prefix)
		virtual(t, name, func(t *testing.T) { runPortableRow(t, newFixture(t), row.Key) })
		if len(row.Choices) > 0 {
			virtual(t, name+" choices", func(t *testing.T) { runPortableChoices(t, newFixture(t), row) })
		}
		runPortableChanges(t, newFixture, row)
	}
}

// runMisspelt: an annotation that nobody knows writes the event that validate would print, and changes nothing.
func runMisspelt(t *testing.T, f *Fixture) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	provider, err := registry.Linked().Lookup(w.cloud.ProviderName())
	require.NoError(t, err)
	keys := []string{portable.Scheme}
	for _, row := range provider.Annotations[:min(1, len(provider.Annotations))] {
		keys = append(keys, row.Key)
	}
	for i, key := range keys {
		s := portableService("misspelt", map[string]string{key + "q": "x"})
		s.UID = types.UID(fmt.Sprintf("3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a%d", i))
		warned, err := registry.CheckServiceOf(provider, registry.Inputs{}, s)
		require.NoError(t, err)
		w.createService(ctx, s)
		w.ensure(ctx, s, nil)
		w.requireNothingRefused()
		w.requireEvent("LoadBalancerAnnotationIgnored", schema.Problems(warned)[0].Error())
		require.ErrorContains(t, warned, "did you mean "+key)
		w.ensure(ctx, s, nil) // by now it has what the provider records
		time.Sleep(time.Second)
		list, err := w.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range list.Items {
			assert.False(t, strings.Contains(e.Message, "is unknown") && !strings.Contains(e.Message, "q: is unknown"), "it is no user's: %s", e.Message)
		}
		w.remove(ctx, s, nil)
		require.NoError(t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
	}
}

func portableService(name string, annotations map[string]string) *v1.Service {
	port := func(name string, number, nodePort int32) v1.ServicePort {
		return v1.ServicePort{Name: name, Protocol: v1.ProtocolTCP, Port: number, NodePort: nodePort}
	}
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", Annotations: annotations},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{port("http", 80, 30080), port("https", 443, 30443)}},
	}
}

// portableCase is the case of a key, and the annotations that it sets.
func portableCase(f *Fixture, kube clientset.Interface, key string) (c PortableCase, asked map[string]string) {
	c = f.Portable[key]
	if c.Prepare != nil {
		c = c.Prepare(kube)
	}
	if c.Value == "" {
		c.Value = samples[key]
	}
	if key == portable.CheckPath && c.With == nil {
		c.With = map[string]string{portable.CheckProtocol: portable.CheckHTTP} // there is a path then
	}
	if c.Without == nil {
		c.Without = c.With
	}
	asked = map[string]string{key: c.Value}
	maps.Copy(asked, c.With)
	return c, asked
}

func runPortableRow(t *testing.T, f *Fixture, key string) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	w.nodes[0].Labels = map[string]string{"pool": "edge"}
	provider, err := registry.Linked().Lookup(w.cloud.ProviderName())
	require.NoError(t, err)
	c, asked := portableCase(f, w.kube, key)
	s := portableService("portable", asked)
	translation := registry.Translate(provider, registry.Inputs{}, s)
	pairs := provider.Cloud().Pairs(key)

	if len(pairs) == 0 && portable.Essential(key) {
		w.createService(ctx, s)
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
		require.ErrorContains(t, err, portable.Refusal(provider.Cloud().Title))
		assert.Empty(t, w.Snapshot(), "nothing is made")
		w.requireEvent("LoadBalancerConfigError", key)
		w.requireRefusedChange(s)
		return
	}
	plain := w.stateOf(portableService("portable", c.Without))
	w.createService(ctx, s)
	status := w.ensure(ctx, s, nil)
	w.requireNothingRefused()
	state := w.Snapshot()
	w.Sim.ResetCalls()
	w.ensure(ctx, s, nil)
	w.requireNoWrites("nothing changed")
	switch {
	case key == portable.Hostname:
		assert.Equal(t, []v1.LoadBalancerIngress{{Hostname: c.Value}}, status.Ingress)
	case len(pairs) == 0 && (!portable.Shared(key) || !w.outside()): // an address knows no nodes
		assert.Equal(t, plain, state, "it has no effect")
		w.requireEvent("LoadBalancerAnnotationIgnored", key)
		return
	case key == portable.Address && len(status.Ingress) > 0 && status.Ingress[0].IP != "":
		assert.Equal(t, c.Value, status.Ingress[0].IP, "states leave addresses out")
	case c.Seen != nil:
		assert.Empty(t, c.Seen(), "the cloud holds it")
	default:
		assert.NotEqual(t, plain, state, "it reaches the cloud")
	}
	w.remove(ctx, s, nil)
	require.NoError(t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
	if len(pairs) > 0 {
		own := translation.Service.DeepCopy()
		for _, row := range portable.Annotations.Rows() {
			delete(own.Annotations, row.Key)
		}
		assert.Equal(t, w.stateOf(own), state, "it does what the cloud's own annotations do")
	}
}

// runPortableChoices: of an annotation with some few values, each that the cloud serves makes something else there, and each that it
// does not serve makes nothing, with an event that names those which it does.
func runPortableChoices(t *testing.T, f *Fixture, row schema.AnnotationRow) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	provider, err := registry.Linked().Lookup(w.cloud.ProviderName())
	require.NoError(t, err)
	if len(provider.Cloud().Pairs(row.Key)) == 0 {
		return // the other test holds that no value has an effect
	}
	c, _ := portableCase(f, w.kube, row.Key)
	made := map[string]string{}
	for _, choice := range row.Choices {
		asked := maps.Clone(c.With)
		if asked == nil {
			asked = map[string]string{}
		}
		asked[row.Key] = choice
		s := portableService("portable", asked)
		if refusal := registry.Translate(provider, registry.Inputs{}, s).Err; refusal != nil {
			w.createService(ctx, s)
			_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
			require.ErrorContains(t, err, "is not one of ")
			assert.Empty(t, w.Snapshot(), "%s: nothing is made", choice)
			w.requireEvent("LoadBalancerConfigError", row.Key+`: "`+choice+`" is not one of `)
			w.requireRefusedChange(s)
			require.NoError(t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
			continue
		}
		state := w.stateOf(s)
		for other, its := range made {
			assert.NotEqual(t, its, state, "%s and %s make the same", other, choice)
		}
		made[choice] = state
	}
	assert.NotEmpty(t, made, "one of them is served")
}

// requireRefusedChange: what is refused changes nothing of a load balancer that exists; once it is taken back, the Service is as it was.
func (w *world) requireRefusedChange(refused *v1.Service) {
	w.t.Helper()
	ctx := w.t.Context()
	s := portableService("existing", nil)
	s.UID = "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0b2"
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	before := w.Snapshot()
	w.Sim.ResetCalls()
	w.changeService(ctx, s, func(s *v1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		maps.Copy(s.Annotations, refused.Annotations)
	})
	_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
	require.Error(w.t, err)
	w.requireNoWrites("what is refused changes nothing")
	assert.Equal(w.t, before, w.Snapshot())
	w.changeService(ctx, s, func(s *v1.Service) {
		for key := range refused.Annotations {
			delete(s.Annotations, key)
		}
	})
	w.ensure(ctx, s, nil)
	w.requireNoWrites("it is as it was")
	w.remove(ctx, s, nil)
	require.NoError(w.t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
}

// runTakenBack: what a portable annotation changed returns to what the cloud does by itself once it is taken away, where the cloud can
// change it at all.
func runTakenBack(t *testing.T, f *Fixture) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	provider, err := registry.Linked().Lookup(w.cloud.ProviderName())
	require.NoError(t, err)
	for _, key := range []string{portable.CheckInterval, portable.UnhealthyThreshold, portable.Algorithm} {
		s := portableService("portable", nil)
		w.createService(ctx, s)
		w.ensure(ctx, s, nil)
		before := w.Snapshot()
		pairs := provider.Cloud().Pairs(key)
		w.changeService(ctx, s, func(s *v1.Service) {
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			s.Annotations[key] = samples[key]
		})
		w.ensure(ctx, s, nil)
		if len(pairs) > 0 {
			assert.NotEqual(t, before, w.Snapshot(), key)
		}
		w.changeService(ctx, s, func(s *v1.Service) { delete(s.Annotations, key) })
		w.ensure(ctx, s, nil)
		assert.Equal(t, before, w.Snapshot(), key)
		w.remove(ctx, s, nil)
		require.NoError(t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
	}
}

// stateOf returns the cloud's state for a Service, which is deleted afterwards.
func (w *world) stateOf(s *v1.Service) string {
	ctx := w.t.Context()
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	state := w.Snapshot()
	w.remove(ctx, s, nil)
	require.NoError(w.t, w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
	return state
}

// requireEvent demands an event on a Service that names an annotation.
func (w *world) requireEvent(reason, annotation string) {
	w.t.Helper()
	time.Sleep(time.Second)
	list, err := w.kube.CoreV1().Events(metav1.NamespaceAll).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	var all []string
	for _, e := range list.Items {
		all = append(all, e.Reason+" "+e.Message)
		if e.Reason == reason && strings.Contains(e.Message, annotation) {
			return
		}
	}
	assert.Failf(w.t, "there is no event "+reason+" about "+annotation, "%q", all)
}

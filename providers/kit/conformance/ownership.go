package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Claims is how a Service can ask for a load balancer that it was not given. It is nil on clouds where nothing that an
// author of Services writes leads to one.
type Claims struct {
	// Of returns the ID of the load balancer that a Service has, and Claim makes a Service ask for one by its ID.
	Of    func(*v1.Service) string
	Claim func(s *v1.Service, id string)
	// Foreign makes a load balancer as a user would by hand, without any mark, and returns its ID.
	Foreign func() string
	// Exists reports whether a load balancer exists.
	Exists func(id string) bool
	// NotGivenBack is why what a Service had stays when it asks for another one, and why what was retained is not given back; "" where neither
	// is so.
	NotGivenBack string
}

func runOwnership(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "an older Service claims another's load balancer", func(t *testing.T) { runOlderClaimer(t, newFixture(t)) })
	virtual(t, "a user's load balancer is refused", func(t *testing.T) { runForeign(t, newFixture(t), registry.AdoptEvidence) })
	virtual(t, "a user's load balancer is adopted where the operator allows it, and never deleted", func(t *testing.T) {
		runForeign(t, newFixture(t), registry.AdoptAny)
	})
	for _, name := range readFixture(t, newFixture, serviceNames) {
		virtual(t, name+" is retained and goes to nobody who takes its node ports", func(t *testing.T) { runRetained(t, newFixture(t), name) })
	}
}

// runRetained: a Service is gone and its load balancer stays, as an annotation asked. A tenant who takes the node ports that are
// free now gets nothing of it; a Service of the same namespace and name has it back.
func runRetained(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	shown := w.ensure(ctx, c.Service, nil)
	w.changeService(ctx, c.Service, func(s *v1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[contract.AnnotationRetain] = "true"
	})
	w.remove(ctx, c.Service, nil)
	id := w.Claims.Of(w.service(ctx, c.Service))
	require.True(t, w.Claims.Exists(id))
	require.NoError(t, w.kube.CoreV1().Services(c.Service.Namespace).Delete(ctx, c.Service.Name, metav1.DeleteOptions{}))
	w.restart()
	held := w.Snapshot()

	tenant := claimer(c)
	tenant.Spec.Ports = c.Service.Spec.Ports
	w.Claims.Claim(tenant, id)
	w.createService(ctx, tenant)
	w.Sim.ResetCalls()
	for range 2 {
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, tenant), w.nodes)
		require.ErrorContains(t, err, "is left alone")
		require.NoError(t, w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, tenant), w.nodes))
		w.remove(ctx, tenant, nil)
		w.restart()
	}
	w.requireNoWrites("nothing of it is touched")
	assert.Equal(t, held, w.Snapshot())
	if w.Claims.NotGivenBack != "" {
		return
	}
	again := c.Service.DeepCopy()
	again.UID = "5e1f6b52-7a66-4b58-8b4b-0a61c1f9e0d4"
	if again.Annotations == nil {
		again.Annotations = map[string]string{}
	}
	w.Claims.Claim(again, id)
	w.createService(ctx, again)
	assert.Equal(t, shown.Ingress[0].IP, w.ensure(ctx, again, nil).Ingress[0].IP, "the author of the first one has the address back")
	w.remove(ctx, again, nil)
	assert.False(t, w.Claims.Exists(id), "and may delete it")
}

// claimer is a Service of a tenant, older than any other.
func claimer(c Case) *v1.Service {
	s := c.Service.DeepCopy()
	s.Namespace, s.Name, s.UID = "tenant", "claimer", "0a1f6b52-7a66-4b58-8b4b-0a61c1f9e0c3"
	s.CreationTimestamp = metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort += 1000
	}
	return s
}

// runOlderClaimer: a tenant keeps an old Service of type ClusterIP, turns it into a load balancer, points it at somebody
// else's and deletes it. Nothing of that one changes.
func runOlderClaimer(t *testing.T, f *Fixture) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[sortedKeys(w.Services)[0]]
	tenant := claimer(c)
	tenant.Spec.Type = v1.ServiceTypeClusterIP
	w.createService(ctx, tenant)
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	held := w.Snapshot()

	w.changeService(ctx, tenant, func(s *v1.Service) {
		s.Spec.Type = v1.ServiceTypeLoadBalancer
		w.Claims.Claim(s, w.Claims.Of(w.service(ctx, c.Service)))
	})
	w.Sim.ResetCalls()
	for range 2 {
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, tenant), w.nodes)
		require.ErrorContains(t, err, "belongs to Service "+c.Service.Namespace+"/"+c.Service.Name+" and is left alone", "the living owner is known")
		require.NoError(t, w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, tenant), nil))
		w.remove(ctx, tenant, nil)
		w.restart()
	}
	w.requireNoWrites("nothing of the other Service is touched")
	assert.Equal(t, held, w.Snapshot())
	w.ensure(ctx, c.Service, nil)
	w.requireNoWrites("and it is served as before")
}

// runForeign: a Service names a load balancer that no controller made.
func runForeign(t *testing.T, f *Fixture, adopt registry.Adoption) {
	t.Helper()
	ctx := t.Context()
	f.adopt = adopt
	w := newWorld(t, f)
	c := w.Services[sortedKeys(w.Services)[0]]
	w.addNode(ctx, "worker-1", nil)
	id := w.Claims.Foreign()
	before := w.Snapshot()
	tenant := claimer(c)
	w.Claims.Claim(tenant, id)
	w.createService(ctx, tenant)
	w.Sim.ResetCalls()
	if adopt == registry.AdoptAny {
		w.ensure(ctx, tenant, nil)
		assert.NotEqual(t, before, w.Snapshot(), "it serves the Service")
	} else {
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, tenant), w.nodes)
		require.ErrorContains(t, err, "is left alone")
		require.NoError(t, w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, tenant), nil))
	}
	// It is as little the Service's after a change of everything that the Service may say, and after a restart.
	w.restart()
	current := w.service(ctx, tenant)
	current.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	require.NoError(t, w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, current))
	assert.True(t, w.Claims.Exists(id), "what no controller made is never deleted")
	if adopt != registry.AdoptAny {
		w.requireNoWrites("it is left alone")
		assert.Equal(t, before, w.Snapshot())
	}
}

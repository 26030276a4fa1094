package conformance

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

func runOrphans(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		virtual(t, name+" leaves its load balancer behind", func(t *testing.T) { runOrphan(t, newFixture(t), name) })
	}
	for _, name := range readFixture(t, newFixture, serviceNames) {
		virtual(t, name+" is left alone where another Service shows it", func(t *testing.T) {
			runKept(t, newFixture(t), name, func(w *world, lost *v1.Service) {
				s := claimer(Case{Service: lost})
				s.Spec.LoadBalancerIP, s.ResourceVersion = "", ""
				host := s.Status.LoadBalancer.Ingress[0].Hostname
				chosen := host != "" && slices.Contains(slices.Collect(maps.Values(s.Annotations)), host)
				if !chosen { // a chosen name tells nothing, and needs the record among the annotations
					s.Annotations = nil
				}
				w.createService(w.t.Context(), s)
			})
		})
	}
	if !readFixture(t, newFixture, (*Fixture).outside) {
		return
	}
	first := readFixture(t, newFixture, serviceNames)[0]
	virtual(t, "another cluster's are left alone", func(t *testing.T) {
		runKept(t, newFixture(t), first, func(w *world, _ *v1.Service) {
			w.kube = newKube("cluster-2")
			if w.OtherCluster != nil {
				w.OtherCluster()
			}
			w.restart()
		})
	})
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.Claims != nil && f.Claims.NotGivenBack == "" }) {
		virtual(t, "one that another Service records is left alone", func(t *testing.T) {
			runKept(t, newFixture(t), first, func(w *world, lost *v1.Service) {
				s := claimer(Case{Service: lost})
				s.Annotations, s.Status, s.ResourceVersion = map[string]string{}, v1.ServiceStatus{}, ""
				w.Claims.Claim(s, w.Claims.Of(lost))
				w.createService(w.t.Context(), s)
			})
		})
	}
}

// runKept: what was an orphan when it was listed is none by now. It is not listed any more, and not deleted.
func runKept(t *testing.T, f *Fixture, name string, keep func(*world, *v1.Service)) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	c := w.Services[name]
	_, err := w.kube.CoreV1().Nodes().Create(ctx, w.addNode(ctx, "worker-1", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	lost := w.service(ctx, c.Service)
	require.NoError(t, w.kube.CoreV1().Services(lost.Namespace).Delete(ctx, lost.Name, metav1.DeleteOptions{}))
	w.restart()
	found, before := w.orphans(ctx), w.Snapshot()
	require.NotEmpty(t, found)
	keep(w, lost)
	w.show()
	w.Sim.ResetCalls()
	for _, o := range found {
		require.Error(t, w.finder().DeleteOrphan(ctx, o), "%s %s", o.Kind, o.Name)
	}
	assert.Empty(t, w.orphans(ctx))
	w.requireNoWrites("what is no orphan is not deleted")
	assert.Equal(t, before, w.Snapshot())
}

// runOrphan: somebody takes the finalizer off a Service that is being deleted. What is left of it is an orphan, for this cluster alone;
// what living Services have is none. When orphans are deleted nothing is left of the one Service, and the other one keeps all it has.
func runOrphan(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	_, err := w.kube.CoreV1().Nodes().Create(ctx, w.addNode(ctx, "worker-1", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	other := claimer(c)
	other.Annotations, other.Spec.LoadBalancerIP = nil, "" // names and addresses are the first one's
	w.createService(ctx, other)
	w.ensure(ctx, other, nil)
	alone := w.Snapshot()
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	w.Sim.ResetCalls()
	require.Empty(t, w.orphans(ctx), "both Services live")

	lost := w.service(ctx, c.Service)
	require.NoError(t, w.kube.CoreV1().Services(lost.Namespace).Delete(ctx, lost.Name, metav1.DeleteOptions{}))
	w.restart()
	found := w.orphans(ctx)
	require.NotEmpty(t, found)
	w.requireNoWrites("looking for orphans changes nothing")

	back := lost.DeepCopy()
	back.ResourceVersion = ""
	w.createService(ctx, back)
	w.show()
	for _, o := range found {
		require.Error(t, w.finder().DeleteOrphan(ctx, o), "its Service is there again")
	}
	w.requireNoWrites("what a living Service has is not deleted")
	require.NoError(t, w.kube.CoreV1().Services(lost.Namespace).Delete(ctx, lost.Name, metav1.DeleteOptions{}))

	w.deleteOrphans(ctx, found)
	assert.Equal(t, alone, w.Snapshot())
	w.Sim.ResetCalls()
	w.ensure(ctx, other, nil)
	w.requireNoWrites("the other Service is served as before")
}

// deleteOrphans deletes orphans until none is left. What depends on another one, or is busy, goes in a later round; the state in the end
// says whether it did.
func (w *world) deleteOrphans(ctx context.Context, left []contract.Orphan) {
	for began := time.Now(); len(left) > 0; left = w.orphans(ctx) {
		require.Less(w.t, time.Since(began), patience, "%v", left)
		for _, o := range left {
			w.attempt("", true)
			_ = w.finder().DeleteOrphan(ctx, o)
		}
		time.Sleep(time.Minute)
	}
}

// finder finds orphans as the program does.
func (w *world) finder() contract.OrphanFinder {
	w.show()
	finder, ok := w.cloud.(contract.OrphanFinder)
	require.True(w.t, ok)
	return finder
}

// orphans are those that the command lists.
func (w *world) orphans(ctx context.Context) []contract.Orphan {
	list, err := w.kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	var living []*v1.Service
	for i := range list.Items {
		living = append(living, &list.Items[i])
	}
	w.attempt("", false)
	found, err := w.finder().Orphans(ctx, living)
	require.NoError(w.t, err)
	return found
}

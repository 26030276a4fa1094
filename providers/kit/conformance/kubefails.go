package conformance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"
	cloudprovider "k8s.io/cloud-provider"
)

// outage makes some requests to the API server fail.
type outage struct {
	name string
	// verbs and resource are of the requests that fail; no verb stands for all of them, and "*" for every resource.
	verbs    []string
	resource string
	// marks is set where nobody can tell then which cluster this is, and so whose a load balancer is.
	marks bool
}

var outages = []outage{
	{name: "everything", resource: "*", marks: true},
	{name: "the marks of the cluster", verbs: []string{"get"}, resource: "namespaces", marks: true},
	{name: "writes of Services", verbs: []string{"patch", "update"}, resource: "services"},
	{name: "secrets", resource: "secrets"},
	{name: "nodes", resource: "nodes"},
}

// kubeFailure is a way in which it fails.
type kubeFailure struct {
	name string
	err  error
}

// kubeFailures are all ways; none of them says that something does not exist, or that it may not be read.
func kubeFailures() []kubeFailure {
	return []kubeFailure{
		{"an error of its own", apierrors.NewInternalError(errors.New("etcdserver: no leader"))},
		{"unavailable", apierrors.NewServiceUnavailable("apiserver is shutting down")},
		{"a time-out", apierrors.NewTimeoutError("the request did not complete", 1)},
		{"no answer", context.DeadlineExceeded},
	}
}

func runKubeFails(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all := triesAll(t, newFixture)
	for _, name := range readFixture(t, newFixture, serviceNames) {
		for i, o := range outages {
			failures := kubeFailures()
			if !all { // another one for each outage
				failures = failures[i%len(failures):][:1]
			}
			virtual(t, name+" while "+o.name+" fails: what is served stays", func(t *testing.T) { runOutage(t, newFixture(t), name, o, failures) })
			if o.marks && !readFixture(t, newFixture, func(f *Fixture) bool { return f.ClusterInSettings }) {
				virtual(t, name+" while "+o.name+" fails: nothing is made, changed or deleted", func(t *testing.T) {
					runUnmarked(t, newFixture(t), name, o, failures)
				})
			}
		}
		failures := kubeFailures()
		if !all {
			failures = failures[:1]
		}
		virtual(t, name+" is made while writes of Services fail, once", func(t *testing.T) { runUnrecorded(t, newFixture(t), name, failures) })
	}
}

// failingAPI is a part of the API server that fails, or nil while all of it works. The fake API server asks for it at every request from
// the beginning on, for its reactors must not change while events are written in the background.
type failingAPI struct{ now atomic.Pointer[failingPart] }

type failingPart struct {
	outage
	err error
}

// react is a reactor of the fake API server.
func (f *failingAPI) react(a kubetesting.Action) (bool, runtime.Object, error) {
	o := f.now.Load()
	if o == nil || o.resource != "*" && o.resource != a.GetResource().Resource || len(o.verbs) > 0 && !slices.Contains(o.verbs, a.GetVerb()) {
		return false, nil, nil
	}
	return true, nil, o.err
}

// failing runs something while a part of the API server fails, seen by the provider alone.
func (w *world) failing(o outage, failure error, do func()) {
	w.t.Helper()
	w.outage.now.Store(&failingPart{o, failure})
	do()
	w.waitForUpdates()
	w.outage.now.Store(nil)
}

// runOutage: a Service that is served and did not change is left as it is, by a process that has just begun too.
func runOutage(t *testing.T, f *Fixture, name string, o outage, failures []kubeFailure) {
	t.Helper()
	ctx := t.Context()
	w, c, once := newServedWorld(t, f, name)
	for _, failure := range failures {
		for _, restart := range []bool{false, true} {
			if restart {
				w.restart()
			}
			current := w.service(ctx, c.Service)
			lb := w.loadBalancer()
			w.Sim.ResetCalls()
			w.failing(o, failure.err, func() {
				_, err := lb.EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
				w.requireNoCrash(err)
				w.requireNoCrash(lb.UpdateLoadBalancer(ctx, clusterName, current, w.nodes))
			})
			w.requireNoWrites(failure.name)
			require.Equal(t, once, w.Snapshot(), failure.name)
		}
	}
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
}

// runUnmarked: while a process that has just begun cannot read which cluster this is, nothing is made, nothing changed and nothing
// deleted; afterwards all of it is done.
func runUnmarked(t *testing.T, f *Fixture, name string, o outage, failures []kubeFailure) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	w.createService(ctx, c.Service)
	quiet := func(what string, try func(current *v1.Service) error) {
		for _, failure := range failures {
			w.restart()
			current, before := w.service(ctx, c.Service), w.Snapshot()
			w.loadBalancer() // which shows the Services
			w.Sim.ResetCalls()
			var err error
			w.failing(o, failure.err, func() { err = try(current) })
			require.Error(t, err, "%s: %s", what, failure.name)
			w.requireNoCrash(err)
			w.requireNoWrites(what + ": " + failure.name)
			require.Equal(t, before, w.Snapshot(), "%s: %s", what, failure.name)
		}
	}
	ensure := func(current *v1.Service) error {
		_, err := w.unsyncedLoadBalancer().EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
		return err
	}
	quiet("making it", ensure)
	w.ensure(ctx, c.Service, nil)
	made := w.Snapshot()
	w.changeService(ctx, c.Service, c.Change)
	quiet("changing it", ensure)
	w.ensure(ctx, c.Service, nil)
	require.NotEqual(t, made, w.Snapshot())
	quiet("deleting it", func(current *v1.Service) error {
		current.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return w.unsyncedLoadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, current)
	})
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
}

// unsyncedLoadBalancer is the provider's, without a look at the API server.
func (w *world) unsyncedLoadBalancer() cloudprovider.LoadBalancer {
	lb, _ := w.cloud.LoadBalancer()
	return lb
}

// runUnrecorded: nothing can be written on a Service while it is made. When that ends it has one of each, and its deletion leaves nothing.
func runUnrecorded(t *testing.T, f *Fixture, name string, failures []kubeFailure) {
	t.Helper()
	ctx := t.Context()
	w, c, once := newServedWorld(t, f, name)
	w.remove(ctx, c.Service, nil)
	for _, failure := range failures {
		require.NoError(t, w.kube.CoreV1().Services(c.Service.Namespace).Delete(ctx, c.Service.Name, metav1.DeleteOptions{}))
		w.createService(ctx, c.Service)
		current := w.service(ctx, c.Service)
		w.protect(ctx, current)
		lb := w.loadBalancer()
		w.failing(outage{verbs: []string{"patch", "update"}, resource: "services"}, failure.err, func() {
			for range 3 {
				_, err := lb.EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
				w.requireNoCrash(err)
				time.Sleep(firstServicePause)
			}
		})
		w.ensure(ctx, c.Service, func() {})
		require.Equal(t, once, w.Snapshot(), failure.name)
		w.remove(ctx, c.Service, nil)
		require.Empty(t, w.Snapshot(), failure.name)
	}
}

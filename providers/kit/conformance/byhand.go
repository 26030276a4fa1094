package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// moments are how long after the program's last look somebody deletes a load balancer by hand.
var moments = []time.Duration{0, 5 * time.Second, time.Minute, time.Hour}

func runByHand(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		for _, after := range moments {
			virtual(t, name+" is deleted by hand after "+after.String()+" and made again", func(t *testing.T) {
				runDeletedByHand(t, newFixture(t), name, after)
			})
			virtual(t, name+" is deleted by hand after "+after.String()+" and then with its Service", func(t *testing.T) {
				runDeletedTwice(t, newFixture(t), name, after)
			})
		}
		virtual(t, name+" is made by two processes at once", func(t *testing.T) { runTwoProcesses(t, newFixture(t), name) })
	}
}

// deleteByHand deletes what a Service has, behind the back of the provider that runs.
func (w *world) deleteByHand(ctx context.Context, s *v1.Service) {
	running, services := w.cloud, w.services
	stop := w.stop
	w.stop = nil
	w.restart()
	gone := w.service(ctx, s)
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for began := time.Now(); ; time.Sleep(time.Second) {
		err := w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, gone)
		if err == nil {
			break
		}
		require.Less(w.t, time.Since(began), patience, "%v", err)
	}
	require.Empty(w.t, w.Snapshot())
	w.stop()
	w.cloud, w.services, w.stop = running, services, stop
}

// newServedWorld returns a world in which a Service is served, with two nodes.
func newServedWorld(t *testing.T, f *Fixture, name string) (w *world, c Case, once string) {
	t.Helper()
	w = newWorld(t, f)
	c = w.Services[name]
	w.addNode(t.Context(), "worker-1", nil)
	w.addNode(t.Context(), "worker-2", nil)
	w.createService(t.Context(), c.Service)
	w.ensure(t.Context(), c.Service, nil)
	return w, c, w.Snapshot()
}

// runDeletedByHand: a load balancer that somebody deleted is made again when its Service is looked at after that was to be seen, and a
// change of nodes alone is no failure.
func runDeletedByHand(t *testing.T, f *Fixture, name string, after time.Duration) {
	t.Helper()
	ctx := t.Context()
	w, c, once := newServedWorld(t, f, name)
	time.Sleep(after)
	w.deleteByHand(ctx, c.Service)
	_ = w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes[:1])
	w.waitForUpdates()
	time.Sleep(2 * time.Minute)
	w.ensure(ctx, c.Service, func() {})
	w.ensure(ctx, c.Service, nil)
	assert.Equal(t, once, w.Snapshot())
	w.remove(ctx, c.Service, func() {})
	assert.Empty(t, w.Snapshot())
}

// runDeletedTwice: the deletion of a Service whose load balancer somebody deleted ends.
func runDeletedTwice(t *testing.T, f *Fixture, name string, after time.Duration) {
	t.Helper()
	ctx := t.Context()
	w, c, _ := newServedWorld(t, f, name)
	time.Sleep(after)
	w.deleteByHand(ctx, c.Service)
	w.remove(ctx, c.Service, func() {})
	assert.Empty(t, w.Snapshot())
}

// runTwoProcesses: a process that lost its lease is still at work when the next one begins. What one of them makes is not lost by the
// other one, and when the Service goes, nothing is left.
func runTwoProcesses(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	old := w.loadBalancer()
	stop := w.stop
	w.stop = nil
	current := w.service(ctx, c.Service)
	w.protect(ctx, current)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = old.EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
	}()
	time.Sleep(roundTrip / 2)
	w.restart()
	w.ensure(ctx, c.Service, func() {})
	<-done
	stop()
	time.Sleep(2 * time.Minute)
	w.restart()
	w.ensure(ctx, c.Service, nil)
	shown := w.Snapshot()
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
	w.changeService(ctx, c.Service, func(s *v1.Service) { s.Annotations, s.Status = c.Service.DeepCopy().Annotations, v1.ServiceStatus{} })
	w.ensure(ctx, c.Service, nil)
	assert.Equal(t, w.Snapshot(), shown, "there is one of each")
	w.remove(ctx, c.Service, nil)
}

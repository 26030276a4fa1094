package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// lags are how far reads may be behind writes: as clouds are every day, and on a bad one.
var lags = []time.Duration{time.Second, 5 * time.Second, 20 * time.Second, 30 * time.Second}

func (f *Fixture) lags() []time.Duration {
	if f.Lags != nil {
		return f.Lags
	}
	return lags
}

func runLag(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all := triesAll(t, newFixture)
	lost := simkit.Fault{Kind: simkit.FaultLost, Writes: true, Count: 1}
	for _, name := range readFixture(t, newFixture, serviceNames) {
		for _, lag := range delays(readFixture(t, newFixture, (*Fixture).lags), all) {
			virtual(t, name+" loses its records while reads lag by "+lag.String(), func(t *testing.T) { runLostRecords(t, newFixture(t), name, lag) })
			virtual(t, name+" is deleted and created again while reads lag by "+lag.String(), func(t *testing.T) { runCreatedAgain(t, newFixture(t), name, lag) })
			virtual(t, name+" is changed while reads lag by "+lag.String(), func(t *testing.T) { runFlapping(t, newFixture(t), name, lag, false) })
			virtual(t, name+" is changed and looked at while reads lag by "+lag.String(), func(t *testing.T) {
				runFlapping(t, newFixture(t), name, lag, true)
			})
			for _, p := range processesOf(all) {
				title := fmt.Sprintf("%s: answers to its creation are lost while reads lag by %s", name, lag)
				virtual(t, fmt.Sprintf("%s, %s", title, p), func(t *testing.T) { runLostCreations(t, newFixture(t), name, lag, lost, p) })
				virtual(t, fmt.Sprintf("%s, and it is deleted, %s", title, p), func(t *testing.T) { runGivenUp(t, newFixture(t), name, lag, lost, p) })
			}
		}
	}
}

// newLaggingWorld returns a world with a node and a Service that was just made, while reads lag.
func newLaggingWorld(t *testing.T, f *Fixture, name string, lag time.Duration) (*world, Case) {
	t.Helper()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(t.Context(), "worker-1", nil)
	w.addNode(t.Context(), "worker-2", nil)
	if lag > 0 {
		w.Lag(lag)
	}
	w.createService(t.Context(), c.Service)
	return w, c
}

// runLostRecords: its author takes everything off a Service that was written on it, again and again from the moment of its
// creation on, and other Services make the program list. What was made is not made twice.
func runLostRecords(t *testing.T, f *Fixture, name string, lag time.Duration) {
	t.Helper()
	ctx := t.Context()
	w, c := newLaggingWorld(t, f, name, lag)
	shown := w.ensure(ctx, c.Service, nil)
	once := w.Snapshot()
	for began := time.Now(); time.Since(began) < 2*lag+30*time.Second; {
		w.changeService(ctx, c.Service, func(s *v1.Service) {
			s.Annotations = c.Service.DeepCopy().Annotations
			s.Status = v1.ServiceStatus{}
		})
		assert.Equal(t, shown, w.ensure(ctx, c.Service, nil))
		require.Equal(t, once, w.Snapshot(), "after %s", time.Since(began))
		time.Sleep(max(lag/4, time.Second))
	}
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
}

// runCreatedAgain: a Service is deleted, and one of the same name made at once. The new one has a load balancer of its own, and the
// old one's is gone, though reads show it.
func runCreatedAgain(t *testing.T, f *Fixture, name string, lag time.Duration) {
	t.Helper()
	ctx := t.Context()
	w, c := newLaggingWorld(t, f, name, lag)
	w.ensure(ctx, c.Service, nil)
	once := w.Snapshot()
	time.Sleep(2 * lag) // until reads show it
	w.remove(ctx, c.Service, nil)
	require.Empty(t, w.Snapshot())
	require.NoError(t, w.kube.CoreV1().Services(c.Service.Namespace).Delete(ctx, c.Service.Name, metav1.DeleteOptions{}))
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	assert.Equal(t, once, w.Snapshot())
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
	time.Sleep(2 * lag)
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
}

// runFlapping: a node leaves and comes back, while others make the program list what was before. It is among the backends
// again, whatever was read when the Service was looked at meanwhile.
func runFlapping(t *testing.T, f *Fixture, name string, lag time.Duration, resynced bool) {
	t.Helper()
	ctx := t.Context()
	w, c := newLaggingWorld(t, f, name, lag)
	w.ensure(ctx, c.Service, nil)
	both := w.Snapshot()
	time.Sleep(2*lag + 15*time.Second) // until what was read then is too old for whoever looks again
	nodes := w.nodes
	w.nodes = nodes[:1]
	w.update(ctx, c.Service, nil)
	one := w.Snapshot()
	require.NotEqual(t, both, one)
	time.Sleep(lag / 4)
	if resynced {
		w.ensure(ctx, c.Service, nil)
		require.Equal(t, one, w.Snapshot())
	}
	other := c.Service.DeepCopy() // one that has nothing yet makes the program list
	other.Name, other.UID, other.Annotations = "other", "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa", nil
	_, _, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, other)
	require.NoError(t, err)
	w.nodes = nodes
	w.update(ctx, c.Service, nil)
	assert.Equal(t, both, w.Snapshot(), "the node is back")
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

func runVanish(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		for _, restart := range []bool{false, true} {
			for _, shown := range []bool{false, true} {
				title := fmt.Sprintf("%s loses its load balancer alone, status written %t, restart %t", name, shown, restart)
				virtual(t, title+", and is served again", func(t *testing.T) { runVanished(t, newFixture(t), name, shown, restart, false) })
				virtual(t, title+", and is deleted", func(t *testing.T) { runVanished(t, newFixture(t), name, shown, restart, true) })
			}
			virtual(t, fmt.Sprintf("%s loses its load balancer while nodes change, restart %t", name, restart), func(t *testing.T) {
				runVanishedAtNodeChange(t, newFixture(t), name, restart)
			})
			virtual(t, fmt.Sprintf("%s loses its load balancer while it is made, restart %t", name, restart), func(t *testing.T) {
				runVanishedEarly(t, newFixture(t), name, restart)
			})
		}
	}
}

// answer reconciles a Service until the provider is done, as ensure does, but writes no status.
func (w *world) answer(ctx context.Context, s *v1.Service) {
	for began := time.Now(); ; {
		current := w.service(ctx, s)
		w.protect(ctx, current)
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
		if err == nil {
			return
		}
		hint, later := errors.AsType[*cloudproviderapi.RetryError](err)
		require.True(w.t, later, "%v", err)
		require.Less(w.t, time.Since(began), patience, "%v", err)
		time.Sleep(hint.RetryAfter())
	}
}

// runVanished: somebody deletes the load balancer alone, and leaves what was made together with it: addresses, firewalls, target
// groups. With the Service all of that goes; where the Service stays, it has one of each again.
func runVanished(t *testing.T, f *Fixture, name string, shown, restart, deleted bool) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	if shown {
		w.ensure(ctx, c.Service, nil)
	} else {
		w.answer(ctx, c.Service)
	}
	once := w.Snapshot()
	w.RemoveLoadBalancers()
	require.NotEqual(t, once, w.Snapshot())
	if restart {
		w.restart()
	}
	time.Sleep(2 * time.Minute)
	if !deleted {
		w.ensure(ctx, c.Service, func() {})
		assert.Equal(t, once, w.Snapshot(), "it has one of each")
	}
	w.remove(ctx, c.Service, func() {})
	assert.Empty(t, w.Snapshot(), "nothing is left")
}

// runVanishedAtNodeChange: what somebody deletes right before its nodes change is no crash, and leaves nothing.
func runVanishedAtNodeChange(t *testing.T, f *Fixture, name string, restart bool) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	w.addNode(ctx, "worker-2", nil)
	if restart {
		w.restart()
	}
	w.RemoveLoadBalancers()
	w.requireNoCrash(w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes))
	w.remove(ctx, c.Service, func() {})
	assert.Empty(t, w.Snapshot(), "nothing is left")
}

// runVanishedEarly: the creation of a load balancer ends after each of its writes in turn, because the API fails from there on, and
// somebody deletes what there is of it. Nothing is left of it when the Service goes.
func runVanishedEarly(t *testing.T, f *Fixture, name string, restart bool) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	for k := 2; ; k++ {
		w.createService(ctx, c.Service)
		w.failCalls(simkit.Fault{Kind: simkit.FaultReset, Writes: true, From: k})
		current := w.service(ctx, c.Service)
		w.protect(ctx, current)
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
		w.RemoveLoadBalancers()
		w.Sim.ClearFaults()
		if restart {
			w.restart()
		}
		time.Sleep(2 * time.Minute)
		w.remove(ctx, c.Service, func() {})
		require.Empty(t, w.Snapshot(), "after %d writes", k-1)
		require.NoError(t, w.kube.CoreV1().Services(current.Namespace).Delete(ctx, current.Name, metav1.DeleteOptions{}))
		if err == nil {
			return
		}
	}
}

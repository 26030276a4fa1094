package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// lateness is how long after a gateway's answer a call may take effect.
var lateness = []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}

func runCreations(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all := triesAll(t, newFixture)
	for _, name := range readFixture(t, newFixture, serviceNames) {
		virtual(t, name+" is refused by the cloud after a start", func(t *testing.T) { runRefusedAfterStart(t, newFixture(t), name) })
		for _, late := range delays(lateness, all) {
			fault := simkit.Fault{Kind: simkit.FaultLate, Late: simkit.Duration(late), Writes: true, Count: 1}
			for _, p := range processesOf(all) {
				title := fmt.Sprintf("%s is made %s after a gateway gave up", name, late)
				virtual(t, fmt.Sprintf("%s, %s", title, p), func(t *testing.T) { runLostCreations(t, newFixture(t), name, 0, fault, p) })
				virtual(t, fmt.Sprintf("%s, and deleted before, %s", title, p), func(t *testing.T) { runGivenUp(t, newFixture(t), name, 0, fault, p) })
			}
		}
	}
}

// runLostCreations: the answer to each write of a creation is lost in turn, and what it makes shows later, because listings lag or the
// call takes effect later. Nothing is made twice, whether or not the program has just started, and also where it starts again.
func runLostCreations(t *testing.T, f *Fixture, name string, lag time.Duration, fault simkit.Fault, p processes) {
	t.Helper()
	ctx := t.Context()
	w, c := newLaggingWorld(t, f, name, lag)
	w.Sim.ResetCalls()
	w.ensure(ctx, c.Service, nil)
	once, writes := w.Snapshot(), w.Sim.Calls().Writes
	require.Positive(t, writes)
	w.remove(ctx, c.Service, nil)
	for k := range writes {
		time.Sleep(2*lag + 5*time.Minute) // until nothing of the last round is remembered or listed
		current := c.Service.DeepCopy()
		require.NoError(t, w.kube.CoreV1().Services(current.Namespace).Delete(ctx, current.Name, metav1.DeleteOptions{}))
		time.Sleep(settledIn)
		w.createService(ctx, current)
		if p.start {
			w.restart()
		}
		fault.From = k + 1
		w.failCalls(fault)
		w.ensure(ctx, current, func() {
			if p.restart {
				w.restart()
			}
		})
		w.Sim.ClearFaults()
		time.Sleep(time.Duration(fault.Late))
		w.ensure(ctx, current, nil)
		assert.Equal(t, once, w.Snapshot(), "after the answer to write %d of %d was lost", k+1, writes)
		w.remove(ctx, current, nil)
		time.Sleep(2 * lag)
		w.remove(ctx, current, nil)
		require.Empty(t, w.Snapshot(), "after the answer to write %d of %d was lost", k+1, writes)
	}
}

// runRefusedAfterStart: a program that has just begun tells why a Service cannot be made, and not that it waits for what the one before may
// have made. The deletion of the Service does not wait for long.
func runRefusedAfterStart(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	w.protect(ctx, w.service(ctx, c.Service))
	time.Sleep(time.Minute)
	w.restart()
	w.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Writes: true, From: 1, Count: 1000})
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(firstServicePause) {
		_, err := w.tryEnsure(ctx, c.Service)
		require.Error(t, err)
		_, waits := errors.AsType[*cloudproviderapi.RetryError](err)
		assert.False(t, waits, "to wait is no failure: %v", err)
	}
	w.Sim.ClearFaults()
	w.restart()
	began := time.Now()
	w.goes(ctx, c.Service)
	w.remove(ctx, c.Service, nil)
	assert.Less(t, time.Since(began), 90*time.Second, "the deletion of what was never made")
	assert.Empty(t, w.Snapshot())
}

// runGivenUp: a Service is deleted while it is not known what became of the creation of its load balancer. Nothing is left. start says
// that the process has just begun when it makes the load balancer, restart that another one deletes it. A process that has run for
// long has nothing but its own memory of the answer that was lost.
func runGivenUp(t *testing.T, f *Fixture, name string, lag time.Duration, fault simkit.Fault, p processes) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	if lag > 0 {
		w.Lag(lag)
	}
	w.settleIn(ctx, c.Service)
	for k := 1; ; k++ {
		w.createService(ctx, c.Service)
		if p.start {
			w.restart()
		}
		fault.From = k
		w.failCalls(fault)
		current := w.service(ctx, c.Service)
		w.protect(ctx, current)
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
		w.Sim.ClearFaults()
		if p.restart {
			w.restart()
		}
		w.remove(ctx, c.Service, func() {})
		time.Sleep(2*lag + time.Minute)
		require.Empty(t, w.Snapshot(), "after the answer to write %d was lost", k)
		require.NoError(t, w.kube.CoreV1().Services(current.Namespace).Delete(ctx, current.Name, metav1.DeleteOptions{}))
		if err == nil {
			require.True(t, k > 1 || f.CreationTokens)
			return
		}
		time.Sleep(settledIn) // until nothing of this round is remembered
	}
}

// settledIn is how long a process has run when nothing of what processes before it may have done is in doubt any more.
const settledIn = 10 * time.Minute

// settleIn has the provider work for another Service, and waits until it has run for long.
func (w *world) settleIn(ctx context.Context, s *v1.Service) {
	other := s.DeepCopy()
	other.Name, other.UID, other.Annotations = "settled-in", "6c4f6b52-7a66-4b58-8b4b-0a61c1f9e0ab", nil
	_, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, other)
	require.NoError(w.t, err)
	require.False(w.t, exists)
	time.Sleep(settledIn)
}

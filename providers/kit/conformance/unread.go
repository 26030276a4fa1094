package conformance

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// unreadable are answers that say nothing of what was asked for, though each might pass for "there is none".
var unreadable = map[string]simkit.Fault{
	"forbidden":              {Kind: simkit.FaultStatus, Status: http.StatusForbidden},
	"a proxy's page for 404": {Kind: simkit.FaultHTML, Status: http.StatusNotFound},
}

// runUnread: each kind of read in turn is answered so that nobody knows what is there. That is never taken for absence: nothing is made a
// second time, nothing is changed, and no Service goes whose objects stay.
func runUnread(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		var reads []string
		synctest.Test(t, func(t *testing.T) { reads = listReads(t, newFixture(t), name) })
		require.NotEmpty(t, reads)
		for _, operation := range reads {
			for _, kind := range readFixture(t, newFixture, (*Fixture).listUnreadable) {
				virtual(t, name+": "+operation+", "+kind, func(t *testing.T) {
					fault := unreadable[kind]
					fault.Operation = operation + "$"
					f := newFixture(t)
					runUnreadable(t, f, name, fault, f.Dispensable[operation] != "")
				})
			}
		}
	}
}

// listUnreadable returns the kinds that are tried. What stands before an API server passes for it, as clients of Kubernetes read answers.
func (f *Fixture) listUnreadable() []string {
	if f.Provider.InCluster {
		return []string{"forbidden"}
	}
	return sortedKeys(unreadable)
}

// listReads returns the operations by which a process that has just begun reads what a Service has.
func listReads(t *testing.T, f *Fixture, name string) (operations []string) {
	t.Helper()
	ctx := t.Context()
	w, c, _ := newServedWorld(t, f, name)
	w.restart()
	w.Sim.ResetCalls()
	w.ensure(ctx, c.Service, nil)
	w.update(ctx, c.Service, nil)
	calls := w.Sim.Calls().Latest
	w.Sim.ResetCalls()
	w.restart()
	_, _, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, c.Service))
	require.NoError(t, err)
	for _, call := range append(calls, w.Sim.Calls().Latest...) {
		if !call.Write && !slices.Contains(operations, call.Operation) {
			operations = append(operations, call.Operation)
		}
	}
	slices.Sort(operations)
	return operations
}

func runUnreadable(t *testing.T, f *Fixture, name string, fault simkit.Fault, dispensable bool) {
	t.Helper()
	ctx := t.Context()
	w, c, once := newServedWorld(t, f, name)
	w.restart()
	w.Sim.ResetCalls()
	w.failCalls(fault)
	for range 2 {
		_, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, c.Service))
		assert.True(t, exists || err != nil, "an answer or an error, but never that there is none")
		_ = w.ensureToEnd(ctx, c.Service)
		_ = w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes) // both may fail
		time.Sleep(firstServicePause)
	}
	for _, call := range w.Sim.Calls().Latest {
		assert.False(t, call.Write && !dispensable, "nobody knows what is there: %s %s", call.Operation, call.Body)
	}
	w.Sim.ClearFaults()
	w.waitForUpdates()
	w.ensure(ctx, c.Service, nil)
	require.Equal(t, once, w.Snapshot())

	w.restart()
	w.failCalls(fault)
	if gone := w.tryRemove(ctx, c); gone {
		assert.True(t, w.Snapshot() == "" || w.warned(ctx, c.Service), "the Service goes, and no event tells of what stays:\n%s", w.Snapshot())
		return
	}
	w.Sim.ClearFaults()
	w.remove(ctx, c.Service, func() {})
	assert.Empty(t, w.Snapshot())
}

// tryRemove plays the service controller for some tries, and reports whether the Service goes.
func (w *world) tryRemove(ctx context.Context, c Case) (gone bool) {
	current := w.service(ctx, c.Service)
	current.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for range 3 {
		_, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, current)
		if err == nil && exists {
			err = w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, current)
		}
		if err == nil {
			return true
		}
		time.Sleep(firstServicePause)
	}
	return false
}

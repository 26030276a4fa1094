package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// runTogether has Services deleted, or one made and one deleted, at the same moment: each sees the others' load balancers. What they share
// goes with the last one, and only then.
func runTogether(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		for _, start := range []bool{false, true} {
			for count := 2; count <= 3; count++ {
				virtual(t, fmt.Sprintf("%d of %s are deleted, start %t", count, name, start), func(t *testing.T) {
					runDeletedTogether(t, newFixture(t), name, count, start)
				})
			}
			virtual(t, fmt.Sprintf("one of %s is made while the last one is deleted, start %t", name, start), func(t *testing.T) {
				runReplaced(t, newFixture(t), name, start)
			})
		}
	}
}

// copies are Services like that of a case, each of which has node ports of its own.
func (c Case) copies(count int) (all []*v1.Service) {
	for number := range count {
		s := c.Service.DeepCopy()
		s.Name, s.UID = fmt.Sprintf("%s-%d", s.Name, number), types.UID(fmt.Sprintf("%d%s", number, s.UID[1:]))
		for _, key := range c.Unique {
			delete(s.Annotations, key)
		}
		for i := range s.Spec.Ports {
			s.Spec.Ports[i].NodePort += int32(10 * number)
		}
		if s.Spec.HealthCheckNodePort != 0 {
			s.Spec.HealthCheckNodePort += int32(10 * number)
		}
		all = append(all, s)
	}
	return all
}

// goes has a Service deleted, as everybody sees.
func (w *world) goes(ctx context.Context, s *v1.Service) {
	w.changeService(ctx, s, func(s *v1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
}

// runDeletedTogether: start says that the process has just begun when it deletes them.
func runDeletedTogether(t *testing.T, f *Fixture, name string, count int, start bool) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	all := w.Services[name].copies(count)
	for _, s := range all {
		w.createService(ctx, s)
		w.ensure(ctx, s, nil)
	}
	if start {
		w.restart()
	}
	for _, s := range all {
		w.goes(ctx, s)
	}
	var group sync.WaitGroup
	for _, s := range all {
		group.Go(func() { w.remove(ctx, s, func() {}) })
	}
	group.Wait()
	assert.Empty(t, w.Snapshot(), "nothing is left")
}

// runReplaced: what the next Service needs is there although the last one took it along.
func runReplaced(t *testing.T, f *Fixture, name string, start bool) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	all := w.Services[name].copies(2)
	last, next := all[0], all[1]
	w.createService(ctx, last)
	w.ensure(ctx, last, nil)
	w.createService(ctx, next)
	if start {
		w.restart()
	}
	w.goes(ctx, last)
	var group sync.WaitGroup
	group.Go(func() { w.remove(ctx, last, func() {}) })
	group.Go(func() { w.ensure(ctx, next, func() {}) })
	group.Wait()
	time.Sleep(time.Minute)
	w.ensure(ctx, next, nil)
	w.restart()
	w.Sim.ResetCalls()
	w.ensure(ctx, next, nil)
	w.requireNoWrites("the next one has all that it needs")
	w.goes(ctx, next)
	w.remove(ctx, next, nil)
	assert.Empty(t, w.Snapshot(), "nothing is left")
}

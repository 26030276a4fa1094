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

const (
	// servicesAtOnce are Services that are reconciled at the same moment.
	servicesAtOnce = 5
	// turnTime is how much longer than twice the time of one alone that may take: what others write is waited for once, and not looked at
	// more often than every few seconds.
	turnTime = 5 * time.Second
)

// runAtOnce: Services that are reconciled at the same moment keep each other waiting for one turn, which is no failure.
func runAtOnce(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "Services are reconciled at the same moment", func(t *testing.T) {
		one := newFixture(t).timeServices(t, 1)
		f := newFixture(t)
		many := f.timeServices(t, servicesAtOnce)
		turns, late := 2.0, 0.0
		if f.OneAfterAnother != "" { // each waits for a job that is looked at every second
			turns, late = servicesAtOnce, servicesAtOnce
		}
		for _, step := range sortedKeys(one) {
			assert.LessOrEqual(t, many[step].Seconds(), turns*one[step].Seconds()+late+turnTime.Seconds(), "%s: %s alone", step, one[step])
		}
	})
}

// makeNumbered makes one of several Services, with a port of its own.
func makeNumbered(i int32) *v1.Service {
	s := Service(fmt.Sprintf("web-%d", i), nil, Port("http", 8001+i, 30801+i))
	s.UID = types.UID(fmt.Sprintf("%08x-7a66-4b58-8b4b-0a61c1f9e0a1", 0x3c1f6b52+i))
	return s
}

// timeServices reconciles a number of Services at the same moment, none of which may fail, and returns how long that takes, by what
// happens to them.
func (f *Fixture) timeServices(t *testing.T, number int32) map[string]time.Duration {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	var list []*v1.Service
	for i := range number {
		list = append(list, makeNumbered(i))
		w.createService(ctx, list[i])
	}
	took := map[string]time.Duration{}
	together := func(step string, do func(ctx context.Context, s *v1.Service, onError func())) {
		time.Sleep(stepPause)
		began := time.Now()
		var group sync.WaitGroup
		for _, s := range list {
			group.Go(func() { do(ctx, s, func() { assert.Fail(t, step+": "+s.Name+" fails") }) })
		}
		group.Wait()
		took[step] = time.Since(began)
	}
	ensure := func(ctx context.Context, s *v1.Service, onError func()) { w.ensure(ctx, s, onError) }
	together("created", ensure)
	for _, s := range list {
		w.changeService(ctx, s, func(s *v1.Service) { s.Spec.Ports[0].NodePort += 100 })
	}
	together("the node port changes", ensure)
	w.nodes = w.nodes[:1]
	together("a node leaves", w.update)
	for _, s := range list {
		w.changeService(ctx, s, func(s *v1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	}
	together("deleted", w.remove)
	assert.Empty(t, w.Snapshot())
	w.stop()
	return took
}

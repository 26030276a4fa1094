package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

func aged(n int) []*v1.Node {
	nodes := make([]*v1.Node, n)
	for i := range nodes {
		nodes[i] = &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%d", i), UID: types.UID(fmt.Sprintf("u%d", i)), CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}
	}
	return nodes
}

func TestReportsBecomeRarer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := record.NewFakeRecorder(1000)
		r := &reports{}
		n := aged(1)[0]
		r.warnOfNode(n, EventNodeDeletionHeld, "before anything listens")
		r.setRecorder(recorder)
		for range 720 { // an hour of passes
			r.warnOfNode(n, EventNodeDeletionHeld, "why")
			r.reportForeign(n, "why")
			time.Sleep(5 * time.Second)
		}
		assert.LessOrEqual(t, len(recorder.Events), 13)
		assert.GreaterOrEqual(t, len(recorder.Events), 8)
		before := len(recorder.Events)
		r.endHold(n, "seen")
		r.endHold(n, "seen")
		r.warnOfNode(n, EventNodeDeletionHeld, "again")
		assert.Len(t, recorder.Events, before+2, "the end is told once, and the next hold at once")
		r.warnOfNode(n, EventNodeInitializationFailed, "why")
		r.clear(n)
		r.warnOfNode(n, EventNodeInitializationFailed, "again")
		assert.Len(t, recorder.Events, before+4, "after a success the next failure is told at once")
	})
}

func TestFailedInitialisationIsAnEvent(t *testing.T) {
	t.Parallel()
	g := guarded(&cloud{metadata: nil})
	recorder := record.NewFakeRecorder(10)
	g.reports.setRecorder(recorder)
	instances, _ := g.InstancesV2()
	_, err := instances.InstanceMetadata(t.Context(), node("", true))
	require.Error(t, err)
	assert.Contains(t, <-recorder.Events, EventNodeInitializationFailed)
	_, err = instances.InstanceMetadata(t.Context(), node("alpha://1", false))
	require.Error(t, err)
	assert.Empty(t, recorder.Events, "a node that works is not bothered")
}

// orphanage is a cloud that knows orphans.
type orphanage struct {
	cloud
	found []contract.Orphan
	asked int
}

func (o *orphanage) Orphans(context.Context, []*v1.Service) ([]contract.Orphan, error) {
	o.asked++
	return o.found, nil
}

func (*orphanage) DeleteOrphan(context.Context, contract.Orphan) error { return errors.New("deleted") }

func TestOrphansAreCountedOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &orphanage{found: []contract.Orphan{{ID: "1"}, {ID: "2"}}}
		g := Wrap(o, Facts{Provider: "alpha", Policy: DefaultPolicy()})
		shown := showMetrics(t, g)
		services := listers.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
		stop, synced, done := make(chan struct{}), false, make(chan struct{})
		var mu sync.Mutex
		go func() {
			defer close(done)
			g.countOrphans(stop, func() bool { mu.Lock(); defer mu.Unlock(); return synced }, services)
		}()
		time.Sleep(time.Hour)
		mu.Lock()
		synced = true
		mu.Unlock()
		time.Sleep(10 * time.Hour)
		close(stop)
		<-done
		assert.Equal(t, 10, o.asked, "not before the Services are known")
		assert.InDelta(t, 2, shown()["anyccm_guard_orphans"], 0)
		require.EqualError(t, g.DeleteOrphan(t.Context(), contract.Orphan{}), "deleted")

		none := guarded(&cloud{})
		_, err := none.Orphans(t.Context(), nil)
		require.ErrorIs(t, err, contract.ErrNoOrphans)
		none.countOrphans(make(chan struct{}), func() bool { return true }, services) // ends by itself
	})
}

func TestSelector(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.NodeSelector = "cloud=alpha"
	require.NoError(t, p.Validate())
	o := &ownership{facts: Facts{ProviderIDPrefixes: []string{"alpha://"}, Policy: p}, reports: &reports{}}
	ours, other := node("", true), node("alpha://1", false)
	ours.Labels = map[string]string{"cloud": "alpha"}
	assert.Empty(t, o.whyForeign(ours))
	assert.Contains(t, o.whyForeign(other), "--node-selector=cloud=alpha")
	assert.Equal(t, []*v1.Node{ours}, o.filterOurs([]*v1.Node{ours, other}))

	o.facts.Unmanaged = func(n *v1.Node) string { return n.Labels["unmanaged"] }
	ours.Labels["unmanaged"] = "it is nobody's"
	assert.Equal(t, "it is nobody's", o.whyForeign(ours), "whatever its provider ID and the selector say")
	assert.Empty(t, o.filterOurs([]*v1.Node{ours}))
}

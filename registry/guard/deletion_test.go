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
	"k8s.io/component-base/metrics/testutil"
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

// watched is a cluster of n nodes under a policy, all of them seen alive.
func watched(n int, change func(*Policy), account func(context.Context) error) (*deletions, []*v1.Node) {
	p := DefaultPolicy()
	if change != nil {
		change(&p)
	}
	if account == nil {
		account = func(context.Context) error { return nil }
	}
	d := newDeletions(p, func() int { return n }, account)
	nodes := aged(n)
	for _, node := range nodes {
		d.seen(node)
	}
	return d, nodes
}

func TestDeletionTakesSeveralAnswersOverSomeTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, nodes := watched(20, nil, nil)
		began := time.Now()
		for range 10 { // many answers at once are one answer
			h, _ := d.gone(t.Context(), nodes[0])
			assert.Equal(t, holdUnconfirmed, h)
		}
		for {
			time.Sleep(5 * time.Second)
			if h, _ := d.gone(t.Context(), nodes[0]); h == holdNone {
				break
			}
		}
		assert.LessOrEqual(t, time.Since(began), 60*time.Second, "an autoscaler's scale-down is not slowed beyond this")
		assert.GreaterOrEqual(t, time.Since(began), 10*time.Second)
	})
}

func TestFlappingAnswersBeginAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, nodes := watched(20, nil, nil)
		for range 20 {
			for range 2 {
				time.Sleep(6 * time.Second)
				h, _ := d.gone(t.Context(), nodes[0])
				assert.Equal(t, holdUnconfirmed, h)
			}
			d.seen(nodes[0])
		}
	})
}

func TestNewborn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := watched(20, nil, nil)
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "new", CreationTimestamp: metav1.NewTime(time.Now())}}
		for time.Since(n.CreationTimestamp.Time) < DefaultPolicy().GracePeriod {
			h, _ := d.gone(t.Context(), n)
			assert.Equal(t, holdYoung, h)
			time.Sleep(5 * time.Second)
		}
		h, _ := d.gone(t.Context(), n)
		assert.Equal(t, holdNone, h, "the answers of its youth count")
	})
}

// vanish lets instances be called gone in passes of 5 s, for a minute, and returns the nodes that may be deleted and the
// last reason for keeping one.
func vanish(t *testing.T, d *deletions, nodes []*v1.Node) (deleted int, last hold) {
	t.Helper()
	gone := map[string]bool{}
	for range 12 {
		for _, n := range nodes {
			if gone[n.Name] {
				continue
			}
			if h, message := d.gone(t.Context(), n); h == holdNone {
				gone[n.Name] = true
			} else {
				last = h
				assert.NotEmpty(t, message)
			}
		}
		time.Sleep(5 * time.Second)
	}
	return len(gone), last
}

func TestShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cluster, vanish int
		change          func(*Policy)
		deleted         int
		last            hold
	}{
		"one of many":                 {100, 1, nil, 1, holdUnconfirmed},
		"a fifth":                     {100, 20, nil, 20, holdUnconfirmed},
		"more than a fifth":           {100, 21, nil, 0, holdShare},
		"half":                        {100, 50, nil, 0, holdShare},
		"all":                         {100, 100, nil, 0, holdAll},
		"small cluster, up to 3":      {5, 3, nil, 3, holdUnconfirmed},
		"small cluster, 4":            {5, 4, nil, 0, holdShare},
		"small cluster, all":          {2, 2, nil, 0, holdAll},
		"the only node":               {1, 1, nil, 1, holdUnconfirmed},
		"half, and the limit lifted":  {100, 50, func(p *Policy) { p.MaxShare = 1 }, 50, holdUnconfirmed},
		"all, and the limit lifted":   {10, 10, func(p *Policy) { p.MaxShare = 1 }, 10, holdUnconfirmed},
		"dry run":                     {100, 1, func(p *Policy) { p.DryRun = true }, 0, holdDryRun},
		"no floor, small share of 10": {10, 2, func(p *Policy) { p.Floor = 0 }, 2, holdUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, nodes := watched(c.cluster, c.change, nil)
				deleted, last := vanish(t, d, nodes[:c.vanish])
				assert.Equal(t, c.deleted, deleted)
				assert.Equal(t, c.last, last)
			})
		})
	}
}

func TestSlowLossIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, nodes := watched(100, nil, nil)
		deleted := 0
		for _, n := range nodes[:40] { // one every 15 s: 40 within 10 minutes
			for range 3 {
				if h, _ := d.gone(t.Context(), n); h == holdNone {
					deleted++
				}
				time.Sleep(5 * time.Second)
			}
			d.seen(nodes[99])
		}
		assert.Equal(t, 20, deleted)

		time.Sleep(DefaultPolicy().Window)
		d.seen(nodes[99])
		more, _ := vanish(t, d, nodes[41:42])
		assert.Equal(t, 1, more, "after the window the count begins anew")
	})
}

func TestAccountIsAskedWhereNoInstanceWasSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		failure := errors.New("refused")
		d, nodes := watched(5, nil, func(context.Context) error { asked++; return failure })
		deleted, _ := vanish(t, d, nodes[:1])
		assert.Equal(t, 1, deleted)
		assert.Zero(t, asked, "an instance was seen: no call")

		time.Sleep(time.Hour)
		deleted, last := vanish(t, d, nodes[1:2])
		assert.Zero(t, deleted)
		assert.Equal(t, holdAccount, last)
		assert.Positive(t, asked)
		failure = nil
		deleted, _ = vanish(t, d, nodes[1:2])
		assert.Equal(t, 1, deleted)
	})
}

func TestReportsBecomeRarer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := record.NewFakeRecorder(1000)
		r := &reports{}
		n := aged(1)[0]
		r.warn(n, EventNodeDeletionHeld, "before anything listens")
		r.use(recorder)
		for range 720 { // an hour of passes
			r.warn(n, EventNodeDeletionHeld, "why")
			r.foreign(n, "why")
			time.Sleep(5 * time.Second)
		}
		assert.LessOrEqual(t, len(recorder.Events), 13)
		assert.GreaterOrEqual(t, len(recorder.Events), 8)
		before := len(recorder.Events)
		r.clear(n)
		r.warn(n, EventNodeDeletionHeld, "again")
		assert.Len(t, recorder.Events, before+1, "after a success the next failure is told at once")
	})
}

func TestFailedInitialisationIsAnEvent(t *testing.T) {
	t.Parallel()
	g := guarded(&cloud{metadata: nil})
	recorder := record.NewFakeRecorder(10)
	g.reports.use(recorder)
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
	found []Orphan
	asked int
}

func (o *orphanage) Orphans(context.Context, []*v1.Service) ([]Orphan, error) {
	o.asked++
	return o.found, nil
}
func (*orphanage) DeleteOrphan(context.Context, Orphan) error { return errors.New("deleted") }

func TestOrphansAreCountedOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &orphanage{found: []Orphan{{ID: "1"}, {ID: "2"}}}
		g := Wrap(o, Facts{Provider: "orphanage", Policy: DefaultPolicy()})
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
		value, err := testutil.GetGaugeMetricValue(orphans.WithLabelValues("orphanage"))
		require.NoError(t, err)
		assert.InDelta(t, 2, value, 0)
		require.EqualError(t, g.DeleteOrphan(t.Context(), Orphan{}), "deleted")

		none := guarded(&cloud{})
		_, err = none.Orphans(t.Context(), nil)
		require.ErrorIs(t, err, ErrNoOrphans)
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
	assert.Empty(t, o.foreign(ours))
	assert.Contains(t, o.foreign(other), "--node-selector=cloud=alpha")
	assert.Equal(t, []*v1.Node{ours}, o.ours([]*v1.Node{ours, other}))
}

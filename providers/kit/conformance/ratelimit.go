package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	// askedPause is for how long the cloud asks not to be called, which is too long for a call to be held back.
	askedPause = time.Minute
	// limitedFor is for how long it refuses every call.
	limitedFor = 5*time.Minute - time.Second
	// limitedServices and limitedNodes are those that somebody waits for meanwhile.
	limitedServices, limitedNodes = 3, 20
	// askers is how many calls may go out at the same moment, before any of them is answered: about nodes and about Services, to each of the
	// cloud's APIs.
	askers = 4
)

// runRateLimited: the cloud refuses every call for a while, because there were too many. However much there is to do, it is called no
// sooner than it asked for, and no more often for that; then everything is done.
func runRateLimited(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "every call is refused for a while", func(t *testing.T) { runRefusedForRate(t, newFixture(t)) })
}

func runRefusedForRate(t *testing.T, f *Fixture) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	for i := range limitedNodes {
		w.addNode(ctx, fmt.Sprintf("worker-%d", i+1), nil)
	}
	w.shown = w.nodes
	w.restart()
	first := Service("first", nil, Port("http", 8000, 30800))
	w.createService(ctx, first)
	w.ensure(ctx, first, nil)
	if w.hasNodes() {
		assert.Empty(t, w.pass(w.nodes))
	}
	time.Sleep(2 * time.Minute) // what was read is old, and sessions go on
	var list []*v1.Service
	for i := range int32(limitedServices) {
		s := makeNumbered(i)
		w.createService(ctx, s)
		list = append(list, s)
	}
	w.Sim.ResetCalls()
	w.failCalls(simkit.Fault{
		Kind: simkit.FaultStatus, Status: http.StatusTooManyRequests, RetryAfter: int(askedPause / time.Second), For: simkit.Duration(limitedFor),
	})
	began := time.Now()
	var group sync.WaitGroup
	for _, s := range list {
		group.Go(func() { w.ensure(ctx, s, func() {}) })
	}
	for w.hasNodes() && time.Since(began) < limitedFor {
		assert.Empty(t, w.pass(w.nodes), "what cannot be asked is not gone")
		time.Sleep(monitorPeriod)
	}
	group.Wait()
	assert.LessOrEqual(t, time.Since(began), limitedFor+3*time.Minute, "everything is done soon afterwards")
	var refused []time.Duration
	for _, c := range w.Sim.Calls().Latest {
		if c.Status == http.StatusTooManyRequests {
			refused = append(refused, c.At.Sub(began))
		}
	}
	assert.GreaterOrEqual(t, len(refused), int(limitedFor/askedPause), "the cloud is tried again when it allows that")
	assert.LessOrEqual(t, len(refused), askers*(int(limitedFor/askedPause)+1), "%v", refused)
	for i, at := range refused {
		assert.False(t, slices.ContainsFunc(refused[:i], func(before time.Duration) bool {
			return at > before+roundTrip && at < before+askedPause
		}), "the cloud asked for a pause of %s: %v", askedPause, refused)
	}
	require.NotEmpty(t, w.Snapshot())
}

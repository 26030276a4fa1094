package ibm

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestStatusBehindAWrite: a load balancer shows that it is active for a moment after a write, and refuses the next one. That is no failure.
func TestStatusBehindAWrite(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		time.Sleep(time.Minute)
		w.sim.SetStatusLag(8 * time.Second)
		w.writes()
		s.Spec.Ports[0].NodePort = 30099
		require.NoError(w.t, w.ensure(s))
		conflicts := 0
		for _, c := range w.server.Calls().Latest {
			if c.Status == http.StatusConflict {
				conflicts++
			}
		}
		assert.LessOrEqual(w.t, conflicts, 3, "it is not asked over and over")
		assert.Equal(w.t, []string{"PATCH " + oneLB + "/pools/{id}", put}, w.writes())
	})
}

// TestWritesRefusedForAnothersWork: writes are refused for a minute because the cloud works for somebody else, which no status shows.
func TestWritesRefusedForAnothersWork(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		time.Sleep(time.Minute)
		w.server.ResetCalls()
		_, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: http.StatusConflict, Operation: "PATCH " + oneLB + "/pools", For: simkit.Duration(time.Minute),
		})
		require.NoError(w.t, err)
		s.Spec.Ports[0].NodePort = 30099
		require.NoError(w.t, w.ensure(s), "the next try is due in about 10 s, and this is no failure")
		assert.LessOrEqual(w.t, w.server.Calls().ByOperation["PATCH "+oneLB+"/pools/{id}"], 20)
	})
}

// TestTokenEndsBetweenPages: a token that ends in the middle of a listing costs one more login, and no error.
func TestTokenEndsBetweenPages(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		for n := range 120 {
			w.sim.AddLoadBalancer(fmt.Sprint("other-", n), ibmsim.VPC)
		}
		s := web()
		w.sim.EndTokensAfterPage()
		w.mustEnsure(s)
		assert.Equal(w.t, []string{create}, w.writes())
		w.sim.EndTokens() // and in the middle of changes
		s.Spec.Ports[0].NodePort = 30099
		w.mustEnsure(s)
		assert.Equal(w.t, []string{"PATCH " + oneLB + "/pools/{id}", put}, w.writes())
		assert.Empty(w.t, w.drainEvents())
	})
}

// TestRateLimit (47): where the cloud says when to come back, nothing is asked for before that, and the creation is made once.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	const pause = 40 * time.Second
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		_, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: http.StatusTooManyRequests,
			RetryAfter: int(pause.Seconds()), Operation: create, Count: 1,
		})
		require.NoError(w.t, err)
		began := time.Now()
		for err = w.ensure(s); err != nil; err = w.ensure(s) { // the framework comes back earlier
			require.ErrorIs(w.t, err, cloudapi.ErrRateLimited)
			assert.Empty(w.t, w.sim.LoadBalancers())
			time.Sleep(time.Second)
			require.Less(w.t, time.Since(began), 2*pause)
		}
		var asked []time.Duration
		for _, c := range w.server.Calls().Latest {
			if c.Operation == create {
				asked = append(asked, c.At.Sub(began))
			}
		}
		require.Len(w.t, asked, 2, "the one that was refused, and another one")
		assert.Less(w.t, asked[0], pause/2)
		assert.GreaterOrEqual(w.t, asked[1]-asked[0], pause)
		assert.Len(w.t, w.sim.LoadBalancers(), 1)
	})
}

// TestRevokedKey (7): a key that is refused is an error that says so, costs few questions, and neither nodes nor load balancers; with a
// legal one work goes on.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		w.sim.SetKey("another")
		time.Sleep(5 * time.Minute)
		w.server.ResetCalls()
		for range 20 {
			exists, err := w.cloud.instances.InstanceExists(w.t.Context(), w.nodes[0])
			assert.True(w.t, exists || err != nil, "no node is lost")
			err = w.ensure(s)
			require.ErrorIs(w.t, err, cloudapi.ErrUnauthorized)
			assert.NotErrorIs(w.t, err, cloudapi.ErrNotFound)
			assert.NotContains(w.t, err.Error(), testKey)
			require.Error(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		}
		assert.LessOrEqual(w.t, w.server.Calls().ByOperation["POST /identity/token"], 5, "the same key is not tried again and again")
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
		w.sim.SetKey(testKey)
		time.Sleep(5 * time.Minute)
		w.mustEnsure(s)
	})
}

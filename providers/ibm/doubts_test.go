package ibm

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

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

// TestTwins (10): of two instances with one name none becomes the node; one in another VPC does not count.
func TestTwins(t *testing.T) {
	t.Parallel()
	inWorld(t, 0, 0, nil, func(w *world) {
		ask := func(name string) (string, error) {
			time.Sleep(2 * time.Minute)
			m, err := w.cloud.instances.InstanceMetadata(w.t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			if err != nil {
				assert.Nil(w.t, m)
				return "", err
			}
			return m.ProviderID, nil
		}
		first, second := w.sim.AddInstance("twin"), w.sim.AddInstance("twin")
		_, err := ask("twin")
		require.ErrorContains(w.t, err, "twin")
		require.ErrorContains(w.t, err, "2 ")
		require.NoError(w.t, w.sim.Edit(second, func(i *ibmsim.Instance) { i.VPC = "other-vpc" }))
		id, err := ask("twin")
		require.NoError(w.t, err)
		assert.Equal(w.t, ibmsim.ProviderID(first), id)
	})
}

// TestOthersIDs (13): nodes whose provider IDs are of another account, another cluster or another scheme exist as far as anybody can say,
// without a call and without an error.
func TestOthersIDs(t *testing.T) {
	t.Parallel()
	const vsi = "0717_e21b7391-2ca2-4ab5-84a8-b92157a633b0"
	inWorld(t, 1, 0, nil, func(w *world) {
		for _, id := range []string{
			"ibm://other///" + ibmsim.Cluster + "/" + vsi, "ibm://" + ibmsim.Account + "///other/" + vsi, "ibmvpc://" + ibmsim.Cluster + "/machine",
			"ibmpowervs://us-south/us-south/0b1c/vm", "ibm://" + ibmsim.Account + "///" + ibmsim.Cluster + "/kube-abc-default-0000012a",
		} {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}, Spec: v1.NodeSpec{ProviderID: id}} // the name of an instance of ours
			exists, err := w.cloud.instances.InstanceExists(w.t.Context(), n)
			require.NoError(w.t, err, id)
			assert.True(w.t, exists, id)
			down, err := w.cloud.instances.InstanceShutdown(w.t.Context(), n)
			require.NoError(w.t, err, id)
			assert.False(w.t, down, id)
			_, err = w.cloud.instances.InstanceMetadata(w.t.Context(), n)
			require.ErrorContains(w.t, err, "node is missing labels", id)
			assert.Equal(w.t, id, n.Spec.ProviderID)
		}
		assert.Zero(w.t, w.server.Calls().Total)
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

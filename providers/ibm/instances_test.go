package ibm

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
)

// TestAmbiguousNode: one Node that two instances may be keeps no other one from joining.
func TestAmbiguousNode(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		w.sim.AddInstance("twin")
		w.sim.AddInstance("twin")
		w.addNode("worker-2")
		twin := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin"}}
		assert.NoError(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, append(slices.Clone(w.nodes), twin)))
		assert.Len(w.t, w.sim.LoadBalancers()[0].Pools[0].Members, 2)
	})
}

// TestInstancesOfOneName (10): one in another VPC does not count.
func TestInstancesOfOneName(t *testing.T) {
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
		w.sim.Edit(second, func(i *ibmsim.Instance) { i.VPC = "other-vpc" })
		id, err := ask("twin")
		require.NoError(w.t, err)
		assert.Equal(w.t, ibmsim.ProviderID(first), id)
	})
}

// TestProviderIDsOfOthers (13): nodes whose provider IDs are of another account, another cluster or another scheme exist as far as anybody
// can say, without a call and without an error.
func TestProviderIDsOfOthers(t *testing.T) {
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
			require.ErrorContains(w.t, err, "lacks labels", id)
			assert.Equal(w.t, id, n.Spec.ProviderID)
		}
		assert.Zero(w.t, w.server.Calls().Total)
	})
}

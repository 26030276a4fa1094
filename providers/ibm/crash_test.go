package ibm

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestGroupBeforeItsRecord (6): the record of a security group is there before the group. So one that was made right before the program
// ended goes although the ranges are removed before it starts again, and where the record cannot be written nothing is made.
func TestGroupBeforeItsRecord(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		refuses := true
		w.bench.Kube.PrependReactor("patch", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuses, nil, errors.New("the API server does not answer")
		})
		s := ranged("web", "192.0.2.0/24")
		require.ErrorContains(w.t, w.ensure(s), "does not answer")
		assert.Empty(w.t, w.writes())
		refuses = false
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultReset, Operation: create})
		require.NoError(w.t, err)
		require.Error(w.t, w.ensure(s))
		require.Len(w.t, w.sim.MadeGroups(), 1, "it is made, and nothing else")
		assert.Equal(w.t, recordRanges, s.Annotations[annotationRecord])
		w.server.ClearFaults()
		w.restart()
		s.Spec.LoadBalancerSourceRanges = nil
		w.mustEnsure(s)
		assert.Empty(w.t, w.sim.MadeGroups())
		assert.NotContains(w.t, s.Annotations, annotationRecord)
	})
}

// TestDisagreement (5): where a listing lacks a pool or a listener that the load balancer shows, nothing is written, and it is looked at
// again.
func TestDisagreement(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"pools", "listeners"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 2, 0, nil, func(w *world) {
				s := web()
				w.mustEnsure(s)
				lb := w.sim.LoadBalancers()[0]
				id := map[string]string{"pools": lb.Pools[1].ID, "listeners": lb.Listeners[1].ID}[of]
				before := snapshot(w.t, w.sim)
				w.writes()
				w.restart()
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultUnlisted, Names: id, Operation: "GET " + oneLB + "/" + of})
				require.NoError(w.t, err)
				var later *cloudproviderapi.RetryError
				require.ErrorAs(w.t, w.ensure(s), &later)
				require.ErrorAs(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes[:1]), &later)
				assert.Empty(w.t, w.writes())
				w.server.ClearFaults()
				w.mustEnsure(s)
				assert.Empty(w.t, w.writes())
				assert.Equal(w.t, before, snapshot(w.t, w.sim))
				assert.NotContains(w.t, w.told(), "Warning")
			})
		})
	}
}

// TestEndingOfBefore (7): a load balancer that is being deleted is waited for, and then made again. That is no failure, and no event.
func TestEndingOfBefore(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, time.Minute, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		time.Sleep(2 * time.Minute)
		first := w.sim.LoadBalancers()[0]
		request := request{what: "deleting it by hand", method: "DELETE", path: "/load_balancers/" + first.ID}
		require.NoError(w.t, w.cloud.api.call(w.t.Context(), request, nil))
		s.Status = v1.ServiceStatus{}
		w.restart()
		began := time.Now()
		w.mustEnsure(s)
		assert.GreaterOrEqual(w.t, time.Since(began), 50*time.Second)
		require.Len(w.t, w.sim.LoadBalancers(), 1)
		assert.NotEqual(w.t, first.ID, w.sim.LoadBalancers()[0].ID)
		assert.Empty(w.t, w.told())
	})
}

// TestCrashes: the program ends after each write in turn, of a creation with a group and a chosen name, of a change, and of a deletion; the
// next one finds all that was made, and nothing is left when the Service goes.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"before it took effect": simkit.FaultReset, "after it took effect": simkit.FaultLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k, done := 1, false; !done; k++ {
				inWorld(t, 2, time.Second, nil, func(w *world) {
					s := conformance.Service("web", map[string]string{annotationName: "shop"}, conformance.Port("http", 80, 30080))
					s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
					_, err := w.server.AddFault(simkit.Fault{Kind: kind, Writes: true, From: k})
					require.NoError(w.t, err)
					failed := w.ensure(s) != nil
					if !failed {
						s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
						s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
						failed = w.ensure(s) != nil
					}
					if !failed {
						failed = w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s) != nil
					}
					done = !failed
					w.server.ClearFaults()
					w.restart()
					s.Status = v1.ServiceStatus{} // the creation was not answered
					s.Spec.LoadBalancerSourceRanges = nil
					w.mustEnsure(s)
					require.Len(w.t, w.sim.LoadBalancers(), 1, "write %d", k)
					assert.Equal(w.t, "shop", w.sim.LoadBalancers()[0].Name)
					assert.Empty(w.t, w.sim.MadeGroups(), "write %d", k)
					assert.Equal(w.t, []string{defaults}, w.groups())
					w.restart()
					s.Status = v1.ServiceStatus{}
					require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
					assert.Empty(w.t, snapshot(w.t, w.sim), "write %d", k)
				})
				require.Less(t, k, 40)
			}
		})
	}
}

// TestInterruptedOfOthers: what is left of another Service's creation is not this one's, though it chooses the same name later.
func TestInterruptedOfOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationName, "shop")
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		s.Status = v1.ServiceStatus{}
		w.bench.Apply(s.DeepCopy())
		w.restart()
		w.writes()
		claim := second(map[string]string{annotationName: "shop", annotationRecord: madeShop})
		require.ErrorContains(w.t, w.ensure(claim), "belongs to")
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", claim))
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
		assert.NotEmpty(w.t, ibmsim.Cluster)
	})
}

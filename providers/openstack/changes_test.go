package openstack

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// TestChangesByHand: what somebody changes in Octavia is seen at the next look, because the load balancer tells when it was
// changed last.
func TestChangesByHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.requireNoWrites(s)
		pool := w.sim.Pools()[0].ID
		w.sim.ChangePool(pool, func(p *openstacksim.Pool) { p.Algorithm = "SOURCE_IP" })
		w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) {
			lb.UpdatedAt = openstacksim.Stamp(time.Now().UTC().Add(time.Second).Format("2006-01-02T15:04:05"))
		})
		time.Sleep(newMaxAge + time.Second)
		w.ensure(s)
		assert.Equal(t, "ROUND_ROBIN", w.sim.Pools()[0].Algorithm)
	})
}

// TestBusyOctavia: a change that Octavia refuses because it is busy is made later, and nothing is read twice for that.
func TestBusyOctavia(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.UpdatedAt = "2026-02-03T04:05:06" })
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 409, Operation: "PUT /load-balancer/v2.0/lbaas/listeners/{id}", Count: 1})
		require.NoError(t, err)
		w.changed(s, func(s *v1.Service) { s.Annotations[annotationConnectionLimit] = "5" })
		assert.Equal(t, 5, w.sim.Listeners()[0].ConnectionLimit)
	})
}

// TestMemberWhoseAnswerWasLost: what a lost write has added is seen when nodes change next, and goes with its node.
func TestMemberWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		before := w.nodes
		w.addNode(openstacksim.Spec{Name: "n3"})
		lost := simkit.Fault{Kind: simkit.FaultLost, Operation: "POST /load-balancer/v2.0/lbaas/pools/{id}/members", Writes: true}
		_, err := w.server.AddFault(lost)
		require.NoError(t, err)
		require.Error(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
		w.server.ClearFaults()
		require.Len(t, w.sim.Pools()[0].BackendMembers(), 3)
		require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), before))
		assert.Len(t, w.sim.Pools()[0].BackendMembers(), 2, "the member of a node that left")
	})
}

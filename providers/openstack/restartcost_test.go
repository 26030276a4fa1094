package openstack

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

const (
	treeCall    = "GET /load-balancer/v2.0/lbaas/loadbalancers/{id}/status"
	membersCall = "GET /load-balancer/v2.0/lbaas/pools/{id}/members"
	listeners   = "GET /load-balancer/v2.0/lbaas/listeners"
	poolsCall   = "GET /load-balancer/v2.0/lbaas/pools"
	loginCall   = "POST /identity/v3/auth/tokens"
)

// many applies and serves Services with two ports each.
func (w *world) many(n int) []*v1.Service {
	w.T.Helper()
	all := make([]*v1.Service, n)
	for i := range all {
		http, https := 30000+int32(2*i), 30001+int32(2*i)
		all[i] = rename(service("", nil, servicePort("http", 80, http), servicePort("https", 443, https)), fmt.Sprintf("web-%d", i))
		w.Apply(all[i])
		all[i], _ = w.ensure(all[i])
	}
	return all
}

// TestRestartCost counts the calls by which a new process finds that nothing has changed.
func TestRestartCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		for i := range 3 {
			w.addNode(openstacksim.Spec{Name: fmt.Sprintf("n%d", i)})
		}
		all := w.many(20)
		w.restart()
		w.server.ResetCalls()
		for _, s := range all {
			w.ensure(s)
		}
		calls := w.server.Calls()
		t.Logf("20 unchanged load balancers after a restart: %d calls: %v", calls.Total, calls.ByOperation)
		assert.LessOrEqual(t, calls.Total, 30)
		assert.Zero(t, calls.Writes)
	})
}

// TestJoinCost counts the calls by which a node joins the load balancers of many Services: a write for each pool, no look at a pool before
// its member is added, and after it, for what others wrote meanwhile, listings that all share.
func TestJoinCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n0"})
		all := w.many(20)
		w.sim.SetActivation(time.Second)
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.server.ResetCalls()
		var group sync.WaitGroup
		for _, s := range all {
			now := w.Current(s)
			group.Go(func() { assert.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, now, w.nodes)) })
		}
		group.Wait()
		calls := w.server.Calls()
		t.Logf("a node joins 20 load balancers of 2 ports: %v", calls.ByOperation)
		assert.Equal(t, 40, calls.Writes)
		assert.LessOrEqual(t, calls.Reads, 30, "%v", calls.ByOperation)
		assert.Zero(t, calls.ByOperation[membersCall], "%v", calls.ByOperation)
	})
}

// TestChangedWhileAway: what differs after a start is set right as ever, from single reads of that load balancer, and nothing else is.
func TestChangedWhileAway(t *testing.T) {
	t.Parallel()
	const n = 4
	for name, c := range map[string]struct {
		// change is made to the second load balancer while the program does not run.
		change func(w *world, s *v1.Service)
		// writes are those that set it right.
		writes int
	}{
		"nothing": {func(*world, *v1.Service) {}, 0},
		"a port of the Service": {func(w *world, s *v1.Service) {
			s.Spec.Ports[1].NodePort = 31999
			w.Apply(s)
		}, 1},
		"the members of a pool went": {func(w *world, s *v1.Service) {
			w.sim.ChangePool(w.poolsOf(s)[0], func(p *openstacksim.Pool) { p.DropMembers() })
		}, 1},
		"members are checked at a port where nothing answers": {func(w *world, s *v1.Service) {
			w.sim.ChangePool(w.poolsOf(s)[0], func(p *openstacksim.Pool) { p.CheckMembersAt(31234) })
		}, 1},
		"the algorithm of a pool": {func(w *world, s *v1.Service) {
			w.sim.ChangePool(w.poolsOf(s)[1], func(p *openstacksim.Pool) { p.Algorithm = "SOURCE_IP" })
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t, "", nil)
				w.addNode(openstacksim.Spec{Name: "n0"})
				w.addNode(openstacksim.Spec{Name: "n1"})
				all := w.many(n)
				c.change(w, all[1])
				w.restart()
				w.server.ResetCalls()
				for _, s := range all {
					w.ensure(s)
				}
				calls := w.server.Calls()
				assert.Equal(t, c.writes, calls.Writes, "%v", calls.ByOperation)
				assert.Equal(t, n, calls.ByOperation[treeCall])
				if c.writes > 0 {
					assert.Positive(t, calls.ByOperation[membersCall], "changes are computed from single reads")
					assert.ElementsMatch(t, []string{listeners, poolsCall}, readOf(all[1].Annotations[annotationID], calls.Latest), "before the first of them")
				} else {
					assert.Zero(t, calls.ByOperation[membersCall])
				}
				for _, p := range w.sim.Pools() {
					assert.Equal(t, "ROUND_ROBIN", p.Algorithm)
					require.Len(t, p.BackendMembers(), 2)
					for _, m := range p.BackendMembers() {
						assert.Nil(t, m.MonitorPort)
					}
				}
				for _, s := range all {
					w.requireNoWrites(s)
				}
			})
		})
	}
}

// readOf returns what was read of one load balancer alone before the first write, from the state of the cloud at that moment.
func readOf(id string, calls []simkit.Call) (operations []string) {
	for _, c := range calls {
		if c.Write && c.Operation != loginCall {
			break
		}
		if strings.Contains(c.URL, "loadbalancer_id="+id) {
			operations = append(operations, c.Operation)
		}
	}
	return operations
}

// poolsOf returns the pools of a Service's load balancer, in the order of its ports.
func (w *world) poolsOf(s *v1.Service) []string {
	var ids []string
	for _, p := range w.sim.Pools() {
		if p.LoadBalancers[0].ID == s.Annotations[annotationID] {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// TestNoStatusTrees: a cloud that shows no status trees is asked for one once.
func TestNoStatusTrees(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n0"})
		all := w.many(3)
		w.restart()
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 404, Operation: treeCall})
		require.NoError(t, err)
		w.server.ResetCalls()
		for _, s := range all {
			w.ensure(s)
		}
		calls := w.server.Calls()
		assert.Equal(t, 1, calls.ByOperation[treeCall])
		assert.Equal(t, 6, calls.ByOperation[membersCall])
		assert.Zero(t, calls.Writes)
	})
}

// TestListedBeforeAChange: a listing of listeners and pools says nothing of a load balancer that was changed after it began.
func TestListedBeforeAChange(t *testing.T) {
	t.Parallel()
	timed(t, func(w *world) {
		w.addNode(openstacksim.Spec{Name: "n0"})
		all := w.many(3)
		time.Sleep(time.Hour)
		w.restart()
		w.ensure(all[0]) // lists
		time.Sleep(ensureMaxAge + time.Second)
		w.server.ResetCalls()
		w.sim.ChangePool(w.poolsOf(all[1])[0], func(p *openstacksim.Pool) { p.Algorithm = "SOURCE_IP" })
		w.sim.ChangeLoadBalancer(all[1].Annotations[annotationID], func(lb *openstacksim.LoadBalancer) {
			lb.UpdatedAt = openstacksim.Stamp(time.Now().UTC().Format("2006-01-02T15:04:05"))
		})
		w.ensure(all[1])
		assert.Positive(w.T, w.server.Calls().ByOperation[listeners])
		for _, p := range w.sim.Pools() {
			assert.Equal(w.T, "ROUND_ROBIN", p.Algorithm)
		}
		w.server.ResetCalls()
		w.ensure(all[2])
		assert.Zero(w.T, w.server.Calls().ByOperation[listeners], "the listing is young enough for what has not changed")
	})
}

// TestTouchedService: whoever touches a Service has set right what somebody else changed a few seconds after the program had looked, at
// the cost of one look for all Services that are touched together.
func TestTouchedService(t *testing.T) {
	t.Parallel()
	timed(t, func(w *world) {
		w.addNode(openstacksim.Spec{Name: "n0"})
		all := w.many(3)
		for _, s := range all {
			w.ensure(s)
		}
		w.sim.ChangePool(w.poolsOf(all[1])[0], func(p *openstacksim.Pool) { p.Algorithm = "SOURCE_IP" })
		w.sim.ChangeLoadBalancer(all[1].Annotations[annotationID], func(lb *openstacksim.LoadBalancer) {
			lb.UpdatedAt = openstacksim.Stamp(time.Now().UTC().Add(time.Second).Format("2006-01-02T15:04:05"))
		})
		time.Sleep(newMaxAge + time.Second)
		w.server.ResetCalls()
		w.ensure(all[1])
		for _, p := range w.sim.Pools() {
			assert.Equal(w.T, "ROUND_ROBIN", p.Algorithm)
		}
		w.server.ResetCalls()
		w.ensure(all[1])
		assert.Zero(w.T, w.server.Calls().Total, "it was looked at a moment ago")
	})
}

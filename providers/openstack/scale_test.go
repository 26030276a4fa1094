package openstack

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// largeWorld has a Service with two ports, whose pools have so many members more than IDs are kept of.
func largeWorld(t *testing.T, more int) (*world, *v1.Service) {
	t.Helper()
	w := newTestWorld(t, "", nil)
	for i := range maxKeptIDs + more {
		w.sim.AddServer(openstacksim.Spec{Name: fmt.Sprintf("n%d", i)})
	}
	_, err := w.instances.servers.All(t.Context(), inventory.Query{})
	require.NoError(t, err)
	for i := range maxKeptIDs + more {
		w.joins(fmt.Sprintf("n%d", i))
	}
	s := service("", nil, servicePort("http", 80, 30080), servicePort("https", 443, 30443))
	w.Apply(s)
	s, _ = w.ensure(s)
	return w, s
}

// membersOf returns the members of each pool, and requires that there is one for each node.
func (w *world) membersOf() map[string][]openstacksim.Member {
	w.T.Helper()
	all := map[string][]openstacksim.Member{}
	for _, p := range w.sim.Pools() {
		all[p.ID] = p.BackendMembers()
		var have, want []string
		for _, m := range all[p.ID] {
			have = append(have, m.Address)
		}
		for _, n := range w.nodes {
			want = append(want, n.Status.Addresses[0].Address)
		}
		require.ElementsMatch(w.T, want, have)
	}
	return all
}

// TestLargePools: no IDs are kept of the members of a large pool, and what is done to it is exact all the same.
func TestLargePools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := largeWorld(t, 6)
		before := w.membersOf()
		require.Len(t, before, 2)
		change := func(t *testing.T, s *v1.Service, writes, memberReads int) {
			t.Helper()
			w.server.ResetCalls()
			require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
			calls := w.server.Calls()
			assert.Equal(t, writes, calls.Writes, "%v", calls.ByOperation)
			assert.Equal(t, memberReads, calls.ByOperation[membersCall], "%v", calls.ByOperation)
			for _, d := range w.reconciler.parts.details.PeekAll() {
				for _, p := range d.pools {
					assert.Nil(t, p.members.ids)
					assert.Nil(t, p.members.irregular)
					assert.Equal(t, p.members.size(), p.members.known, "their sum is known")
				}
			}
		}

		gone := w.nodes[7]
		w.nodes = slices.Delete(w.nodes, 7, 8)
		change(t, s, 2, 2) // each is looked for by its address, and nothing else is read
		after := w.membersOf()
		for id, members := range before {
			assert.Subset(t, members, after[id], "the others are left alone")
		}

		w.nodes = append(w.nodes, gone)
		change(t, s, 2, 0)
		w.membersOf()

		w.nodes = w.nodes[:len(w.nodes)-2]
		change(t, s, 2, 4) // a batch tells no IDs: two pages for each pool
		w.membersOf()
		w.requireNoWrites(w.Current(s))
	})
}

// TestLargePoolsChangedByOthers: what somebody else does to a large pool while we change it is seen, although nobody keeps the IDs.
func TestLargePoolsChangedByOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := largeWorld(t, 6)
		pool := w.sim.Pools()[0]
		update := func() {
			t.Helper()
			require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
			w.membersOf()
		}
		// Another member in the place of one of ours, as many as before: the pool is read.
		id := memberOf(&pool, w.nodes[1])
		w.sim.ChangeAfterWork(pool.ID, func(p *openstacksim.Pool) { p.ReplaceMember(id, "3f000000-0000-4000-8000-00000000ffff", 0) })
		w.nodes = w.nodes[1:]
		w.server.ResetCalls()
		update()
		assert.Greater(t, w.server.Calls().ByOperation[membersCall], 2, "two to find members, more to read what is there")

		// The member that is to go has gone, or has another name.
		for name, as := range map[string]string{"gone": "", "renamed": "somebody's"} {
			w.sim.ChangePool(pool.ID, func(p *openstacksim.Pool) { p.RenameMember(memberOf(p, w.nodes[0]), as) })
			w.nodes = w.nodes[1:]
			update()
			w.requireNoWrites(w.Current(s))
			t.Log(name)
		}
	})
}

// memberOf returns the ID of the member of a pool that is a node.
func memberOf(p *openstacksim.Pool, n *v1.Node) string {
	for _, m := range p.BackendMembers() {
		if m.Address == n.Status.Addresses[0].Address {
			return m.ID
		}
	}
	return ""
}

const (
	strangerID = "3f000000-0000-4000-8000-00000000ffff"
	batchCall  = "PUT /load-balancer/v2.0/lbaas/pools/{id}/members"
)

// swap has somebody put a member of his own in the place of one of ours, right after the next change.
func (w *world) swap(n *v1.Node) {
	pool := w.sim.Pools()[0]
	id := memberOf(&pool, n)
	w.sim.ChangeAfterWork(pool.ID, func(p *openstacksim.Pool) { p.Swap(id, strangerID) })
}

// follow plays a change of nodes.
func (w *world) follow(s *v1.Service) error {
	return w.reconciler.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes)
}

// TestPoolsBecomeSmall: IDs that were not kept are not known of a pool that became small meanwhile, be it by a batch or by one that leaves.
// What somebody else does to it is seen all the same, and no change is a batch for that.
func TestPoolsBecomeSmall(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]int{"a batch, never large": -6, "a batch": 6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := largeWorld(t, more)
				w.restart()
				w.requireNoWrites(w.Current(s))
				w.swap(w.nodes[20])
				w.nodes = w.nodes[10:]
				require.NoError(t, w.follow(s))
				w.membersOf()
			})
		})
	}
	t.Run("one by one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, s := largeWorld(t, 1)
			w.requireNoWrites(w.Current(s))
			w.nodes = w.nodes[1:]
			require.NoError(t, w.follow(s))
			w.server.ResetCalls()
			for range 3 {
				w.nodes = w.nodes[1:]
				require.NoError(t, w.follow(s))
			}
			assert.Zero(t, w.server.Calls().ByOperation[batchCall])
			w.swap(w.nodes[20])
			w.nodes = w.nodes[1:]
			require.NoError(t, w.follow(s))
			w.membersOf()
		})
	})
}

// TestLookupsFail: a member that leaves a large pool goes, and no other one, whatever becomes of the search for it and of its deletion.
func TestLookupsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := largeWorld(t, 20)
		w.requireNoWrites(w.Current(s))
		for name, f := range map[string]simkit.Fault{
			"not found": {Kind: simkit.FaultStatus, Status: http.StatusNotFound},
			"failed":    {Kind: simkit.FaultStatus, Status: http.StatusInternalServerError},
			"conflict":  {Kind: simkit.FaultStatus, Status: http.StatusConflict}, "null": {Kind: simkit.FaultNull}, "cut": {Kind: simkit.FaultCut},
			"HTML": {Kind: simkit.FaultHTML}, "deletion lost": {Kind: simkit.FaultLost, Operation: "DELETE"},
			"deletion not found": {Kind: simkit.FaultStatus, Status: http.StatusNotFound, Operation: "DELETE"},
			"deletion conflict":  {Kind: simkit.FaultStatus, Status: http.StatusConflict, Operation: "DELETE"},
		} {
			f.Count, f.Operation = 1, cmp.Or(f.Operation, membersCall)
			_, err := w.server.AddFault(f)
			require.NoError(t, err)
			w.nodes = w.nodes[1:]
			err = w.follow(s)
			w.server.ClearFaults()
			if err != nil {
				t.Logf("%s: %v", name, err)
				w.ensure(w.Current(s))
			}
			w.membersOf()
			w.requireNoWrites(w.Current(s))
		}

		_, err := w.server.AddFault(simkit.Fault{
			Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: membersCall, Names: w.nodes[0].Status.Addresses[0].Address,
		})
		require.NoError(t, err)
		w.nodes = w.nodes[1:]
		require.NoError(t, w.follow(s), "a service that refuses the filter")
		w.membersOf()
		w.server.ClearFaults()

		w.sim.DropPool(w.sim.Pools()[0].ID)
		w.nodes = w.nodes[1:]
		if err := w.follow(s); err != nil {
			t.Log(err)
		}
		w.ensure(w.Current(s))
		assert.Len(t, w.membersOf(), 2)
		w.requireNoWrites(w.Current(s))
	})
}

// TestTooManyPages: pages are as small as our own nodes demand; where the project has thousands of small pools, there are more of them than
// are read.
func TestTooManyPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.many(1)
		w.sim.CopyPool(w.sim.Pools()[0].ID, 1100)
		pages := &partPages{api: w.api, nodes: func() int { return 1_000_000 }}
		for _, known := range []bool{false, true} {
			assert.Equal(t, known, pages.tooLarge())
			_, _, _, err := pages.listAll(t.Context())
			require.ErrorIs(t, err, cloudapi.ErrListingTooLarge)
		}
		pages.tooLargeAt = pages.tooLargeAt.Add(-tooLargeFor)
		assert.False(t, pages.tooLarge(), "it is tried again some day")
	})
}

// TestLargePoolsAreListed: with 15,000 members in each, a page of 1,000 pools would be larger than an answer may be.
func TestLargePoolsAreListed(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const services, members = 20, 15_000
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.many(services)
		for _, p := range w.sim.Pools() {
			w.sim.ChangePool(p.ID, func(p *openstacksim.Pool) { p.FillMembers(members) })
		}
		check := func(nodes, refused int) {
			t.Helper()
			w.server.ResetCalls()
			pages := w.reconciler.parts.pages
			if nodes != 0 {
				pages = &partPages{api: w.api, nodes: func() int { return nodes }}
			}
			listeners, pools, _, err := pages.listAll(context.Background())
			require.NoError(t, err)
			assert.Len(t, listeners, 2*services)
			require.Len(t, pools, 2*services)
			for _, p := range pools {
				assert.Equal(t, members, p.MemberIDs.size)
				assert.Empty(t, p.MemberIDs.ids)
			}
			perPage := pages.perPage()
			assert.Equal(t, refused+2*services/perPage+1, w.server.Calls().ByOperation[poolsCall], "%d a page", perPage)
		}
		check(0, 3) // a small cluster in the project of a large one: 1,000, 250 and 62 on a page are too many
		check(0, 0) // it is known from then on
		check(members, 0)
	})
}

func TestPoolsPerPage(t *testing.T) {
	t.Parallel()
	for members, want := range map[int]int{0: 1000, 100: 1000, 1000: 167, 5000: 34, 15_000: 11, 1_000_000: 1} {
		assert.Equal(t, want, poolsPerPage(members), members)
	}
}

// TestProjectTooLargeToList: where all pools together are more than is read, nothing is lost but the sharing of reads.
func TestProjectTooLargeToList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		for i := range 2 {
			w.addNode(openstacksim.Spec{Name: fmt.Sprintf("n%d", i)})
		}
		all := w.many(3)
		for _, s := range all {
			w.requireNoWrites(w.Current(s))
		}
		tooLarge := &partPages{api: w.api, nodes: func() int { return 1 }}
		tooLarge.tooLargeAt = time.Now()
		_, _, calls, err := tooLarge.listAll(t.Context())
		require.ErrorIs(t, err, cloudapi.ErrListingTooLarge)
		assert.Zero(t, calls, "it is not tried again")

		w.reconciler.parts.updating.Store(1000) // one listing would pay
		for i, known := range []bool{false, true} {
			w.reconciler.parts.listed = newListedPartsInventory(tooLarge, w.reconciler.loadBalancers)
			if known {
				w.reconciler.parts.pages.tooLargeAt = time.Now()
			}
			w.addNode(openstacksim.Spec{Name: fmt.Sprintf("more-%d", i)})
			for _, s := range all {
				require.NoError(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes))
			}
			w.membersOf()
		}

		w.restart()
		w.reconciler.parts.pages.tooLargeAt = time.Now()
		for _, s := range all {
			w.requireNoWrites(w.Current(s))
		}
	})
}

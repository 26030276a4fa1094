package guard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// TestCredentialSwappedWhileRunning: the process has seen all instances when its credential becomes one that sees others, or a part
// of ours. Kubelets of living machines stop for a while, few at a time, over hours and right after the change.
func TestCredentialSwappedWhileRunning(t *testing.T) {
	t.Parallel()
	const nodes = 50
	for name, s := range map[string]struct {
		hidden  int
		listing bool
	}{
		"another account": {nodes, true}, "another account, no listing": {nodes, false},
		"one node seen": {nodes - 1, true}, "one node seen, no listing": {nodes - 1, false},
		"a few seen": {nodes - 5, true}, "a few seen, no listing": {nodes - 5, false},
		"a half seen": {nodes / 2, true},
		"most seen":   {nodes / 10, true},
		"all but two": {2, true},
	} {
		for _, atOnce := range []int{1, 3, 10} {
			t.Run(fmt.Sprint(name, ", at once ", atOnce), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, nodes, nil)
					c.cloud.listing = s.listing
					c.run(2*time.Minute + 40*time.Second) // between two address cycles
					c.cloud.hide(c.list()[nodes-s.hidden:]...)
					for from := nodes - s.hidden; from < nodes; from += atOnce {
						c.each(from, min(from+atOnce, nodes-1), c.spell) // one living Node that is hidden stays ready
						c.run(7 * time.Minute)
					}
					c.run(time.Hour)
					assert.Empty(t, c.deleted)
				})
			})
		}
	}
}

// TestAnotherAccountDeletesNoAnnouncedNode: the mark of a removal that was cancelled, or of an operator who repairs a machine, stays
// on a living Node.
func TestAnotherAccountDeletesNoAnnouncedNode(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"node.kubernetes.io/out-of-service", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprint(key, " running ", running), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, 30, nil)
					c.each(0, 10, taint(key))
					c.run(time.Minute)
					c.cloud.hide(c.list()...)
					if !running {
						c.lead()
					}
					for range 10 {
						c.each(0, 10, c.spell)
						c.run(11 * time.Minute)
					}
					assert.Empty(t, c.deleted)
					assert.Contains(t, c.drainEvents(), "no instance of this cluster was seen")
				})
			})
		}
	}
}

// TestPartOfTheAccountDeletesNoAnnouncedNode: as before, where the new credential sees a part of the cluster.
func TestPartOfTheAccountDeletesNoAnnouncedNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30, nil)
		c.each(25, 30, taint("node.kubernetes.io/out-of-service"))
		c.run(time.Minute)
		c.cloud.hide(c.list()[15:]...)
		for range 10 {
			c.each(25, 30, c.spell)
			c.run(11 * time.Minute)
		}
		assert.Empty(t, c.deleted)
		assert.Contains(t, c.drainEvents(), "ready although the cloud calls its instance gone")
	})
}

// TestSuspectsThatAreReadyAgainContradict: Nodes that were suspected, and that are ready again by the next time.
func TestSuspectsThatAreReadyAgainContradict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, nil)
		c.run(2*time.Minute + 40*time.Second)
		c.cloud.hide(c.list()[16:]...)
		c.each(16, 18, c.spell)
		c.run(70 * time.Second)
		c.each(18, 20, c.spell)
		c.run(70 * time.Second)
		assert.Empty(t, c.deleted)
	})
}

// TestWitnessesThatCannotBeAsked: what fails may be what another credential may not see, so that a few that answer show little.
func TestWitnessesThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30, nil)
		c.cloud.listing, c.cloud.failing = false, map[string]bool{}
		c.run(time.Minute)
		for _, n := range c.list()[1:29] {
			c.cloud.failing[n.Name] = true
		}
		c.cloud.hide(c.list()[0])
		c.vanish(c.list()[0])
		c.run(30 * time.Minute)
		assert.Empty(t, c.deleted)
		clear(c.cloud.failing)
		c.run(time.Minute)
		assert.Len(t, c.deleted, 1)
	})
}

// TestWitnessesCostFewCalls: one search serves many suspects, by one listing or by a sample of reads.
func TestWitnessesCostFewCalls(t *testing.T) {
	t.Parallel()
	for _, listing := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 1000, nil)
			c.cloud.listing = listing
			c.run(time.Minute)
			c.cloud.listings, c.cloud.singles = 0, 0
			c.each(0, 100, c.vanish)
			c.run(kubeletGrace + 20*time.Second)
			assert.Len(t, c.deleted, 100)
			assert.LessOrEqual(t, c.cloud.singles, 100+witnessSample, "one proof each")
			assert.LessOrEqual(t, c.cloud.listings, 4)
		})
	}
}

// TestWitnessesAreChosenWithoutBias: each ready Node serves as often as others.
func TestWitnessesAreChosenWithoutBias(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, nil)
		first := map[string]int{}
		for range 2000 {
			first[nodesToAsk(c.guard)[0].Name]++
		}
		for name, n := range first {
			assert.InDelta(t, 100, n, 60, name)
		}
		assert.Len(t, first, 20)
	})
}

// TestRetractedAnswersVoidOthers: what the cloud said of one Node while it said something of another that it took back has to be said
// again.
func TestRetractedAnswersVoidOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, nil)
		c.run(time.Minute)
		c.cloud.hide(c.list()[:2]...)
		c.notReady["n000"] = time.Now()
		c.run(40 * time.Second)
		assert.Empty(t, c.deleted, "n001 is ready and gone")
		c.cloud.show("n001")
		c.run(15 * time.Second)
		assert.Empty(t, c.deleted, "n001 was looked at again; what was said of n000 before counts no more")
		c.run(20 * time.Second)
		assert.Len(t, c.deleted, 1)
	})
}

// TestHoldCountsWhileOthersAreSeen: a hold by share begins again where the cloud did not answer for a while.
func TestHoldCountsWhileOthersAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, nil)
		c.run(time.Minute)
		for _, n := range c.list()[:10] {
			c.vanish(n)
		}
		c.run(9 * time.Minute)
		c.cloud.failure = assert.AnError
		c.run(5 * time.Minute)
		c.cloud.failure = nil
		c.run(14 * time.Minute)
		assert.Empty(t, c.deleted)
		c.run(10 * time.Minute)
		assert.Len(t, c.deleted, 10)
	})
}

// TestLiftedLimitsNeedTheAccount: who lifts the limits means what the cloud says, not a cloud that refuses the credential.
func TestLiftedLimitsNeedTheAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 10, func(p *Policy) { p.MaxShare = 1 })
		c.cloud.account = assert.AnError
		for _, n := range c.list() {
			c.vanish(n)
		}
		c.lead() // one that has seen no instance
		c.run(20 * time.Minute)
		assert.Empty(t, c.deleted)
		assert.Contains(t, c.drainEvents(), "the account cannot be read")
		c.cloud.account = nil
		c.run(10 * time.Minute)
		assert.Len(t, c.deleted, 10)
	})
}

// TestSuspectsShareOneSearch: those that are asked about at once cause one search, and wait for it.
func TestSuspectsShareOneSearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all []*v1.Node
		for i := range 30 {
			n := node(fmt.Sprint("alpha://", i), false)
			n.Name = fmt.Sprint("n", i)
			all = append(all, n)
		}
		var calls atomic.Int32
		g := guarded(&cloud{exists: func(ctx context.Context) (bool, error) {
			if evidence.From(ctx).MemoryOnly {
				return false, evidence.ErrUnread
			}
			calls.Add(1)
			time.Sleep(time.Second)
			return true, nil
		}})
		freezeNodes(g, all...)
		suspicion := time.Now()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				lastRead, putOff := callRoll(t.Context(), g, suspicion)
				assert.False(t, putOff)
				assert.Equal(t, suspicion, lastRead, "all have what the search showed")
			})
		}
		group.Wait()
		assert.LessOrEqual(t, int(calls.Load()), 1+witnessSample)
	})
}

// TestHoldLastsWhileNoNodeIsReady: when the cluster misses all kubelets at once, that says nothing of their machines.
func TestHoldLastsWhileNoNodeIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 20, nil)
		c.run(time.Minute)
		c.cloud.hide(c.list()[10:]...)
		c.each(0, 20, func(n *v1.Node) { c.notReady[n.Name] = time.Now() })
		c.run(2 * time.Hour)
		assert.Empty(t, c.deleted)
	})
}

// TestSearchesInVainBecomeRarer: many suspects that are asked about one after another do not search all the time.
func TestSearchesInVainBecomeRarer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100, nil)
		c.cloud.listing = false
		c.run(time.Minute)
		c.cloud.hide(c.list()...)
		for i := range 40 {
			c.each(i, i+1, func(n *v1.Node) { c.notReady[n.Name] = time.Now() })
			c.run(5 * time.Second)
		}
		c.cloud.singles = 0
		c.run(10 * time.Minute)
		assert.LessOrEqual(t, c.cloud.singles, 40*3+10*2*witnessSample, "a read of each suspect in 5 minutes, and a search in 30 s")
		assert.Empty(t, c.deleted)
	})
}

// TestIDsThatMakeNoSense do not stand in the way of those that do.
func TestIDsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30, nil)
		c.run(time.Minute)
		c.cloud.senseless = map[string]bool{}
		for _, n := range c.list()[10:25] {
			c.cloud.senseless[n.Name] = true
		}
		c.each(0, 1, c.vanish)
		c.run(kubeletGrace + 20*time.Second)
		assert.Len(t, c.deleted, 1)
	})
}

package guard

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestRandomSchedules: machines go, kubelets stop, credentials and leaders change and the API fails, in any order. No Node whose
// machine runs is deleted while another one that the credential hides is ready.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &schedule{
					cluster: newCluster(t, 40, nil), random: rand.New(rand.NewPCG(seed, 1)), died: map[string]bool{},
					hidden: map[string]bool{},
				}
				for range 150 {
					s.step()
				}
				s.credential(0)
				s.cloud.failure = nil
				s.lead() // one that was ready for long while it was called gone is kept by the process that saw that
				s.run(2 * time.Hour)
				for name := range s.died {
					assert.Contains(t, s.deleted, name, "with the right credential all go whose machines are gone")
				}
			})
		})
	}
}

// schedule is a cluster at the mercy of chance.
type schedule struct {
	*cluster

	random *rand.Rand
	// died are the Nodes whose machines are gone, hidden those that the credential hides.
	died, hidden map[string]bool
	swapped      time.Time
}

// credential hides a share of the Nodes.
func (s *schedule) credential(share float64) {
	clear(s.hidden)
	s.swapped = time.Now()
	for _, n := range s.list() {
		s.hidden[n.Name] = s.random.Float64() < share
		s.cloud.show(n.Name)
		if s.hidden[n.Name] || s.died[n.Name] {
			s.cloud.hide(n)
		}
	}
}

func (s *schedule) step() {
	nodes := s.list()
	some := nodes[s.random.IntN(len(nodes)-4):]
	some = some[:1+s.random.IntN(4)]
	switch roll := s.random.IntN(100); {
	case roll < 40:
		for _, n := range some {
			if !s.died[n.Name] {
				s.spell(n)
			}
		}
	case roll < 50 && len(s.died) < 25:
		if n := some[0]; !s.died[n.Name] {
			s.died[n.Name] = true
			delete(s.until, n.Name)
			s.vanish(n)
		}
	case roll < 65 && time.Since(s.swapped) > 2*time.Minute:
		s.credential([]float64{0, 0, 0.1, 0.5, 0.95, 1}[s.random.IntN(6)])
	case roll < 72:
		s.lead()
	case roll < 78:
		s.cloud.failure = map[bool]error{true: assert.AnError}[s.cloud.failure == nil]
	}
	for range 1 + s.random.IntN(12) {
		s.once()
	}
}

// once is one pass of the loop, after which no living Node may be missing without a reason.
func (s *schedule) once() {
	before := s.list()
	s.run(time.Second)
	for _, n := range before {
		if _, gone := s.deleted[n.Name]; !gone || s.died[n.Name] {
			continue
		}
		for _, other := range before {
			if other.Name != n.Name && s.hidden[other.Name] && isReady(other) && !s.died[other.Name] {
				s.t.Errorf("node %s was deleted at %s while node %s was ready and hidden since %s", n.Name, s.deleted[n.Name], other.Name, s.swapped.Sub(s.began))
				return
			}
		}
		s.died[n.Name] = true // nothing showed that it lives
	}
}

package conformance

import (
	"maps"
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

// leaving is a Service that leaves its ports for others, and these for the former ones again.
type leaving struct {
	*othersRules
	// rules are its own with either ports.
	rules [2][]string
	// has says which it has.
	has int
}

// leftPorts are two ports that lead to other ports of nodes, and two instead of others.
var leftPorts = [2][]v1.ServicePort{
	{Port("first", 80, 30080), Port("second", 81, 30081), Port("third", 82, 30082), Port("fourth", 83, 30083)},
	{Port("first", 80, 30180), Port("second", 81, 30181), Port("third", 84, 30184), Port("fourth", 85, 30185)},
}

// runFormerPorts: a load balancer leaves its ports. What several writes close, each of them closes although another one is refused, and
// an error says what is not.
func runFormerPorts(t *testing.T, newFixture func(t testing.TB) *Fixture, all bool) {
	t.Helper()
	ctx := t.Context()
	l := &leaving{othersRules: newOthersRules(t, newFixture)}
	l.changeService(ctx, l.service, func(s *v1.Service) {
		s.Spec.Ports, s.Spec.LoadBalancerSourceRanges = leftPorts[0], []string{sourceRange}
	})
	l.ensure(ctx, l.service, nil)
	time.Sleep(settledIn)
	l.rules[0] = l.ownRules("at first")
	states, err := l.leave(0)
	require.NoError(t, err)
	l.rules[1] = l.ownRules("with other ports")
	closes := l.closings(states)
	require.Equal(t, len(closes) == 0, l.SourceRanges.Scope.OneClosing != "", "several writes close former ports: %v", closes)
	tried := slices.Sorted(maps.Keys(closes))
	if !all {
		tried = tried[:min(1, len(tried))]
	}
	for _, k := range tried {
		_, err := l.leave(k)
		require.Error(t, err, "nobody is told of write %d", k)
		left := l.countFormer(l.SourceRanges.Scope.Rules())
		assert.Positive(t, left, "write %d is refused", k)
		assert.LessOrEqual(t, left, closes[k], "write %d is refused, and the others are not made: %v", k, l.SourceRanges.Scope.Rules())
		l.Sim.ClearFaults()
		l.ensure(ctx, l.service, nil)
		time.Sleep(settledIn)
		assert.Equal(t, l.rules[l.has], l.ownRules("after another try"))
	}
}

// countFormer is how many of the rules are for ports that the Service has left.
func (l *leaving) countFormer(rules []string) int {
	former := subtractLines(l.rules[1-l.has], l.rules[l.has])
	return len(former) - len(subtractLines(former, rules))
}

// afterWrite are all rules after a write, or at first. moved is set where the load balancer got other ports by it.
type afterWrite struct {
	rules []string
	moved bool
}

// leave has the Service change its ports, while a write may be refused.
func (l *leaving) leave(refused int) (states []afterWrite, err error) {
	l.has = 1 - l.has
	l.changeService(l.t.Context(), l.service, func(s *v1.Service) { s.Spec.Ports = leftPorts[l.has] })
	if refused > 0 {
		l.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Writes: true, From: refused, Count: 1})
	}
	ports := func() []string { return sortedKeys(l.Serves()) }
	served := ports()
	states = []afterWrite{{rules: l.SourceRanges.Scope.Rules()}}
	var mu sync.Mutex // calls may be at the same moment
	l.inspect(func(_ string, write bool, _ inspectedCall) func() {
		if refused > 0 {
			return nil // it is known what each write does
		}
		return func() { // what a write does may show with a later call
			mu.Lock()
			defer mu.Unlock()
			if write {
				states = append(states, afterWrite{})
			}
			now, last := ports(), &states[len(states)-1]
			last.rules, last.moved = l.SourceRanges.Scope.Rules(), last.moved || !slices.Equal(served, now)
			served = now
		}
	})
	defer l.Sim.Inspect(nil)
	err = l.ensureToEnd(l.t.Context(), l.service)
	time.Sleep(settledIn)
	return states, err
}

// closings are how many rules each write closes that does nothing else, and comes right before or after another such one.
func (l *leaving) closings(states []afterWrite) map[int]int {
	all, several := map[int]int{}, map[int]int{}
	for k := 1; k < len(states); k++ {
		if before, after := states[k-1].rules, states[k].rules; !states[k].moved && len(subtractLines(after, before)) == 0 {
			all[k] = l.countFormer(before) - l.countFormer(after)
		}
	}
	for k, closes := range all {
		if closes > 0 && all[k-1]+all[k+1] > 0 {
			several[k] = closes
		}
	}
	return several
}

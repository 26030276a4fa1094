package conformance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
)

// The fast tier tries the cases that find most for their time; docs/testing.md lists them.

// triesAll reports whether everything is tried: in the full tier, and where the fixture asks for it.
func triesAll(t *testing.T, newFixture func(t testing.TB) *Fixture) bool {
	t.Helper()
	return tier.All() || readFixture(t, newFixture, (*Fixture).triesAll)
}

func (f *Fixture) triesAll() bool { return tier.All() || f.FullTier }

// interruption is a way in which a life is broken, once.
type interruption struct {
	name    string
	kind    string
	restart bool
}

var (
	reset        = interruption{"before it took effect", simkit.FaultReset, false}
	lostAnswer   = interruption{"after it took effect, the answer lost", simkit.FaultLost, false}
	errorAfter   = interruption{"server error after it took effect", simkit.FaultStatusAfter, false}
	htmlPage     = interruption{"a proxy's page instead of an answer", simkit.FaultHTML, false}
	resetRestart = interruption{"restart before it took effect", simkit.FaultReset, true}
	lostRestart  = interruption{"restart after it took effect", simkit.FaultLost, true}

	interruptions = []interruption{reset, lostAnswer, errorAfter, htmlPage, resetRestart, lostRestart}
)

// brokenLife is a life with an interruption at one of its calls.
type brokenLife struct {
	name    string
	fault   simkit.Fault
	restart bool
}

// breakAt breaks a life at the matching call of this number.
func (i interruption) breakAt(match simkit.Fault, number int, call string) brokenLife {
	match.Kind, match.From, match.Count = i.kind, number, 1
	return brokenLife{call + ": " + i.name, match, i.restart}
}

// breakEarlier breaks a life that ended before the read that was to be broken at the last one that it made: asynchronous clouds are asked
// until they are done, and how often that is differs from life to life. It reports whether there is one.
func (l *brokenLife) breakEarlier(calls []simkit.Call) bool {
	made := 0
	for _, c := range calls {
		if l.fault.Operation == "" || c.Operation+"$" == l.fault.Operation {
			made++
		}
	}
	if l.fault.Writes || made == 0 || made >= l.fault.From {
		return false
	}
	l.fault.From = made
	return true
}

// breakEveryCall has each call of a life broken in every way.
func breakEveryCall(calls []simkit.Call) (all []brokenLife) {
	for _, way := range interruptions {
		for i := range calls {
			all = append(all, way.breakAt(simkit.Fault{}, i+1, fmt.Sprintf("call %d of %d", i+1, len(calls))))
		}
	}
	return all
}

// breakWrites has the connection cut before each write and its answer lost after it, in a process that goes on and in one that
// ends. Each kind of write is answered with a proxy's page once, and each kind of read is broken at its first and last call, in one way
// after the other.
func breakWrites(calls []simkit.Call) (all []brokenLife) {
	writes, pages := 0, map[string]bool{}
	var reads []string
	count := map[string]int{}
	for _, c := range calls {
		if !c.Write {
			if count[c.Operation]++; count[c.Operation] == 1 {
				reads = append(reads, c.Operation)
			}
			continue
		}
		writes++
		ways := []interruption{reset, lostAnswer, resetRestart, lostRestart}
		if !pages[c.Operation] {
			pages[c.Operation] = true
			ways = append(ways, htmlPage)
		}
		for _, way := range ways {
			all = append(all, way.breakAt(simkit.Fault{Writes: true}, writes, fmt.Sprintf("write %d, %s", writes, c.Operation)))
		}
	}
	next := 0
	for _, operation := range reads {
		for _, number := range slices.Compact([]int{1, count[operation]}) {
			way := interruptions[next%len(interruptions)]
			next++
			all = append(all, way.breakAt(simkit.Fault{Operation: operation + "$"}, number, fmt.Sprintf("read %d, %s", number, operation)))
		}
	}
	return all
}

// processes says which process makes a load balancer, and which one goes on after a failure.
type processes struct {
	// start is set where the process has just begun.
	start bool
	// restart is set where another process goes on.
	restart bool
}

func (p processes) String() string { return fmt.Sprintf("start %t, restart %t", p.start, p.restart) }

// processesOf are all combinations, or those where everything is as fast as it can be and where nothing is remembered.
func processesOf(all bool) []processes {
	if all {
		return []processes{{false, false}, {false, true}, {true, false}, {true, true}}
	}
	return []processes{{false, false}, {true, true}}
}

// delays are all of them, or the longest.
func delays(list []time.Duration, all bool) []time.Duration {
	if all {
		return list
	}
	return []time.Duration{slices.Max(list)}
}

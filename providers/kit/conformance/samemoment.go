package conformance

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

// partings are how long after one Service another one changes at the same moment. Calls take a roundTrip, and work on the cloud seconds.
var partings = []time.Duration{0, roundTrip, 3 * roundTrip, time.Second, 3 * time.Second}

// runSameMoment has two Services change who may connect at the same moment, in one place, and at one address where the cloud shares it.
func runSameMoment(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all := triesAll(t, newFixture)
	for kind, joined := range map[string]bool{"two Services": false, "two Services at one address": true} {
		if joined && readFixture(t, newFixture, func(f *Fixture) bool { return f.Share == nil }) {
			continue
		}
		var want [][]string
		synctest.Test(t, func(t *testing.T) { want = newPair(t, newFixture, joined).live(-1) })
		for n, parting := range partings {
			if all || n == 0 {
				virtual(t, fmt.Sprintf("changes at the same moment, %s apart: %s", parting, kind), func(t *testing.T) {
					assert.Equal(t, want, newPair(t, newFixture, joined).live(parting), "each step ends as if one had come after the other")
				})
			}
		}
	}
}

// pair are two Services whose rules stand in the same place, and which share an address where joined is set.
type pair struct {
	*othersRules
	second *v1.Service
	joined bool
}

func newPair(t *testing.T, newFixture func(t testing.TB) *Fixture, joined bool) *pair {
	t.Helper()
	o := newOthersRules(t, newFixture)
	second := claimer(Case{Service: featureService(o.SourceRanges.With)})
	second.Namespace = o.service.Namespace // those of another one need its consent
	if joined {
		second.Spec.Ports[0].Port++
	}
	o.setRanges(o.service, sourceRange, otherRange)
	o.addNode(t.Context(), "worker-2", nil) // which takes longer than the rules
	time.Sleep(stepPause)
	return &pair{o, second, joined}
}

// live has one Service change while the other one does, so long apart, or after it where parting is negative. It returns the rules after
// each step.
func (p *pair) live(parting time.Duration) (rules [][]string) {
	steps := [][2]func(){
		{p.narrow(p.service, sourceRange), p.create(p.second)},
		{p.delete(p.service), p.narrow(p.second, sourceRange)},
		{p.create(p.service), p.delete(p.second)},
		{p.create(p.second), p.narrow(p.service, otherRange)},
		{p.delete(p.service), p.delete(p.second)},
	}
	if p.joined { // the address is the first one's
		steps[1] = [2]func(){p.narrow(p.service, sourceRange, otherRange), p.delete(p.second)}
		steps[2] = [2]func(){p.create(p.second), p.narrow(p.service, otherRange)}
		steps[3] = [2]func(){p.narrow(p.second, sourceRange), p.narrow(p.service, sourceRange)}
	}
	for n, step := range steps {
		var both sync.WaitGroup
		both.Go(step[0])
		if parting < 0 {
			both.Wait()
		}
		time.Sleep(max(0, parting))
		both.Go(step[1])
		both.Wait()
		time.Sleep(time.Minute) // what the cloud goes on with by itself
		rules = append(rules, p.ownRules(fmt.Sprint("after step ", n+1)))
	}
	assert.Empty(p.t, rules[len(rules)-1], "rules are left")
	assert.Empty(p.t, p.Snapshot())
	p.requireNothingRefused()
	return rules
}

// create has a Service made with two source ranges.
func (p *pair) create(s *v1.Service) func() {
	return func() {
		ctx, made := p.t.Context(), s.DeepCopy()
		made.Spec.LoadBalancerSourceRanges = []string{sourceRange, otherRange}
		if p.joined {
			p.Share(made, p.world.service(ctx, p.service))
		}
		p.createService(ctx, made)
		p.ensure(ctx, made, func() {})
	}
}

// narrow has a Service ask for other source ranges.
func (p *pair) narrow(s *v1.Service, ranges ...string) func() {
	return func() {
		p.changeService(p.t.Context(), s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
		p.ensure(p.t.Context(), s, func() {})
	}
}

// finalizerWrite is how long a Service is there after its load balancer is gone.
const finalizerWrite = 100 * time.Millisecond

// delete has a Service go.
func (p *pair) delete(s *v1.Service) func() {
	return func() {
		p.goes(p.t.Context(), s)
		p.remove(p.t.Context(), s, func() {})
		time.Sleep(finalizerWrite)
		p.forget(p.t.Context(), s)
	}
}

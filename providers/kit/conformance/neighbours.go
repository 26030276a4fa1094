package conformance

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// neighbour is a Service with the port of another one, whose rules may stand beside those of that one.
type neighbour struct {
	ranges []string
	// hinder changes it before the other one is narrowed.
	hinder func(ctx context.Context, w *world, s *v1.Service)
	// elsewhere is set where its load balancer is in another place.
	elsewhere bool
	// forgotten is set where a process that has just begun may not know whom it lets in. Then others stay, and an event names it.
	forgotten bool
}

var neighbours = map[string]neighbour{
	"beside a Service with a setting that is refused": {
		ranges: []string{otherRange}, hinder: hindrances["an annotation of the cloud's is wrong"],
	},
	"beside a Service with ranges that cannot be read":  {ranges: []string{otherRange}, hinder: makeUnreadable, forgotten: true},
	"beside a Service that everybody reaches elsewhere": {hinder: func(context.Context, *world, *v1.Service) {}, elsewhere: true},
}

// makeUnreadable gives a Service source ranges of which none can be read.
func makeUnreadable(ctx context.Context, w *world, s *v1.Service) {
	w.changeService(ctx, s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"} })
}

// runNeighbours tries a Service beside others with the same port. In the fast tier that is done where Services have rules in common.
func runNeighbours(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all := triesAll(t, newFixture)
	scope := readFixture(t, newFixture, func(f *Fixture) Scope { return f.SourceRanges.Scope })
	if _, own := scope.Except[Stranger]; own && !scope.Joins && !all {
		return
	}
	internal := readFixture(t, newFixture, func(f *Fixture) bool { return f.Provider.Features.Internal == registry.Done })
	for name, n := range neighbours {
		if !n.elsewhere || internal {
			virtual(t, name, func(t *testing.T) { n.run(t, newFixture, false) })
			if all {
				virtual(t, name+", after a restart", func(t *testing.T) { n.run(t, newFixture, true) })
			}
		}
	}
}

// run: a Service is narrowed and goes beside its neighbour, which keeps in nobody but its own clients. If nobody can tell who these are,
// what stays is told.
func (n neighbour) run(t *testing.T, newFixture func(t testing.TB) *Fixture, restart bool) {
	t.Helper()
	ctx := t.Context()
	w, s := newUnserved(t, newFixture)
	scope := w.SourceRanges.Scope
	before := scope.Rules()
	beside := claimer(Case{Service: featureService(w.SourceRanges.With)})
	beside.Spec.LoadBalancerSourceRanges = n.ranges
	if scope.Meddle != nil {
		scope.Meddle(beside, s)
	}
	if n.elsewhere {
		_, asked := portableCase(w.Fixture, w.kube, portable.Scheme)
		if scope.Elsewhere != nil {
			asked = scope.Elsewhere
		}
		maps.Copy(beside.Annotations, asked)
	}
	w.createService(ctx, beside)
	w.ensure(ctx, beside, nil)
	at := w.Snapshot()
	alone := w.countEverybody(at)
	w.ensure(ctx, s, nil)
	require.True(t, n.elsewhere || w.countEverybody(w.Snapshot()) > alone, "it is open at first")
	n.hinder(ctx, w, beside)
	_ = w.ensureToEnd(ctx, beside)
	if !scope.Joins {
		at = w.Snapshot()
	}
	lets := strings.Contains(at, otherRange)
	if restart {
		w.restart()
	}
	heard := w.warnings(ctx, s)
	told := func() bool {
		return slices.ContainsFunc(w.warnings(ctx, s), func(text string) bool {
			return strings.Contains(text, beside.Namespace+"/"+beside.Name) && !slices.Contains(heard, text)
		})
	}
	check := func(when string, shut bool) {
		state := w.Snapshot()
		closed := w.countEverybody(state) == alone && (!shut || !strings.Contains(state, sourceRange))
		assert.True(t, closed || restart && n.forgotten && told(), "%s, others may still connect: %s", when, state)
		assert.Equal(t, lets, strings.Contains(state, otherRange), "%s, whether clients of the other Service get in: %s", when, state)
	}
	w.setRanges(s, sourceRange)
	assert.Contains(t, w.Snapshot(), sourceRange, "nobody may connect")
	check("narrowed", false)
	w.remove(ctx, s, nil)
	w.forget(ctx, s)
	check("removed", true)
	w.remove(ctx, beside, nil)
	if w.forget(ctx, beside); n.elsewhere && scope.Swept {
		w.sweepRules()
	}
	assert.ElementsMatch(t, before, scope.Rules(), "rules are left")
}

// runDroppedPort: a Service of whose source ranges none can be read drops a port. Its load balancer has that port until they can be read;
// then it is closed, and nothing has widened meanwhile.
func runDroppedPort(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	ctx := t.Context()
	w, s := newAccess(t, newFixture, sourceRange)
	once, shut := w.Snapshot(), w.countEverybody(w.Snapshot())
	w.changeService(ctx, s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("more", 54, 30054)) })
	w.ensure(ctx, s, nil)
	w.changeService(ctx, s, func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
	makeUnreadable(ctx, w, s)
	_ = w.ensureToEnd(ctx, s)
	assert.True(t, w.warned(ctx, s), "nobody is told")
	assert.LessOrEqual(t, w.countEverybody(w.Snapshot()), shut, "it is open to everybody: %s", w.Snapshot())
	w.setRanges(s, sourceRange)
	assert.Equal(t, once, w.Snapshot(), "the port is closed")
}

// runBothFamilies: a Service of both families is narrowed although it is refused: who is asked for gets in by each of them, nobody else.
func runBothFamilies(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	ctx := t.Context()
	f := newFixture(t)
	w, s := newWorld(t, f), featureService(f.SourceRanges.With)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	maps.Copy(s.Annotations, f.DualStack.With)
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}, new(v1.IPFamilyPolicyRequireDualStack)
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, s)
	w.setRanges(s, sourceRange, sourceRangeV6)
	shut := w.countEverybody(w.Snapshot())
	w.setRanges(s)
	require.Greater(t, w.countEverybody(w.Snapshot()), shut, "it is open at first")
	w.changeService(ctx, s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{sourceRange, sourceRangeV6} })
	hindrances["a common annotation is wrong"](ctx, w, s)
	err := w.ensureToEnd(ctx, s)
	state := w.Snapshot()
	assert.Equal(t, shut, w.countEverybody(state), "everybody may still connect; the answer was: %v\n%s", err, state)
	assert.Contains(t, state, sourceRange)
	assert.Contains(t, state, sourceRangeV6)
}

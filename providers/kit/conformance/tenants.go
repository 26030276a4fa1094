package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// Reserved is an address that somebody reserved, to which nothing leads.
type Reserved struct {
	Address string
	// With are annotations that a Service needs to ask for it.
	With map[string]string
	// Claims are annotations by which a Service says that it was allocated for it, in each of several ways.
	Claims []map[string]string
	// Exists reports whether it is reserved still.
	Exists func() bool
}

// runTenants is about what the author of a Service may write, and about what others add to what Services have.
func runTenants(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for name, pair := range similarNames() {
		for _, both := range []bool{false, true} {
			if !both || readFixture(t, newFixture, (*Fixture).hasFamilies) {
				virtual(t, fmt.Sprintf("two names are alike: %s, both families %t", name, both), func(t *testing.T) { runSimilarNames(t, newFixture(t), pair, both) })
			}
		}
	}
	for _, owner := range []string{ownerLives, ownerElsewhere, ownerGone} {
		virtual(t, fmt.Sprintf("a Service says all that another one says, which %s", owner), func(t *testing.T) { runCopied(t, newFixture(t), owner) })
	}
	virtual(t, "a Service names Secrets of another namespace", func(t *testing.T) { runSecrets(t, newFixture(t)) })
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.Share != nil }) {
		for _, guest := range []bool{false, true} {
			virtual(t, fmt.Sprintf("two Services share a load balancer, the guest goes first %t", guest), func(t *testing.T) { runShared(t, newFixture(t), guest) })
		}
	}
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.Reserve != nil }) {
		virtual(t, "a Service claims an address that somebody reserved", func(t *testing.T) { runReserved(t, newFixture(t)) })
	}
	if readFixture(t, newFixture, func(f *Fixture) bool { return len(f.OwnershipTags) > 0 }) {
		virtual(t, "tags say whose an object is", func(t *testing.T) { runOwnershipTags(t, newFixture(t)) })
	}
	for what := range readFixture(t, newFixture, func(f *Fixture) map[string]func(*v1.Service) func() bool { return f.Additions }) {
		for _, restart := range []bool{false, true} {
			virtual(t, fmt.Sprintf("others add %s, restart %t", what, restart), func(t *testing.T) { runAdditions(t, newFixture(t), what, restart) })
		}
	}
}

// similarNames are pairs of Services, by namespace and name, whose names are the same once they are joined, given a suffix or cut.
func similarNames() map[string][2]types.NamespacedName {
	long := strings.Repeat("long-name-", 6)
	return map[string][2]types.NamespacedName{
		"joined":               {{Namespace: "a-b", Name: "c"}, {Namespace: "a", Name: "b-c"}},
		"a suffix of families": {{Namespace: "a", Name: "web"}, {Namespace: "a", Name: "web-ipv6"}},
		"a suffix of ports":    {{Namespace: "a", Name: "web"}, {Namespace: "a", Name: "web-tcp-53"}},
		"cut":                  {{Namespace: "a", Name: long + "aa"}, {Namespace: "a", Name: long + "bb"}},
		"cut namespaces":       {{Namespace: long + "aa", Name: long}, {Namespace: long + "bb", Name: long}},
	}
}

// runSimilarNames: two Services whose names are alike have nothing in common: each is served by itself, and one goes without the other.
func runSimilarNames(t *testing.T, f *Fixture, names [2]types.NamespacedName, both bool) {
	t.Helper()
	if both && f.DualStack.Prepare != nil {
		f.DualStack.Prepare()
	}
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	first, second := w.makeNamed(names[0], both), w.makeNamed(names[1], both)
	second.UID, second.Spec.Ports[0].NodePort = "9d2f6b52-5b66-4b58-8b4b-0a61c1f9e0a2", 30054
	w.createService(ctx, first)
	w.createService(ctx, second)
	one := w.ensure(ctx, first, nil)
	alone := w.Snapshot()
	other := w.ensure(ctx, second, nil)
	assert.NotEqual(t, one.Ingress, other.Ingress)
	w.restart()
	w.Sim.ResetCalls()
	w.ensure(ctx, first, nil)
	w.ensure(ctx, second, nil)
	w.requireNoWrites("both are served")
	w.goes(ctx, second)
	w.remove(ctx, second, nil)
	w.forget(ctx, second)
	assert.Equal(t, alone, w.Snapshot(), "the other one keeps all it has")
	w.Sim.ResetCalls()
	w.ensure(ctx, first, nil)
	w.requireNoWrites("it has all it had")
	w.goes(ctx, first)
	w.remove(ctx, first, nil)
	assert.Empty(t, w.Snapshot(), "nothing is left")
}

// makeNamed returns a Service of a name, of both families or of the usual one.
func (f *Fixture) makeNamed(name types.NamespacedName, both bool) *v1.Service {
	s := featureService(nil)
	if both {
		s = f.familyService(nil, v1.IPv4Protocol, v1.IPv6Protocol)
	}
	s.Namespace, s.Name = name.Namespace, name.Name
	return s
}

// runReserved: an address that somebody reserved is there after each Service that asked for it, whatever that says of it.
func runReserved(t *testing.T, f *Fixture) {
	t.Helper()
	theirs := f.Reserve()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	before := w.Snapshot()
	former := featureService(theirs.With) // its address is allocated for it
	w.createService(ctx, former)
	w.ensure(ctx, former, nil)
	former = w.service(ctx, former)
	w.goes(ctx, former)
	w.remove(ctx, former, nil)
	w.forget(ctx, former)
	recorded := maps.Clone(former.Annotations) // a record of an address that went with its Service
	for _, claim := range append(slices.Clone(theirs.Claims), nil, recorded) {
		for _, served := range []bool{false, true} {
			s := featureService(theirs.With)
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			s.Spec.LoadBalancerIP = theirs.Address
			w.createService(ctx, s)
			if served {
				w.ensure(ctx, s, nil)
			}
			w.changeService(ctx, s, func(s *v1.Service) {
				maps.Copy(s.Annotations, claim)
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: theirs.Address}}
			})
			time.Sleep(stepPause)
			w.restart()
			if served {
				_ = w.ensureToEnd(ctx, s)
			}
			w.goes(ctx, s)
			w.remove(ctx, s, func() {})
			w.forget(ctx, s)
			require.True(t, theirs.Exists(), "served %t, with %v", served, claim)
		}
	}
	assert.Equal(t, before, w.Snapshot(), "nothing else is left")
}

// foreignMark is a value that no tag of ours has.
const foreignMark = "somebody-elses"

// runOwnershipTags: no tag by a Service says whose an object is, neither when it is made nor later; an error or an event says so.
func runOwnershipTags(t *testing.T, f *Fixture) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	for _, mark := range w.OwnershipTags {
		for _, later := range []bool{false, true} {
			s := featureService(nil)
			s.Annotations = map[string]string{}
			w.createService(ctx, s)
			if later {
				w.ensure(ctx, s, nil)
			}
			before := w.Snapshot()
			w.changeService(ctx, s, func(s *v1.Service) { s.Annotations[portable.Tags] = mark + "=" + foreignMark })
			err := w.ensureToEnd(ctx, s)
			assert.NotContains(t, w.Snapshot(), foreignMark, mark)
			assert.True(t, err != nil || w.warned(ctx, s), "%s: nobody is told", mark)
			if later || err != nil {
				assert.Equal(t, before, w.Snapshot(), mark)
			}
			w.goes(ctx, s)
			w.remove(ctx, s, func() {})
			w.forget(ctx, s)
			require.Empty(t, w.Snapshot())
		}
	}
}

// runAdditions: what somebody adds to an object that Services made is there after the last of them went, although it came a moment ago.
func runAdditions(t *testing.T, f *Fixture, what string, restart bool) {
	t.Helper()
	if f.SourceRanges.Prepare != nil {
		f.SourceRanges.Prepare()
	}
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	s := featureService(w.SourceRanges.With)
	if f.hasSources() {
		s.Spec.LoadBalancerSourceRanges = []string{sourceRange}
	}
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	time.Sleep(stepPause)
	w.ensure(ctx, s, nil) // it has looked
	stays := w.Additions[what](w.service(ctx, s))
	require.True(t, stays())
	time.Sleep(5 * time.Second)
	if restart {
		w.restart()
	}
	w.goes(ctx, s)
	for range 5 { // where it cannot go because of that it does not
		_ = w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, w.service(ctx, s))
		time.Sleep(time.Minute)
		assert.True(t, stays(), "it went with the Service")
	}
}

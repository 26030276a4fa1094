package conformance

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// runRepeats is about calls and writes that say nothing new.
func runRepeats(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, what := range readFixture(t, newFixture, func(f *Fixture) []string {
		if f.hasSources() {
			return []string{"an annotation of the cloud's is wrong", "a common annotation is wrong"}
		}
		return []string{"a common annotation is wrong"}
	}) {
		for _, served := range []bool{false, true} {
			virtual(t, fmt.Sprintf("a Service that is refused is not written again, served before %t: %s", served, what), func(t *testing.T) {
				runRefusedAgain(t, newFixture(t), what, served)
			})
		}
	}
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.hasNodes() && f.outside() }) {
		virtual(t, "instances that are gone are read once, however many Services there are", func(t *testing.T) { runGoneReads(t, newFixture(t)) })
	}
	if readFixture(t, newFixture, (*Fixture).outside) {
		virtual(t, "what a Service said for a while costs no call afterwards", func(t *testing.T) { runFormerWords(t, newFixture(t)) })
	}
}

// runRefusedAgain: the API server is told nothing about a Service that is refused again, by this process and by the next one.
func runRefusedAgain(t *testing.T, f *Fixture, what string, served bool) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	s := featureService(w.SourceRanges.With)
	w.createService(ctx, s)
	if served {
		w.ensure(ctx, s, nil)
	}
	hindrances[what](ctx, w, s)
	require.Error(t, w.ensureToEnd(ctx, s))
	for range 2 {
		w.kube.ClearActions()
		for range 3 {
			time.Sleep(time.Minute)
			require.Error(t, w.ensureToEnd(ctx, s))
		}
		for _, a := range w.kube.Actions() {
			writes := !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb())
			assert.False(t, writes && a.GetResource().Resource == "services", "%s %s", a.GetVerb(), a.GetSubresource())
		}
		w.restart()
	}
}

const (
	// goneServices are Services over the same nodes, of which goneNodes have no instance any more.
	goneServices, goneNodes = 8, 4
	// readsOfOneGone are how often an instance that is gone is asked for at most: some clouds are asked for several at once before.
	readsOfOneGone = 4
)

// runGoneReads: an instance that is gone while its Node stays is asked for a few times, and not once for each Service.
func runGoneReads(t *testing.T, f *Fixture) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNodes(goneNodes + 2)
	var all []*v1.Service
	for i := range int32(goneServices) {
		all = append(all, makeNumbered(i))
		w.createService(ctx, all[i])
		w.ensure(ctx, all[i], nil)
	}
	time.Sleep(stepPause)
	for _, n := range w.nodes[:goneNodes] {
		w.RemoveInstance(n.Spec.ProviderID)
	}
	w.Sim.ResetCalls()
	for _, s := range all {
		w.update(ctx, s, func() {})
	}
	reads := map[string]int{}
	for _, call := range w.Sim.Calls().Latest {
		for _, n := range w.nodes[:goneNodes] {
			if !call.Write && strings.Contains(strings.ToLower(call.URL+call.Body), identityIn(n.Spec.ProviderID)) {
				reads[n.Name]++
			}
		}
	}
	for name, count := range reads {
		assert.LessOrEqual(t, count, readsOfOneGone, name)
	}
}

// identityIn is the end of a provider ID by which calls name an instance: where that is a number, with what comes before it.
func identityIn(providerID string) string {
	id := path.Base(providerID)
	if len(id) < leastIdentity {
		id = path.Join(path.Base(path.Dir(providerID)), id)
	}
	return strings.ToLower(id)
}

// runFormerWords: annotations that a Service had for a while, with values that name nothing, make no calls when they are gone.
func runFormerWords(t *testing.T, f *Fixture) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	s := featureService(nil)
	w.createService(ctx, s)
	calls := func() int {
		w.ensure(ctx, s, func() {})
		time.Sleep(stepPause)
		w.Sim.ResetCalls()
		w.ensure(ctx, s, nil)
		return w.Sim.Calls().Total
	}
	before := calls()
	for _, row := range w.Provider.Annotations {
		if row.Adopting() {
			continue // it is where the load balancer is found
		}
		key := strings.ReplaceAll(row.Key, "<port>", "53")
		for n := range 3 {
			w.changeService(ctx, s, func(s *v1.Service) { setAnnotation(s, key, fmt.Sprint("no-such-", n)) })
			_ = w.ensureToEnd(ctx, s)
		}
		w.changeService(ctx, s, func(s *v1.Service) { setAnnotation(s, key, "") })
	}
	assert.LessOrEqual(t, calls(), before, "%v", w.Sim.Calls().ByOperation)
}

package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// sourceRangeV6 are clients of the family that the Service is not asked to have.
const sourceRangeV6 = "2001:db8::/32"

// everybodyTexts are how most clouds write that all may connect.
var everybodyTexts = []string{"0.0.0.0/0", "::/0"}

func (f *Fixture) hasSources() bool {
	return f.hasLoadBalancers() && f.outside() && f.Provider.Features.SourceRanges == registry.Done
}

// Sources tries source ranges that cannot be read: they are refused or told of, and nothing opens by them, whatever happens next.
func Sources(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	ranges := func(list ...string) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = list }
	}
	for name, c := range map[string]struct {
		change func(*v1.Service)
		warns  bool
	}{
		"none of them can be read":          {ranges("010.0.0.0/8", "192.0.2.7"), true},
		"one of several cannot be read":     {ranges(sourceRange, "010.0.0.0/8"), true},
		"all of them are of another family": {ranges(sourceRangeV6), false},
	} {
		virtual(t, name, func(t *testing.T) { runSources(t, newFixture, c.change, c.warns) })
	}
}

// runSources serves a Service with source ranges, changes these, and has a node join, the program restart and the Service reconciled.
func runSources(t *testing.T, newFixture func(t testing.TB) *Fixture, change func(*v1.Service), warns bool) {
	t.Helper()
	ctx := t.Context()
	written := 0 // what a body says that holds other people's rules, too
	serve := func(list ...string) (*world, *v1.Service) {
		f := newFixture(t)
		if f.SourceRanges.Prepare != nil {
			f.SourceRanges.Prepare()
		}
		w, s := newWorld(t, f), featureService(f.SourceRanges.With)
		w.addNode(ctx, "worker-1", nil)
		s.Spec.LoadBalancerSourceRanges = list
		w.inspect(func(_ string, _ bool, c inspectedCall) func() {
			written = max(written, w.countEverybody(string(c.body)))
			return nil
		})
		w.createService(ctx, s)
		w.ensure(ctx, s, nil)
		return w, s
	}
	open, _ := serve()
	written = 0
	w, s := serve(sourceRange)
	before := w.countEverybody(w.Snapshot())
	writesOpenings := w.countEverybody(open.Snapshot()) > before // else everybody is where nothing is written
	w.changeService(ctx, s, change)
	w.inspect(func(operation string, write bool, c inspectedCall) func() {
		if write {
			assert.LessOrEqual(t, w.countEverybody(string(c.body)), written, "%s opens to everybody: %s", operation, c.body)
		}
		return nil
	})
	check := func(when string) {
		state := w.Snapshot()
		assert.LessOrEqual(t, w.countEverybody(state), before, "%s, it is open to everybody: %s", when, state)
		if !writesOpenings {
			assert.True(t, strings.Contains(state, sourceRange) || strings.Contains(state, sourceRangeV6), "%s, nothing restricts who may connect: %s", when, state)
		}
	}
	err := w.ensureToEnd(ctx, s)
	if warns {
		assert.True(t, w.warned(ctx, s), "no event tells of ranges that cannot be read; the answer was: %v", err)
	}
	check("after the change")
	w.addNode(ctx, "worker-2", nil)
	if err := w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes); err == nil {
		w.waitForUpdates()
	}
	check("after a node joined")
	w.restart()
	_ = w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
	w.waitForUpdates()
	check("after a restart")
	_ = w.ensureToEnd(ctx, s)
	check("after another reconciliation")
}

// ensureToEnd reconciles a Service until that ends, well or not.
func (w *world) ensureToEnd(ctx context.Context, s *v1.Service) error {
	return w.untilTried(func() error {
		_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
		return err
	})
}

// untilTried repeats what asks to be repeated, until it ends.
func (w *world) untilTried(try func() error) error {
	for began := time.Now(); ; {
		err := try()
		w.requireNoCrash(err)
		hint, later := errors.AsType[*cloudproviderapi.RetryError](err)
		if !later {
			return err
		}
		require.Less(w.t, time.Since(began), patience, "%v", err)
		time.Sleep(hint.RetryAfter())
	}
}

// countEverybody is how often a text says that all may connect.
func (f *Fixture) countEverybody(text string) (n int) {
	texts := f.Everybody
	if len(texts) == 0 {
		texts = everybodyTexts
	}
	for _, all := range texts {
		n += strings.Count(text, all)
	}
	return n
}

package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
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

// runSources tries source ranges that cannot be read: they are refused or told of, and nothing opens by them, whatever happens next.
func runSources(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for name, c := range map[string]struct {
		had, asks []string
		warns     bool
	}{
		"none of them can be read":                     {[]string{sourceRange}, []string{"010.0.0.0/8", "192.0.2.7"}, true},
		"one of several cannot be read":                {[]string{sourceRange}, []string{sourceRange, "010.0.0.0/8"}, true},
		"one cannot be read, and another is taken off": {[]string{sourceRange, otherRange}, []string{sourceRange, "010.0.0.0/8"}, true},
		"all of them are of another family":            {[]string{sourceRange}, []string{sourceRangeV6}, false},
	} {
		virtual(t, name, func(t *testing.T) { runSourceChange(t, newFixture, c.had, c.asks, c.warns) })
	}
	virtual(t, "none of them can be read, and a port is dropped", func(t *testing.T) { runDroppedPort(t, newFixture) })
}

// runSourceChange serves a Service with source ranges, changes these, and has a node join, the program restart and the Service reconciled.
// Who is taken off is shut out, and who is not gets in.
func runSourceChange(t *testing.T, newFixture func(t testing.TB) *Fixture, had, asks []string, warns bool) {
	t.Helper()
	ctx := t.Context()
	var written atomic.Int64 // what a body says that holds other people's rules, too; a provider's own loop writes as well
	serve := func(list ...string) (*world, *v1.Service) {
		f := newFixture(t)
		if f.SourceRanges.Prepare != nil {
			f.SourceRanges.Prepare()
		}
		w, s := newWorld(t, f), featureService(f.SourceRanges.With)
		w.addNode(ctx, "worker-1", nil)
		s.Spec.LoadBalancerSourceRanges = list
		w.inspect(func(_ string, _ bool, c inspectedCall) func() {
			written.Store(max(written.Load(), int64(w.countEverybody(string(c.body)))))
			return nil
		})
		w.createService(ctx, s)
		w.ensure(ctx, s, nil)
		return w, s
	}
	open, _ := serve()
	written.Store(0)
	w, s := serve(had...)
	before := w.countEverybody(w.Snapshot())
	writesOpenings := w.countEverybody(open.Snapshot()) > before // else everybody is where nothing is written
	allowed := int(written.Load())
	w.changeService(ctx, s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = asks })
	w.inspect(func(operation string, write bool, c inspectedCall) func() {
		if write {
			assert.LessOrEqual(t, w.countEverybody(string(c.body)), allowed, "%s opens to everybody: %s", operation, c.body)
		}
		return nil
	})
	check := func(when string) {
		state := w.Snapshot()
		assert.LessOrEqual(t, w.countEverybody(state), before, "%s, it is open to everybody: %s", when, state)
		if !writesOpenings {
			assert.True(t, strings.Contains(state, sourceRange) || strings.Contains(state, sourceRangeV6), "%s, nothing restricts who may connect: %s", when, state)
		}
		assert.True(t, !slices.Contains(asks, sourceRange) || strings.Contains(state, sourceRange), "%s, clients that nobody took off are shut out: %s", when, state)
		assert.NotContains(t, state, otherRange, "%s, clients that were taken off get in", when)
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
	defer w.SourceRanges.settle()
	return w.untilTried(func() error {
		_, err := w.tryEnsure(ctx, s)
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

package conformance

import (
	"context"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// hasFamilies reports whether there are load balancers with addresses of both families.
func (f *Fixture) hasFamilies() bool {
	return f.hasLoadBalancers() && f.Provider.Features.DualStack == registry.Done
}

// runFamilies is about Services that get or lose a second family, and about the ways in which addresses are written.
func runFamilies(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	kinds := []string{"public"}
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.Provider.Features.Internal == registry.Done }) {
		kinds = append(kinds, portable.SchemeInternal)
	}
	for _, kind := range kinds {
		for first, second := range map[v1.IPFamily]v1.IPFamily{v1.IPv4Protocol: v1.IPv6Protocol, v1.IPv6Protocol: v1.IPv4Protocol} {
			virtual(t, kind+" address of "+string(first)+" stays", func(t *testing.T) {
				f := newFixture(t)
				if f.DualStack.Prepare != nil {
					f.DualStack.Prepare()
				}
				w := newWorld(t, f)
				w.addNode(t.Context(), "worker-1", nil)
				var annotations map[string]string
				if kind == portable.SchemeInternal {
					_, annotations = portableCase(f, w.kube, portable.Scheme)
				}
				w.runFamilyThatStays(annotations, []v1.IPFamily{first, second}, 1)
				w.runFamilyThatStays(annotations, []v1.IPFamily{first, second}, 2)
			})
		}
	}
	if readFixture(t, newFixture, (*Fixture).hasSources) {
		virtual(t, "networks of IPv6 are written in other ways", func(t *testing.T) { runNetworksWritten(t, newFixture(t)) })
	}
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.Address6 != nil }) {
		for _, in := range []string{"annotation", "field"} {
			virtual(t, "an address of IPv6 is written in other ways, by "+in, func(t *testing.T) { runAddressWritten(t, newFixture(t), in == "field") })
		}
	}
}

// familyService is a Service that may have both families.
func (f *Fixture) familyService(more map[string]string, families ...v1.IPFamily) *v1.Service {
	s := featureService(f.DualStack.With)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	maps.Copy(s.Annotations, more)
	setFamilies(s, families)
	return s
}

func setFamilies(s *v1.Service, families []v1.IPFamily) {
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = families, new(v1.IPFamilyPolicySingleStack)
	if len(families) > 1 {
		s.Spec.IPFamilyPolicy = new(v1.IPFamilyPolicyPreferDualStack)
	}
}

// shownAddresses are the addresses of a family that a Service's status has, and its names.
func (w *world) shownAddresses(ctx context.Context, s *v1.Service, family v1.IPFamily) (all []string) {
	for _, i := range w.service(ctx, s).Status.LoadBalancer.Ingress {
		if i.IP == "" || strings.Contains(i.IP, ":") == (family == v1.IPv6Protocol) {
			all = append(all, i.IP+i.Hostname)
		}
	}
	return all
}

// isServed reports whether the cloud declares that it serves a field of a Service, whatever else there is, also when it comes later.
func (w *world) isServed(f schema.Field, s *v1.Service) bool {
	row, _ := w.Provider.ServiceFields.Row(f, s.Annotations, nil)
	return row.Becomes == schema.Served && row.Only == "" && row.Later == "" && !row.Anyway
}

// runFamilyThatStays: a Service begins with count families, and loses and gets the second one. The address of the first one stays,
// whether the change is served or not.
func (w *world) runFamilyThatStays(more map[string]string, families []v1.IPFamily, count int) {
	t, ctx := w.t, w.t.Context()
	s := w.familyService(more, families[:count]...)
	w.createService(ctx, s)
	err := w.ensureToEnd(ctx, s)
	kept := w.shownAddresses(ctx, s, families[0])
	if families[0] == v1.IPv4Protocol || w.isServed(schema.FieldIPv6, s) {
		require.NoError(t, err)
		require.NotEmpty(t, kept)
	}
	for i := range 3 {
		count = 3 - count
		w.changeService(ctx, s, func(s *v1.Service) { setFamilies(s, families[:count]) })
		served := w.ensureToEnd(ctx, s)
		if err == nil {
			assert.Equal(t, kept, w.shownAddresses(ctx, s, families[0]), "change %d, to %v: %v", i, families[:count], served)
		}
		if w.isServed(schema.FieldPreferBoth, s) {
			assert.Equal(t, count == 2, len(w.shownAddresses(ctx, s, families[1])) > 0, "change %d, to %v: %v", i, families[:count], served)
		}
		if i == 1 {
			w.restart()
		}
		if served == nil {
			w.Sim.ResetCalls()
			w.ensure(ctx, s, nil)
			w.requireNoWrites("it is served already")
		}
	}
	if err == nil {
		w.requireNothingRefused()
	}
	w.goes(ctx, s)
	w.remove(ctx, s, func() {})
	assert.Empty(t, w.Snapshot(), "nothing is left")
	w.forget(ctx, s)
}

// runNetworksWritten: a source range of IPv6 means the same whatever way it is written.
func runNetworksWritten(t *testing.T, f *Fixture) {
	t.Helper()
	for _, c := range []FeatureCase{f.DualStack, f.SourceRanges} {
		if c.Prepare != nil {
			c.Prepare()
		}
	}
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	s := w.familyService(f.SourceRanges.With, v1.IPv4Protocol, v1.IPv6Protocol)
	s.Spec.LoadBalancerSourceRanges = []string{sourceRange, "2001:db8:a::/48"}
	w.createService(ctx, s)
	first := w.ensureToEnd(ctx, s)
	state := w.Snapshot()
	w.Sim.ResetCalls()
	for _, written := range []string{"2001:DB8:A::/48", "2001:0db8:000a:0000:0000:0000:0000:0000/48"} {
		w.changeService(ctx, s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges[1] = written })
		next := w.ensureToEnd(ctx, s)
		assert.Equal(t, first == nil, next == nil, "%v", next)
	}
	if first == nil {
		w.requireNoWrites("they say the same")
	}
	assert.Equal(t, state, w.Snapshot())
}

// runAddressWritten: an address of IPv6 that a Service asks for means the same whatever way it is written.
func runAddressWritten(t *testing.T, f *Fixture, field bool) {
	t.Helper()
	address, more := f.Address6()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	before := w.Snapshot()
	s := w.familyService(more, v1.IPv6Protocol)
	ask := func(s *v1.Service, written string) {
		if s.Spec.LoadBalancerIP = written; !field {
			s.Spec.LoadBalancerIP, s.Annotations[portable.Address] = "", written
		}
	}
	ask(s, address)
	w.createService(ctx, s)
	w.ensure(ctx, s, nil)
	assert.Equal(t, []string{address}, w.shownAddresses(ctx, s, v1.IPv6Protocol))
	w.Sim.ResetCalls()
	for _, written := range []string{strings.ToUpper(address), netip.MustParseAddr(address).StringExpanded()} {
		w.changeService(ctx, s, func(s *v1.Service) { ask(s, written) })
		w.ensure(ctx, s, nil)
		assert.Equal(t, []string{address}, w.shownAddresses(ctx, s, v1.IPv6Protocol), written)
		w.restart()
	}
	w.requireNoWrites("they say the same")
	w.remove(ctx, s, nil)
	w.forget(ctx, s)
	again := w.familyService(more, v1.IPv6Protocol)
	ask(again, strings.ToUpper(address))
	w.createService(ctx, again)
	w.ensure(ctx, again, nil)
	assert.Equal(t, []string{address}, w.shownAddresses(ctx, again, v1.IPv6Protocol), "when it is made")
	w.remove(ctx, again, nil)
	assert.Equal(t, before, w.Snapshot(), "the address stays its owner's")
}

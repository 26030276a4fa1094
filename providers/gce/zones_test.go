package gce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// membersEverywhere returns the instances of all instance groups, or of the target pool.
func (w *world) membersEverywhere() (names []string) {
	for _, g := range w.sim.Objects("instanceGroups") {
		list, _ := g["members"].([]any)
		for _, m := range list {
			names = append(names, lastPart(fmt.Sprint(m)))
		}
	}
	for _, p := range w.sim.Objects("targetPools") {
		list, _ := p["instances"].([]any)
		for _, m := range list {
			names = append(names, lastPart(fmt.Sprint(m)))
		}
	}
	slices.Sort(names)
	return names
}

// inTwoZones has a node in each of two zones, and a Service of the given kind.
func inTwoZones(t *testing.T, kind string) (*world, *v1.Service) {
	t.Helper()
	w := newTestWorld(t, usual)
	for _, name := range []string{"a1", "b1"} {
		w.addNode(gcesim.Spec{Name: name, Zone: "us-central1-" + name[:1]})
		time.Sleep(2 * time.Minute)
	}
	s := testService("web", conformance.Port("a", 80, 30080))
	s.Annotations[annotationType] = kind
	s, _ = w.ensure(w.apply(s))
	require.Equal(t, []string{"a1", "b1"}, w.membersEverywhere())
	time.Sleep(5 * time.Minute)
	return w, s
}

// TestZoneNotReachable: while a zone is unreachable, nodes of other zones join and leave, and its own members stay. One event reports it,
// and when the zone answers another pass applies the rest.
func TestZoneNotReachable(t *testing.T) {
	for _, kind := range []string{"", "Internal"} {
		t.Run("kind "+kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, s := inTwoZones(t, kind)
				update := func(nodes ...*v1.Node) {
					t.Helper()
					time.Sleep(2 * time.Minute)
					require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), nodes))
				}
				a1, b1 := w.nodes[0], w.nodes[1]
				b2 := nodeNamed("b2", w.sim.AddInstance(gcesim.Spec{Name: "b2", Zone: "us-central1-b"}))
				w.Register(b2)
				w.sim.SetUnreachable("us-central1-b", true)
				a2 := w.addNode(gcesim.Spec{Name: "a2"})
				time.Sleep(time.Second)
				c1 := w.addNode(gcesim.Spec{Name: "c1", Zone: "us-central1-c"})
				w.Events()

				update(a1, b1, b2, a2, c1)
				assert.Equal(t, []string{"a1", "a2", "b1", "c1"}, w.membersEverywhere(), "b2 waits")
				update(b1, b2, a2, c1)
				assert.Equal(t, []string{"a2", "b1", "c1"}, w.membersEverywhere(), "a1 leaves")
				update(a2, c1)
				assert.Equal(t, []string{"a2", "b1", "c1"}, w.membersEverywhere(), "b1 stays until the zone answers")
				w.nodes = []*v1.Node{a2, c1, b2}
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("b", 443, 30443))
				s, _ = w.ensure(w.write(w.Current(s)))
				assert.Equal(t, []string{"a2", "b1", "c1"}, w.membersEverywhere(), "all else is done")
				said := strings.Join(w.Events(), "\n")
				assert.Equal(t, 1, strings.Count(said, "Warning "+eventZoneWaits+" nothing is known of the instances in us-central1-b"), said)

				w.sim.SetUnreachable("us-central1-b", false)
				time.Sleep(2 * time.Minute)
				w.server.ResetCalls()
				update(a2, c1, b2)
				assert.Equal(t, []string{"a2", "b2", "c1"}, w.membersEverywhere(), "what waited is done")
				assert.Empty(t, w.Events())
				update(a2, c1, b2)
				assert.Equal(t, 2, w.server.Calls().Writes)
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
}

// TestAllZonesNotReachable: if no node is known, nothing is changed, and the reconciliation fails.
func TestAllZonesNotReachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, kind := range []string{"", "Internal"} {
			w, s := inTwoZones(t, kind)
			for _, zone := range []string{"a", "b", "c"} {
				w.sim.SetUnreachable("us-central1-"+zone, true)
			}
			w.server.ResetCalls()
			require.ErrorIs(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, w.nodes[:1]), cloudapi.ErrTransient)
			assert.Zero(t, w.server.Calls().Writes)
		}
	})
}

// TestNodesJoinThoughAZoneIsNotReachable: nodes of other zones are initialised, by name and by provider ID. Those of the unreachable zone
// remain unknown.
func TestNodesJoinThoughAZoneIsNotReachable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		lost := w.addNode(gcesim.Spec{Name: "b1", Zone: "us-central1-b"})
		w.sim.SetUnreachable("us-central1-b", true)
		for range 2 {
			w.restart()
			time.Sleep(10 * time.Minute)
			w.addNode(gcesim.Spec{Name: fmt.Sprint("a", len(w.nodes))})
			_, err := w.instances.InstanceExists(t.Context(), lost)
			require.Error(t, err)
			_, err = w.instances.InstanceMetadata(t.Context(), newNode("b2"))
			require.ErrorIs(t, err, cloudapi.ErrTransient, "it may be in the zone that cannot be reached")
		}
	})
}

// TestCoverage: a listing covers a zone only if every page does. An incomplete page that does not name its zones makes the listing fail.
func TestCoverage(t *testing.T) {
	t.Parallel()
	const kind = "compute#instanceAggregatedList"
	scope := func(code string) compute.InstancesScopedList {
		if code == "" {
			return compute.InstancesScopedList{Instances: []*compute.Instance{{Name: "x"}}}
		}
		return compute.InstancesScopedList{Warning: &compute.InstancesScopedListWarning{Code: code, Message: "why"}}
	}
	pages := []*compute.InstanceAggregatedList{
		{Kind: kind, Items: map[string]compute.InstancesScopedList{"zones/a": scope(""), "zones/b": scope(unreachable), "zones/c": scope("")}},
		{Kind: kind, Items: map[string]compute.InstancesScopedList{"zones/a": scope(noResults)}, Unreachables: []string{
			"https://www.googleapis.com/compute/v1/projects/p/zones/d",
		}, Warning: &compute.InstanceAggregatedListWarning{Code: partialSuccess}},
	}
	c := coverage{lacking: map[string]string{}, shown: map[string]int{}}
	for _, p := range pages {
		require.NoError(t, c.add(p))
	}
	err := c.err()
	require.ErrorIs(t, err, cloudapi.ErrTransient)
	require.ErrorContains(t, err, "a partial listing: zones/b: UNREACHABLE why; zones/d: cannot be reached")
	partial, ok := errors.AsType[*inventory.Partial[instanceID]](err)
	require.True(t, ok)
	lacks := partial.Lacks
	for zone, want := range map[string]bool{"a": false, "b": true, "c": true, "d": true, "e": true} {
		assert.Equal(t, want, lacks(instanceID{"p", zone, "x"}), zone)
	}
	for name, page := range map[string]*compute.InstanceAggregatedList{
		"another kind":       {Kind: "compute#instanceList"},
		"no zone":            {Kind: kind, Unreachables: []string{"regions/us-central1"}},
		"a scope of no zone": {Kind: kind, Items: map[string]compute.InstancesScopedList{"regions/r": scope(unreachable)}},
		"nothing named":      {Kind: kind, Warning: &compute.InstanceAggregatedListWarning{Code: unreachable}},
		"something different": {
			Kind: kind, Unreachables: []string{"zones/a"}, Warning: &compute.InstanceAggregatedListWarning{Code: "LIST_OVERHEAD_QUOTA_EXCEED"},
		},
	} {
		c := coverage{lacking: map[string]string{}, shown: map[string]int{}}
		require.ErrorIs(t, c.add(page), cloudapi.ErrTransient, name)
	}
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// subnetUnread hinders only where rules depend on subnets.
const subnetUnread = "one subnet cannot be read"

// hindrances refuse something else of a Service while source ranges are narrowed.
var hindrances = map[string]func(ctx context.Context, w *world, s *v1.Service){
	"an annotation of the cloud's is wrong": func(ctx context.Context, w *world, s *v1.Service) {
		key := w.refusedAnnotation(ctx, s)
		w.changeService(ctx, s, func(s *v1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, noLegalValue) })
	},
	"a common annotation is wrong": func(ctx context.Context, w *world, s *v1.Service) {
		w.changeService(ctx, s, func(s *v1.Service) {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, contract.AnnotationIPMode, noLegalValue)
		})
	},
	"no node is ready": func(_ context.Context, w *world, _ *v1.Service) { w.nodes = nil },
	"instances cannot be read": func(_ context.Context, w *world, _ *v1.Service) {
		w.restart()
		w.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: w.InstanceListing})
	},
	"one instance cannot be read": func(_ context.Context, w *world, _ *v1.Service) {
		w.restart()
		w.hide(w.InstanceListing, path.Base(w.nodes[0].Spec.ProviderID))
	},
	subnetUnread: func(_ context.Context, w *world, _ *v1.Service) {
		w.restart()
		w.hide("ubnets", w.SourceRanges.Scope.Subnet())
	},
}

// runNarrowings narrows in each scope, and in both families.
func runNarrowings(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	inEachScope(runNarrowing)(t, newFixture)
	if readFixture(t, newFixture, func(f *Fixture) bool {
		return f.Provider.Features.DualStack == registry.Done && f.SourceRanges.Scope.OneFamily == ""
	}) {
		virtual(t, "both families", func(t *testing.T) { runBothFamilies(t, newFixture) })
	}
}

// runNarrowing has source ranges narrowed while something else of the Service is refused: whoever is not asked for any more is shut out,
// and whoever is gets in.
func runNarrowing(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	f := readFixture(t, newFixture, func(f *Fixture) *Fixture { return f })
	scope := f.SourceRanges.Scope
	require.Equal(t, scope.Subnet == nil, scope.NoSubnet != "", "the fixture names a subnet, or says why none counts")
	var free narrowed
	synctest.Test(t, func(t *testing.T) { free.open = narrowFromTheStart(t, newFixture, false) })
	synctest.Test(t, func(t *testing.T) { newNarrowing(t, newFixture).narrowFreely(&free) })
	require.NotEmpty(t, free.writes, "another port is written, too")
	if scope.NoAnnotation == "" && (f.triesAll() || !f.further) {
		narrowingByAnnotation(t, newFixture)
	}
	for name, hinder := range hindrances {
		if name != subnetUnread || scope.Subnet != nil {
			virtual(t, name, func(t *testing.T) { newNarrowing(t, newFixture).run(free, true, hinder) })
		}
	}
	narrowingFailsOnce(t, newFixture, free)
	narrowingUnread(t, newFixture, free)
	for operation, first := range free.writes {
		virtual(t, operation+" is refused", func(t *testing.T) {
			newNarrowing(t, newFixture).run(free, first > 1 || !free.opens[operation], func(_ context.Context, w *world, _ *v1.Service) {
				w.failCalls(simkit.Fault{
					Kind: simkit.FaultStatus, Status: http.StatusBadRequest, Operation: operation + "$", Writes: true, From: first,
				})
			})
		})
	}
}

// hide has listings lack something that nobody may read alone.
func (w *world) hide(listing, id string) {
	w.failCalls(simkit.Fault{Kind: simkit.FaultUnlisted, Operation: listing, Names: id})
	w.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Names: id, Reads: true})
}

// narrowingUnread has a process that has just begun narrow while each kind of read is refused, from its first or its last call on.
// Only without the load balancer and its rules nobody can be shut out.
func narrowingUnread(t *testing.T, newFixture func(t testing.TB) *Fixture, free narrowed) {
	t.Helper()
	var reads map[string]int
	var needed []string
	synctest.Test(t, func(t *testing.T) {
		n := newNarrowing(t, newFixture)
		needed, reads = n.SourceRanges.Scope.NeededReads, n.reads()
	})
	all := triesAll(t, newFixture)
	t.Run("each read is refused", func(t *testing.T) {
		t.Parallel()
		for operation, count := range reads {
			calls := slices.Compact([]int{count, 1})
			if !all {
				calls = calls[:1]
			}
			if slices.Contains(needed, operation) {
				continue
			}
			for _, call := range calls {
				virtual(t, fmt.Sprint(operation, " ", call), func(t *testing.T) {
					newNarrowing(t, newFixture).run(free, false, func(_ context.Context, w *world, _ *v1.Service) {
						w.restart()
						w.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: operation + "$", From: call})
					})
				})
			}
		}
	})
}

// reads returns how often a process that has just begun reads in each way until it has narrowed.
func (n *narrowing) reads() map[string]int {
	n.narrow()
	n.restart()
	n.Sim.ResetCalls()
	n.ensure(n.t.Context(), n.service, nil)
	reads := map[string]int{}
	for _, call := range n.Sim.Calls().Latest {
		if !call.Write {
			reads[call.Operation]++
		}
	}
	return reads
}

// narrowingFailsOnce has each write fail for a moment by which a refused Service is narrowed: whoever is asked for gets in all the same.
func narrowingFailsOnce(t *testing.T, newFixture func(t testing.TB) *Fixture, free narrowed) {
	t.Helper()
	writes := 0
	synctest.Test(t, func(t *testing.T) { writes = newNarrowing(t, newFixture).failOnce(free, 0) })
	require.NotZero(t, writes, "a refused Service is narrowed, too")
	for k := range writes {
		virtual(t, fmt.Sprintf("write %d of a refused Service fails once", k+1), func(t *testing.T) { newNarrowing(t, newFixture).failOnce(free, k+1) })
	}
}

// failOnce has a write fail, or none, and returns how many there are.
func (n *narrowing) failOnce(free narrowed, write int) (writes int) {
	ctx := n.t.Context()
	n.narrow()
	n.changeService(ctx, n.service, func(s *v1.Service) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, contract.AnnotationIPMode, noLegalValue)
	})
	n.Sim.ResetCalls()
	if write > 0 {
		n.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Writes: true, From: write, Count: 1})
	}
	err := n.ensureToEnd(ctx, n.service)
	writes = n.Sim.Calls().Writes
	time.Sleep(settledIn)
	err = errors.Join(err, n.ensureToEnd(ctx, n.service))
	state := n.Snapshot()
	assert.LessOrEqual(n.t, n.countEverybody(state), free.open, "everybody may still connect; the answers were: %v\n%s", err, state)
	assert.Contains(n.t, state, sourceRange, "nobody may connect; the answers were: %v", err)
	return writes
}

// noLegalValue is illegal for each annotation that does not take every text.
const noLegalValue = "no such value"

// narrowing is a Service that is open to everybody.
type narrowing struct {
	*world
	service *v1.Service
	// open is how often the cloud says that everybody may connect.
	open int
	// annotated is set where an annotation says who may connect.
	annotated bool
}

// narrowFromTheStart makes a Service as a narrowed one ends, and returns how often the cloud says that everybody may connect.
func narrowFromTheStart(t *testing.T, newFixture func(t testing.TB) *Fixture, annotated bool) int {
	t.Helper()
	n := newUnservedNarrowing(t, newFixture)
	n.annotated = annotated
	n.addNode(t.Context(), "worker-2", nil)
	n.narrow()
	n.ensure(t.Context(), n.service, nil)
	return n.countEverybody(n.Snapshot())
}

// narrowingByAnnotation narrows a refused Service whose clients an annotation names.
func narrowingByAnnotation(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	var free narrowed
	synctest.Test(t, func(t *testing.T) { free.open = narrowFromTheStart(t, newFixture, true) })
	virtual(t, "an annotation alone narrows", func(t *testing.T) {
		n := newNarrowing(t, newFixture)
		n.annotated = true
		n.run(free, true, hindrances["a common annotation is wrong"])
	})
}

func newUnservedNarrowing(t *testing.T, newFixture func(t testing.TB) *Fixture) *narrowing {
	t.Helper()
	w, s := newUnserved(t, newFixture)
	n := &narrowing{world: w, service: s}
	n.changeService(t.Context(), s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("former", 55, 30055)) })
	return n
}

func newNarrowing(t *testing.T, newFixture func(t testing.TB) *Fixture) *narrowing {
	t.Helper()
	n := newUnservedNarrowing(t, newFixture)
	n.ensure(t.Context(), n.service, nil)
	n.open = n.countEverybody(n.Snapshot())
	n.addNode(t.Context(), "worker-2", nil)
	time.Sleep(stepPause)
	return n
}

// narrow asks for one network, another node port, and one port instead of another.
func (n *narrowing) narrow() {
	n.changeService(n.t.Context(), n.service, func(s *v1.Service) {
		if n.annotated {
			key, value := n.SourceRanges.Scope.annotate(sourceRange)
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value)
		} else {
			s.Spec.LoadBalancerSourceRanges = []string{sourceRange}
		}
		s.Spec.Ports = []v1.ServicePort{Port(s.Spec.Ports[0].Name, s.Spec.Ports[0].Port, 30153), Port("more", 54, 30054)}
	})
}

// narrowed is how a narrowing ends that nothing hinders.
type narrowed struct {
	// open is how often the cloud says that everybody may connect to a Service that never let in more.
	open int
	// writes are the operations that write, each with the first call that is not one by which somebody is shut out. opens are those which
	// let in who is asked for.
	writes map[string]int
	opens  map[string]bool
}

// narrowFreely narrows where nothing is refused, and adds the writes.
func (n *narrowing) narrowFreely(free *narrowed) {
	n.narrow()
	free.writes, free.opens = map[string]int{}, map[string]bool{}
	open, calls, closed, last := n.open, map[string]int{}, map[string]int{}, ""
	var mu sync.Mutex // calls may be at the same moment
	n.inspect(func(operation string, write bool, _ inspectedCall) func() {
		mu.Lock()
		defer mu.Unlock()
		if write {
			calls[operation], last = calls[operation]+1, operation
		}
		return func() { // what a write does may show with a later call
			mu.Lock()
			defer mu.Unlock()
			state := n.Snapshot()
			now := n.countEverybody(state)
			if now < open {
				closed[last] = calls[last]
			}
			open = now
			if len(free.opens) == 0 && strings.Contains(state, sourceRange) {
				free.opens[last] = true
			}
		}
	})
	n.ensure(n.t.Context(), n.service, nil)
	n.Sim.Inspect(nil)
	require.Less(n.t, open, n.open, "everybody is shut out")
	require.LessOrEqual(n.t, n.countEverybody(n.Snapshot()), free.open, "who was let in is shut out as if he had never been: %s", n.Snapshot())
	for operation, all := range calls {
		if all > closed[operation] && !slices.Contains(n.Filters, operation) {
			free.writes[operation] = closed[operation] + 1
		}
	}
}

// run narrows where something is refused. serves is set where who is asked for can be let in.
func (n *narrowing) run(free narrowed, serves bool, hinder func(ctx context.Context, w *world, s *v1.Service)) {
	ctx := n.t.Context()
	n.narrow()
	hinder(ctx, n.world, n.service)
	err := n.ensureToEnd(ctx, n.service)
	state := n.Snapshot()
	assert.LessOrEqual(n.t, n.countEverybody(state), free.open, "everybody may still connect; the answer was: %v\n%s", err, state)
	assert.True(n.t, !serves || strings.Contains(state, sourceRange), "nobody may connect; the answer was: %v\n%s", err, state)
	n.Sim.ClearFaults()
	n.Sim.ResetCalls()
	_ = n.ensureToEnd(ctx, n.service)
	assert.LessOrEqual(n.t, n.countEverybody(n.Snapshot()), n.countEverybody(state), "it opens again")
}

// refusedAnnotation is an annotation of the cloud's with which a Service is refused.
func (w *world) refusedAnnotation(ctx context.Context, s *v1.Service) string {
	for _, row := range w.Provider.Annotations {
		asked := w.service(ctx, s)
		metav1.SetMetaDataAnnotation(&asked.ObjectMeta, row.Key, noLegalValue)
		if _, err := registry.CheckServiceOf(w.Provider, w.Inputs(), asked); err != nil && !strings.Contains(row.Key, "<") {
			return row.Key
		}
	}
	require.Fail(w.t, "no annotation of the cloud has illegal values")
	return ""
}

package conformance

import (
	"fmt"
	"net/http"
	"regexp"
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
)

// runAccess is about who may connect while Services change, share a port and go.
func runAccess(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "source ranges are removed", func(t *testing.T) { runRangesRemoved(t, newFixture) })
	virtual(t, "source ranges are said twice, and with bits of hosts", func(t *testing.T) { runRangesTwice(t, newFixture) })
	virtual(t, "two Services have a port, and one narrows and goes", func(t *testing.T) { runSharedPort(t, newFixture, false) })
	virtual(t, "two Services have a port, and the older one goes", func(t *testing.T) { runSharedPort(t, newFixture, true) })
	runWidenings(t, newFixture)
	runNeighbours(t, newFixture)
	runSameMoment(t, newFixture)
	virtual(t, "source ranges of a port of UDP", func(t *testing.T) { runSourcesOfUDP(t, newFixture) })
	runClosings(t, newFixture)
	f := readFixture(t, newFixture, func(f *Fixture) *Fixture { return f })
	scope, all := f.SourceRanges.Scope, f.triesAll()
	if all || !f.further && scope.OneClosing == "" {
		virtual(t, "several ports are left, and closing one is refused", func(t *testing.T) { runFormerPorts(t, newFixture, all) })
	}
	require.Equal(t, scope.Protect == nil, scope.Unprotected != "", "somebody protects load balancers, or the fixture says why not")
	if scope.Protect != nil {
		virtual(t, "somebody protects the load balancer from deletion", func(t *testing.T) { runProtected(t, newFixture) })
	}
	runScopes(t, newFixture)
}

// inEachScope runs a part for each kind of load balancers and of rules that a cloud has.
func inEachScope(run func(*testing.T, func(testing.TB) *Fixture)) func(*testing.T, func(testing.TB) *Fixture) {
	return func(t *testing.T, newFixture func(t testing.TB) *Fixture) {
		run(t, newFixture)
		f := readFixture(t, newFixture, func(f *Fixture) *Fixture { return f })
		for name, scope := range f.Scopes {
			if scope.FullTier && !f.triesAll() {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, func(t testing.TB) *Fixture {
					f := newFixture(t)
					f.SourceRanges, f.further = f.Scopes[name], true
					return f
				})
			})
		}
	}
}

// newAccess serves a Service with source ranges.
func newAccess(t *testing.T, newFixture func(t testing.TB) *Fixture, ranges ...string) (*world, *v1.Service) {
	t.Helper()
	w, s := newUnserved(t, newFixture)
	w.setRanges(s, ranges...)
	return w, s
}

// setRanges changes the source ranges of a Service.
func (w *world) setRanges(s *v1.Service, ranges ...string) {
	w.changeService(w.t.Context(), s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
	w.ensure(w.t.Context(), s, nil)
}

// runRangesRemoved: without source ranges everybody may connect, as to a Service that never had any, and with them nobody else.
func runRangesRemoved(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	w, s := newAccess(t, newFixture)
	open := w.countEverybody(w.Snapshot())
	w.setRanges(s, sourceRange)
	narrow := w.Snapshot()
	assert.Less(t, w.countEverybody(narrow), open)
	w.restart()
	w.setRanges(s)
	assert.Equal(t, open, w.countEverybody(w.Snapshot()), "%s", w.Snapshot())
	w.restart()
	w.setRanges(s, sourceRange)
	assert.Equal(t, narrow, w.Snapshot())
}

// runRangesTwice: how networks are written makes no difference.
func runRangesTwice(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	w, s := newAccess(t, newFixture, sourceRange)
	once := w.Snapshot()
	w.Sim.ResetCalls()
	again := sourceRange
	if w.HostBits == "" {
		again = "203.0.113.77/24"
	}
	w.setRanges(s, sourceRange, again, sourceRange)
	w.requireNoWrites("they say the same")
	assert.Equal(t, once, w.Snapshot())
}

// ofTCP matches a rule of TCP, by name or by number.
var ofTCP = regexp.MustCompile(`(?i)\btcp\b|"protocol":"6"`)

// runSourcesOfUDP: source ranges hold for a port of UDP as for one of TCP, or an error or an event says that they do not.
func runSourcesOfUDP(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	ctx := t.Context()
	o := newOthersRules(t, newFixture)
	o.changeService(ctx, o.service, func(s *v1.Service) {
		s.Spec.Ports[0].Protocol, s.Spec.LoadBalancerSourceRanges = v1.ProtocolUDP, []string{sourceRange, otherRange}
		if o.SourceRanges.Scope.NotUDP == "" {
			for key, value := range o.UDP.With {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value)
			}
		}
	})
	err := o.ensureToEnd(ctx, o.service)
	if o.SourceRanges.Scope.NotUDP != "" {
		assert.True(t, err != nil || o.warned(ctx, o.service), "nobody is told")
		o.remove(ctx, o.service, nil)
		assert.Empty(t, o.ownRules("at the end"), "rules are left")
		return
	}
	require.NoError(t, err)
	assert.False(t, o.warned(ctx, o.service), "an event says that they do not hold")
	both := o.Snapshot()
	assert.Contains(t, both, otherRange)
	for _, line := range o.ownRules("of UDP") {
		assert.False(t, strings.Contains(line, sourceRange) && ofTCP.MatchString(line), "a rule of another protocol: %s", line)
	}
	o.setRanges(o.service, sourceRange)
	narrow := o.Snapshot()
	assert.NotContains(t, narrow, otherRange)
	assert.Contains(t, narrow, sourceRange)
	o.setRanges(o.service)
	assert.Less(t, o.countEverybody(narrow), o.countEverybody(o.Snapshot()), "everybody may connect only where nobody is named")
	o.remove(ctx, o.service, nil)
	assert.Empty(t, o.ownRules("at the end"), "rules are left")
}

// otherRange is the source range of the other Service.
const otherRange = "198.51.100.0/24"

// runSharedPort: a Service has the port and the clients of another one, is narrowed, and one of them goes. The other one keeps all it has,
// and with the last one all goes.
func runSharedPort(t *testing.T, newFixture func(t testing.TB) *Fixture, olderGoes bool) {
	t.Helper()
	ctx := t.Context()
	w, s := newUnserved(t, newFixture)
	before := w.SourceRanges.Scope.Rules()
	w.setRanges(s, sourceRange)
	alone := w.Snapshot()
	second := claimer(Case{Service: featureService(w.SourceRanges.With)})
	second.Spec.LoadBalancerSourceRanges = []string{sourceRange, otherRange}
	w.createService(ctx, second)
	w.ensure(ctx, second, nil)
	both := w.Snapshot()
	w.setRanges(second, otherRange)
	w.Sim.ResetCalls()
	w.ensure(ctx, s, nil)
	w.requireNoWrites("what it lets in is as it was")
	w.setRanges(second, sourceRange, otherRange)
	assert.Equal(t, both, w.Snapshot())
	first, last := second, s
	if olderGoes {
		first, last = s, second
	}
	w.remove(ctx, first, nil)
	w.forget(ctx, first)
	if !olderGoes {
		assert.Equal(t, alone, w.Snapshot())
	}
	w.Sim.ResetCalls()
	w.ensure(ctx, last, nil)
	w.requireNoWrites("it has all it had")
	w.requireNothingRefused()
	w.remove(ctx, last, nil)
	assert.ElementsMatch(t, before, w.SourceRanges.Scope.Rules(), "rules are left of the last Service")
}

// closings are the writes of a deletion, and what each of them closes.
type closings struct {
	*world
	service *v1.Service
	// nodes is how many rules there are after each write by which nodes let clients in, and open how many with those for everybody. served is
	// whether the cloud serves still.
	nodes, open []int
	served      []bool
	// others are the rules of nodes that the Service has not brought.
	others int
}

// runClosings: when a Service goes, each opening is closed although another one cannot be, and all are before its load balancer goes.
func runClosings(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	var all closings
	synctest.Test(t, func(t *testing.T) { all = newClosings(t, newFixture); all.watch(0, all.delete) })
	gone := slices.Index(all.served, false)
	require.Positive(t, gone, "the load balancer goes")
	before := all.open[0] - all.open[gone-1] // what is closed before it goes
	if all.SourceRanges.Scope.Nodes != "" || all.SourceRanges.ClosesLater == "" {
		virtual(t, "all is closed before the load balancer goes", func(t *testing.T) { all.requireClosedFirst(t) })
		virtual(t, "all is closed before an orphan goes", func(t *testing.T) {
			c := newClosings(t, newFixture)
			c.watch(0, c.deleteAsOrphan)
			c.requireClosedFirst(t)
			assert.Empty(t, c.Snapshot())
		})
	}
	for k := 1; k < gone; k++ {
		closes := all.open[k-1] - all.open[k]
		if closes == 0 {
			continue
		}
		virtual(t, fmt.Sprintf("closing %d is refused when the Service goes", k), func(t *testing.T) {
			c := newClosings(t, newFixture)
			c.watch(k, c.delete)
			last := len(c.open) - 1
			assert.LessOrEqual(t, c.open[last], all.open[0]-before+closes, "the others are closed: %v", c.open)
			assert.True(t, c.served[last], "the load balancer is there until all is closed")
			c.Sim.ClearFaults()
			c.remove(t.Context(), c.service, nil)
			assert.Empty(t, c.Snapshot())
		})
	}
}

// requireClosedFirst requires that nodes let nobody in any more when the load balancer goes, nor does anything else that can close before.
func (c *closings) requireClosedFirst(t *testing.T) {
	t.Helper()
	gone := slices.Index(c.served, false)
	require.Positive(t, gone, "the load balancer goes")
	assert.Equal(t, c.SourceRanges.Scope.Nodes != "", c.nodes[0] > 0, "nodes let clients in")
	assert.Zero(t, c.nodes[gone-1], "after write %d, before the load balancer goes, nodes let in: %v", gone-1, c.nodes)
	if c.SourceRanges.ClosesLater == "" {
		assert.Zero(t, c.open[gone-1], "after write %d, before the load balancer goes: %v", gone-1, c.open)
	}
}

func newClosings(t *testing.T, newFixture func(t testing.TB) *Fixture) closings {
	t.Helper()
	w, s := newUnserved(t, newFixture)
	c := closings{world: w, service: s}
	c.others = c.countNodeRules()
	w.changeService(t.Context(), s, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("more", 54, 30054)) })
	w.ensure(t.Context(), s, nil)
	time.Sleep(settledIn)
	return c
}

// countNodeRules is how many rules a Service has brought by which nodes let clients in.
func (c *closings) countNodeRules() int {
	n := -c.others
	if prefix := c.SourceRanges.Scope.Nodes; prefix != "" {
		for _, line := range c.SourceRanges.Scope.Rules() {
			if strings.HasPrefix(line, prefix) {
				n++
			}
		}
	}
	return n
}

// runProtected: a load balancer that somebody protects from deletion would outlast its rules. It goes on serving as it did, until nobody
// protects it any more.
func runProtected(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	c := newClosings(t, newFixture)
	c.SourceRanges.Scope.Protect(true)
	time.Sleep(settledIn)
	before := c.Snapshot()
	c.Sim.ResetCalls()
	require.ErrorContains(t, c.delete(), "protect")
	c.requireNoWrites("it is protected")
	assert.Equal(t, before, c.Snapshot())
	c.SourceRanges.Scope.Protect(false)
	time.Sleep(settledIn)
	c.remove(t.Context(), c.service, nil)
	assert.Empty(t, c.Snapshot())
}

// delete asks once for the deletion of the Service.
func (c *closings) delete() error {
	going := c.world.service(c.t.Context(), c.service)
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return c.loadBalancer().EnsureLoadBalancerDeleted(c.t.Context(), clusterName, going)
}

// deleteAsOrphan takes the Service away without the program, and deletes the orphans that it leaves.
func (c *closings) deleteAsOrphan() error {
	ctx := c.t.Context()
	for _, n := range c.world.nodes {
		_, err := c.kube.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
	c.forget(ctx, c.service)
	c.restart()
	found := c.orphans(ctx)
	require.NotEmpty(c.t, found)
	c.deleteOrphans(ctx, found)
	return nil
}

// watch notes what is open at each write of a deletion, of which one write may be refused.
func (c *closings) watch(refused int, remove func() error) {
	count := func() (nodes, open int, served bool) {
		nodes = c.countNodeRules()
		return nodes, nodes + c.countEverybody(c.Snapshot()), len(c.Serves()) > 0
	}
	look := func() {
		nodes, open, served := count()
		c.nodes, c.open, c.served = append(c.nodes, nodes), append(c.open, open), append(c.served, served)
	}
	look()
	if refused > 0 {
		c.failCalls(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Writes: true, From: refused, Count: 1})
	}
	var mu sync.Mutex // calls may be at the same moment
	c.inspect(func(_ string, write bool, _ inspectedCall) func() {
		return func() { // what a write does may show with a later call
			mu.Lock()
			defer mu.Unlock()
			switch last := len(c.open) - 1; {
			case write:
				look()
			case last > 0:
				nodes, open, served := count()
				c.nodes[last], c.open[last], c.served[last] = min(c.nodes[last], nodes), min(c.open[last], open), c.served[last] && served
			}
		}
	})
	defer c.Sim.Inspect(nil)
	_ = remove()
}

package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Writer is somebody who writes rules where those of Services stand.
type Writer string

const (
	// Stranger writes the same rules by hand, without a mark.
	Stranger Writer = "a stranger"
	// OtherCluster writes the same rules, with its own mark.
	OtherCluster Writer = "another cluster"
	// SecondProcess writes the same rules, with our mark.
	SecondProcess Writer = "a second process"
	// Passerby writes a rule about another port.
	Passerby Writer = "a passerby"
)

var writers = []Writer{Stranger, OtherCluster, SecondProcess, Passerby}

// Scope is where the rules of Services stand, as those see it who write there, too.
type Scope struct {
	// Name tells several places of a cloud apart, in which rules stand.
	Name string
	// Rules are all rules there with their marks, a line for each, without what differs from run to run.
	Rules func() []string
	// Nodes begins those of Rules by which nodes let clients in for load balancers. They close before the load balancer goes.
	Nodes string
	// Writes has somebody write rules there: those that Services of this cluster have, or one about another port. Where the cloud takes no
	// rule twice, what is there becomes theirs.
	Writes map[Writer]func()
	// Except is why somebody's rules do not stay, or cannot be there.
	Except map[Writer]string
	// Remove has somebody take away what says who may connect: all of it where the cloud lets it go, else the rules. Missing is what an error
	// or an event says then, where it is not made again.
	Remove  func()
	Missing string
	// Subnet is one of those in which load balancers or nodes are. NoSubnet is why rules do not depend on any.
	Subnet   func() string
	NoSubnet string
	// NeededReads are the reads without which nobody can be shut out: of the load balancer, of what its rules stand in, of the credential.
	NeededReads []string
	// Widen has somebody change the rules of Services for a network by hand, so that they let in everybody.
	Widen func(network string)
	// Meddle makes a Service use a port of another one on the nodes, for example by its health check; nil where Services cannot.
	Meddle func(s, other *v1.Service)
	// Elsewhere are annotations that put a load balancer where it has rules of its own, such as another subnet; nil is the internal one.
	Elsewhere map[string]string
	// Joins is set where a rule that lets in everybody shows no others beside them.
	Joins bool
	// OneFamily is why source ranges cannot be of both families, where Services can.
	OneFamily string
	// NotUDP is why source ranges do not hold for ports of UDP.
	NotUDP string
	// Annotation gives a network to those that may connect, where the Service has no source ranges; nil is Kubernetes' own annotation.
	// NoAnnotation is why none does.
	Annotation   func(network string) (key, value string)
	NoAnnotation string
	// OneClosing is why no several writes, one after the other, close the ports that a load balancer has left.
	OneClosing string
	// Fill has somebody fill what rules stand in, but for some room, until leave is called. Where nobody else's rules stay there, Overflow is
	// a number of source ranges for which it has no room. Full matches what an error or an event says of what has no room. Unfilled is why
	// there is neither.
	Fill     func(room int) (leave func())
	Overflow int
	Full     string
	Unfilled string
	// Protect has somebody protect load balancers from deletion, or take that back. Unprotected is why there is no Protect.
	Protect     func(protected bool)
	Unprotected string
	// Strip deletes load balancers and leaves their rules, where RemoveLoadBalancers is nil.
	Strip func()
	// Unlisted is why rules of a Service that is gone, without its load balancer, are no orphans. Swept is set where they go with the next
	// change of the rules that any Service of the cluster makes.
	Unlisted string
	Swept    bool
}

// annotate is the annotation that gives a network to those that may connect.
func (s Scope) annotate(network string) (key, value string) {
	if s.Annotation != nil {
		return s.Annotation(network)
	}
	return v1.AnnotationLoadBalancerSourceRangesKey, network
}

// runScopes is about rules of others beside those of Services.
func runScopes(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	scope := readFixture(t, newFixture, func(f *Fixture) Scope { return f.SourceRanges.Scope })
	for _, who := range writers {
		if why, is := scope.Except[who]; is {
			require.NotEmpty(t, why)
			continue
		}
		for _, restart := range []bool{false, true} {
			virtual(t, fmt.Sprintf("rules of %s, restart %t", who, restart), func(t *testing.T) { runOthersRules(t, newFixture, who, restart) })
		}
	}
	runMeanwhile(t, newFixture)
	for _, restart := range []bool{false, true} {
		virtual(t, fmt.Sprintf("somebody widens our rules, restart %t", restart), func(t *testing.T) { runRulesWidened(t, newFixture, restart) })
		name := fmt.Sprintf("somebody takes the rules away, restart %t", restart)
		virtual(t, name, func(t *testing.T) { runRulesRemoved(t, newFixture, restart, sourceRange) })
		if !restart || triesAll(t, newFixture) {
			virtual(t, name+", without source ranges", func(t *testing.T) { runRulesRemoved(t, newFixture, restart) })
		}
	}
	fills := scope.Fill != nil || scope.Overflow > 0
	require.Equal(t, !fills, scope.Unfilled != "", "somebody fills what rules stand in, or the fixture says why not")
	require.Equal(t, fills, scope.Full != "")
	if scope.Fill != nil {
		virtual(t, "what rules stand in is full", func(t *testing.T) { runFullScope(t, newFixture) })
	} else if fills {
		virtual(t, "what rules stand in is full", func(t *testing.T) { runOverflow(t, newFixture) })
	}
	virtual(t, "rules outlast their load balancer and their Service", func(t *testing.T) { runOrphanRules(t, newFixture) })
}

// othersRules are rules of somebody else's beside those of a Service.
type othersRules struct {
	*world
	service *v1.Service
	// before are the rules without the Service, and theirs what somebody else wrote.
	before, theirs []string
}

func newOthersRules(t *testing.T, newFixture func(t testing.TB) *Fixture) *othersRules {
	t.Helper()
	w, s := newUnserved(t, newFixture)
	require.NotNil(t, w.SourceRanges.Scope.Rules, "the fixture says where the rules stand")
	return &othersRules{world: w, service: s, before: w.SourceRanges.Scope.Rules()}
}

// write has somebody write rules.
func (o *othersRules) write(who Writer) {
	is := o.SourceRanges.Scope.Rules()
	write := o.SourceRanges.Scope.Writes[who]
	require.NotNil(o.t, write, "the fixture says how %s writes rules", who)
	write()
	o.theirs = append(o.theirs, subtractLines(o.SourceRanges.Scope.Rules(), is)...)
}

// ownRules are the rules that neither were there before nor are somebody else's, of which none may be missing.
func (o *othersRules) ownRules(when string) []string {
	all := o.SourceRanges.Scope.Rules()
	assert.Empty(o.t, subtractLines(o.theirs, all), "%s, rules of others are missing", when)
	return slices.Sorted(slices.Values(subtractLines(subtractLines(all, o.before), o.theirs)))
}

// subtractLines are the lines that others do not have, as often as there are more of them.
func subtractLines(lines, others []string) (more []string) {
	others = slices.Clone(others)
	for _, line := range lines {
		if at := slices.Index(others, line); at >= 0 {
			others = slices.Delete(others, at, at+1)
			continue
		}
		more = append(more, line)
	}
	return more
}

// runOthersRules: rules that somebody else wrote stay when a Service with the same ones is narrowed and goes, whether they were there
// first or not. Rules of our own go with the Service, however many there are.
func runOthersRules(t *testing.T, newFixture func(t testing.TB) *Fixture, who Writer, restart bool) {
	t.Helper()
	ctx := t.Context()
	o := newOthersRules(t, newFixture)
	o.setRanges(o.service, sourceRange, otherRange)
	o.write(who)
	require.NotEmpty(t, o.theirs, "%v", o.SourceRanges.Scope.Rules())
	time.Sleep(settledIn)
	if who == SecondProcess {
		o.theirs = nil // they are ours
	}
	for _, order := range []string{"written later", "written earlier"} {
		if restart {
			o.restart()
		}
		o.ensure(ctx, o.service, nil)
		o.setRanges(o.service, sourceRange)
		assert.NotContains(t, strings.Join(o.ownRules(order+" and narrowed"), "\n"), otherRange, order)
		o.remove(ctx, o.service, nil)
		assert.Empty(t, o.ownRules(order+" and removed"), "%s: rules are left", order)
		o.changeService(ctx, o.service, func(s *v1.Service) { s.Annotations, s.Status = o.service.DeepCopy().Annotations, v1.ServiceStatus{} })
		o.setRanges(o.service, sourceRange, otherRange)
	}
	o.remove(ctx, o.service, nil)
	assert.Empty(t, o.ownRules("at the end"), "rules are left")
	o.requireNothingRefused()
}

// runRulesWidened: somebody widens rules of ours by hand. They are put right with the next reconciliation, and rules of others stay.
func runRulesWidened(t *testing.T, newFixture func(t testing.TB) *Fixture, restart bool) {
	t.Helper()
	ctx := t.Context()
	o := newOthersRules(t, newFixture)
	o.setRanges(o.service, sourceRange)
	once, scope := o.ownRules("at first"), o.SourceRanges.Scope
	if scope.Except[Passerby] == "" {
		o.write(Passerby)
	}
	time.Sleep(settledIn)
	require.NotNil(t, scope.Widen, "the fixture says how rules are changed by hand")
	scope.Widen(sourceRange)
	assert.NotEqual(t, once, o.ownRules("widened"), "somebody has widened them")
	if restart {
		o.restart()
	}
	time.Sleep(settledIn)
	o.ensure(ctx, o.service, nil)
	time.Sleep(time.Minute) // what the cloud goes on with by itself
	assert.Equal(t, once, o.ownRules("after a reconciliation"), "they are put right")
	o.Sim.ResetCalls()
	o.ensure(ctx, o.service, nil)
	o.requireNoWrites("they are right")
	o.remove(ctx, o.service, nil)
	assert.Empty(t, o.ownRules("at the end"), "rules are left")
}

// runRulesRemoved: somebody takes away what says who may connect. It is there again after the next reconciliation, or an error or an event
// says what is missing; the Service can go. Without source ranges nothing is narrowed, and nothing read for that.
func runRulesRemoved(t *testing.T, newFixture func(t testing.TB) *Fixture, restart bool, ranges ...string) {
	t.Helper()
	ctx := t.Context()
	o := newOthersRules(t, newFixture)
	o.setRanges(o.service, ranges...)
	time.Sleep(settledIn)
	scope, once := o.SourceRanges.Scope, o.Snapshot()
	require.NotNil(t, scope.Remove, "the fixture says how rules are taken away")
	scope.Remove()
	if restart {
		o.restart()
	}
	time.Sleep(settledIn)
	err := o.ensureToEnd(ctx, o.service)
	if scope.Missing == "" {
		require.NoError(t, err)
		time.Sleep(time.Minute) // what the cloud goes on with by itself
		assert.Equal(t, once, o.Snapshot(), "it is as it was")
	} else {
		assert.Regexp(t, scope.Missing, fmt.Sprint(err, "\n", strings.Join(o.warnings(ctx, o.service), "\n")), "nobody is told")
	}
	o.remove(ctx, o.service, nil)
	assert.Empty(t, o.ownRules("at the end"), "rules are left")
}

// runFullScope: somebody fills what rules stand in. A Service is narrowed all the same, to as many as there is room for; what has none is
// told, nothing else is lost, and all is there when there is room again.
func runFullScope(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	ctx := t.Context()
	o := newOthersRules(t, newFixture)
	o.ensure(ctx, o.service, nil)
	had, leave := o.ownRules("at first"), o.fill(0)
	o.changeService(ctx, o.service, func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, Port("more", 54, 30054)) })
	told := o.tell(ctx)
	more := o.ownRules("with a port more")
	assert.Empty(t, subtractLines(had, more), "rules are lost for want of room: %s", told)
	leave()
	o.theirs = nil
	o.ensure(ctx, o.service, nil)
	all := o.ownRules("with room for a port more")
	missing := subtractLines(all, more)
	o.requireTold(told, more, all)

	open := o.countEverybody(o.Snapshot())
	leave = o.fill(5)
	ranges := []string{sourceRange}
	for n := range 11 {
		ranges = append(ranges, fmt.Sprintf("10.20.%d.0/24", 2*n)) // which no cloud joins
	}
	o.changeService(ctx, o.service, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
	told = o.tell(ctx)
	state, narrowed := o.Snapshot(), o.ownRules("narrowed")
	assert.Less(t, o.countEverybody(state), open, "everybody may still connect: %s\n%s", told, state)
	lets := func(network string) bool { return strings.Contains(state, network) }
	assert.True(t, slices.ContainsFunc(ranges, lets), "nobody may connect: %s\n%s", told, state)
	leave()
	o.theirs = nil
	o.ensure(ctx, o.service, nil)
	all = o.ownRules("narrowed, with room")
	assert.NotEmpty(t, append(missing, subtractLines(all, narrowed)...), "there was room for everything")
	o.requireTold(told, narrowed, all)
	o.remove(ctx, o.service, nil)
	assert.Empty(t, o.ownRules("at the end"), "rules are left")
}

// runOverflow: a Service asks for more source ranges than there is room for. Whom it does not ask for is shut out, of the others nobody who
// gets in, and what has no room is told.
func runOverflow(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	ctx := t.Context()
	o := newOthersRules(t, newFixture)
	o.setRanges(o.service, "10.0.0.0/8", otherRange)
	ranges := []string{sourceRange}
	for n := range o.SourceRanges.Scope.Overflow {
		ranges = append(ranges, fmt.Sprintf("10.%d.%d.0/24", n/250, n%250))
	}
	o.changeService(ctx, o.service, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })
	told, state := o.tell(ctx), o.Snapshot()
	assert.Regexp(t, o.SourceRanges.Scope.Full, told, "nobody is told")
	assert.NotContains(t, state, otherRange, "former clients may still connect: %s", told)
	assert.NotContains(t, state, "10.0.0.0/8", "former clients may still connect: %s", told)
	assert.Contains(t, state, "10.0.1.0/24", "nobody may connect: %s", told)
	o.setRanges(o.service, sourceRange)
	assert.NotContains(t, o.Snapshot(), "10.0.1.0/24")
	o.remove(ctx, o.service, nil)
	assert.Empty(t, o.ownRules("at the end"), "rules are left")
}

// fill has somebody fill what rules stand in.
func (o *othersRules) fill(room int) (leave func()) {
	is := o.SourceRanges.Scope.Rules()
	leave = o.SourceRanges.Scope.Fill(room)
	o.theirs = subtractLines(o.SourceRanges.Scope.Rules(), is)
	time.Sleep(settledIn)
	return leave
}

// tell reconciles a Service and returns what is said about it.
func (o *othersRules) tell(ctx context.Context) string {
	err := o.ensureToEnd(ctx, o.service)
	return fmt.Sprint(err, "\n", strings.Join(o.warnings(ctx, o.service), "\n"))
}

// requireTold demands that what has no room was told, where not all rules were there.
func (o *othersRules) requireTold(told string, rules, all []string) {
	o.t.Helper()
	if len(subtractLines(all, rules)) > 0 {
		assert.Regexp(o.t, o.SourceRanges.Scope.Full, told, "nobody is told of %v", subtractLines(all, rules))
	}
}

// runOrphanRules: a load balancer is deleted by hand, and its Service without the program. What it has left of rules is an orphan.
func runOrphanRules(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	ctx := t.Context()
	o := newOthersRules(t, newFixture)
	o.setRanges(o.service, sourceRange)
	strip := o.SourceRanges.Scope.Strip
	if strip == nil {
		strip = o.RemoveLoadBalancers
	}
	require.NotNil(t, strip, "the fixture says how a load balancer goes without its rules")
	strip()
	o.forget(ctx, o.service)
	time.Sleep(settledIn)
	o.restart()
	left, found := o.ownRules("after the load balancer"), o.orphans(ctx)
	o.deleteOrphans(ctx, found)
	if o.SourceRanges.Scope.Unlisted == "" {
		assert.True(t, len(left) == 0 || len(found) > 0, "there are no orphans, and it leaves %v", left)
		assert.Empty(t, o.ownRules("at the end"), "rules are left")
		return
	}
	assert.NotEmpty(t, o.ownRules("at the end"), "they are listed: the fixture says that they are not")
	if o.SourceRanges.Scope.Swept {
		o.sweepRules()
		assert.Empty(t, o.ownRules("after another Service"), "rules are left")
	}
}

// sweepRules has a Service come and go, which takes along what is left of others.
func (w *world) sweepRules() {
	ctx, next := w.t.Context(), claimer(Case{Service: featureService(w.SourceRanges.With)})
	w.createService(ctx, next)
	w.ensure(ctx, next, nil)
	w.remove(ctx, next, nil)
}

// forget deletes a Service from the API server, as somebody does who takes its finalizer off.
func (w *world) forget(ctx context.Context, s *v1.Service) {
	err := w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
	if w.SourceRanges.Settles == 0 || !apierrors.IsNotFound(err) { // it may be gone with its load balancer
		require.NoError(w.t, err)
	}
	w.show()
	w.SourceRanges.settle()
}

// accessSteps change who may connect, from the creation of a Service to its end.
func (o *othersRules) accessSteps() []func() {
	ctx := o.t.Context()
	set := func(ports int, ranges ...string) func() {
		return func() {
			o.changeService(ctx, o.service, func(s *v1.Service) {
				s.Spec.Ports = append(s.Spec.Ports[:1], []v1.ServicePort{Port("more", 54, 30054)}[:ports]...)
				s.Spec.LoadBalancerSourceRanges = ranges
			})
			o.ensure(ctx, o.service, func() {})
		}
	}
	return []func(){
		set(0, sourceRange, otherRange), set(0, sourceRange), set(1, otherRange, sourceRange), set(0, otherRange), set(0),
		func() { o.remove(ctx, o.service, func() {}) },
	}
}

// live takes the steps and returns our rules and all that is there after each.
func (o *othersRules) live() (rules [][]string, states []string) {
	for n, step := range o.accessSteps() {
		step()
		time.Sleep(time.Minute) // what the cloud goes on with by itself
		rules, states = append(rules, o.ownRules(fmt.Sprint("after step ", n+1))), append(states, o.Snapshot())
	}
	return rules, states
}

// maxMoreWrites is how many writes one that failed costs at most: itself, and what is written again with it.
const maxMoreWrites = 5

// runMeanwhile: a write that changes who may connect is refused once or loses its answer, or somebody writes a rule right before it. The
// end of each step is as if nothing had happened, and nothing of the other's is lost.
func runMeanwhile(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	var rules [][]string
	var states []string
	var scope Scope
	writes := 0
	synctest.Test(t, func(t *testing.T) {
		o := newOthersRules(t, newFixture)
		o.Sim.ResetCalls()
		rules, states = o.live()
		scope, writes = o.SourceRanges.Scope, o.Sim.Calls().Writes
		assert.Empty(t, rules[len(rules)-1], "rules are left of the last Service")
	})
	fails := func(fault simkit.Fault) func(o *othersRules, write int) {
		return func(o *othersRules, write int) {
			once := fault // the lives run at the same time
			once.Writes, once.From, once.Count = true, write, 1
			o.failCalls(once)
			o.Sim.ResetCalls()
			_, is := o.live()
			assert.Equal(o.t, states, is, "it ends otherwise than without the failure")
			assert.LessOrEqual(o.t, o.Sim.Calls().Writes, writes+maxMoreWrites, "writes are repeated in vain: %v", o.Sim.Calls().ByOperation)
		}
	}
	ways := []struct {
		name string
		run  func(o *othersRules, write int)
	}{
		{"write %d is refused once", fails(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusBadRequest})},
		{"write %d loses its answer", fails(simkit.Fault{Kind: simkit.FaultLost})},
		{"somebody writes a rule right before write %d", func(o *othersRules, write int) {
			o.beforeWrite(write, func() { o.write(Passerby) })
			is, _ := o.live()
			assert.Equal(o.t, rules, is, "our rules end otherwise than without those of others")
			assert.NotEmpty(o.t, o.theirs)
		}},
	}
	if scope.Except[Passerby] != "" {
		ways = ways[:2]
	}
	all := triesAll(t, newFixture)
	for k := range writes {
		for n, way := range ways {
			if all || n == k%len(ways) {
				virtual(t, fmt.Sprintf(way.name, k+1), func(t *testing.T) { way.run(newOthersRules(t, newFixture), k+1) })
			}
		}
	}
}

// beforeWrite has something done right before the cloud carries out a write, counted from 1.
func (w *world) beforeWrite(number int, do func()) {
	count := 0
	w.inspect(func(_ string, write bool, _ inspectedCall) func() {
		if write {
			if count++; count == number {
				do()
			}
		}
		return nil
	})
}

// newUnserved prepares a Service whose source ranges are to be tried.
func newUnserved(t *testing.T, newFixture func(t testing.TB) *Fixture) (*world, *v1.Service) {
	t.Helper()
	f := newFixture(t)
	if f.SourceRanges.Prepare != nil {
		f.SourceRanges.Prepare()
	}
	w, s := newWorld(t, f), featureService(f.SourceRanges.With)
	w.addNode(t.Context(), "worker-1", nil)
	w.createService(t.Context(), s)
	return w, s
}

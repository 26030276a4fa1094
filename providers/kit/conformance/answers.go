package conformance

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// hostile are answers that no healthy cloud gives: whoever believes them loses nodes or load balancers, or hands the
// credential to a stranger.
var hostile = []string{simkit.FaultNull, simkit.FaultRedirect, simkit.FaultEndless}

// maxAsked is how many calls two questions about a Node may cost whatever is answered; a listing without an end makes as many as
// there is time for.
const maxAsked = 60

// runHostileAnswers: nothing crashes, nothing is deleted, no other host is asked, and afterwards the work goes on.
func runHostileAnswers(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	nodes, loadBalancers := readFixture(t, newFixture, (*Fixture).hasNodes), readFixture(t, newFixture, (*Fixture).hasLoadBalancers)
	virtual(t, "an endpoint without TLS", func(t *testing.T) { runInsecureEndpoint(t, newFixture(t)) })
	for _, kind := range hostile {
		if loadBalancers {
			virtual(t, kind+" while a Service is changed", func(t *testing.T) { runHostileAnswer(t, newFixture(t), kind) })
		}
		if !nodes {
			continue
		}
		virtual(t, kind+" while a Node is asked for", func(t *testing.T) {
			w := newWorld(t, newFixture(t))
			node := w.addNode(t.Context(), "worker", nil)
			w.beginHostile(kind)
			for range 3 {
				w.restart()
				w.Sim.ResetCalls()
				exists, err := w.instances().InstanceExists(t.Context(), node)
				assert.True(t, exists || err != nil, "an answer or an error, but never gone") // a single read may be answered well
				w.requireNoCrash(err)
				_, err = w.instances().InstanceMetadata(t.Context(), bareNode("worker"))
				w.requireNoCrash(err)
				assert.LessOrEqual(t, w.Sim.Calls().Total, maxAsked, "what leads nowhere is given up")
			}
			w.endHostile()
			w.requireExists(node, true)
		})
	}
}

// loopback matches the beginning of the URL of a simulator.
var loopback = regexp.MustCompile(`https?://127\.0\.0\.1\b`)

// runInsecureEndpoint: no credential goes to an endpoint without TLS, unless the operator allows it.
func runInsecureEndpoint(t *testing.T, f *Fixture) {
	t.Helper()
	inputs, allowed := f.Inputs, false
	elsewhere := func(text string) string { return loopback.ReplaceAllString(text, "http://192.0.2.1") }
	f.Inputs = func() registry.Inputs {
		in := inputs()
		lookup := in.LookupEnv
		in.File, in.AllowInsecureEndpoints = []byte(elsewhere(string(in.File))), allowed
		in.LookupEnv = func(name string) (string, bool) {
			if lookup == nil {
				return "", false
			}
			value, is := lookup(name)
			return elsewhere(value), is
		}
		return in
	}
	_, err := f.open(trustingPolicy)
	require.ErrorContains(t, err, schema.FlagAllowInsecureEndpoints, "the credential would go to an endpoint without TLS")
	assert.Empty(t, f.Network.Strangers(), "nobody is asked")
	allowed = true
	_, err = f.open(trustingPolicy)
	require.NoError(t, err)
}

func runHostileAnswer(t *testing.T, f *Fixture, kind string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[sortedKeys(w.Services)[0]]
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	held := w.Snapshot()
	w.beginHostile(kind)
	for range 3 {
		w.restart()
		_, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, c.Service))
		require.Error(t, err, "nobody knows whether there is a load balancer: %t", exists)
		w.requireNoCrash(err)
		_, err = w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes)
		w.requireNoCrash(err)
		if kind == simkit.FaultRedirect {
			require.ErrorContains(t, err, simkit.ElsewhereHost, "the error names the host")
		}
		w.requireNoCrash(w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes))
		time.Sleep(firstServicePause)
	}
	w.endHostile()
	w.ensure(ctx, c.Service, nil)
	assert.Equal(t, held, w.Snapshot(), "nothing is lost, nothing is there twice")
	w.changeService(ctx, c.Service, c.Change)
	w.ensure(ctx, c.Service, nil)
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
}

// beginHostile puts a kind of answer in force for all calls. Each takes long, for an endless listing is read until its time is up.
func (w *world) beginHostile(kind string) {
	w.Sim.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(500 * time.Millisecond) })
	w.failCalls(simkit.Fault{Kind: kind})
}

func (w *world) endHostile() {
	w.Sim.ClearFaults()
	assert.Empty(w.t, w.Network.Strangers(), "nobody else is asked")
	time.Sleep(time.Minute) // what was remembered of the failures is forgotten
}

// requireNoCrash: an error is an answer, or progress; a panic is neither, nor what says of itself that it comes from one.
func (w *world) requireNoCrash(err error) {
	w.t.Helper()
	if err == nil {
		return
	}
	require.NotErrorIs(w.t, err, rescue.ErrCrashed)
	for _, trace := range crashTexts {
		assert.NotContains(w.t, err.Error(), trace)
	}
}

// crashTexts occur in errors that were panics of this program or of Go's runtime.
var crashTexts = []string{"this is a bug", "panic", "runtime error", "nil pointer", "index out of range"}

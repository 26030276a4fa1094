package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// Left is a Service as the cloud's own controller leaves it.
type Left struct {
	// Leave makes in the cloud what that controller makes for nodes, and returns the Service with all that it writes on it.
	Leave func(nodes []*v1.Node) *v1.Service
	// Writes is why the takeover writes; "" where it does not.
	Writes string
	// Stays is the reason of the event about what outlives the Service; "" where nothing does.
	Stays string
}

// Leave makes a Service as the cloud's own controller leaves it.
func (p *Play) Leave(l Left) { p.Create(l.Leave(p.w.nodes)) }

// Send makes a call of the cloud as somebody else makes it, and returns the answer's body.
func (f *Fixture) Send(t testing.TB, method, url, token, body string) (answer map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewBufferString(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DialContext: f.Network.Dial, DisableKeepAlives: true}}
	got, err := client.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, got.Body.Close()) }()
	require.NoError(t, json.NewDecoder(got.Body).Decode(&answer))
	require.Less(t, got.StatusCode, http.StatusBadRequest, "%v", answer)
	return answer
}

// laterChanges lists what happens to a Service between its takeover and its end. The fast tier leaves out what is a part of another one.
var laterChanges = []struct {
	what    string
	fast    bool
	changes []func(*v1.Service)
}{
	{"deleted", false, nil},
	{"narrowed and deleted", false, []func(*v1.Service){narrowSources}},
	{"narrowed, opened and deleted", true, []func(*v1.Service){narrowSources, openSources}},
	{"moved and deleted", false, []func(*v1.Service){movePort}},
	{"moved, narrowed and deleted", true, []func(*v1.Service){movePort, narrowSources}},
	{"narrowed, moved and deleted", false, []func(*v1.Service){narrowSources, movePort}},
	{"led to another node port and deleted", true, []func(*v1.Service){moveNodePort}},
	{"given a port, which goes, deleted", true, []func(*v1.Service){addPort, removePort}},
	{"changed at one moment and deleted", true, []func(*v1.Service){func(s *v1.Service) { narrowSources(s); movePort(s); moveNodePort(s) }}},
}

func narrowSources(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{sourceRange} }
func openSources(s *v1.Service)   { s.Spec.LoadBalancerSourceRanges = nil }
func movePort(s *v1.Service)      { s.Spec.Ports[0].Port += 8000 }
func moveNodePort(s *v1.Service)  { s.Spec.Ports[0].NodePort += 1000 }
func addPort(s *v1.Service)       { s.Spec.Ports = append(s.Spec.Ports, Port("more", 5400, 30054)) }
func removePort(s *v1.Service)    { s.Spec.Ports = s.Spec.Ports[:len(s.Spec.Ports)-1] }

// fewLeft is how many kinds the fast tier tries with a second cluster.
const fewLeft = 2

// runTakenOver: what the cloud's own controller made is taken over as it is, changed by ours, and deleted: nothing of it is left.
func runTakenOver(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all, names := triesAll(t, newFixture), readFixture(t, newFixture, func(f *Fixture) []string { return sortedKeys(f.TakenOver) })
	for n, name := range names {
		if all || n < fewLeft {
			virtual(t, fmt.Sprintf("another cluster of the same name has %s", name), func(t *testing.T) { runLeftElsewhere(t, newFixture(t), name) })
		}
	}
	for _, name := range names {
		for _, later := range laterChanges {
			for _, restart := range []bool{false, true} {
				if !all && (!later.fast || restart != (len(later.changes) > 1)) {
					continue
				}
				virtual(t, fmt.Sprintf("%s is %s, restart %t", name, later.what, restart), func(t *testing.T) {
					runLeft(t, newFixture(t), name, later.changes, restart)
				})
			}
		}
	}
}

// runLeftElsewhere: a cluster that has the name of another one gets a copy of a Service of there, which the cloud's own controller serves.
// What that controller made stays as it is, whether the copy is served or not, and when it goes.
func runLeftElsewhere(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx, w := t.Context(), newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	theirs := f.TakenOver[name].Leave(w.nodes)
	before := w.Snapshot()
	w.kube, w.nodes = newKube("cluster-2"), nil
	w.addNode(ctx, "worker-2", nil)
	w.shown = w.nodes
	s := theirs.DeepCopy()
	s.UID, s.Status = "9d1f6b52-7a66-4b58-8b4b-0a61c1f9e0b2", v1.ServiceStatus{}
	w.createService(ctx, s)
	w.restart()
	for range 3 {
		_ = w.ensureToEnd(ctx, s)
		time.Sleep(stepPause)
	}
	w.restart()
	assert.True(t, w.goesAnyhow(ctx, s), "it does not go")
	if w.SharedByName != "" {
		assert.Empty(t, subtractLines(strings.Split(before, "\n"), strings.Split(w.Snapshot(), "\n")), "nothing of it goes")
		return
	}
	assert.Equal(t, before, w.Snapshot())
}

// runLeft: restart has each change met by a program that has just begun.
func runLeft(t *testing.T, f *Fixture, name string, changes []func(*v1.Service), restart bool) {
	t.Helper()
	ctx, c := t.Context(), f.TakenOver[name]
	w := newWorld(t, f)
	w.addNode(ctx, "worker-1", nil)
	before := w.Snapshot()
	s := c.Leave(w.nodes)
	w.shown = w.nodes // they tell whose a load balancer is
	w.createService(ctx, s)
	w.restart()
	w.Sim.ResetCalls()
	w.ensure(ctx, s, nil)
	assert.Equal(t, c.Writes != "", w.Sim.Calls().Writes > 0, "the takeover: %v", w.Sim.Calls().ByOperation)
	for _, change := range changes {
		time.Sleep(stepPause)
		if restart {
			w.restart()
		}
		w.changeService(ctx, s, change)
		w.ensure(ctx, s, nil)
	}
	narrow := slices.Equal(w.service(ctx, s).Spec.LoadBalancerSourceRanges, []string{sourceRange})
	if narrow && f.Provider.Features.SourceRanges == registry.Done {
		assert.Zero(t, w.countEverybody(w.Snapshot()), "everybody may connect: %s", w.Snapshot())
	}
	time.Sleep(stepPause)
	if restart {
		w.restart()
	}
	w.remove(ctx, s, nil)
	w.requireNothingRefused()
	if c.Stays == "" {
		assert.Equal(t, before, w.Snapshot(), "something is left")
		return
	}
	assert.NotEqual(t, before, w.Snapshot(), "all is gone")
	w.requireTold(s, c.Stays)
}

// requireTold: an event of a Service with this reason tells of what the cloud has.
func (w *world) requireTold(s *v1.Service, reason string) {
	w.t.Helper()
	is := func(e v1.Event) bool { return e.Reason == reason }
	assert.True(w.t, slices.ContainsFunc(w.events(w.t.Context(), s), is), "no event %q tells of this: %s", reason, w.Snapshot())
}

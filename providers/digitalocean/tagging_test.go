package digitalocean

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

func (w *world) tagging() *tagging {
	return &tagging{tag: "k8s:late", api: w.api, owners: w.loadBalancers.owners, services: w.Services()}
}

// tags of each load balancer, by name, as the tags resource of the API knows them.
func (w *world) tagged() []string {
	var state struct {
		Tags map[string][]string `json:"tags"`
	}
	require.NoError(w.T, json.Unmarshal(w.sim.State(), &state))
	return state.Tags["k8s:late"]
}

func TestTagLoop(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	loop := w.tagging()
	w.server.ResetCalls()
	w.Apply(nodePortService(nil, port("http", 80, 30080)))
	require.NoError(t, loop.run(t.Context()))
	assert.Zero(t, w.server.Calls().Total, "no Service of type LoadBalancer, no call")

	unserved := aged(service("", nil, port("http", 80, 30080)), "unserved", 1)
	w.Apply(unserved)
	require.NoError(t, loop.run(t.Context()))
	assert.Zero(t, w.server.Calls().Writes, "nothing to tag")

	byID := aged(service("", nil, port("http", 80, 30081)), "by-id", 2)
	byName := aged(service("", map[string]string{annotationName: "custom"}, port("http", 80, 30082)), "by-name", 3)
	foreign := aged(service("", nil, port("http", 80, 30083)), "foreign", 4)
	w.Apply(byID, byName, foreign)
	byID, _ = w.ensure(byID)
	w.ensure(byName)
	w.ensure(foreign)
	w.sim.ChangeLoadBalancer(byID.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) { lb.Name = "renamed-by-hand" })
	forgetful := w.Current(byName).DeepCopy()
	delete(forgetful.Annotations, annotationID)
	other := w.Current(foreign).DeepCopy()
	other.Spec.LoadBalancerClass = new("example.com/other")
	w.Apply(forgetful, other)
	w.restart()
	loop = w.tagging()
	w.server.ResetCalls()
	require.NoError(t, loop.run(t.Context()))
	assert.Len(t, w.tagged(), 2, "by ID although it was renamed, and by name; not another controller's")
	assert.Equal(t, map[string]int{"GET /v2/load_balancers": 1, "POST /v2/tags/{name}/resources": 2, "POST /v2/tags": 1}, w.server.Calls().ByOperation,
		"the tag did not exist; both are tagged in one call")

	w.server.ResetCalls()
	require.NoError(t, loop.run(t.Context()))
	assert.Zero(t, w.server.Calls().Writes, "they are tagged already")
}

func TestTagLoopFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		operation string
		calls     int
	}{
		"listing":  {"GET /v2/load_balancers", 0},
		"tagging":  {"POST /v2/tags/{name}/resources", 1},
		"creation": {"POST /v2/tags$", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			w.ensure(s)
			w.restart()
			w.server.ResetCalls()
			id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: c.operation})
			require.NoError(t, err)
			loop := w.tagging()
			require.Error(t, loop.run(t.Context()))
			assert.Equal(t, c.calls, w.server.Calls().Writes)
			w.server.RemoveFault(id)
			require.NoError(t, loop.run(t.Context()))
			assert.Len(t, w.tagged(), 1)
		})
	}
}

// TestTagLoopLeavesOthersAlone: a load balancer with the mark of another cluster is not ours to tag.
func TestTagLoopLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) { lb.Tags = []string{"anyccm:another-cluster"} })
	w.restart()
	require.NoError(t, w.tagging().run(t.Context()))
	assert.Empty(t, w.tagged())
}

// TestTagLoopLeavesDisownedAlone: a load balancer whose Service disowns it gets no tag.
func TestTagLoopLeavesDisownedAlone(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{contract.AnnotationDisown, annotationDisown} {
		w := lbWorld(t)
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		s, _ = w.ensure(s)
		s = s.DeepCopy()
		s.Annotations[annotation] = "true"
		w.Apply(s)
		w.restart()
		require.NoError(t, w.tagging().run(t.Context()))
		assert.Empty(t, w.tagged(), annotation)
	}
}

package conformance

import (
	"context"
	"slices"
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

func runLoadBalancers(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		virtual(t, name, func(t *testing.T) { runLifeCycle(t, newFixture(t), name) })
	}
	virtual(t, "a change of nodes creates nothing", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		w.addNode(t.Context(), "worker", nil)
		c := w.Services[sortedKeys(w.Services)[0]]
		w.createService(t.Context(), c.Service)
		w.Sim.ResetCalls()
		require.NoError(t, w.loadBalancer().UpdateLoadBalancer(t.Context(), clusterName, w.service(t.Context(), c.Service), w.nodes))
		w.requireNoWrites("the Service was never ensured")
	})
	if readFixture(t, newFixture, (*Fixture).hasNodes) {
		virtual(t, "an instance goes while its Node stays", func(t *testing.T) { runLostInstance(t, newFixture(t)) })
	}
	if readFixture(t, newFixture, func(f *Fixture) bool { return f.hasNodes() && f.Serves != nil }) {
		runUnknownNodes(t, newFixture)
	}
	for _, name := range readFixture(t, newFixture, serviceNames) {
		virtual(t, "plan shows before and after: "+name, func(t *testing.T) { runPlan(t, newFixture(t), name) })
	}
	if readFixture(t, newFixture, (*Fixture).outside) {
		virtual(t, "plan shows a port before and after", func(t *testing.T) { runPlanOfPort(t, newFixture(t)) })
		runOtherClusters(t, newFixture)
	}
	virtual(t, "ensure, update and delete at once", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		ctx := t.Context()
		w.addNode(ctx, "worker-1", nil)
		c := w.Services[sortedKeys(w.Services)[0]]
		w.createService(ctx, c.Service)
		w.ensure(ctx, c.Service, nil)
		w.addNode(ctx, "worker-2", nil)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				_, _ = w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes)
			})
			group.Go(func() {
				_ = w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes[:1])
			})
		}
		group.Wait()
		w.ensure(ctx, c.Service, nil)
		w.Sim.ResetCalls()
		w.ensure(ctx, c.Service, nil)
		w.requireNoWrites("the last word is the whole set of nodes")
		w.remove(ctx, c.Service, nil)
		assert.Empty(t, w.Snapshot())
	})
}

// runLifeCycle takes a Service from creation to deletion.
func runLifeCycle(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)

	_, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, c.Service))
	require.NoError(t, err)
	require.False(t, exists)

	status := w.ensure(ctx, c.Service, nil)
	require.NotEmpty(t, status.Ingress)
	w.requireNothingRefused()
	created := w.Snapshot()

	w.Sim.ResetCalls()
	again := w.ensure(ctx, c.Service, nil)
	assert.Equal(t, status, again)
	w.requireNoWrites("nothing changed")

	w.restart()
	w.Sim.ResetCalls()
	assert.Equal(t, status, w.ensure(ctx, c.Service, nil))
	w.requireNoWrites("a restart changes nothing")

	w.addNode(ctx, "worker-2", nil)
	w.update(ctx, c.Service, nil)
	assert.Equal(t, w.outside(), created != w.Snapshot(), "the node joined, which an address does not show")
	w.Sim.ResetCalls()
	w.update(ctx, c.Service, nil)
	w.ensure(ctx, c.Service, nil)
	w.requireNoWrites("the node is there already")

	w.nodes = w.nodes[:1]
	w.update(ctx, c.Service, nil)
	assert.Equal(t, created, w.Snapshot(), "the node left")

	w.changeService(ctx, c.Service, c.Change)
	status = w.statusAfter(status, w.ensure(ctx, c.Service, nil))
	assert.NotEqual(t, created, w.Snapshot())
	w.Sim.ResetCalls()
	w.ensure(ctx, c.Service, nil)
	w.requireNoWrites("the change is applied already")
	w.requireShown(ctx, c.Service, status)
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot(), "nothing is left")
	w.remove(ctx, c.Service, nil)
	w.restart()
	_, exists, err = w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, c.Service))
	require.NoError(t, err)
	assert.False(t, exists)
	w.requireNothingRefused()
}

// requireShown asks often enough to see that no order in the cloud's answers is that of the status.
func (w *world) requireShown(ctx context.Context, service *v1.Service, status *v1.LoadBalancerStatus) {
	w.t.Helper()
	for range 10 {
		got, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, service))
		require.NoError(w.t, err)
		require.True(w.t, exists)
		require.Equal(w.t, status, got)
		time.Sleep(time.Minute) // what was read lately may be used again
	}
}

// statusAfter is the status that a Service has after its own change: that of before, unless an address is all that can change.
func (w *world) statusAfter(before, after *v1.LoadBalancerStatus) *v1.LoadBalancerStatus {
	if w.outside() {
		return before
	}
	return after
}

// runLostInstance: the guard may keep the Node of an instance that is gone for long. Its load balancers must go on being
// changed meanwhile, though clouds refuse backends that do not exist. Where backends are known by address alone, the lost one
// stays until its Node goes, for the health checks to find; elsewhere it goes with the instance.
func runLostInstance(t *testing.T, f *Fixture) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[sortedKeys(w.Services)[0]]
	w.addNode(ctx, "worker-1", nil)
	alone := w.changedState(ctx, c)
	lost := w.addNode(ctx, "worker-2", nil)
	both := w.changedState(ctx, c)
	require.NotEqual(t, alone, both, "the state shows the backends")

	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	unchanged := w.Snapshot()
	w.RemoveInstance(lost.Spec.ProviderID)
	w.changeService(ctx, c.Service, c.Change)
	w.ensure(ctx, c.Service, nil)
	assert.NotEqual(t, unchanged, w.Snapshot(), "the change is applied")
	expected := alone // the lost backend is left out
	if w.StateWithoutInstance != nil {
		expected = w.StateWithoutInstance(both, "worker-2") // or it is for the health checks to find
		require.NotEqual(t, expected, alone)
	}
	assert.Equal(t, expected, w.Snapshot(), "the change is applied, and everything else stays")
	w.nodes = w.nodes[:1]
	w.update(ctx, c.Service, nil)
	assert.Equal(t, alone, w.Snapshot(), "with the Node goes the backend")
}

// changedState returns the cloud's state after a Service was changed, with the present nodes. The Service is deleted afterwards.
func (w *world) changedState(ctx context.Context, c Case) string {
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	w.changeService(ctx, c.Service, c.Change)
	w.ensure(ctx, c.Service, nil)
	state := w.Snapshot()
	w.remove(ctx, c.Service, nil)
	require.NoError(w.t, w.kube.CoreV1().Services(c.Service.Namespace).Delete(ctx, c.Service.Name, metav1.DeleteOptions{}))
	return state
}

// runOtherClusters tries what another cluster's Service may not have, however it comes to it.
func runOtherClusters(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "another cluster's load balancer is left alone", func(t *testing.T) {
		runOtherCluster(t, newFixture(t), nil, false)
	})
	virtual(t, "another cluster's load balancer is left alone, with the status of there", func(t *testing.T) {
		runOtherCluster(t, newFixture(t), nil, true)
	})
	if chosen := readFixture(t, newFixture, func(f *Fixture) map[string]string { return f.ChosenName }); chosen != nil {
		virtual(t, "another cluster's load balancer with a chosen name is left alone", func(t *testing.T) {
			runOtherCluster(t, newFixture(t), chosen, false)
		})
		virtual(t, "another cluster's load balancer with a chosen name is left alone, with the status of there", func(t *testing.T) {
			runOtherCluster(t, newFixture(t), chosen, true)
		})
	}
}

// runOtherCluster: a second cluster in the same account has a Service that finds the first one's load balancer, as by a
// copied manifest, or as by a backup that brings the status along. It may neither take it over nor delete it.
func runOtherCluster(t *testing.T, f *Fixture, chosen map[string]string, restored bool) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[sortedKeys(w.Services)[0]]
	w.addNode(ctx, "worker-1", nil)
	for key, value := range chosen {
		metav1.SetMetaDataAnnotation(&c.Service.ObjectMeta, key, value)
	}
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	held, recorded := w.Snapshot(), w.service(ctx, c.Service)

	w.kube = newKube("cluster-2")
	copied := recorded.DeepCopy()
	copied.ResourceVersion = ""
	if !restored {
		copied.Status = v1.ServiceStatus{}
	}
	if w.OtherCluster != nil {
		w.OtherCluster()
	} else {
		copied.UID = "9d1f6b52-7a66-4b58-8b4b-0a61c1f9e0b2"
	}
	if f.hasSources() {
		copied.Spec.LoadBalancerSourceRanges = []string{sourceRange} // nor narrow it
	}
	w.createService(ctx, copied)
	w.restart()
	w.Sim.ResetCalls()
	if w.OwnNames && chosen == nil {
		w.ensure(ctx, copied, nil)
		assert.Contains(t, w.Snapshot(), held, "the copy has its own")
		w.remove(ctx, copied, nil)
		assert.Equal(t, held, w.Snapshot())
		return
	}
	_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, copied), w.nodes)
	require.ErrorContains(t, err, "belongs to another cluster")
	require.NoError(t, w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, copied), nil))
	w.remove(ctx, copied, nil)
	w.requireNoWrites("nothing of the other cluster is touched")
	assert.Equal(t, held, w.Snapshot())
}

// maxCalls bounds the search for the last call of a run.
const maxCalls = 200

// runInterruption breaks the life of every Service, and demands the same result as without.
func runInterruption(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all := triesAll(t, newFixture)
	chosen := breakWrites
	if all {
		chosen = breakEveryCall
	}
	for _, name := range readFixture(t, newFixture, serviceNames) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reference []string
			var calls []simkit.Call
			synctest.Test(t, func(t *testing.T) { reference, calls = interruptedRun(t, newFixture(t), name, brokenLife{}, nil) })
			require.Less(t, len(calls), maxCalls)
			lives := chosen(calls)
			require.NotEmpty(t, lives)
			known := reference
			if all {
				known = nil
			}
			for _, life := range lives {
				t.Run(life.name, func(t *testing.T) {
					t.Parallel()
					for more := true; more; {
						synctest.Test(t, func(t *testing.T) {
							states, calls := interruptedRun(t, newFixture(t), name, life, known)
							assert.Equal(t, reference, states)
							more = !failed(calls) && life.breakEarlier(calls)
							assert.True(t, more || failed(calls), "nothing was broken")
						})
					}
				})
			}
			virtual(t, "changed back after an answer was lost", func(t *testing.T) { runChangedBack(t, newFixture(t), name) })
		})
	}
}

// interruptedRun creates, changes, scales and deletes a Service, and returns the state after each of them and the calls. A process that
// began after the failure knows the cloud alone: where that is as in the known life without a failure, so is what follows, and the
// Service is deleted at once.
func interruptedRun(t *testing.T, f *Fixture, name string, life brokenLife, known []string) (states []string, calls []simkit.Call) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	if life.restart {
		// The provider is opened again after the failure; before it, its caches are as empty as after a start.
		w.restart()
	}
	w.Sim.ResetCalls()
	if life.fault.Kind != "" {
		w.failCalls(life.fault)
	}
	onError := func() {
		if life.restart {
			w.restart()
		}
	}
	for i, step := range []func(){
		func() { w.ensure(ctx, c.Service, onError) },
		func() { w.changeService(ctx, c.Service, c.Change); w.ensure(ctx, c.Service, onError) },
		func() { w.addNode(ctx, "worker-2", onError); w.update(ctx, c.Service, onError) },
	} {
		step()
		states = append(states, w.Snapshot())
		if life.restart && known != nil && states[i] == known[i] && failed(w.Sim.Calls().Latest) {
			states = append(states, known[i+1:len(known)-1]...)
			break
		}
	}
	w.remove(ctx, c.Service, onError)
	states = append(states, w.Snapshot())
	assert.Empty(t, states[len(states)-1], "deletion leaves the cloud empty")
	w.requireNothingRefused()
	return states, w.Sim.Calls().Latest
}

// failed reports whether one of the calls was made to fail.
func failed(calls []simkit.Call) bool {
	return slices.ContainsFunc(calls, func(c simkit.Call) bool { return c.Fault != "" })
}

// runChangedBack: answers are lost from each write of a change on, and the Service is changed back soon, while what was read before is
// young enough to be believed. All is as it was.
func runChangedBack(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	back := c.reversal()
	for _, change := range []func(*v1.Service){func(*v1.Service) {}, c.Change, back} {
		w.changeService(ctx, c.Service, change)
		w.ensure(ctx, c.Service, nil)
	}
	before := w.Snapshot() // what is left out and what is set back may be written in two ways
	for k := 1; ; k++ {
		require.Less(t, k, maxCalls)
		w.Sim.ResetCalls()
		w.failCalls(simkit.Fault{Kind: simkit.FaultLost, Writes: true, From: k}) // also where the client repeats it
		w.changeService(ctx, c.Service, c.Change)
		_ = w.ensureToEnd(ctx, c.Service)
		w.Sim.ClearFaults()
		broken := failed(w.Sim.Calls().Latest)
		time.Sleep(firstServicePause) // in which the cloud ends what it does by itself
		w.changeService(ctx, c.Service, back)
		w.ensure(ctx, c.Service, nil)
		require.Equal(t, before, w.Snapshot(), "after the answer to write %d of the change was lost", k)
		if !broken {
			require.Greater(t, k, 1, "the change writes nothing")
			return
		}
		time.Sleep(settledIn) // until nothing of this round is remembered
	}
}

// reversal undoes the change of a Service; what the provider wrote on it meanwhile stays.
func (c Case) reversal() func(s *v1.Service) {
	changed := c.Service.DeepCopy()
	c.Change(changed)
	return func(s *v1.Service) {
		s.Spec = *c.Service.Spec.DeepCopy()
		for key := range changed.Annotations {
			delete(s.Annotations, key)
		}
		for key, value := range c.Service.Annotations {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value)
		}
	}
}

// Case is a Service and a later change of it.
type Case struct {
	Service *v1.Service
	// Change alters the Service in a way that needs a write.
	Change func(*v1.Service)
	// Unique are the annotations of the Service that name what no two Services have, such as an address.
	Unique []string
}

package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// runNodeChanges: a change of nodes is about nodes alone, whatever else is not as it should be, and whatever it did not read.
func runNodeChanges(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		if readFixture(t, newFixture, func(f *Fixture) bool { return f.SetRightWithNodes == "" }) {
			virtual(t, name+" was changed by hand", func(t *testing.T) { runChangedByHand(t, newFixture(t), name) })
		}
		virtual(t, name+" has a node for a moment", func(t *testing.T) { runNodeForAMoment(t, newFixture(t), name) })
		virtual(t, name+" has a wrong annotation", func(t *testing.T) { runNodeDespiteAnnotation(t, newFixture(t), name) })
		virtual(t, name+" is read no further than nodes need", func(t *testing.T) { runPartlyRead(t, newFixture(t), name) })
	}
}

// runChangedByHand: a load balancer is not as its Service asks, as somebody left it by hand. Nodes that join and leave set none of that
// right, and make nothing.
func runChangedByHand(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	one := w.stateOfLoadBalancers()
	w.addNode(ctx, "worker-2", nil)
	w.updateNodes(ctx, c.Service)
	two := w.stateOfLoadBalancers()
	require.Equal(t, w.outside(), one != two, "the state shows the nodes")

	w.changeService(ctx, c.Service, func(s *v1.Service) {
		ports := slices.Clone(s.Spec.Ports)
		c.Change(s)
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(ports, func(o v1.ServicePort) bool { return o.Name == p.Name || o.Port == p.Port }) {
				ports = append(ports, p)
			}
		}
		s.Spec.Ports = ports // those that are there stay the Service's, or nobody knew which nodes they lead to
	})
	both := w.nodes
	w.nodes = both[:1]
	w.updateNodes(ctx, c.Service)
	assert.Equal(t, one, w.stateOfLoadBalancers(), "a node left")
	w.nodes = both
	w.updateNodes(ctx, c.Service)
	assert.Equal(t, two, w.stateOfLoadBalancers(), "a node joined")
	w.ensure(ctx, c.Service, nil)
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
}

// runNodeDespiteAnnotation: a Service is refused for an annotation of the cloud's. Nodes join and leave all the same.
func runNodeDespiteAnnotation(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w, c, two := newServedWorld(t, f, name)
	both := w.nodes
	key := w.refusedAnnotation(ctx, c.Service)
	w.changeService(ctx, c.Service, func(s *v1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, noLegalValue) })
	require.Error(t, w.ensureToEnd(ctx, c.Service), key)
	w.nodes = both[:1]
	w.updateNodes(ctx, c.Service)
	require.Equal(t, w.outside(), two != w.Snapshot(), "a node left")
	w.nodes = both
	w.updateNodes(ctx, c.Service)
	assert.Equal(t, two, w.Snapshot(), "a node joined")
}

// runNodeForAMoment: answers are lost from each write on by which a node joins, and it leaves soon, while what was read before is young
// enough to be believed.
func runNodeForAMoment(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w, c, _ := newServedWorld(t, f, name)
	both := w.nodes
	w.nodes = both[:1]
	w.updateNodes(ctx, c.Service)
	state := func() string {
		if w.EmptyOfNodes == nil {
			return w.Snapshot()
		}
		return w.EmptyOfNodes.ReplaceAllString(w.Snapshot(), "")
	}
	one := state()
	time.Sleep(settledIn)
	for k := 1; ; k++ {
		require.Less(t, k, maxCalls)
		w.Sim.ResetCalls()
		w.failCalls(simkit.Fault{Kind: simkit.FaultLost, Writes: true, From: k})
		w.nodes = both
		// It fails, or goes on by itself.
		_ = w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes)
		time.Sleep(firstServicePause) // in which it is tried again, or the cloud ends what it does by itself
		struck := slices.ContainsFunc(w.Sim.Calls().Latest, isBroken)
		w.Sim.ClearFaults()
		w.nodes = both[:1]
		w.update(ctx, c.Service, func() {})
		require.Equal(t, one, state(), "after the answer to write %d was lost", k)
		if !struck {
			require.Equal(t, w.outside(), k > 1, "a node that joins is written")
			break
		}
		time.Sleep(settledIn) // until nothing of this round is remembered
	}
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot())
}

func isBroken(c simkit.Call) bool { return c.Fault != "" }

// updateNodes plays a change of nodes that nothing else follows.
func (w *world) updateNodes(ctx context.Context, s *v1.Service) {
	w.t.Helper()
	require.NoError(w.t, w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes))
	w.waitForUpdates()
}

// stateOfLoadBalancers is the Snapshot without what nodes let in.
func (w *world) stateOfLoadBalancers() string {
	if w.NodeRules == "" {
		return w.Snapshot()
	}
	lines := slices.DeleteFunc(strings.Split(w.Snapshot(), "\n"), func(line string) bool { return strings.HasPrefix(line, w.NodeRules) })
	return strings.Join(lines, "\n")
}

// runPartlyRead: what a process has not read, because its first operation was about nodes, or because it has just made all of it by one
// call, is neither made again nor left as it is nor forgotten.
func runPartlyRead(t *testing.T, f *Fixture, name string) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	both := w.nodes
	changed := w.changedState(ctx, c)

	follow := func(when string) {
		w.nodes = both
		w.update(ctx, c.Service, nil)
		w.changeService(ctx, c.Service, c.Change)
		w.ensure(ctx, c.Service, nil)
		assert.Equal(t, changed, w.Snapshot(), when)
	}
	w.nodes = both[:1]
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	follow("after the creation")
	w.remove(ctx, c.Service, nil)
	require.Empty(t, w.Snapshot(), "after the creation")
	require.NoError(t, w.kube.CoreV1().Services(c.Service.Namespace).Delete(ctx, c.Service.Name, metav1.DeleteOptions{}))

	w.nodes = both[:1]
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	w.restart()
	w.nodes = both
	w.update(ctx, c.Service, nil)
	w.Sim.ResetCalls()
	w.ensure(ctx, c.Service, nil)
	w.requireNoWrites("a change of nodes was the first operation of the process")
	w.nodes = both[:1]
	w.update(ctx, c.Service, nil)
	w.restart()
	follow("after a restart")
	w.restart()
	w.nodes = both[:1]
	w.update(ctx, c.Service, nil)
	w.remove(ctx, c.Service, nil)
	assert.Empty(t, w.Snapshot(), "after a restart")
}

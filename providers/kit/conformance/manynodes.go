package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	// fewNodes are those that an address is waited for least.
	fewNodes = 2
	// moreForMany is how much longer it may take over many nodes, and nodesPerCall how many of them there are to each further call.
	moreForMany, nodesPerCall = 3 * time.Second, 25
	// moreForEach and callsForEach bound the same for each node, where the cloud takes a call for each.
	moreForEach, callsForEach = 300 * time.Millisecond, 4
)

// runManyNodes: a Service over many nodes has its address as soon as one over few, but for the pages and batches that they take.
func runManyNodes(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, number := range []int{200, 1000} {
		virtual(t, fmt.Sprintf("the address of a Service over %d nodes", number), func(t *testing.T) {
			few, callsFew := newFixture(t).timeAddress(t, fewNodes)
			f := newFixture(t)
			if f.MostBackends > 0 {
				number = min(number, f.MostBackends)
			}
			many, callsMany := f.timeAddress(t, number)
			longer, calls := moreForMany, number/nodesPerCall
			if f.EachNode != "" {
				longer, calls = time.Duration(number)*moreForEach, number*callsForEach
			}
			assert.LessOrEqual(t, many, few+longer, "%s over %d nodes", few, fewNodes)
			assert.LessOrEqual(t, callsMany, callsFew+calls, "calls")
		})
	}
}

// timeAddress returns how long the first Service over some nodes waits for its address, and how many calls that takes.
func (f *Fixture) timeAddress(t *testing.T, nodes int) (took time.Duration, calls int) {
	t.Helper()
	w := newWorld(t, f)
	w.addNodes(nodes)
	time.Sleep(stepPause) // what was read is old
	s := makeNumbered(0)
	w.createService(t.Context(), s)
	w.Sim.ResetCalls()
	began := time.Now()
	w.ensure(t.Context(), s, nil)
	took = time.Since(began)
	w.stop()
	return took, w.Sim.Calls().Total
}

// addNodes adds initialised nodes, all of whose instances are there before the first of them is asked about.
func (w *world) addNodes(number int) {
	names := make([]string, number)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%d", i)
		if !w.hasNodes() {
			w.addNode(w.t.Context(), names[i], nil)
			continue
		}
		w.AddInstance(names[i])
	}
	for _, name := range names[len(w.nodes):] {
		node := bareNode(name)
		m, err := w.instances().InstanceMetadata(w.t.Context(), node)
		require.NoError(w.t, err)
		node.Spec.ProviderID, node.Spec.Taints, node.Status.Addresses = m.ProviderID, nil, m.NodeAddresses
		w.nodes = append(w.nodes, node)
	}
}

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
)

// EachNode holds what each node of a load balancer costs, and why.
type EachNode struct {
	Why string
	// Calls are those that the cloud has for one node alone, and Time what a node adds to the time until an address.
	Calls int
	Time  time.Duration
}

// runManyNodes: a Service over many nodes has its address as soon as one over few, but for the pages and batches that they take.
func runManyNodes(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	sizes := []int{500}
	if triesAll(t, newFixture) {
		sizes = []int{200, 1000}
	}
	for _, number := range sizes {
		virtual(t, fmt.Sprintf("the address of a Service over %d nodes", number), func(t *testing.T) {
			few, callsFew := newFixture(t).timeAddress(t, fewNodes)
			f := newFixture(t)
			if f.MostBackends > 0 {
				number = min(number, f.MostBackends)
			}
			many, callsMany := f.timeAddress(t, number)
			longer, calls := moreForMany, number/nodesPerCall
			if each := f.EachNode; each.Why != "" {
				longer, calls = moreForMany+time.Duration(number)*each.Time, calls+number*each.Calls
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

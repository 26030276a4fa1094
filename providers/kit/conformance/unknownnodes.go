package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// runUnknownNodes tries a takeover of a load balancer whose nodes do not say which instances they are, as where kubelets run without
// --cloud-provider=external.
func runUnknownNodes(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for what, change := range map[string]func(number int, n *v1.Node){
		"no node has a provider ID": func(_ int, n *v1.Node) { n.Spec.ProviderID = "" },
		"one node has no provider ID": func(number int, n *v1.Node) {
			if number == 0 {
				n.Spec.ProviderID = ""
			}
		},
		"all nodes have another controller's provider ID": func(_ int, n *v1.Node) { n.Spec.ProviderID = "elsewhere://" + n.Name },
		"one node has another controller's provider ID, and the others none": func(number int, n *v1.Node) {
			if n.Spec.ProviderID = ""; number == 0 {
				n.Spec.ProviderID = "elsewhere://" + n.Name
			}
		},
	} {
		for _, name := range readFixture(t, newFixture, serviceNames) {
			virtual(t, what+": "+name, func(t *testing.T) { runUnknown(t, newFixture(t), name, change) })
		}
	}
}

// runUnknown: no backend is taken away because nothing is known of its node, and an event says what is wrong.
func runUnknown(t *testing.T, f *Fixture, name string, change func(number int, n *v1.Node)) {
	t.Helper()
	ctx := t.Context()
	w := newWorld(t, f)
	c := w.Services[name]
	w.addNode(ctx, "worker-1", nil)
	w.addNode(ctx, "worker-2", nil)
	w.createService(ctx, c.Service)
	w.ensure(ctx, c.Service, nil)
	served := w.Serves()
	several := func(backends []string) bool { return len(backends) > 1 }
	require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(served)), several), "%v", served)
	for i, n := range w.nodes {
		w.nodes[i] = n.DeepCopy()
		change(i, w.nodes[i])
	}
	w.shown = w.nodes
	w.restart()
	time.Sleep(10 * time.Minute)
	var said strings.Builder // by errors, which the framework makes events of, or by events
	for range 2 {
		_, err := w.tryEnsure(ctx, c.Service) // where nothing is known of any node, that is an error
		fmt.Fprintln(&said, err)
		assert.Equal(t, served, w.Serves(), "after a look at the Service")
		_ = w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, c.Service), w.nodes) // as above
		w.waitForUpdates()
		assert.Equal(t, served, w.Serves(), "after a change of nodes")
		time.Sleep(10 * time.Minute)
	}
	if slices.ContainsFunc(w.nodes, func(n *v1.Node) bool { return strings.HasPrefix(n.Spec.ProviderID, "elsewhere://") }) {
		assert.Contains(t, said.String()+strings.Join(w.warnings(ctx, c.Service), "\n"), "no node ")
	}
}

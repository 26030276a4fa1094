package linode

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// markedBefore gives tags the marks of a Service of the cluster that was, instead of their own.
func markedBefore(tags []string, service string) []string {
	kept := slices.DeleteFunc(slices.Clone(tags), ownership.IsMark)
	return append(kept, "anyccm:before", "anyccm-svc:"+service)
}

// builtAnew is a world with what was made for a Service with a firewall when the cluster was another one, and a bystander of
// that cluster.
func builtAnew(t *testing.T) (*world, *v1.Service, int) {
	t.Helper()
	w := lbWorld(t, 1)
	s := service("web", map[string]string{annotationFirewallACL: allowACL, annotationTags: "one"}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	id := w.sim.NodeBalancers()[0].ID
	w.sim.ChangeNodeBalancer(id, func(nb *linodesim.NodeBalancer) {
		nb.Label, nb.Tags = "ccm-0f0f0f0f0f0f", markedBefore(nb.Tags, "web-before")
	})
	w.sim.ChangeFirewall(w.sim.Firewalls()[0].ID, func(f *linodesim.Firewall) {
		f.Label, f.Tags = "ccm-0f0f0f0f0f0f", markedBefore(f.Tags, "web-before")
	})
	bystander := w.users("ccm-1f1f1f1f1f1f")
	w.sim.ChangeNodeBalancer(bystander, func(nb *linodesim.NodeBalancer) { nb.Tags = markedBefore(nil, "other-before") })
	w.users("users-own")
	w.restart()
	return w, s, id
}

// TestHandover: a NodeBalancer of a cluster that was rebuilt gets the new marks with its firewall, and is the Service's again.
func TestHandover(t *testing.T) {
	t.Parallel()
	w, s, id := builtAnew(t)
	before := snapshot(t, w.sim)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.ErrorContains(t, err, "belongs to another cluster")

	other := service("other", map[string]string{annotationRecord: strconv.Itoa(id), annotationID: "7"}, port("http", 80, 30081))
	gone := service("gone", map[string]string{annotationRecord: strconv.Itoa(id)}, port("http", 80, 30082))
	gone.Spec.Type = v1.ServiceTypeClusterIP
	marked, err := w.MarkedLoadBalancers(t.Context(), []*v1.Service{other, gone, s})
	require.NoError(t, err)
	require.Len(t, marked, 2)
	assert.Equal(
		t,
		contract.MarkedLoadBalancer{ID: strconv.Itoa(id), Name: "ccm-0f0f0f0f0f0f", Cluster: "before", ServiceUID: "web-before", Claims: []string{"default/web"}},
		marked[0],
	)
	assert.Equal(t, []string{"ccm-1f1f1f1f1f1f", "other-before"}, []string{marked[1].Name, marked[1].ServiceUID})
	assert.Empty(t, marked[1].Claims)
	stale := marked[0]
	stale.Cluster = "another"
	require.ErrorContains(t, w.RemarkLoadBalancer(t.Context(), stale, s.UID), "carries other marks by now")
	assert.Equal(t, before, snapshot(t, w.sim), "nothing is changed so far")

	require.NoError(t, w.RemarkLoadBalancer(t.Context(), marked[0], s.UID))
	ours := []string{"anyccm:test-cluster", ownership.ServiceMark(s.UID)}
	nb, firewall := w.sim.NodeBalancers()[0], w.sim.Firewalls()[0]
	assert.ElementsMatch(t, append([]string{"kubernetes", "one"}, ours...), nb.Tags)
	assert.ElementsMatch(t, append([]string{"kubernetes", "one"}, ours...), firewall.Tags)
	assert.ElementsMatch(t, []string{"anyccm:before", "anyccm-svc:other-before"}, w.sim.NodeBalancers()[1].Tags)
	require.ErrorContains(t, w.RemarkLoadBalancer(t.Context(), marked[0], s.UID), "carries other marks by now")

	w.restart()
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", w.Current(s)))
	assert.Len(t, w.sim.NodeBalancers(), 2)
	assert.Empty(t, w.sim.Firewalls())
}

// TestHandoverBrokenOff: one that failed half way is listed as before, and done again; so is one where both clusters' marks are.
func TestHandoverBrokenOff(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"PUT /v4/networking/firewalls/{id}", "PUT /v4/nodebalancers/{id}", "both marks"} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			w, s, id := builtAnew(t)
			services := []*v1.Service{s}
			marked, err := w.MarkedLoadBalancers(t.Context(), services)
			require.NoError(t, err)
			if operation == "both marks" {
				w.sim.ChangeNodeBalancer(id, func(nb *linodesim.NodeBalancer) { nb.Tags = append(nb.Tags, "anyccm:test-cluster") })
			} else {
				_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 400, Operation: operation, Count: 1})
				require.NoError(t, err)
				require.Error(t, w.RemarkLoadBalancer(t.Context(), marked[0], s.UID))
			}
			w.restart()
			again, err := w.MarkedLoadBalancers(t.Context(), services)
			require.NoError(t, err)
			require.Equal(t, marked, again)
			require.NoError(t, w.RemarkLoadBalancer(t.Context(), again[0], s.UID))
			for _, tags := range [][]string{w.sim.NodeBalancers()[0].Tags, w.sim.Firewalls()[0].Tags} {
				assert.ElementsMatch(t, []string{"kubernetes", "one", "anyccm:test-cluster", ownership.ServiceMark(s.UID)}, tags)
			}
		})
	}
}

// TestHandoverOfFirewalls: only what was made for the very Service goes with its NodeBalancer.
func TestHandoverOfFirewalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		label string
		tags  []string
		goes  bool
	}{
		"made for the Service":               {"ccm-5f5f5f5f5f5f", []string{"anyccm:before", "anyccm-svc:web-before"}, true},
		"of the cluster, by the label":       {"ccm-0f0f0f0f0f0f", []string{"anyccm:before"}, true},
		"of the cluster, with another label": {"ccm-5f5f5f5f5f5f", []string{"anyccm:before"}, false},
		"another Service's":                  {"ccm-0f0f0f0f0f0f", []string{"anyccm:before", "anyccm-svc:other-before"}, false},
		"another cluster's":                  {"ccm-0f0f0f0f0f0f", []string{"anyccm:another", "anyccm-svc:web-before"}, false},
		"the user's":                         {"users-own", []string{"mine"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, _ := builtAnew(t)
			w.sim.ChangeFirewall(w.sim.Firewalls()[0].ID, func(f *linodesim.Firewall) { f.Label, f.Tags = c.label, c.tags })
			marked, err := w.MarkedLoadBalancers(t.Context(), []*v1.Service{s})
			require.NoError(t, err)
			require.NoError(t, w.RemarkLoadBalancer(t.Context(), marked[0], s.UID))
			want := c.tags
			if c.goes {
				want = []string{"anyccm:test-cluster", ownership.ServiceMark(s.UID)}
			}
			assert.ElementsMatch(t, want, w.sim.Firewalls()[0].Tags)
		})
	}
}

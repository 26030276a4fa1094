package gce

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// world is a provider without its guard, on a simulated cloud and a fake API server, in virtual time.
type world struct {
	*cloud
	*conformance.Bench

	sim     *gcesim.Sim
	server  *simkit.Server
	network *simkit.Network
	url     string
	// file is the cloud config without api-endpoint.
	file  string
	flags map[string]string
	nodes []*v1.Node
}

// usual is the default cloud config.
const usual = "[global]\nproject-id = my-project\nnetwork-name = cluster\nsubnetwork-name = nodes\nlocal-zone = us-central1-a\nregional = true\nnode-tags = node\n"

// newTestWorld must be called inside a bubble.
func newTestWorld(t *testing.T, file string) *world {
	t.Helper()
	sim, server := gcesim.New(testToken, activation)
	judge(t, sim)
	w := &world{Bench: conformance.NewBench(t), sim: sim, server: server, network: simkit.NewNetwork(), file: file, flags: map[string]string{}}
	w.url = w.network.Serve(t, server)
	w.restart()
	return w
}

// restart creates a new provider with empty memory.
func (w *world) restart() {
	in := testInputs(w.file+"api-endpoint = "+w.url+"/compute/v1\n", w.sim.Environment(w.url))
	in.Dial, in.Flags = w.network.Dial, w.flags
	c, err := newCloud(in)
	require.NoError(w.T, err)
	c.instances.nodes.SetLister(w.Nodes())
	c.loadBalancers.reconciler.kube, c.loadBalancers.Events = w.Kube, w.Recorder
	c.loadBalancers.reconciler.identity.setClient(w.Kube)
	c.loadBalancers.reconciler.identity.SetServices(w.Services())
	if c.routes != nil {
		c.routes.events = w.Recorder
	}
	w.cloud = c
}

// addNode adds an instance and its initialised node.
func (w *world) addNode(spec gcesim.Spec) *v1.Node {
	w.T.Helper()
	w.sim.AddInstance(spec)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: spec.Name, UID: "uid-of-node", Labels: map[string]string{}}}
	m, err := w.instances.InstanceMetadata(w.T.Context(), node)
	require.NoError(w.T, err)
	node.Spec.ProviderID, node.Status.Addresses = m.ProviderID, m.NodeAddresses
	node.Labels[v1.LabelTopologyZone], node.Labels[v1.LabelTopologyRegion] = m.Zone, m.Region
	w.nodes = append(w.nodes, node)
	w.Register(node)
	return node
}

// rule returns the only forwarding rule.
func (w *world) rule() map[string]any {
	w.T.Helper()
	rules := w.sim.Objects("forwardingRules")
	require.Len(w.T, rules, 1)
	return rules[0]
}

// reserve creates a user's address.
func (w *world) reserve(name string, fields map[string]any) {
	w.sim.Put("regions/us-central1/addresses/"+name, fields)
}

// refuse reconciles a Service, expects an error, and returns it.
func (w *world) refuse(s *v1.Service) error {
	w.T.Helper()
	_, err := w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.write(s), w.nodes)
	require.Error(w.T, err)
	return err
}

// holds compares fields of an object in the cloud.
func (w *world) holds(collection, name string, want map[string]any) {
	w.T.Helper()
	for _, o := range w.sim.Objects(collection) {
		if o["name"] != name {
			continue
		}
		for key, value := range want {
			assert.EqualValues(w.T, value, o[key], "%s %s: %s", collection, name, key)
		}
		return
	}
	assert.Fail(w.T, "missing", "%s %s", collection, name)
}

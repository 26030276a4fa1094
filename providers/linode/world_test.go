package linode

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// world is a provider without its guard, on a simulated cloud and a fake API server, for tests of single parts.
type world struct {
	*cloud
	*conformance.Bench

	sim    *linodesim.Sim
	server *simkit.Server
	url    string
	flags  map[string]string
	env    map[string]string
	nodes  []*v1.Node
}

func newTestWorld(t *testing.T, flags map[string]string, prepare func(*linodesim.Sim)) *world {
	t.Helper()
	sim, server := linodesim.New(linodesim.Options{Token: testToken, Seed: simkit.SeedOf(t)})
	if prepare != nil {
		prepare(sim)
	}
	w := &world{
		Bench: conformance.NewBench(t), sim: sim, server: server, flags: maps.Clone(flags), env: map[string]string{}, url: server.Start(t),
	}
	w.restart()
	return w
}

// restart makes a new provider, with nothing in memory.
func (w *world) restart() {
	c, err := newCloud(testInputs(w.url, w.flags, w.env))
	require.NoError(w.T, err)
	c.loadBalancers.kube, c.loadBalancers.Events = w.Kube, w.Recorder
	c.loadBalancers.owners.cluster.SetClient(w.Kube)
	c.loadBalancers.follower.Start(w.Kube, w.T.Context().Done())
	c.loadBalancers.owners.cluster.SetServices(w.Services())
	c.instances.nodes.SetLister(w.Nodes())
	w.cloud = c
}

// addNode adds a Linode and its initialised node.
func (w *world) addNode(spec linodesim.Spec) *v1.Node {
	w.sim.AddLinode(spec)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: spec.Label}}
	m, err := w.instances.InstanceMetadata(w.T.Context(), node)
	require.NoError(w.T, err)
	node.Spec.ProviderID, node.Status.Addresses = m.ProviderID, m.NodeAddresses
	w.nodes = append(w.nodes, node)
	w.Register(node)
	return node
}

// ensure reconciles a Service, and returns it as it then is.
func (w *world) ensure(s *v1.Service) (*v1.Service, *v1.LoadBalancerStatus) {
	w.T.Helper()
	status, err := w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.Current(s), w.nodes)
	require.NoError(w.T, err)
	return w.SetStatus(s, status), status
}

package openstack

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// world is a provider without its guard, on a simulated cloud and a fake API server, for tests of single parts.
type world struct {
	*cloud
	*conformance.Bench

	sim    *openstacksim.Sim
	server *simkit.Server
	url    string
	// file is added to the cloud.conf that the simulator gives; its last section is [LoadBalancer].
	file    string
	env     map[string]string
	cluster string
	adopt   registry.Adoption
	// dial reaches the simulator; it is nil for the system's network.
	dial  cloudapi.DialFunc
	nodes []*v1.Node
}

// newTestWorld makes a world in virtual time: its callers are in a bubble.
func newTestWorld(t *testing.T, file string, prepare func(*openstacksim.Sim)) *world {
	t.Helper()
	sim, server := openstacksim.New(openstacksim.Options{})
	if prepare != nil {
		prepare(sim)
	}
	network := simkit.NewNetwork()
	w := &world{
		Bench: conformance.NewBench(t), sim: sim, server: server, url: network.Serve(t, server), file: file, env: map[string]string{},
		cluster: "kubernetes", dial: network.Dial,
	}
	w.restart()
	return w
}

// restart makes a new provider, with nothing in memory.
func (w *world) restart() {
	in := testInputs(w.sim.CloudConfig(w.url)+w.file, w.env)
	in.Dial, in.Adopt = w.dial, w.adopt
	c, err := newCloud(in)
	require.NoError(w.T, err)
	c.reconciler.kube, c.reconciler.Events = w.Kube, w.Recorder
	c.reconciler.cluster.SetClient(w.Kube)
	c.reconciler.cluster.SetServices(w.Services())
	c.instances.nodes.SetLister(w.Nodes())
	w.cloud = c
}

// addNode adds a server and, once it has booted, its initialised node.
func (w *world) addNode(spec openstacksim.Spec) *v1.Node {
	w.sim.AddServer(spec)
	time.Sleep(time.Minute)
	return w.joins(spec.Name)
}

// joins adds the initialised node of a server that is there.
func (w *world) joins(name string) *v1.Node {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	m, err := w.instances.InstanceMetadata(w.T.Context(), node)
	require.NoError(w.T, err)
	node.Spec.ProviderID, node.Status.Addresses = m.ProviderID, m.NodeAddresses
	w.nodes = append(w.nodes, node)
	w.Register(node)
	return node
}

// try reconciles a Service until Octavia has nothing to do for it any more.
func (w *world) try(s *v1.Service) (*v1.LoadBalancerStatus, error) {
	return w.Reconcile(w.reconciler, w.cluster, s, w.nodes)
}

// ensure reconciles a Service until it is served, and returns it as it then is.
func (w *world) ensure(s *v1.Service) (*v1.Service, *v1.LoadBalancerStatus) {
	w.T.Helper()
	status, err := w.try(s)
	require.NoError(w.T, err)
	return w.SetStatus(s, status), status
}

// update plays a change of nodes.
func (w *world) update(s *v1.Service) {
	w.T.Helper()
	if err := w.reconciler.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes); err != nil {
		_, later := errors.AsType[*cloudproviderapi.RetryError](err)
		require.True(w.T, later, "%v", err)
		w.ensure(s)
	}
}

// remove deletes a Service as the framework does.
func (w *world) remove(s *v1.Service) error {
	return w.Remove(w.reconciler, w.cluster, s)
}

// anotherCluster returns a world on the same cloud that is another cluster, with the same machines.
func (w *world) anotherCluster(name, file string) *world {
	w.T.Helper()
	other := &world{
		Bench: conformance.NewBench(w.T), sim: w.sim, server: w.server, url: w.url, file: file, env: map[string]string{}, cluster: name,
		dial: w.dial, nodes: w.nodes,
	}
	namespaces := other.Kube.CoreV1().Namespaces()
	namespace, err := namespaces.Get(w.T.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	require.NoError(w.T, err)
	namespace.UID = "other-cluster"
	_, err = namespaces.Update(w.T.Context(), namespace, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	other.restart()
	return other
}

// vanish takes a Service away, from the API server and from the provider's view, without any clean-up.
func (w *world) vanish(s *v1.Service) {
	w.T.Helper()
	w.Withdraw(s)
	require.NoError(w.T, w.Kube.CoreV1().Services(s.Namespace).Delete(w.T.Context(), s.Name, metav1.DeleteOptions{}))
}

// rename gives a Service a name and an identity of its own.
func rename(s *v1.Service, name string) *v1.Service {
	s.Name, s.UID = name, types.UID("uid-of-"+name)
	return s
}

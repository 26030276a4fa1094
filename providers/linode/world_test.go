package linode

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/internal/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// world is a provider without its guard, on a simulated cloud and a fake API server, for tests of single parts.
type world struct {
	*cloud
	t        *testing.T
	sim      *linodesim.Sim
	server   *simkit.Server
	kube     *fake.Clientset
	recorded chan string
	services cache.Indexer
	members  cache.Indexer
	url      string
	flags    map[string]string
	env      map[string]string
	nodes    []*v1.Node
}

func newTestWorld(t *testing.T, flags map[string]string, prepare func(*linodesim.Sim)) *world {
	t.Helper()
	sim, server := linodesim.New(linodesim.Options{Token: testToken})
	if prepare != nil {
		prepare(sim)
	}
	w := &world{
		t: t, sim: sim, server: server, flags: maps.Clone(flags), env: map[string]string{},
		kube:     fake.NewClientset(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "test-cluster"}}),
		services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		members:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		url:      server.Start(t),
	}
	w.restart()
	return w
}

// restart makes the provider anew, with nothing in memory.
func (w *world) restart() {
	c, err := newCloud(testInputs(w.url, w.flags, w.env))
	require.NoError(w.t, err)
	recorder := record.NewFakeRecorder(1000)
	w.recorded = recorder.Events
	c.loadBalancers.kube, c.loadBalancers.events = w.kube, recorder
	c.loadBalancers.cluster.SetClient(w.kube)
	c.loadBalancers.cluster.SetServices(listers.NewServiceLister(w.services))
	c.instances.nodes.SetLister(listers.NewNodeLister(w.members))
	c.routes.setLister(listers.NewNodeLister(w.members))
	w.cloud = c
}

// addNode adds a Linode and its initialised node.
func (w *world) addNode(spec linodesim.Spec) *v1.Node {
	w.sim.AddLinode(spec)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: spec.Label}}
	m, err := w.instances.InstanceMetadata(w.t.Context(), node)
	require.NoError(w.t, err)
	node.Spec.ProviderID, node.Status.Addresses = m.ProviderID, m.NodeAddresses
	w.nodes = append(w.nodes, node)
	require.NoError(w.t, w.members.Add(node))
	return node
}

// apply puts a Service where the provider and the API server know it.
func (w *world) apply(s *v1.Service) {
	require.NoError(w.t, w.services.Add(s))
	if _, err := w.kube.CoreV1().Services(s.Namespace).Create(w.t.Context(), s, metav1.CreateOptions{}); err != nil {
		_, err = w.kube.CoreV1().Services(s.Namespace).Update(w.t.Context(), s, metav1.UpdateOptions{})
		require.NoError(w.t, err)
	}
}

// current returns a Service as the API server has it, and puts it into the cache.
func (w *world) current(s *v1.Service) *v1.Service {
	now, err := w.kube.CoreV1().Services(s.Namespace).Get(w.t.Context(), s.Name, metav1.GetOptions{})
	require.NoError(w.t, err)
	require.NoError(w.t, w.services.Update(now))
	return now
}

// ensure reconciles a Service, and returns it as it then is.
func (w *world) ensure(s *v1.Service) (*v1.Service, *v1.LoadBalancerStatus) {
	w.t.Helper()
	status, err := w.loadBalancers.EnsureLoadBalancer(w.t.Context(), "kubernetes", w.current(s), w.nodes)
	require.NoError(w.t, err)
	now := w.current(s)
	now.Status.LoadBalancer = *status
	_, err = w.kube.CoreV1().Services(s.Namespace).UpdateStatus(w.t.Context(), now, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	return w.current(s), status
}

// events returns the events written since the last call.
func (w *world) events() []string {
	var all []string
	for {
		select {
		case e := <-w.recorded:
			all = append(all, e)
		default:
			return all
		}
	}
}

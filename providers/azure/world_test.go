package azure

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// world is a simulated Azure, a cluster and the provider, in virtual time.
type world struct {
	testing.TB
	*conformance.Bench
	sim     *azuresim.Sim
	server  *simkit.Server
	network *simkit.Network
	config  string
	cloud   *cloud
	shown   cache.Store
	// nodes are those behind load balancers.
	nodes []*v1.Node
	known []*v1.Node
	// slices are the EndpointSlices of the cluster.
	slices []*discovery.EndpointSlice
}

// inWorld runs a test in a world of its own.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, Bench: conformance.NewBench(t), network: simkit.NewNetwork()}
		w.sim, w.server = azuresim.New(testSecret, 3*time.Second)
		w.server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) }) // or nothing were older than anything
		w.config = w.sim.CloudConfig(w.network.Serve(t, w.server))
		w.restart()
		test(w)
	})
}

// set changes keys of azure.json and starts again.
func (w *world) set(keys map[string]any) {
	w.Helper()
	w.config = configWith(w, w.config, keys)
	w.restart()
}

// configWith is azure.json with other values of some keys.
func configWith(t testing.TB, file string, keys map[string]any) string {
	t.Helper()
	config := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(file), &config))
	maps.Copy(config, keys)
	data, err := json.Marshal(config)
	require.NoError(t, err)
	return string(data)
}

// restart makes a new provider, with nothing in memory.
func (w *world) restart() {
	w.Helper()
	in := inputs(w.config)
	in.Dial = w.network.Dial
	c, err := maker().New(in)
	require.NoError(w, err)
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	c.begin(cloudbase.Begun{Kube: w.Kube, Events: w.Recorder, Stop: w.Context().Done()})
	c.SetInformers(factory)
	c.reconciler.cluster.SetServices(w.Services())
	if len(c.reconciler.config.standardLBs) > 0 {
		c.reconciler.endpoints = &endpoints{
			list: func(labels.Selector) ([]*discovery.EndpointSlice, error) { return w.slices, nil }, synced: func() bool { return w.slices != nil },
		}
	}
	w.cloud, w.shown = c, factory.Core().V1().Nodes().Informer().GetStore()
	for _, n := range w.known {
		require.NoError(w, w.shown.Add(n))
	}
}

// show puts Nodes where the provider sees them.
func (w *world) show(nodes ...*v1.Node) {
	w.Helper()
	for _, n := range nodes {
		require.NoError(w, w.shown.Add(n))
	}
	w.known = append(w.known, nodes...)
}

// join adds an instance and its Node, which is behind load balancers from then on.
func (w *world) join(name string) *v1.Node {
	w.Helper()
	return w.joinAs(name, w.sim.AddInstance(name))
}

// joinAs makes an instance a Node behind load balancers.
func (w *world) joinAs(name, id string) *v1.Node {
	w.Helper()
	n := node(name, id)
	m, err := w.cloud.instances.InstanceMetadata(w.Context(), n)
	require.NoError(w, err)
	n.Status.Addresses = m.NodeAddresses
	w.show(n)
	w.nodes = append(w.nodes, n)
	return n
}

// ensure serves a Service to the end, and writes its status.
func (w *world) ensure(s *v1.Service) *v1.Service {
	w.Helper()
	status, err := w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes)
	require.NoError(w, err)
	return w.SetStatus(s, status)
}

// refuse tries to serve a Service and returns why that is refused.
func (w *world) refuse(s *v1.Service) error {
	w.Helper()
	_, err := w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes)
	require.Error(w, err)
	return err
}

// update tells the nodes of now.
func (w *world) update(s *v1.Service) {
	w.Helper()
	require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes))
}

// remove deletes a Service.
func (w *world) remove(s *v1.Service) {
	w.Helper()
	require.NoError(w, w.Remove(w.cloud.loadBalancers, clusterName, s))
	require.NoError(w, w.Kube.CoreV1().Services(s.Namespace).Delete(w.Context(), s.Name, metav1.DeleteOptions{}))
}

// change alters a Service where the provider and the API server know it.
func (w *world) change(s *v1.Service, alter func(*v1.Service)) {
	w.Helper()
	now := w.Current(s).DeepCopy()
	alter(now)
	w.Apply(now)
}

// kubeWrites counts the writes to the API server since the last count.
func (w *world) kubeWrites() (writes []string) {
	for _, a := range w.Kube.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" && a.GetVerb() != "watch" {
			writes = append(writes, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	w.Kube.ClearActions()
	return writes
}

const clusterName = "kubernetes"

// base begins the names of what is the own of the Service default/web.
const base = "a3c1f6b527a664b588b4b0a61c1f9e00"

// webService is the Service default/web with a port 80.
func webService(annotations map[string]string, alter ...func(*v1.Service)) *v1.Service {
	return webNumber(0, annotations, alter...)
}

// webNumber is one of several such Services.
func webNumber(n int, annotations map[string]string, alter ...func(*v1.Service)) *v1.Service {
	name := "web"
	if n > 0 {
		name = fmt.Sprintf("web-%d", n)
	}
	s := conformance.Service(name, map[string]string{}, conformance.Port("http", 80, int32(30080+n)))
	s.UID = types.UID(fmt.Sprintf("3c1f6b52-7a66-4b58-8b4b-0a61c1f9e%02d1", n))
	maps.Copy(s.Annotations, annotations)
	for _, a := range alter {
		a(s)
	}
	return s
}

// node is a Node that waits for its cloud controller, or one that has a provider ID already.
func node(name, providerID string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Spec: v1.NodeSpec{ProviderID: providerID}}
	if providerID == "" {
		n.Spec.Taints = []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule}}
	}
	return n
}

type conn = net.Conn

// waitFor lets virtual time pass.
func waitFor(d time.Duration) { time.Sleep(d) }

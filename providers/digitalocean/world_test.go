package digitalocean

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/internal/simkit"
)

// world is a provider without its guard, on a simulated cloud and a fake API server, for tests of single parts.
type world struct {
	*cloud
	t        *testing.T
	sim      *digitaloceansim.Sim
	server   *simkit.Server
	kube     *fake.Clientset
	recorded chan string
	cache    cache.Indexer
	env      map[string]string
	nodes    []*v1.Node
}

func newTestWorld(t *testing.T, env map[string]string) *world {
	t.Helper()
	return newTestWorldBehind(t, env, nil)
}

// newTestWorldBehind puts something between the provider and the simulator.
func newTestWorldBehind(t *testing.T, env map[string]string, between func(server http.Handler, faulty func() bool) http.Handler) *world {
	t.Helper()
	sim, server := digitaloceansim.New(digitaloceansim.Options{Token: testToken})
	w := &world{
		t: t, sim: sim, server: server, env: maps.Clone(env),
		kube:  fake.NewClientset(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "test-cluster"}}),
		cache: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
	}
	if w.env == nil {
		w.env = map[string]string{}
	}
	w.env["DO_OVERRIDE_URL"] = server.Start(t) + "/"
	if between != nil {
		outer := httptest.NewServer(between(server, func() bool { return len(server.Faults()) > 0 }))
		t.Cleanup(outer.Close)
		w.env["DO_OVERRIDE_URL"] = outer.URL + "/"
	}
	w.restart()
	return w
}

// restart makes the provider anew, with nothing in memory.
func (w *world) restart() {
	in := testInputs("", w.env)
	c, err := newCloud(in)
	require.NoError(w.t, err)
	recorder := record.NewFakeRecorder(1000)
	w.recorded = recorder.Events
	c.loadBalancers.kube, c.loadBalancers.events = w.kube, recorder
	c.loadBalancers.cluster.SetClient(w.kube)
	c.loadBalancers.cluster.SetServices(w.lister())
	w.cloud = c
}

func (w *world) lister() listers.ServiceLister { return listers.NewServiceLister(w.cache) }

// addNode adds a droplet and its initialised node.
func (w *world) addNode(spec digitaloceansim.Spec) {
	w.sim.AddDroplet(spec)
	m, err := w.instances.InstanceMetadata(w.t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: spec.Name}})
	require.NoError(w.t, err)
	w.nodes = append(w.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: spec.Name}, Spec: v1.NodeSpec{ProviderID: m.ProviderID}, Status: v1.NodeStatus{Addresses: m.NodeAddresses}})
}

// apply puts Services where the provider and the API server know them.
func (w *world) apply(services ...*v1.Service) {
	for _, s := range services {
		require.NoError(w.t, w.cache.Add(s))
		if _, err := w.kube.CoreV1().Services(s.Namespace).Create(w.t.Context(), s, metav1.CreateOptions{}); err != nil {
			_, err = w.kube.CoreV1().Services(s.Namespace).Update(w.t.Context(), s, metav1.UpdateOptions{})
			require.NoError(w.t, err)
		}
	}
}

// current returns a Service as the API server has it, and puts it into the cache.
func (w *world) current(s *v1.Service) *v1.Service {
	now, err := w.kube.CoreV1().Services(s.Namespace).Get(w.t.Context(), s.Name, metav1.GetOptions{})
	require.NoError(w.t, err)
	require.NoError(w.t, w.cache.Update(now))
	return now
}

// ensure reconciles a Service until it is served, and returns it as it then is.
func (w *world) ensure(s *v1.Service) (*v1.Service, *v1.LoadBalancerStatus) {
	w.t.Helper()
	var status *v1.LoadBalancerStatus
	var err error
	for range 3 {
		if status, err = w.loadBalancers.EnsureLoadBalancer(w.t.Context(), "kubernetes", w.current(s), w.nodes); err == nil {
			return w.current(s), status
		}
	}
	require.NoError(w.t, err)
	return nil, nil
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

// aged gives a Service a name, an identity and an age of its own.
func aged(s *v1.Service, name string, minutes int) *v1.Service {
	s.Name = name
	s.UID = types.UID(fmt.Sprintf("%08d-7a66-4b58-8b4b-0a61c1f9e0a1", minutes))
	s.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC))
	return s
}

package aws

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// world is a provider without its guard, on a simulated region and a fake API server, for tests of single parts.
type world struct {
	*cloud
	*conformance.Bench

	sim    *awssim.Sim
	server *simkit.Server
	url    string
	// file is added to the section [Global] of the cloud config that the simulator gives.
	file    string
	env     map[string]string
	cluster string
	nodes   []*v1.Node
	limits  limitsFunc
	// dial is nil for the system's network.
	dial cloudapi.DialFunc
}

// unlimited lets calls through at once: what is counted here is not how long it takes.
func unlimited(r *http.Request) (group string, limits []cloudapi.Limit) {
	group, _ = limitsOf(r)
	return group, []cloudapi.Limit{{PerSecond: 10000, Burst: 10000, Floor: 10000}}
}

func newTestWorld(t *testing.T, file string, options awssim.Options) *world {
	t.Helper()
	sim, server := awssim.New(newRegion(options))
	w := &world{
		Bench: conformance.NewBench(t), sim: sim, server: server, url: server.Start(t), file: file, env: map[string]string{}, cluster: "kubernetes",
		limits: unlimited,
	}
	w.restart()
	return w
}

// roundTrip is how long every call takes in virtual time.
const roundTrip = 20 * time.Millisecond

// newVirtualWorld is newTestWorld inside a bubble of virtual time, with the real limits on calls.
func newVirtualWorld(t *testing.T, file string, options awssim.Options) *world {
	t.Helper()
	sim, server := awssim.New(newRegion(options))
	network := simkit.NewNetwork()
	server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(roundTrip) })
	w := &world{
		Bench: conformance.NewBench(t), sim: sim, server: server, url: network.Serve(t, server), file: file, env: map[string]string{},
		cluster: "kubernetes", limits: limitsOf, dial: network.Dial,
	}
	w.restart()
	return w
}

// testInputs are the inputs of a provider with a cloud config on a simulated region.
func testInputs(sim *awssim.Sim, url, file string, more map[string]string) registry.Inputs {
	env := map[string]string{}
	if sim != nil {
		env = sim.Environment(url)
	}
	maps.Copy(env, more)
	lookup := func(k string) (string, bool) {
		v, ok := env[k]
		return v, ok
	}
	return registry.Inputs{
		Version: "test", ClusterCIDR: "10.244.0.0/16", Sources: schema.Sources{File: []byte(file), LookupEnv: lookup},
	}
}

// restart makes a new provider, with nothing in memory.
func (w *world) restart() {
	in := testInputs(w.sim, w.url, w.sim.CloudConfig(w.url)+w.file, w.env)
	in.Dial = w.dial
	c, err := maker(w.limits).New(in)
	require.NoError(w.T, err)
	c.loadBalancers.setEvents(w.Recorder)
	c.loadBalancers.setServices(w.Services())
	c.instances.nodes.SetLister(w.Nodes())
	w.cloud = c
}

// addNode adds an instance and its initialised node.
func (w *world) addNode(spec awssim.Spec) *v1.Node {
	w.T.Helper()
	w.sim.AddInstance(spec)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: spec.Name, Labels: map[string]string{}}}
	m, err := w.instances.InstanceMetadata(w.T.Context(), node)
	require.NoError(w.T, err)
	node.Spec.ProviderID, node.Status.Addresses = m.ProviderID, m.NodeAddresses
	w.nodes = append(w.nodes, node)
	w.Register(node)
	return node
}

// addNodes adds many instances and their nodes.
func (w *world) addNodes(n int) {
	w.T.Helper()
	ids := make([]string, n)
	for i := range n {
		ids[i] = w.sim.AddInstance(awssim.Spec{Name: fmt.Sprintf("n%d", i)})
	}
	for i, id := range ids {
		node := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}}, Spec: v1.NodeSpec{ProviderID: "aws:///us-east-1a/" + id},
		}
		w.nodes = append(w.nodes, node)
		w.Register(node)
	}
}

// instanceOf returns the ID of a node's instance.
func instanceOf(n *v1.Node) string {
	id, err := parseProviderID(n.Spec.ProviderID)
	if err != nil {
		panic(err)
	}
	return id
}

// try reconciles a Service until nothing has to be waited for.
func (w *world) try(s *v1.Service) (*v1.LoadBalancerStatus, error) {
	return w.Reconcile(w.loadBalancers, w.cluster, s, w.nodes)
}

// ensure reconciles a Service until it is served, and returns it as it then is.
func (w *world) ensure(s *v1.Service) *v1.Service {
	w.T.Helper()
	status, err := w.try(s)
	require.NoError(w.T, err)
	return w.SetStatus(s, status)
}

// update plays a change of nodes.
func (w *world) update(s *v1.Service) {
	w.T.Helper()
	require.NoError(w.T, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes))
}

// remove deletes a Service as the framework does.
func (w *world) remove(s *v1.Service) error {
	return w.Remove(w.loadBalancers, w.cluster, s)
}

// servicePort is a port of a Service.
var servicePort = conformance.Port

func service(name string, annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	if annotations == nil {
		annotations = map[string]string{}
	}
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Annotations: annotations},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Ports: ports, IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
			ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicyCluster,
			SessionAffinity:       v1.ServiceAffinityNone,
		},
	}
}

// nlb is a Service with a network load balancer.
func nlb(name string, annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	s := service(name, annotations, ports...)
	s.Annotations[annotationType] = typeNLB
	return s
}

// fault plays a fault until undo is called.
func (w *world) fault(f simkit.Fault) (undo func()) {
	id, err := w.server.AddFault(f)
	require.NoError(w.T, err)
	return func() { w.server.RemoveFault(id) }
}

package nsx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubetesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	testUser     = "admin"
	testPassword = "nsx-secret"
	clusterName  = "kubernetes"
	// provider is the name of the cloud that these are parts of.
	provider = "vsphere"
)

var (
	service = conformance.Service
	port    = conformance.Port
)

// testConfig is the configuration of a provider with load balancers and routes at a simulator.
func testConfig(url string) Config {
	return Config{
		NSXT: managerConfig{Host: url, User: testUser, Password: schema.NewSecret(testPassword)},
		LoadBalancer: loadBalancerConfig{
			Enabled: true, Size: "SMALL", Tier1GatewayPath: nsxsim.Tier1,
			Class: loadBalancerClass{
				IPPoolName: nsxsim.PoolName, TCPAppProfileName: path.Base(nsxsim.TCPProfile), UDPAppProfilePath: nsxsim.UDPProfile,
			},
			Classes: map[string]loadBalancerClass{"dmz": {IPPoolID: nsxsim.OtherPool}},
		},
		Route: routeConfig{RouterPath: nsxsim.Tier1},
	}
}

// testWorld is the parts on a simulated NSX and a fake API server, for tests of single parts.
type testWorld struct {
	*conformance.Bench
	*Parts

	sim     *nsxsim.Sim
	server  *simkit.Server
	network *simkit.Network
	config  Config
	cluster string
	nodes   []*v1.Node
	// has are the addresses of virtual machines that their Nodes do not tell as they are, by the name of the Node.
	has map[string][]v1.NodeAddress
	// silent are the nodes whose addresses cannot be read.
	silent map[string]bool
}

// reach are the addresses of the virtual machine of a node, where a test says what it has, and else those that the Node tells.
func (w *testWorld) reach(_ context.Context, n *v1.Node) ([]v1.NodeAddress, error) {
	if w.silent[n.Name] {
		return nil, errors.New("no addresses are known")
	}
	if has, said := w.has[n.Name]; said {
		return nodes.Vouched(n.Status.Addresses, has), nil
	}
	return n.Status.Addresses, nil
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, o nsxsim.Options, change func(*Config), test func(w *testWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newTestWorld(t, o, change)) })
}

// newTestWorldOn is another cluster on the same NSX.
func newTestWorldOn(w *testWorld, uid string) *testWorld {
	w.T.Helper()
	other := &testWorld{Bench: conformance.NewBench(w.T), sim: w.sim, server: w.server, network: w.network}
	other.cluster, other.config = w.cluster, w.config
	namespaces := other.Kube.CoreV1().Namespaces()
	namespace, err := namespaces.Get(w.T.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	require.NoError(w.T, err)
	namespace.UID = types.UID(uid)
	_, err = namespaces.Update(w.T.Context(), namespace, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	other.restart()
	return other
}

// hideIdentity takes the right to read the identity of the cluster away.
func (w *testWorld) hideIdentity() {
	w.Kube.PrependReactor("get", "namespaces", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1.Resource("namespaces"), metav1.NamespaceSystem, errors.New("no right"))
	})
}

// requireNoKubeWrites demands that nothing was written to the API server since the last call.
func (w *testWorld) requireNoKubeWrites() {
	w.T.Helper()
	for _, a := range w.Kube.Actions() {
		if a.GetResource().Resource == "services" && a.GetVerb() == "create" {
			continue // the test itself
		}
		require.Contains(w.T, []string{"get", "list", "watch"}, a.GetVerb(), "%v", a)
	}
}

func newTestWorld(t *testing.T, o nsxsim.Options, change func(*Config)) *testWorld {
	t.Helper()
	o.User, o.Password, o.Seed = testUser, testPassword, simkit.SeedOf(t)
	sim, server := nsxsim.New(o)
	w := &testWorld{Bench: conformance.NewBench(t), sim: sim, server: server, network: simkit.NewNetwork(), cluster: clusterName}
	w.config = testConfig(w.network.Serve(t, server))
	if change != nil {
		change(&w.config)
	}
	w.restart()
	return w
}

// restart makes a new provider, with nothing in memory.
func (w *testWorld) restart() {
	w.T.Helper()
	in := conformance.Inputs(nil, nil)
	if w.network != nil { // otherwise it is on the loopback
		in.Dial = w.network.Dial
	}
	nodes := &nodecount.Counter{}
	parts, err := New(w.config, provider, in, Nodes{Counter: nodes, Addresses: w.reach})
	require.NoError(w.T, err)
	parts.Lead(cloudbase.Begun{Kube: w.Kube, Events: w.Recorder})
	parts.loadBalancers.cluster.SetServices(w.Services())
	nodes.SetLister(w.Nodes())
	w.Parts = parts
}

// addNode adds an initialized node.
func (w *testWorld) addNode(name, address string) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       v1.NodeSpec{ProviderID: "vsphere://422e4956-ad22-1139-6d72-" + fmt.Sprintf("%012d", len(w.nodes))},
		Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}},
	}
	w.nodes = append(w.nodes, n)
	w.Register(n)
	return n
}

func (w *testWorld) try(s *v1.Service) (*v1.LoadBalancerStatus, error) {
	return w.loadBalancers.EnsureLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes)
}

// ensure reconciles a Service, and returns it as it then is.
func (w *testWorld) ensure(s *v1.Service) *v1.Service {
	w.T.Helper()
	status, err := w.Reconcile(w.loadBalancers, w.cluster, s, w.nodes)
	require.NoError(w.T, err)
	return w.SetStatus(s, status)
}

func (w *testWorld) update(s *v1.Service) {
	w.T.Helper()
	require.NoError(w.T, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes))
}

func (w *testWorld) remove(s *v1.Service) error { return w.Remove(w.loadBalancers, w.cluster, s) }

func (w *testWorld) change(s *v1.Service, change func(*v1.Service)) *v1.Service {
	w.T.Helper()
	now := w.Current(s)
	change(now)
	_, err := w.Kube.CoreV1().Services(s.Namespace).Update(w.T.Context(), now, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	return w.Current(s)
}

func (w *testWorld) requireNothingRefused() {
	w.T.Helper()
	require.Empty(w.T, w.server.Calls().Refused, "the real API would have refused these")
}

// writes are the operations that changed something, in order.
func (w *testWorld) writes() []string {
	var list []string
	for _, c := range w.server.Calls().Latest {
		if c.Write {
			list = append(list, strings.TrimPrefix(c.Operation, ""))
		}
	}
	return list
}

func counts(list []string) map[string]int {
	n := map[string]int{}
	for _, x := range list {
		n[x]++
	}
	return maps.Clone(n)
}

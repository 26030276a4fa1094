package ovirt

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
)

// testWorld is the provider in front of a simulated engine, in virtual time.
type testWorld struct {
	*testing.T
	sim     *ovirtsim.Sim
	server  *simkit.Server
	network *simkit.Network
	env     map[string]string
	config  string
	path    string
	nodes   []*v1.Node
	cloud   *cloud
	stop    chan struct{}
}

// inWorld runs a test in virtual time, with a provider that has started.
func inWorld(t *testing.T, test func(w *testWorld)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := ovirtsim.New(simkit.SeedOf(t))
		server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) })
		w := &testWorld{T: t, sim: sim, server: server, network: simkit.NewNetwork()}
		w.env = sim.Variables(w.network.Serve(t, server))
		t.Cleanup(func() {
			if w.stop != nil {
				close(w.stop)
			}
		})
		w.start()
		test(w)
	})
}

// start makes the provider, as a start of the program does, with nothing in memory.
func (w *testWorld) start() {
	w.Helper()
	if w.stop != nil {
		close(w.stop)
		synctest.Wait()
	}
	in := conformance.Inputs(nil, w.env)
	in.File, in.FilePath, in.Dial = []byte(w.config), w.path, w.network.Dial
	c, err := maker().New(in)
	require.NoError(w, err)
	w.stop = make(chan struct{})
	c.begin(cloudbase.Begun{Stop: w.stop})
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	for _, n := range w.nodes {
		require.NoError(w, factory.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	c.inform(cloudbase.Informers{Interface: factory.Core().V1(), Stop: w.stop})
	w.cloud = c
}

// newNode is a Node that waits to be initialised.
func newNode(name, providerID string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: providerID, Taints: []v1.Taint{{
		Key: cloudproviderapi.TaintExternalCloudProvider, Effect: v1.TaintEffectNoSchedule,
	}}}}
}

// nodeOf is the Node of a virtual machine, which is initialised.
func nodeOf(v *ovirtsim.VM) *v1.Node {
	n := newNode(v.Name, providerIDPrefix+v.ID)
	n.Spec.Taints = nil
	return n
}

func (w *testWorld) exists(n *v1.Node) (bool, error) {
	return w.cloud.instances.InstanceExists(w.Context(), n)
}

func (w *testWorld) metadata(n *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return w.cloud.instances.InstanceMetadata(w.Context(), n)
}

func (w *testWorld) requireMetadata(n *v1.Node) *cloudprovider.InstanceMetadata {
	w.Helper()
	m, err := w.metadata(n)
	require.NoError(w, err)
	return m
}

func (w *testWorld) shutDown(n *v1.Node) bool {
	w.Helper()
	down, err := w.cloud.instances.InstanceShutdown(w.Context(), n)
	require.NoError(w, err)
	return down
}

func (w *testWorld) requireExists(n *v1.Node) {
	w.Helper()
	exists, err := w.exists(n)
	require.NoError(w, err)
	require.True(w, exists)
}

func (w *testWorld) requireGone(n *v1.Node) {
	w.Helper()
	exists, err := w.exists(n)
	require.NoError(w, err)
	require.False(w, exists)
}

// requireDoubt holds that nothing is said of a node, and why.
func (w *testWorld) requireDoubt(n *v1.Node, words string) {
	w.Helper()
	_, err := w.exists(n)
	require.ErrorContains(w, err, words)
}

// later lets what is remembered become old.
func (w *testWorld) later() { time.Sleep(2 * time.Minute) }

func (w *testWorld) calls(operation string) int { return w.server.Calls().ByOperation[operation] }

func (w *testWorld) fail(f simkit.Fault) {
	w.Helper()
	_, err := w.server.AddFault(f)
	require.NoError(w, err)
}

func (w *testWorld) requireNothingRefused() {
	w.Helper()
	require.Empty(w, w.server.Calls().Refused)
}
